"""The model card of an export: Markdown with front matter, from what a checkpoint and a log say.

Names of folders and whatever else comes from outside stand in code spans, so that nothing in
them is Markdown, HTML or YAML.
"""

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from clozemill.model.config import BertConfig
from clozemill.model.convert import config_entries
from clozemill.model.flops import num_parameters
from clozemill.pipeline.figures import fixed, percent
from clozemill.pipeline.visible import visible
from clozemill.train.checkpoints import TrainingState
from clozemill.train.config import PretrainConfig
from clozemill.train.metrics import EvaluationRow, StartRow

_PATHS = ("init_from", "continue_from")
"""Settings of which the last name is told alone: where a folder lay is nobody's business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What a card is made of."""

    name: str
    """Of the run."""

    config: BertConfig
    """Shape of the encoder."""

    state: TrainingState
    """Of the checkpoint."""

    evaluation: EvaluationRow | None
    """The last one up to the checkpoint's step, if there is one."""

    lines: StartRow | None
    """Reference lines of the data."""

    @property
    def architecture(self) -> str:
        """The class of `transformers` that the export is."""
        return str(config_entries(self.config)["architectures"][0])


def model_card(facts: CardFacts) -> str:
    """Return the text of the card."""
    parts = [
        _front_matter(facts),
        f"# {_code(facts.name)}\n",
        _introduction(facts),
        _use(facts),
        _results(facts),
        _data(facts),
        _training(facts),
        "## Licence\n\nNot chosen yet: write `license: ...` into the front matter. It has to agree "
        "with the texts that the model was trained on.\n",
    ]
    return "\n".join(parts)


def _front_matter(facts: CardFacts) -> str:
    tags = "".join(f"  - {tag}\n" for tag in ("bert", "masked-language-modeling", "clozemill"))
    return f"---\nlibrary_name: transformers\npipeline_tag: fill-mask\ntags:\n{tags}---\n"


def _introduction(facts: CardFacts) -> str:
    config, state = facts.config, facts.state
    heads = (
        "masked tokens and next sentences"
        if config.next_sentence
        else "masked tokens; there was no next-sentence task, so no pooler was trained, and a "
        "classifier on top of `[CLS]` starts with a random one"
    )
    return (
        f"BERT with {config.num_hidden_layers} layers of {config.hidden_size} features, "
        f"{config.num_attention_heads} heads and a vocabulary of {config.vocab_size:,} "
        f"({num_parameters(config):,} parameters), for up to {config.max_position_embeddings} "
        f"tokens. Trained by clozemill to predict {heads}: "
        f"{state.step:,} steps, {state.num_instances:,} instances, {state.num_tokens:,} tokens "
        "without padding.\n"
    )


def _use(facts: CardFacts) -> str:
    return (
        "## Use\n\n"
        "```python\n"
        f"from transformers import AutoTokenizer, {facts.architecture}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("path/to/this/folder")\n'
        f'model = {facts.architecture}.from_pretrained("path/to/this/folder")\n'
        "```\n\n"
        "In a shell: `clozemill fill-mask path/to/this/folder`, with a text that has a mask "
        "token in it.\n"
    )


def _results(facts: CardFacts) -> str:
    row, lines = facts.evaluation, facts.lines
    if row is None:
        return "## Results\n\nNo evaluation was logged up to this step.\n"
    rows = [("", "model", "without the context")]
    if row.mlm_loss is not None:
        rows += [
            ("loss of masked tokens (nats)", fixed(row.mlm_loss), _line(lines, _CONTEXT_FREE)),
            ("the same where `[MASK]` is shown", fixed(row.mask_only_loss), _line(lines, _MASK)),
            ("right at masked tokens", percent(row.mlm_accuracy), _share(lines, _ACCURACY)),
        ]
    if row.nsp_loss is not None:
        rows += [
            ("loss of next sentences (nats)", fixed(row.nsp_loss), _line(lines, _LENGTHS)),
            ("right at next sentences", percent(row.nsp_accuracy), _share(lines, _LENGTH_SHARE)),
        ]
    return (
        f"## Results\n\nAt step {row.step:,}, on {row.instances:,} instances of "
        f"{_code(row.split)} with their stored masks:\n\n"
        + _table(rows)
        + "\nThe last column is what can be reached without reading the context: the best guess "
        "from token frequencies and the token that is shown, and for next sentences from the "
        "lengths of the two segments.\n"
    )


_CONTEXT_FREE, _MASK, _ACCURACY = "context_free_loss", "mask_token_loss", "context_free_accuracy"
_LENGTHS, _LENGTH_SHARE = "nsp_length_loss", "nsp_length_accuracy"


def _line(lines: StartRow | None, name: str) -> str:
    return fixed(getattr(lines, name, None))


def _share(lines: StartRow | None, name: str) -> str:
    return percent(getattr(lines, name, None))


def _data(facts: CardFacts) -> str:
    dataset = facts.state.facts.dataset
    rows = [("", "")]
    for split, digest in sorted(dataset.dataset_digests.items()):
        rows.append((f"dataset digest of {_code(split)}, with masks", _code(digest)))
    for split, digest in sorted(dataset.instances_digests.items()):
        rows.append((f"digest of the instances of {_code(split)}", _code(digest)))
    rows += [
        ("tokenizer hash", _code(dataset.tokenizer_hash)),
        ("longest instance", f"{dataset.max_seq_length} tokens"),
    ]
    return (
        "## Data\n\nA clozemill dataset; `clozemill verify` tells whether one has these "
        "digests.\n\n" + _table(rows)
    )


def _training(facts: CardFacts) -> str:
    run = facts.state.facts
    settings = [("setting", "value"), ("recipe", _value(run.settings.get("recipe")))]
    for item in dataclasses.fields(PretrainConfig):
        if item.metadata["kind"] in ("training", "numerics") and item.name in run.settings:
            value = run.settings[item.name]
            if item.name in _PATHS and isinstance(value, str):
                value = PurePath(value).name
            settings.append((f"`{item.name}`", _value(value)))
    execution = [
        (f"`{name}`", _value(value)) for name, value in dataclasses.asdict(run.execution).items()
    ]
    return (
        "## Training\n\nSettings of `clozemill pretrain`:\n\n"
        + _table(settings)
        + "\nComputed by:\n\n"
        + _table([("", ""), *execution])
    )


def _value(value: Any) -> str:
    """Return a setting's value; none is a dash."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _code(f"{value}")


def _table(rows: Sequence[tuple[str, ...]]) -> str:
    head, *body = rows
    ruler = "|" + " --- |" * len(head)
    lines = ["| " + " | ".join(cells) + " |" for cells in body]
    return "\n".join(["| " + " | ".join(head) + " |", ruler, *lines]) + "\n"


def _code(text: str) -> str:
    r"""Return a text as a code span that fits into a table: whatever it holds is shown as it is.

    >>> print(_code("<b>|`x`"))
    `` <b>\|`x` ``
    """
    shown = visible(text)[:200].replace("|", r"\|")
    longest = max(map(len, re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    # A span is not empty, and a backtick of its own must not touch the fence.
    pad = " " if "`" in (shown[:1], shown[-1:]) or not shown.strip() else ""
    return f"{fence}{pad}{shown}{pad}{fence}"
