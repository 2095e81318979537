"""The figure that a person wants first of a question without a verdict, as one line."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from clozemill.analysis.group_labels import group_label
from clozemill.pipeline.figures import percent

Rows: TypeAlias = Sequence[Mapping[str, Any]]


def headline(question: str, rows: Rows) -> str:
    """Return the headline of an answer, empty where none is obvious.

    Args:
        question: Its name.
        rows: All rows of the answer, as the question's SQL gives them.

    >>> row = {"num_tokens": 400, "num_unknown": 3}
    >>> headline("unknown_tokens", [{"split": "train", "source": name, **row} for name in "ab"])
    'train 0.75% of the tokens are [UNK]'
    """
    say = _HEADLINES.get(question)
    return say(rows) if say and rows else ""


def _by_split(rows: Rows, say: Callable[[Rows], str]) -> str:
    splits = dict.fromkeys(row["split"] for row in rows)
    return ", ".join(
        f"{split} {say([row for row in rows if row['split'] == split])}" for split in splits
    )


def _percent(share: float) -> str:
    return percent(share, digits=2)


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> float:
    return float(sum(row[name] for row in rows))


def _equal_rows(rows: Rows) -> str:
    counts = _by_split(
        rows, lambda own: f"{own[0]['num_repeats']:,} of {own[0]['num_instances']:,}"
    )
    return f"{counts} rows repeat another's tokens"


def _label_share(rows: Rows) -> str:
    # A mean over sources would need their expected numbers, which the answer lacks.
    row = max(rows, key=lambda row: abs(row["z"] or 0.0))
    group = group_label({"split": row["split"], "source": row["source"]})
    if row["expected_share"] is None:
        return f"{group}: {_percent(row['random_share'])} random"
    random, expected = _percent(row["random_share"]), _percent(row["expected_share"])
    furthest = "furthest off: " if len(rows) > 1 else ""
    return f"{furthest}{group}, {random} random, {expected} expected"


def _mask_rates(rows: Rows) -> str:
    overall = [row for row in rows if row["kind"] == "all"]
    return _by_split(overall, lambda own: _percent(own[0]["rate"])) + " of the maskable tokens"


def _nsp_shortcuts(rows: Rows) -> str:
    # Whether the chunk had one sentence is nothing that a model could see.
    seen = [row for row in rows if row["probe"] != "forced"]
    if not seen:
        return ""
    best = max(seen, key=lambda row: float(row["accuracy"]))
    prior = best["accuracy"] - best["accuracy_gain"]
    return (
        f"best probe, {best['probe']}: {_percent(best['accuracy'])} right, prior {_percent(prior)}"
    )


def _padding(rows: Rows) -> str:
    shares = _by_split(rows, lambda own: _percent(own[0]["padding_to_max_seq_length"]))
    return f"{shares} of full rows is padding"


def _truncation(rows: Rows) -> str:
    lost = ("cut", "truncated", "dropped")
    shares = _by_split(
        rows,
        lambda own: _percent(_sum((row for row in own if row["fate"] in lost), "share_of_own")),
    )
    return f"{shares} of the documents' tokens cut"


def _unknown_tokens(rows: Rows) -> str:
    shares = _by_split(
        rows, lambda own: _percent(_sum(own, "num_unknown") / (_sum(own, "num_tokens") or 1.0))
    )
    return f"{shares} of the tokens are [UNK]"


_HEADLINES: dict[str, Callable[[Rows], str]] = {
    "equal_rows": _equal_rows,
    "label_share": _label_share,
    "mask_rates": _mask_rates,
    "nsp_shortcuts": _nsp_shortcuts,
    "padding": _padding,
    "truncation": _truncation,
    "unknown_tokens": _unknown_tokens,
}
"""How the answer of a question is said, by its name."""
