"""A value: as JSON has it, and as a person reads it in one line."""

import datetime
import decimal
import json
import math
from typing import Any

_MOST_CHARACTERS = 60
"""Of a value that is shown in a table."""


def cell(value: Any) -> str:
    r"""Return a value as text of one line that is not too long for a table.

    >>> cell(1 / 3), cell(None), cell([1, None]), cell("two\nlines")
    ('0.333333', '', '[1, null]', 'two\\nlines')
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = printable(value_text(value))
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def printable(text: str) -> str:
    r"""Return a text without line ends and terminal controls, which a stranger's may hold.

    What `visible` makes a blank or leaves stays apart here, as values are compared by eye.

    >>> printable("two\nlines\u200b")
    'two\\nlines\\u200b'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def value_text(value: Any) -> str:
    """Return a value as a field of CSV: nothing for null; lists and structs are JSON."""
    if value is None:
        return ""
    value = plain(value)
    return value if isinstance(value, str) else json_text(value)


def plain(value: Any) -> Any:
    r"""Return a value as JSON has it: a number that is not finite is null, bytes are hex digits.

    >>> plain({"share": float("nan"), "ids": (1, b"\xff")})
    {'share': None, 'ids': [1, 'ff']}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def json_text(value: Any) -> str:
    """Return a plain value as JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
