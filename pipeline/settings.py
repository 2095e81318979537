"""Records of settings: fields that carry their help, checks of their values, and TOML files.

A record of settings is a frozen dataclass whose fields are made by `setting`. Flags, TOML keys
and the tables of the docs are made from it, so a default stands in one place only. What its
values mean together, a record checks itself, in `__post_init__`.
"""

import dataclasses
import difflib
import itertools
import os
import tomllib
import types
import typing
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.files import bytes_spelled_out, has_utf8_name


def setting(default: Any, kind: str, text: str) -> Any:
    """Return a field of a record of settings, with what its flag and the docs say of it.

    Args:
        default: Value where nothing is given; None is absent.
        kind: What the field decides; each record names its kinds.
        text: The help, a sentence.
    """
    return field(default=default, metadata={"kind": kind, "help": text})


def choices_of(kind: Any) -> tuple[str, ...]:
    """Return the values that the type of a field allows; none where any will do.

    >>> choices_of(Literal["token", "word"] | None), choices_of(str)
    (('token', 'word'), ())
    """
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    if typing.get_origin(kind) in (types.UnionType, typing.Union):
        return tuple(itertools.chain.from_iterable(map(choices_of, typing.get_args(kind))))
    return ()


def settings_of(record: Any, *kinds: str) -> dict[str, Any]:
    """Return the fields of the given kinds, by name, ready for JSON."""
    chosen = {
        item.name: getattr(record, item.name)
        for item in dataclasses.fields(record)
        if item.metadata["kind"] in kinds
    }
    return {name: list(v) if isinstance(v, tuple) else v for name, v in chosen.items()}


def take_plain_values(record: Any) -> None:
    """Hold the values of a frozen record as its fields have them, as callers and TOML differ.

    Paths are texts, lists are tuples, a table is sorted pairs, and one text is a list of one.
    """
    for item in dataclasses.fields(record):
        value = _plain(getattr(record, item.name))
        if isinstance(value, str) and item.type == tuple[str, ...]:
            value = (value,)
        object.__setattr__(record, item.name, value)


def _plain(value: Any) -> Any:
    """Return a value as a field may hold it.

    >>> _plain({"wiki": 2, "books": 1}), _plain([Path("a"), "b"])
    ((('books', 1), ('wiki', 2)), ('a', 'b'))
    """
    if isinstance(value, dict):
        return tuple(sorted(value.items(), key=lambda pair: str(pair[0])))
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def check_fields(record: Any) -> None:
    """Raise `ConfigError` for the first field with a value of a wrong type or no choice of it."""
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        _check_type(item, value)
        _check_choice(item, value)
        _check_utf8(item.name, value)


def check_ranges(record: Any, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Raise `ConfigError` for the first field that has a value outside its range."""
    for name, (low, high) in ranges.items():
        value = getattr(record, name)
        if value is not None:
            check_range(name, value, low, high)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raise `ConfigError` unless the value lies between the two, ends included."""
    if not low <= value <= high:  # so that NaN is refused too
        raise ConfigError(f"{name} is {value!r}; it must be between {low} and {high}.")


def read_config_file(path: str | Path, record: type[Any], *, verb: str) -> dict[str, Any]:
    """Return the settings of a TOML file; keys may be spelled like flags or like fields.

    Args:
        path: The file.
        record: The record whose fields the keys are.
        verb: The command whose help lists them, for the error.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        with open(path, "rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except ValueError as error:  # bytes that are not UTF-8 included
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    known = {item.name for item in dataclasses.fields(record)}
    settings = {key.replace("-", "_"): value for key, value in table.items()}
    unknown = sorted(settings.keys() - known)
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, n=1)
        meant = f"did you mean {close[0]}" if close else f"see clozemill {verb} --help"
        raise ConfigError(f"{path} has the unknown key {unknown[0]!r}; {meant}.")
    return settings


_TYPES: dict[Any, str] = {
    bool: "true or false",
    bool | None: "true or false",
    float: "a number",
    float | None: "a number",
    int: "a whole number",
    int | None: "a whole number",
    str: "text",
    str | None: "text",
    tuple[str, ...]: "a list of texts",
    tuple[tuple[str, float], ...]: "a table of numbers",
}
"""The types of fields, as an error names them."""


def _check_type(item: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise `ConfigError` unless the value is of the field's type; TOML and callers err."""
    if not _is_of_type(value, item.type):
        expected = "text" if choices_of(item.type) else _TYPES[item.type]
        raise ConfigError(f"{item.name} is {value!r}; it must be {expected}.")


def _is_of_type(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type that a field has; `bool` is no number here.

    >>> _is_of_type((("wiki", 2),), tuple[tuple[str, float], ...]), _is_of_type(True, int | None)
    (True, False)
    """
    members = typing.get_args(kind)
    if typing.get_origin(kind) is Literal:
        return isinstance(value, str)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        if members[-1] is Ellipsis:
            members = members[:1] * len(value)
        return len(value) == len(members) and all(map(_is_of_type, value, members))
    if members:
        return any(_is_of_type(value, member) for member in members)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _check_utf8(name: str, value: Any) -> None:
    """Raise `ConfigError` for a text that no file can hold: arguments may be any bytes."""
    if isinstance(value, tuple):
        for member in value:
            _check_utf8(name, member)
    elif isinstance(value, str) and not has_utf8_name(value):
        raise ConfigError(
            f"{name} is {bytes_spelled_out(value)}, which is not UTF-8; spell it otherwise."
        )


def _check_choice(item: "dataclasses.Field[Any]", value: Any) -> None:
    choices = choices_of(item.type)
    if choices and value is not None and value not in choices:
        raise ConfigError(f"{item.name} is {value!r}; it must be one of {', '.join(choices)}.")
