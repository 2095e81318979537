"""Instances for the page of a report: their tokens in place, masked as each variant masks them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import duckdb

from clozemill.analysis.audit import AuditReport
from clozemill.analysis.db import read_sql
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.inspection import Inspector, InstanceView, SelectedPosition
from clozemill.pipeline.inspection_text import describe_instance, describe_span
from clozemill.pipeline.visible import visible

_MOST_EXAMPLES = 6
"""Instances of a page."""

_MOST_VARIANTS = 4
"""Of an instance; `page/report.css` has a rule for each, and one for it as it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """One token of an instance."""

    text: str
    """As the input shows it."""

    is_joined: bool
    """Whether it goes on with the word before it."""

    is_special: bool
    """Whether it is `[CLS]` or `[SEP]`."""

    action: str = ""
    """`mask`, `random` or `keep` of a selected one, else empty."""

    hint: str = ""
    """What is to be predicted there, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Masking:
    """An instance under one masking."""

    name: str
    """Which."""

    summary: str
    """How many positions are selected, by action."""

    segments: tuple[tuple[str, tuple[Token, ...]], ...]
    """`A` and `B`, or one without a name, each with its tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """An instance as the page shows it."""

    title: str
    """Which one it is."""

    summary: str
    """Its length, source and label."""

    spans: tuple[str, ...]
    """Where its segments are from."""

    maskings: tuple[Masking, ...]
    """Its first variants, and as it was read."""


def choose_examples(
    dataset: Dataset, connection: duckdb.DuckDBPyConnection, audit: AuditReport
) -> list[Example]:
    """Return instances that a failed question names, and one of each split and kind of label."""
    failed = [
        (row["split"], row["instance"])
        for answer in audit.answers
        if answer.has_fault and {"split", "instance"} <= set(answer.rows.column_names)
        for row in answer.rows.slice(0, 1).to_pylist()
    ]
    kinds = connection.sql(read_sql("page/examples")).fetchall()
    chosen = list(dict.fromkeys([*failed, *kinds]))[:_MOST_EXAMPLES]
    inspector = Inspector(dataset, is_readable=True)
    return [
        _example(inspector.describe(split, [number])[0], is_failed=(split, number) in failed)
        for split, number in chosen
    ]


def _example(view: InstanceView, *, is_failed: bool) -> Example:
    title = f"Instance {view.number:,} of {view.split}"
    variants = enumerate(view.variants[:_MOST_VARIANTS])
    return Example(
        title=title + (", named by a failed question" if is_failed else ""),
        summary=f"{describe_instance(view)}; id {view.instance_id}",
        spans=tuple(describe_span(span) for span in view.spans),
        maskings=(
            *(_masking(view, f"variant {number}", variant) for number, variant in variants),
            _masking(view, "as read", ()),
        ),
    )


def _masking(view: InstanceView, name: str, variant: Iterable[SelectedPosition]) -> Masking:
    hidden = {item.position: item for item in variant}
    counts = Counter(item.action for item in hidden.values())
    each = ", ".join(f"{counts[action]} {action}" for action in ("mask", "random", "keep"))
    tokens = tuple(tokens_of(view, hidden))
    if view.next_sentence is None:
        segments: tuple[tuple[str, tuple[Token, ...]], ...] = (("", tokens),)
    else:
        segments = (("A", tokens[: view.segment_b_start]), ("B", tokens[view.segment_b_start :]))
    return Masking(
        name=name,
        summary=f"{len(hidden)} selected: {each}" if hidden else "nothing is hidden",
        segments=segments,
    )


def tokens_of(view: InstanceView, hidden: dict[int, SelectedPosition]) -> Iterator[Token]:
    """Yield the tokens; a piece joins the one before it unless either is selected or special."""
    borders = {0, view.segment_b_start - 1, len(view.tokens) - 1}
    for position, piece in enumerate(view.tokens):
        item, before = hidden.get(position), position - 1
        is_joined = (
            piece.startswith("##")
            and item is None
            and before not in hidden
            and before not in borders
        )
        facts: dict[str, Any] = {"is_joined": is_joined, "is_special": position in borders}
        if item is None:
            text = piece.removeprefix("##") if is_joined else piece
            yield Token(text=visible(text), **facts)
        else:
            yield Token(
                text=visible(item.shown), action=item.action, hint=visible(_hint(item)), **facts
            )


def _hint(item: SelectedPosition) -> str:
    if item.action == "mask":
        return f"hides {item.original}"
    if item.action == "random":
        return f"in place of {item.original}"
    return f"kept: {item.original}"
