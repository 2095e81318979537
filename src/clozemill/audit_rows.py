"""The rows of an audit's answers: which group each is of, what would pass, and which fail."""

import math
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from clozemill.analysis.audit import Answer, AuditReport, p_values, tested_group
from clozemill.analysis.group_labels import JUDGED, group_label, value_words
from clozemill.analysis.questions import unasked
from clozemill.audit_tables import interval_text
from clozemill.pipeline.figures import count, figure, p_value_text
from clozemill.printouts import Printout
from clozemill.query_tables import grid
from clozemill.values import cell, plain, printable

_SHOWN_ROWS = 20


def rows_printout(
    data: str, report: AuditReport, *, pieces: Sequence[str] = (), width: int | None = None
) -> Printout:
    """Return the first rows of each answer, with p-values where it was tested.

    Args:
        data: The dataset, as it was given.
        report: The answers.
        pieces: The vocabulary, by token id.
        width: Characters of a line; None: as many as it takes.
    """
    found = {
        "data": data,
        "is_sample": report.is_sample,
        "accepted": [a.question.name for a in report.answers if a.verdict == "accepted"],
        "needlessly_accepted": report.needlessly_accepted(),
        "rows": {answer.question.name: _rows_data(answer) for answer in report.answers},
    }
    parts = [_answer_text(answer, pieces, width) for answer in report.answers]
    needless = "".join(f"{line}\n" for line in report.needlessly_accepted().values())
    return Printout(data=found, text="\n".join([*parts, *[needless] * bool(needless)]))


def _rows_data(answer: Answer) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = plain(answer.rows.to_pylist())
    if not answer.num_groups:
        return rows
    values = p_values(answer.question.kind, answer.rows).tolist()
    return [
        {**row, "p_value": value, "has_failed": not value >= answer.threshold}
        for row, value in zip(rows, values, strict=True)
    ]


def _answer_text(answer: Answer, pieces: Sequence[str], width: int | None) -> str:
    title = f"{answer.question.name}: {answer.question.question}\n"
    if answer.verdict == "not asked":
        return f"{title}Not asked: {unasked(answer.reason)}.\n"
    shown = answer.rows.slice(0, _SHOWN_ROWS)
    rows = shown.to_pylist()
    text = _tested(answer, shown, pieces, width) if answer.num_groups else _plain(shown, width)
    counted = count(answer.num_rows, "row")
    if answer.num_rows > len(rows):
        counted = f"{len(rows)} of {counted}"
    order = ", the least probable first" if answer.num_groups > 1 else ""
    more = "; --json has up to 1,000" if answer.num_rows > len(rows) else ""
    grain = answer.question.grain
    accepted = " The failure is accepted." if answer.verdict == "accepted" else ""
    return f"{title}{text}{counted}{order}{more}. {grain[:1].upper()}{grain[1:]}.{accepted}\n"


def _tested(answer: Answer, shown: pa.Table, pieces: Sequence[str], width: int | None) -> str:
    names = ["group", "observed", "trials", "expected", "passes", "p", "verdict"]
    groups = [
        tested_group(answer.question.kind, shown.slice(place, 1), answer.threshold)
        for place in range(shown.num_rows)
    ]
    rows = [
        [
            printable(group_label(row, pieces)) or "all",
            figure(row["observed"]),
            figure(row["trials"]),
            figure(group.expected),
            interval_text(group.low, group.high),
            p_value_text(group.p_value),
            "" if group.p_value >= answer.threshold else "fails",
        ]
        for row, group in zip(shown.to_pylist(), groups, strict=True)
    ]
    return grid(names, rows, right=(1, 2, 3, 5), width=width)


def _plain(shown: pa.Table, width: int | None) -> str:
    rows = [[_cell(name, value) for name, value in _named(row)] for row in shown.to_pylist()]
    right = [place for place, field in enumerate(shown.schema) if _is_right(field)]
    return grid(list(map(printable, shown.column_names)), rows, right=right, width=width)


def _named(row: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a row, with words where a value alone says little."""
    for name, value in row.items():
        if name == "value" and "kind" in row:
            yield name, value_words(row["kind"], value)
        else:
            yield name, "(none)" if name == "source" and value == "" else value


def _is_right(field: pa.Field) -> bool:
    return _is_figure(field.name) or pa.types.is_floating(field.type)


def _cell(name: str, value: Any) -> str:
    """Return a value; what names a thing, such as an instance, can be pasted as it is."""
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return figure(float(value))
    if isinstance(value, int) and _is_figure(name):
        return figure(value)
    return cell(value)


def _is_figure(name: str) -> bool:
    return name.startswith("num_") or name.endswith(("_share", "_tokens")) or name in _FIGURES


_FIGURES = frozenset({*JUDGED, "count", "rate", "recounted", "share", "stated"})
