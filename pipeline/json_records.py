"""Records as JSON objects and back, with every key and type checked.

Every `error` makes the exception from what is wrong: a class, or a function that adds a remedy.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

from clozemill.pipeline.errors import ClozemillError
from clozemill.pipeline.files import open_regular

Error = Callable[[str], ClozemillError]

_Record = TypeVar("_Record")

_MOST_BYTES = 1 << 24
"""No file of ours is larger."""

_NAMES: dict[Any, str] = {
    bool: "true or false",
    float: "a number",
    int: "a whole number of 64 bits",
    str: "a text",
    dict: "an object",
    tuple: "a list",
    type(None): "null",
}
"""The types of fields, as an error names them."""


def to_json(record: Any) -> dict[str, Any]:
    """Return a record as what JSON can hold; `from_json` gives an equal record back."""
    plain: dict[str, Any] = json.loads(canonical_json(dataclasses.asdict(record)))
    return plain


def canonical_json(value: Any) -> str:
    """Return the one text of a value: keys in their order, no blanks, never NaN or infinity.

    >>> canonical_json({"step": 3, "mlm_loss": 0.1})
    '{"step":3,"mlm_loss":0.1}'
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def read_object(path: Path, *, format_version: int, error: Error) -> dict[str, Any]:
    """Return the JSON object in a file of this version of its format.

    Raises:
        ClozemillError: The file cannot be read, is not ours, or of another version.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as fault:
        raise error(f"cannot read {path}: {fault.strerror or fault}.") from fault
    if len(data) > _MOST_BYTES:
        raise error(f"{path} has more than {_MOST_BYTES:,} bytes, so it is not ours.")
    table = parse_object(data, str(path), error=error)
    version = table.get("format_version")
    if version != format_version:
        raise error(
            f"{path} has format version {version!r:.60}, but this clozemill reads "
            f"{format_version}; install the clozemill that wrote it."
        )
    return table


def parse_object(text: str | bytes, where: str, *, error: Error) -> dict[str, Any]:
    """Return the JSON object in a text; `where` is for errors.

    Raises:
        ClozemillError: It is not JSON, which has no NaN, or not an object.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as fault:
        raise error(f"{where} is not JSON ({fault}).") from fault
    if not isinstance(value, dict):
        raise error(f"{where} holds {value!r:.60}; it must be an object.")
    return value


def from_json(kind: type[_Record], table: Any, where: str, *, error: Error) -> _Record:
    """Return the record that a JSON object stands for.

    Raises:
        ClozemillError: A key is missing or unknown, or a value is of another type than the field.
    """
    if not isinstance(table, dict):
        raise error(f"{where} is {table!r:.60}; it must be an object.")
    hints = _hints(typing.cast(Any, kind))
    for name in table:
        if name not in hints:
            raise error(f"{where} has the unknown key {name!r:.60}.")
    for name in hints:
        if name not in table:
            raise error(f"{where} has no key {name!r}.")
    values = {
        name: _value(hint, table[name], f"{where}: {name}", error) for name, hint in hints.items()
    }
    try:
        return kind(**values)
    except ClozemillError as fault:  # a check of the record's own
        raise error(f"{where}: {fault}") from fault


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """Return the type of each field, in order."""
    hints = typing.get_type_hints(kind)
    return {item.name: hints[item.name] for item in dataclasses.fields(kind)}


def _value(hint: Any, value: Any, where: str, error: Error) -> Any:
    """Return a value of the type that a field has; members of lists and tables are checked too."""
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type[Any], hint), value, where, error=error)
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, Union):
        fitting = [member for member in members if _is_a(member, value)]
        return _value(fitting[0] if fitting else members[0], value, where, error)
    if origin is dict and isinstance(value, dict):
        return {
            key: _value(members[1], entry, f"{where}.{_quoted(key)}", error)
            for key, entry in value.items()
        }
    if origin is tuple and isinstance(value, list):
        kinds = members[:1] * len(value) if members[-1] is Ellipsis else members
        if len(kinds) != len(value):
            raise error(f"{where} is {value!r:.60}; it must be a list of {len(kinds)}.")
        return tuple(
            _value(kinds[i], entry, f"{where}[{i}]", error) for i, entry in enumerate(value)
        )
    if hint is Any or (origin in (None, Literal) and _is_a(hint, value)):
        return float(value) if hint is float else value
    expected = f"one of {', '.join(members)}" if origin is Literal else _NAMES[origin or hint]
    raise error(f"{where} is {value!r:.60}; it must be {expected}.")


def _is_a(hint: Any, value: Any) -> bool:
    """Return whether a value is of a plain type; `bool` is no number here."""
    if typing.get_origin(hint) is Literal:
        return value in typing.get_args(hint)
    if isinstance(value, bool):
        return hint is bool
    if isinstance(value, str):
        return hint is str and not any("\ud800" <= char <= "\udfff" for char in value)
    if hint is int:
        return isinstance(value, int) and abs(value) < 2**63
    if hint is float:
        is_exact = isinstance(value, int) and abs(value) <= 2**53
        return is_exact or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, hint)


def _quoted(key: str) -> str:
    """Return a key as an error may show it: a stranger's may hold lines of its own."""
    return key if key.isidentifier() else f"{key!r:.60}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it has {name}, which is no JSON")
