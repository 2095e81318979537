"""Results of queries as a person, a spreadsheet or a program reads them."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from rich.text import Text

from clozemill.analysis.query import QueryResult
from clozemill.printouts import new_table, render
from clozemill.values import cell, json_text, plain, printable, value_text


def result_text(found: QueryResult, *, num_rows: int, width: int | None) -> str:
    """Return the first rows as a table, or as lines of name and value where that is too wide.

    Args:
        found: The result.
        num_rows: Rows that are shown; a line says if there are more.
        width: Characters of a line; None: as many as it takes.
    """
    head = found.head(num_rows + 1)
    shown = head.slice(0, num_rows)
    names = [printable(name) for name in found.schema.names]
    rows = [[cell(value) for value in row] for row in _rows(shown)]
    right = [place for place, field in enumerate(found.schema) if _is_number(field.type)]
    text = grid(names, rows, right=right, width=width)
    if head.num_rows > num_rows:
        text += (
            f"The first {num_rows:,} rows; --rows shows more, --csv, --json and --parquet all.\n"
        )
    elif not rows:
        text += "No rows.\n"
    return text


def grid(
    names: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int], width: int | None
) -> str:
    """Return rows of texts as a table, or as lines of name and value where that is too wide.

    Args:
        names: Of the columns.
        rows: Their values, each a line.
        right: Places of the columns that hold numbers.
        width: Characters of a line; None: as many as it takes.
    """
    if width is None or _table_width(names, rows) <= width:
        return _as_table(names, rows, right)
    return _as_records(names, rows, width)


def result_json(found: QueryResult) -> Iterator[str]:
    """Yield all rows as parts of one JSON object: the columns' types, and an object per row."""
    names = found.schema.names
    types = {field.name: str(field.type) for field in found.schema}
    yield f'{{"columns": {json_text(types)},\n"rows": ['
    separator = "\n"
    for batch in found.batches():
        for row in _rows(batch):
            yield separator + json_text(dict(zip(names, map(plain, row), strict=True)))
            separator = ",\n"
    yield "]}\n"


def result_csv(found: QueryResult) -> Iterator[str]:
    """Yield all rows as lines of CSV (RFC 4180), a header first; lists and structs are JSON."""
    yield _csv_lines([found.schema.names])
    for batch in found.batches():
        yield _csv_lines([[value_text(value) for value in row] for row in _rows(batch)])


def _rows(table: pa.Table | pa.RecordBatch) -> Iterator[Sequence[Any]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _table_width(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def _as_table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    table = new_table("", names, right=right)
    table.title = None
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*map(Text, row))
    # Without the line below it; a last row of nulls is an empty one, and stays.
    return render(table, width=_table_width(names, rows) + 2).removesuffix("\n")


def _as_records(names: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> str:
    indent = max(map(len, names)) + 2
    lines = []
    for number, row in enumerate(rows, start=1):
        lines.append(f"row {number}")
        for name, value in zip(names, row, strict=True):
            lines.append(f"{name:<{indent}}{value}"[:width].rstrip())
        lines.append("")
    return "\n".join(lines) + "\n"


def _is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _csv_lines(rows: Sequence[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()
