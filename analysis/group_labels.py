"""Which group a row of an audit's answer is of, in words: `train, tokens seen 8 to 15 times`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

JUDGED = frozenset({"observed", "trials", "expected", "variance", "probability"})
"""Columns of a tested row that its p-value comes from; all others say which group it is of."""


def group_label(row: Mapping[str, Any], pieces: Sequence[str] = ()) -> str:
    """Return a tested row's group in words, empty where there is only one.

    Args:
        row: Columns by name, as the question's SQL gives them.
        pieces: The vocabulary, by token id; without it token ids stand alone.

    >>> group_label({"split": "train", "k": 3, "observed": 7, "trials": 9})
    'train, tokens seen 8 to 15 times'
    >>> group_label({"split": "train", "token_id": 2}, ["[PAD]", "the", "of"])
    "train, token 2 'of'"
    """
    columns = {name: value for name, value in row.items() if name not in JUDGED}
    return ", ".join(_words(name, value, pieces) for name, value in columns.items())


def value_words(kind: str, value: str) -> str:
    """Return the value of a row that is of a group of one kind, as figures of masks are.

    >>> value_words("band", "3"), value_words("source", ""), value_words("variant", "0")
    ('tokens seen 8 to 15 times', '(none)', '0')
    """
    if kind == "source":
        return value or "(none)"
    say = {"band": "k", "twentieth": "twentieth"}.get(kind)
    return _SAID[say](int(value)) if say else value


def _words(name: str, value: Any, pieces: Sequence[str]) -> str:
    if name == "token_id":
        return f"token {value} '{pieces[value]}'" if pieces else f"token {value}"
    say = _SAID.get(name)
    return say(value) if say else f"{name} {value}"


def _occurrences(k: int) -> str:
    return "tokens seen once" if k == 0 else f"tokens seen {2**k:,} to {2 ** (k + 1) - 1:,} times"


_ALL_SOURCES = "all sources"
"""What label_coin calls them together."""

_SAID: dict[str, Callable[[Any], str]] = {
    "split": str,
    "source": lambda name: name if name == _ALL_SOURCES else f"source {name or '(none)'}",
    "k": _occurrences,
    "twentieth": lambda number: f"{5 * number} to {5 * number + 5} % of the length",
    # A fiftieth, from 1, of the tokens that may be drawn, sorted by id.
    "band": lambda number: f"token ids at {2 * number - 2} to {2 * number} %",
    "word_length": lambda number: f"words of {number} piece" + "s" * (number != 1),
    "num_maskable": lambda number: f"{number:,} maskable",
    "num_selected": lambda number: f"{number:,} selected",
    "num_random": lambda number: f"{number:,} random tokens",
}
