"""Records as JSON objects and back, with every key and type checked."""

import dataclasses
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from clozemill.pipeline.errors import RunError
from clozemill.pipeline.files import open_regular

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


def read_object(path: Path, *, format_version: int) -> dict[str, Any]:
    """Return the JSON object in a file of this version of its format.

    Raises:
        RunError: The file cannot be read, is not ours, or of another version.
    """
    try:
        with open_regular(path) as stream:
            data = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}.") from error
    if len(data) > _MOST_BYTES:
        raise RunError(f"{path} has more than {_MOST_BYTES:,} bytes, so it is not ours.")
    table = parse_object(data, str(path))
    version = table.get("format_version")
    if version != format_version:
        raise RunError(
            f"{path} has format version {version!r:.60}, but this clozemill reads "
            f"{format_version}; install the clozemill that wrote it."
        )
    return table


def parse_object(text: str | bytes, where: str) -> dict[str, Any]:
    """Return the JSON object in a text; `where` is for errors.

    Raises:
        RunError: It is not JSON, which has no NaN, or not an object.
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RunError(f"{where} is not JSON ({error}).") from error
    if not isinstance(value, dict):
        raise RunError(f"{where} holds {value!r:.60}; it must be an object.")
    return value


def from_json(kind: type[_Record], table: Any, where: str) -> _Record:
    """Return the record that a JSON object stands for.

    Raises:
        RunError: A key is missing or unknown, or a value is of another type than the field.
    """
    if not isinstance(table, dict):
        raise RunError(f"{where} is {table!r:.60}; it must be an object.")
    hints = typing.get_type_hints(kind)
    names = [item.name for item in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for name in table:
        if name not in names:
            raise RunError(f"{where} has the unknown key {name!r:.60}.")
    for name in names:
        if name not in table:
            raise RunError(f"{where} has no key {name!r}.")
    values = {name: _value(hints[name], table[name], f"{where}: {name}") for name in names}
    try:
        return kind(**values)
    except RunError as error:  # a check of the record's own
        raise RunError(f"{where}: {error}") from error


def _value(hint: Any, value: Any, where: str) -> Any:
    """Return a value of the type that a field has; members of lists and tables are checked too."""
    if dataclasses.is_dataclass(hint):
        return from_json(typing.cast(type[Any], hint), value, where)
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        fitting = [member for member in members if _is_a(member, value)]
        return _value(fitting[0] if fitting else members[0], value, where)
    if origin is dict and isinstance(value, dict):
        return {
            key: _value(members[1], entry, f"{where}.{_quoted(key)}")
            for key, entry in value.items()
        }
    if origin is tuple and isinstance(value, list):
        return tuple(_value(members[0], entry, f"{where}[{i}]") for i, entry in enumerate(value))
    if hint is Any or (origin is None and _is_a(hint, value)):
        return float(value) if hint is float else value
    raise RunError(f"{where} is {value!r:.60}; it must be {_NAMES[origin or hint]}.")


def _is_a(hint: Any, value: Any) -> bool:
    """Return whether a value is of a plain type; `bool` is no number here."""
    if isinstance(value, bool):
        return hint is bool
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
