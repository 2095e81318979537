"""Answers to queries as a person, a spreadsheet or a program reads them."""

import csv
import datetime
import decimal
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clozemill.analysis.query import Answer
from clozemill.printouts import new_table

_MOST_CHARACTERS = 60
"""Of a value that is shown in a table."""


def answer_text(found: Answer, *, num_rows: int, width: int | None) -> str:
    """Return the first rows as a table, or as lines of name and value where that is too wide.

    Args:
        found: The answer.
        num_rows: Rows that are shown; a line says if there are more.
        width: Characters of a line; None: as many as it takes.
    """
    head = found.head(num_rows + 1)
    shown = head.slice(0, num_rows)
    names = [_printable(name) for name in found.schema.names]
    rows = [[_cell(value) for value in row] for row in _rows(shown)]
    if width is None or _table_width(names, rows) <= width:
        text = _as_table(found.schema, names, rows)
    else:
        text = _as_records(names, rows, width)
    if head.num_rows > num_rows:
        text += (
            f"The first {num_rows:,} rows; --rows shows more, --csv, --json and --parquet all.\n"
        )
    elif not rows:
        text += "No rows.\n"
    return text


def answer_json(found: Answer) -> Iterator[str]:
    """Yield all rows as parts of one JSON object: the columns' types, and an object per row."""
    names = found.schema.names
    types = {field.name: str(field.type) for field in found.schema}
    yield f'{{"columns": {_json(types)},\n"rows": ['
    separator = "\n"
    for batch in found.batches():
        for row in _rows(batch):
            yield separator + _json(dict(zip(names, map(_plain, row), strict=True)))
            separator = ",\n"
    yield "]}\n"


def answer_csv(found: Answer) -> Iterator[str]:
    """Yield all rows as lines of CSV (RFC 4180), a header first; lists and structs are JSON."""
    yield _csv_lines([found.schema.names])
    for batch in found.batches():
        yield _csv_lines([[_csv_value(value) for value in row] for row in _rows(batch)])


def _rows(table: pa.Table | pa.RecordBatch) -> Iterator[Sequence[Any]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _table_width(names: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return sum(widths) + 2 * (len(widths) - 1)


def _as_table(schema: pa.Schema, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    numbers = [place for place, field in enumerate(schema) if _is_number(field.type)]
    table = new_table("", names, right=numbers)
    table.title = None
    for column in table.columns:
        column.no_wrap = True
    for row in rows:
        table.add_row(*map(Text, row))
    return _rendered(table, _table_width(names, rows) + 2)


def _rendered(table: Table, width: int) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    console.print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


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


def _cell(value: Any) -> str:
    """Return a value as text of one line that is not too long for a table."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = _printable(_csv_value(value))
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def _printable(text: str) -> str:
    """Return a text without line ends and terminal controls, which a stranger's may hold."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _csv_value(value: Any) -> str:
    if value is None:
        return ""
    value = _plain(value)
    return value if isinstance(value, str) else _json(value)


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: a number that is not finite is null, bytes are hex digits."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _csv_lines(rows: Sequence[Sequence[str]]) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows(rows)
    return stream.getvalue()
