"""The arguments and flags that verbs share, and those made from the fields of settings records."""

import dataclasses
import typing
from collections.abc import Callable, Mapping
from typing import Any

import click

from clozemill.analysis.defaults import MEMORY_LIMIT
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.settings import choices_of, read_config_file
from clozemill.pipeline.vocab_settings import VocabularySettings
from clozemill.train.config import PretrainConfig, pretrain_config
from clozemill.train.evaluation_settings import EvaluationSettings

Command = typing.TypeVar("Command", bound=Callable[..., Any])

data_argument = click.argument("data", metavar="DATA")
json_option = click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")
config_option = click.option(
    "--config", "config_path", metavar="FILE.toml", help="Settings; flags win over it."
)
tokenizer_option = click.option(
    "--tokenizer", metavar="DIR", help="The tokenizer's folder, if it is not where it was."
)
query_threads_option = click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of a query; by default one per core."
)
query_memory_option = click.option(
    "--memory-limit",
    default=MEMORY_LIMIT,
    show_default=True,
    help="Memory of a query, before it spills to a temporary folder.",
)


def out_option(
    text: str = "The folder to write.", *, metavar: str = "DIR"
) -> Callable[[Command], Command]:
    """Return the flag of the folder that a verb writes, with its help."""
    return click.option("--out", "-o", required=True, metavar=metavar, help=text)


def overwrite_option(text: str) -> Callable[[Command], Command]:
    """Return the flag that lets a verb replace what it once wrote, with its help."""
    return click.option("--overwrite", is_flag=True, help=text)


_FLAGS = {
    "out": ("--out", "-o"),
    "is_cased": ("--cased",),
    "strip_accents": ("--strip-accents/--no-strip-accents",),
    "next_sentence": ("--next-sentence/--no-next-sentence",),
    "compile": ("--compile/--no-compile",),
    "num_instances": ("--instances",),
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


def pretrain_options(command: Command) -> Command:
    """Add a flag for every field of `PretrainConfig` but the dataset, which is an argument."""
    return _add_options(command, PretrainConfig, lambda item: item.name != "data")


def evaluation_options(command: Command) -> Command:
    """Add a flag for every field of `EvaluationSettings`."""
    return _add_options(command, EvaluationSettings, lambda item: True)


def study_options(command: Command) -> Command:
    """Add a flag for every field of `PretrainConfig` but what a study decides; no defaults shown.

    They are those of the recipe, which a study always has.
    """
    return _add_options(
        command, PretrainConfig, lambda item: item.name not in OWN_OF_A_STUDY, has_default=False
    )


def pretrain_arguments(config: PretrainConfig) -> list[str]:
    """Return the command line of `clozemill pretrain` that has these settings.

    Weights to start from have a size of their own, so a model that a recipe names is left out.
    """
    arguments = [config.data]
    left_out = {"data", "recipe"}
    if config.init_from is not None or config.continue_from is not None:
        left_out.add("model")
    for item in dataclasses.fields(config):
        value = getattr(config, item.name)
        if item.name in left_out or value in (None, item.default):
            continue
        flag = _spellings(item)[0]
        if isinstance(value, bool):
            arguments.append(flag.split("/")[0 if value else 1] if "/" in flag else flag)
        else:
            arguments += [flag, str(value)]
    return arguments


OWN_OF_A_STUDY = (
    *("data", "out", "masking", "num_static_variants", "mask_offset", "seed"),
    *("resume", "overwrite", "stop_after", "log_with"),
)
"""Settings of a training that a study decides, or has flags of its own for."""


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
    hint: Any = item.type
    default = item.default if has_default else None
    settings: dict[str, Any] = {"default": default, "help": item.metadata["help"]}
    if bool in (hint, *_members(hint)):
        settings["is_flag"] = True
    elif choices := choices_of(item.type):
        settings["type"] = click.Choice(choices)
    elif item.name == "source_weight":
        settings.update(multiple=True, metavar="NAME=WEIGHT")
    elif hint == tuple[str, ...]:
        settings.update(multiple=True, metavar="INPUT")
    else:
        kinds = [kind for kind in (int, float, str) if kind is hint or kind in _members(hint)]
        settings["type"] = kinds[0]
    settings["show_default"] = default is not False and default not in ("", None, ())
    return click.option(*_spellings(item), item.name, **settings)


def _spellings(item: "dataclasses.Field[Any]") -> tuple[str, ...]:
    """Return the spellings of a field's flag, the long one first."""
    return _FLAGS.get(item.name, ("--" + item.name.replace("_", "-"),))


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union type; none for a plain type."""
    return typing.get_args(hint)


def config_from_flags(
    context: click.Context, config_path: str | None, flags: Mapping[str, Any]
) -> BuildConfig:
    """Return a build's settings: defaults, then the file's, then flags that were typed.

    Raises:
        ConfigError: A setting cannot be used.
    """
    settings = read_config_file(config_path, BuildConfig, verb="build") if config_path else {}
    typed = _typed(context, flags)
    if "source_weight" in typed:
        typed["source_weight"] = _weights(typed["source_weight"])
    return BuildConfig(**{**settings, **typed})


def pretrain_config_from_flags(
    context: click.Context,
    config_path: str | None,
    flags: Mapping[str, Any],
    *,
    recipe: str | None = None,
) -> PretrainConfig:
    """Return a run's settings: defaults, then its recipe's, the file's, and typed flags.

    Args:
        context: Knows which flags were typed.
        config_path: A TOML file, if there is one.
        flags: All flags by the name of their field.
        recipe: Where neither file nor flags name one.

    Raises:
        ConfigError: A setting cannot be used, or is not that of the weights to start from.
        RunError: That run cannot be read.
    """
    in_file = read_config_file(config_path, PretrainConfig, verb="pretrain") if config_path else {}
    typed = _typed(context, flags)
    config = pretrain_config({"recipe": recipe}, in_file, typed)
    # A recipe's size gives way to that of the weights to start from, as the default does.
    if "model" in {**in_file, **typed}:
        from clozemill.train.facts import check_size

        check_size(config)
    return config


def _typed(context: click.Context, flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that stand on the command line."""
    return {name: value for name, value in flags.items() if is_typed(context, name) and value != ()}


def is_typed(context: click.Context, name: str) -> bool:
    """Return whether a parameter stands on the command line, be it with its default."""
    return context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


def _weights(values: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    weights: dict[str, float] = {}
    for value in values:
        name, equals, number = value.rpartition("=")
        if name in weights:
            raise ConfigError(f"source_weight names {name!r} twice; give it one weight.")
        try:
            weights[name] = float(number)
        except ValueError:
            equals = ""
        if not equals:
            raise ConfigError(f"source_weight is {value!r}; write it as NAME=2.0.")
    return tuple(sorted(weights.items()))
