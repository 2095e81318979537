"""The questions of an audit: SQL files in `analysis/sql/audits`, each with what its answer means.

A file begins with comments of the form `-- key: text`:

`question`: what is asked, as one sentence.
`grain`: what a row of the answer is.
`passes`: when the answer is good, in words.
`failure`: what is wrong with a dataset that fails, most often; not of figures.
`kind`: how the answer is judged, and so which columns it has; see `Kind`.
`needs`: what a dataset must have for the question to make sense, if anything: conditions of
    `CONDITIONS`, separated by commas, `a` or `not a`; and `whole`, if a sample cannot answer it.

Comments that follow say what is known of the answer, and why: its law.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib import resources
from typing import Any

from clozemill.pipeline.manifest import Manifest


class Kind(Enum):
    """How an answer is judged. All columns but those named here say which group a row is of."""

    OFFENCES = "offences"
    """Each row breaks a rule. Passes if there is none."""

    SUMS = "sums"
    """`observed`, `trials`, `expected`, `variance`: a sum of independent counts, each the number
    of successes among its share of `trials` (Bernoulli, hypergeometric, ...), against the mean of
    that sum and its variance, or more than that."""

    EXCESS = "excess"
    """The same columns; `expected` bounds the mean from above, and only a larger count fails."""

    SHARES = "shares"
    """`observed`, `trials`, `probability`: successes of independent trials, all of one
    probability."""

    FIGURES = "figures"
    """Any columns: figures without a verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One file."""

    name: str
    """The file's name without `.sql`."""

    question: str
    """What is asked."""

    grain: str
    """What a row of the answer is."""

    passes: str
    """When the answer is good, in words."""

    failure: str
    """What is wrong with a dataset that fails, most often; empty for figures."""

    kind: Kind
    """How the answer is judged."""

    needs: tuple[str, ...]
    """Conditions that the dataset must meet."""

    law: str
    """What is known of the answer and why, as one paragraph; empty where nothing needs saying."""

    sql: str
    """The whole file."""


CONDITIONS: dict[str, Callable[[Manifest], bool]] = {
    "pairs": lambda manifest: manifest.has_pairs,
    "coin": lambda manifest: manifest.configuration.get("nsp_balance") == "original",
    "hashed_split": lambda manifest: _is_hashed_split(manifest.configuration),
    "words": lambda manifest: manifest.configuration["mask_unit"] == "word",
    "variants": lambda manifest: all(split.num_variants for split in manifest.splits.values()),
    "validation": lambda manifest: "validation" in manifest.splits,
    "random_rounding": lambda manifest: manifest.configuration["mask_count"] == "stochastic",
    "ordinary_random_tokens": (
        lambda manifest: manifest.configuration["random_tokens"] == "ordinary"
    ),
}
"""What a question may need of a dataset."""

UNMET: dict[str, str] = {
    "pairs": "the dataset has no sentence pairs",
    "not pairs": "the dataset has sentence pairs",
    "coin": "labels are steered to one half",
    "hashed_split": "validation is not drawn by document ids",
    "words": "single tokens are masked, not words",
    "not words": "whole words are masked",
    "variants": "a split has no stored variants",
    "validation": "there is no validation split",
    "random_rounding": "counts are not rounded at random",
    "ordinary_random_tokens": "any token may be drawn at random",
    "whole": "a sample cannot tell",
}
"""Why a question is not asked, by the need that is not met."""


WHOLE = "whole"
"""The need of a question that a sample cannot answer."""

_FOLDER = resources.files("clozemill.analysis").joinpath("sql", "audits")
_LINE = re.compile(r"-- (question|grain|passes|failure|kind|needs): (.*)")
_MORE = re.compile(r"--   (.*)")
_TEXT = re.compile(r"-- ?(.*)")


@lru_cache
def all_questions() -> tuple[Question, ...]:
    """Return every question, sorted by name."""
    files = sorted(_FOLDER.iterdir(), key=lambda file: file.name)
    return tuple(
        parse_question(file.name.removesuffix(".sql"), file.read_text("utf-8"))
        for file in files
        if file.name.endswith(".sql")
    )


def parse_question(name: str, sql: str) -> Question:
    """Return the question in a file.

    Raises:
        KeyError: A line of its header is missing.
        ValueError: Its kind is none.
    """
    header: dict[str, str] = {}
    law: list[str] = []
    key = ""
    for line in sql.splitlines():
        if match := _LINE.fullmatch(line):
            key, header[match[1]] = match[1], match[2]
        elif key and (match := _MORE.fullmatch(line)):
            header[key] += " " + match[1]
        elif match := _TEXT.fullmatch(line):
            key = ""
            law.append(match[1])
        else:
            break
    needs = header.get("needs", "")
    return Question(
        name=name,
        question=header["question"],
        grain=header["grain"],
        passes=header["passes"],
        failure=header.get("failure", ""),
        kind=Kind(header["kind"]),
        needs=tuple(filter(None, needs.split(", "))),
        law=" ".join(law),
        sql=sql,
    )


def unmet_need(question: Question, manifest: Manifest, *, is_sample: bool = False) -> str | None:
    """Return a condition of the question that is not met, or None.

    Args:
        question: Which.
        manifest: The dataset's.
        is_sample: Whether only a part of its instances is at hand.
    """
    for need in question.needs:
        name = need.removeprefix("not ")
        is_met = not is_sample if name == WHOLE else CONDITIONS[name](manifest)
        if is_met == (name != need):
            return need
    return None


def unasked(reason: str) -> str:
    """Return in words why a question was not asked, of a reason such as `needs pairs`."""
    return UNMET.get(reason.removeprefix("needs "), reason)


def _is_hashed_split(configuration: dict[str, Any]) -> bool:
    """Return whether each document was held out or not by a hash of its own id."""
    return (
        not configuration["has_validation_inputs"]
        and configuration["duplicates"] == "drop"
        and 0.0 < configuration["validation_fraction"] < 1.0
    )
