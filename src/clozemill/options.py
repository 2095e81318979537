"""The flags of `clozemill build` and `vocab`, made from the fields of their settings records."""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any

import click

from clozemill.pipeline.config import BuildConfig, read_config_file
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.vocab_settings import VocabularySettings

Command = typing.TypeVar("Command", bound=Callable[..., Any])

_FLAGS = {
    "out": ("--out", "-o"),
    "is_cased": ("--cased",),
    "strip_accents": ("--strip-accents/--no-strip-accents",),
}
"""Where a flag is not its field's name."""

_READING_FIELDS = ("text_field", "layout", "input_format", "on_bad_input", "limit_documents")


def reading_options(command: Command) -> Command:
    """Add the flags that say how documents are read."""
    return _add_options(command, BuildConfig, lambda item: item.name in _READING_FIELDS)


def mask_options(command: Command) -> Command:
    """Add the flags of masks, without defaults: what is not given stays as it is."""
    return _add_options(command, BuildConfig, _is_of_masks, has_default=False)


def layout_options(command: Command) -> Command:
    """Add the flags of how files hold a dataset, without defaults."""
    return _add_options(command, BuildConfig, _is_of_layout, has_default=False)


def build_options(command: Command) -> Command:
    """Add a flag for every field of `BuildConfig` but the inputs, which are arguments."""
    return _add_options(command, BuildConfig, lambda item: item.name != "inputs")


def vocabulary_options(command: Command) -> Command:
    """Add a flag for every field of `VocabularySettings`."""
    return _add_options(command, VocabularySettings, lambda item: True)


def _is_of_masks(item: "dataclasses.Field[Any]") -> bool:
    return bool(item.metadata["kind"] == "masks")


def _is_of_layout(item: "dataclasses.Field[Any]") -> bool:
    return bool(item.metadata["kind"] == "layout")


def _add_options(
    command: Command,
    record: Any,
    is_chosen: Callable[["dataclasses.Field[Any]"], bool],
    *,
    has_default: bool = True,
) -> Command:
    for item in reversed(dataclasses.fields(record)):
        if is_chosen(item):
            command = _option(item, has_default=has_default)(command)
    return command


def _option(item: "dataclasses.Field[Any]", *, has_default: bool) -> Callable[[Command], Command]:
    flags = _FLAGS.get(item.name, ("--" + item.name.replace("_", "-"),))
    hint: Any = item.type
    default = item.default if has_default else None
    settings: dict[str, Any] = {"default": default, "help": item.metadata["help"]}
    if bool in (hint, *_members(hint)):
        settings["is_flag"] = True
    elif item.metadata["choices"]:
        settings["type"] = click.Choice(item.metadata["choices"])
    elif item.name == "source_weight":
        settings.update(multiple=True, metavar="NAME=WEIGHT")
    elif hint == tuple[str, ...]:
        settings.update(multiple=True, metavar="INPUT")
    else:
        kinds = [kind for kind in (int, float, str) if kind is hint or kind in _members(hint)]
        settings["type"] = kinds[0]
    settings["show_default"] = default not in ("", None, (), False)
    return click.option(*flags, item.name, **settings)


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union type; none for a plain type."""
    return typing.get_args(hint)


def config_from_flags(
    context: click.Context, config_path: str | None, flags: Mapping[str, Any]
) -> BuildConfig:
    """Return the configuration: defaults, then the file's settings, then flags that were typed.

    Raises:
        ConfigError: A setting cannot be used.
    """
    settings = read_config_file(config_path) if config_path else {}
    for name, value in flags.items():
        source = context.get_parameter_source(name)
        if source == click.core.ParameterSource.COMMANDLINE and value != ():
            settings[name] = _weights(value) if name == "source_weight" else value
    return BuildConfig(**settings)


def _weights(values: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    weights = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        try:
            weights[name] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise ConfigError(f"source_weight is {value!r}; write it as NAME=2.0.")
    return tuple(sorted(weights.items()))
