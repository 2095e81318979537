"""A vocabulary from inputs: reading them and writing the tokenizer folder."""

import os
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset_names import TOKENIZER_FILES
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.figures import percent
from clozemill.pipeline.inputs import Listing, check_unchanged, list_config_inputs
from clozemill.pipeline.out_folder import check_out
from clozemill.pipeline.progress import OnProgress, Progress
from clozemill.pipeline.read import ReadOptions, ReadTally, read_documents
from clozemill.pipeline.tokenizer import PretrainingTokenizer
from clozemill.pipeline.tokenizer_saving import save_tokenizer
from clozemill.pipeline.vocab import VocabularyReport, train_vocabulary
from clozemill.pipeline.vocab_settings import VocabularySettings

_MODEL_MAX_LENGTH = 512
"""BERT's; the tokenizer of a build states that build's own length."""

_MOST_LOST_MARKS_SHARE = 0.01
"""Of the letters: more without their marks are said."""

_MOST_UNKNOWN_SHARE = 0.05
"""Of the tokens of the text it is made from: more `[UNK]` are said. A build says so from one in a
hundred on, of whatever text; here a smaller vocabulary may have been asked for.
"""


def build_vocabulary(
    config: BuildConfig,
    settings: VocabularySettings,
    out: Path,
    *,
    overwrite: bool = False,
    on_progress: OnProgress,
) -> tuple[PretrainingTokenizer, VocabularyReport]:
    """Train a vocabulary on the inputs and write its folder, unless another one is there.

    Args:
        config: Which documents to read; nothing else of it is used.
        settings: How to train.
        out: The folder; one that holds this very vocabulary is left as it is.
        overwrite: Replace another vocabulary in the folder.
        on_progress: Called after each part of the inputs.

    Raises:
        ConfigError: The folder holds something else.
        InputError: An input cannot be read.
        TokenizerError: There is no word.
    """
    _check_folder(out)
    check_out(out)
    _check_writable(out)
    with tempfile.TemporaryDirectory() as spool_dir:
        listing = list_config_inputs(config, Path(spool_dir)).training
        tally = ReadTally()
        texts = islice(_texts(listing, config, tally, on_progress), config.limit_documents)
        tokenizer, report = train_vocabulary(texts, settings)
        check_unchanged(listing.files)
    _write(tokenizer, out, overwrite=overwrite)
    return tokenizer, report


def vocabulary_notices(settings: VocabularySettings, report: VocabularyReport) -> Iterator[str]:
    """Yield a line for everything about a vocabulary that its user may not expect."""
    if report.lost_marks_share > _MOST_LOST_MARKS_SHARE:
        yield (
            f"{percent(report.lost_marks_share)} of the letters lose a mark with which they are "
            "other letters, such as a vowel sign, and not only accents; use --no-strip-accents "
            "or --cased."
        )
    if report.vocab_size < settings.vocab_size:
        yield (
            f"asked for {settings.vocab_size:,} tokens; the text gives {report.vocab_size:,}, and "
            "more text would give more."
        )
    if report.unk_share > _MOST_UNKNOWN_SHARE:
        reason = (
            "--vocab-size has no room for all of its characters; raise it."
            if report.left_out
            else "words of more than 100 characters are; put blanks between its words."
        )
        yield f"{percent(report.unk_share)} of the tokens of the text are [UNK]: {reason}"


def _texts(
    listing: Listing,
    config: BuildConfig,
    tally: ReadTally,
    on_progress: OnProgress,
) -> Iterator[str]:
    options = ReadOptions.from_config(config)
    total = sum(split.num_bytes for split in listing.splits)
    done = 0
    on_progress(Progress(stage="reading", unit="bytes", done=done, total=total))
    for split in listing.splits:
        for document in read_documents(split, options, tally):
            yield document.text
        done += split.num_bytes
        on_progress(Progress(stage="reading", unit="bytes", done=done, total=total))
    tally.raise_if_no_field(config)


def _check_folder(out: Path) -> None:
    """Raise `ConfigError` if the folder holds what is no vocabulary; training may take long."""
    foreign = [out.name] if out.exists() and not out.is_dir() else []
    if out.is_dir():
        foreign = sorted(path.name for path in out.iterdir() if path.name not in TOKENIZER_FILES)
    if foreign:
        raise ConfigError(
            f"{out} holds {foreign[0]!r} and is no vocabulary of ours; choose an empty or new "
            "folder for --out."
        )


def _check_writable(out: Path) -> None:
    """Raise `ConfigError` if the folder cannot be made or changed; it is written at the end."""
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not os.access(existing, os.W_OK):
        raise ConfigError(f"cannot write {out}: {existing} is read-only; choose another --out.")


def _write(tokenizer: PretrainingTokenizer, out: Path, *, overwrite: bool) -> None:
    """Write the folder complete or not at all; the same tokenizer twice is no error."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as aside:
            fresh = Path(aside) / "tokenizer"
            save_tokenizer(tokenizer, fresh, model_max_length=_MODEL_MAX_LENGTH)
            if not out.exists() or not any(out.iterdir()):
                fresh.replace(out)
            elif different := _differing_name(fresh, out):
                if not overwrite:
                    raise ConfigError(
                        f"{out} is not empty and its {different} is not this vocabulary's; use "
                        "--overwrite to replace it, or another --out."
                    )
                out.replace(Path(aside) / "before")
                fresh.replace(out)
    except OSError as error:
        raise ConfigError(
            f"cannot write {out}: {error.strerror or error}; choose another --out."
        ) from error


def _differing_name(fresh: Path, out: Path) -> str | None:
    for path in fresh.iterdir():
        old = out / path.name
        if not old.is_file() or old.read_bytes() != path.read_bytes():
            return path.name
    return None
