"""Whether an export reads back as the model and tokenizer that it was made from.

Loaders are forgiving: `transformers` fills what a file lacks with random numbers and says so in a
report that nobody reads. So an export is loaded before it counts, and its logits are compared.

Legend: B rows, T tokens, V vocabulary.
"""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from clozemill.model.bert import BertForPreTraining
from clozemill.model.convert import config_entries, load_pretrained, stored_tensors
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer

TOLERANCE = 1e-5
"""Of the largest logit: other kernels round otherwise (1e-6 was seen), while the other GELU, say,
changes logits by 1e-4."""

_PROBE_TEXT = "The CAF\u00c9 in Oslo, 1984: don't e\u0301clair (state-of-the-art)!"
_PROBE_PIECES = 500


class Probe(NamedTuple):
    """A batch to compare logits on; all are int64 (B, T)."""

    input_ids: Tensor
    """Ids from the whole vocabulary."""

    token_type_ids: Tensor
    """Both segments."""

    attention_mask: Tensor
    """The second row is padded."""


def make_probe(model: BertForPreTraining) -> Probe:
    """Return two rows that touch all positions and both segments, the second half of it padded."""
    config = model.config
    length = config.max_position_embeddings
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, config.vocab_size, (2, length), generator=generator)
    types = torch.zeros_like(ids)
    types[:, length // 2 :] = min(1, config.type_vocab_size - 1)
    mask = torch.ones_like(ids)
    mask[1, (length + 1) // 2 :] = 0
    return Probe(ids, types, mask)


def check_reloads(folder: Path, model: BertForPreTraining, tokenizer: PretrainingTokenizer) -> None:
    """Make sure that our own loaders read an export as what it was made from, to the last bit.

    Raises:
        RunError: A weight is not finite, or something came back changed.
        ModelError: The weights cannot be loaded.
    """
    expected = stored_tensors(model)
    for name, tensor in expected.items():
        if not tensor.isfinite().all():
            raise RunError(f"{name} is not finite in this checkpoint; export an earlier one.")
    loaded = load_pretrained(folder).eval()
    found = stored_tensors(loaded)
    same = [n for n in expected if n in found and torch.equal(expected[n], found[n])]
    if not len(same) == len(expected) == len(found) or loaded.config != model.config:
        raise _changed("its weights or sizes")
    for ours, theirs in zip(_logits(model), _logits(loaded), strict=True):
        if not torch.equal(ours, theirs):
            raise _changed("its logits")
    if load_tokenizer(folder).hash != tokenizer.hash:
        raise _changed("its tokenizer")


def check_like_transformers(
    folder: Path, model: BertForPreTraining, tokenizer: PretrainingTokenizer
) -> str | None:
    """Make sure that `transformers` reads an export as we do, and return its version.

    Returns:
        None where it is not installed.

    Raises:
        RunError: It misses or does not expect a tensor, or its logits or token ids differ.
    """
    transformers = _transformers()
    if transformers is None:
        return None
    with _quiet(transformers):
        theirs = _loaded_by(transformers, folder, model)
        their_tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        their_ids = _their_ids(their_tokenizer, tokenizer)
    for ours, other in zip(_logits(model), _their_logits(theirs, model), strict=True):
        worst = float((ours - other).abs().max() / ours.abs().max().clamp_min(1e-30))
        if not worst <= TOLERANCE:
            raise _changed(f"logits of transformers ({worst:.1e} of their scale)")
    if their_ids != _own_ids(tokenizer):
        raise _changed("token ids of transformers")
    return str(transformers.__version__)


def _loaded_by(transformers: Any, folder: Path, model: BertForPreTraining) -> Any:
    """Return the model that `transformers` makes of an export, which must report nothing."""
    architecture = config_entries(model.config)["architectures"][0]
    theirs, report = getattr(transformers, architecture).from_pretrained(
        folder, output_loading_info=True, local_files_only=True
    )
    for trouble, names in report.items():
        if names:
            raise RunError(
                f"transformers {transformers.__version__} has {trouble.replace('_', ' ')} in the "
                f"export: {str(sorted(names, key=str)[0]):.200}; nothing was written."
            )
    return theirs.eval()


def _transformers() -> Any:
    """Return the package, or None where it is not installed or does not fit this torch."""
    try:
        return importlib.import_module("transformers")
    except ImportError:
        return None


def _changed(what: str) -> RunError:
    return RunError(
        f"the export reads back with other values than were written: {what}; nothing was written. "
        "Please report it."
    )


def _logits(model: BertForPreTraining) -> list[Tensor]:
    probe = make_probe(model)
    with torch.inference_mode():
        found = model(probe.input_ids, probe.token_type_ids, probe.attention_mask)
    return [logits for logits in found if logits is not None]


def _their_logits(theirs: Any, model: BertForPreTraining) -> list[Tensor]:
    """Return the logits of the same model in `transformers`, in our order."""
    with torch.inference_mode():
        found = theirs(**make_probe(model)._asdict())
    if not model.config.next_sentence:
        return [found.logits]
    return [found.prediction_logits, found.seq_relationship_logits]


def _probe_text(tokenizer: PretrainingTokenizer) -> str:
    pieces = [tokenizer.pieces[i] for i in tokenizer.ordinary_ids[-_PROBE_PIECES:].tolist()]
    return " ".join([_PROBE_TEXT, *pieces])


def _own_ids(tokenizer: PretrainingTokenizer) -> list[int]:
    """Return our ids of a text of accents, punctuation and pieces."""
    text = _probe_text(tokenizer)
    return list(tokenizer.backend.encode(text, add_special_tokens=False).ids)


def _their_ids(theirs: Any, tokenizer: PretrainingTokenizer) -> list[int]:
    """Return the ids that a tokenizer of `transformers` gives to the same text."""
    return list(theirs(_probe_text(tokenizer), add_special_tokens=False)["input_ids"])


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep the reports of `transformers` off standard error: they are read here."""
    logging = transformers.utils.logging
    level, had_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if had_bar:
            logging.enable_progress_bar()
