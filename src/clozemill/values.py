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
    """Return a text without line ends and terminal controls, which a stranger's may hold."""
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


def megabytes(num_bytes: float) -> str:
    """Return a size.

    >>> megabytes(1_234_500_000), megabytes(79_786_400_000)
    ('1,234.5 MB', '79.8 GB')
    """
    return f"{num_bytes / 1e6:,.1f} MB" if num_bytes < 1e10 else f"{num_bytes / 1e9:,.1f} GB"


def figure(number: float) -> str:
    """Return a count or a rate with the digits that tell it from its neighbours.

    >>> figure(30053), figure(563.118), figure(0.163612), figure(5.1e-06)
    ('30,053', '563.12', '0.1636', '5e-06')
    """
    if number == math.floor(number) or abs(number) >= 1_000:
        return f"{number:,.0f}"
    if abs(number) >= 1:
        return f"{number:,.2f}"
    return f"{number:.4g}" if abs(number) >= 1e-3 else f"{number:.0e}"


def p_value_text(p_value: float) -> str:
    """Return a p-value; the smallest floats are 0, which no p-value is.

    >>> p_value_text(0.0412), p_value_text(6.04e-48), p_value_text(0.0)
    ('0.041', '6.0e-48', '< 1e-300')
    """
    if p_value < 1e-300:
        return "< 1e-300"
    return f"{p_value:.3f}" if p_value >= 1e-3 else f"{p_value:.1e}"


def frequency(rate: float) -> str:
    """Return how often something happens.

    >>> frequency(0.05), frequency(1e-6)
    ('5 % of the time', '1 time in 1,000,000')
    """
    if rate >= 0.01:
        return f"{100 * rate:.3g} % of the time"
    return f"1 time in {round(1 / rate):,}"
