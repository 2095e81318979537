"""Flags are the fields of the settings records, and nothing says a default twice."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from clozemill.cli import cli
from clozemill.options import (
    build_options,
    config_from_flags,
    evaluation_options,
    layout_options,
    mask_options,
    pretrain_arguments,
    pretrain_config_from_flags,
    pretrain_options,
    vocabulary_options,
)
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.vocab_settings import VocabularySettings
from clozemill.train.config import PretrainConfig, pretrain_config
from clozemill.train.evaluation_settings import EvaluationSettings


def flags_of(options: Callable[[Any], Any]) -> dict[str | None, click.Option]:
    @click.command()
    @options
    def command(**flags: object) -> None: ...

    found = {p.name: p for p in command.params if isinstance(p, click.Option)}
    assert len(found) == len(command.params) > 0
    return found


def parse(*arguments: str, config_path: str | None = None) -> BuildConfig:
    command = cli.commands["build"]
    context = command.make_context("build", list(arguments))
    flags = {k: v for k, v in context.params.items() if k in BuildConfig.__dataclass_fields__}
    return config_from_flags(context, config_path, flags)


def test_every_setting_of_a_build_is_a_flag_with_its_default_and_help() -> None:
    flags = flags_of(build_options)
    fields = {item.name: item for item in dataclasses.fields(BuildConfig)}
    assert flags.keys() == fields.keys() - {"inputs"}
    for name, flag in flags.items():
        assert flag.default == fields[name].default, name
        assert flag.help == fields[name].metadata["help"], name
    assert flags["seed"].show_default  # though it is 0
    assert not flags["overwrite"].show_default


def test_every_setting_of_a_vocabulary_is_a_flag_with_its_default() -> None:
    flags = flags_of(vocabulary_options)
    assert {n: f.default for n, f in flags.items()} == dataclasses.asdict(VocabularySettings())


def test_every_setting_of_an_evaluation_is_a_flag_with_its_default() -> None:
    flags = flags_of(evaluation_options)
    assert {n: f.default for n, f in flags.items()} == dataclasses.asdict(EvaluationSettings())
    assert flags["num_instances"].opts == ["--instances"]
    assert isinstance(flags["precision"].type, click.Choice)


@pytest.mark.parametrize("options", [mask_options, layout_options])
def test_flags_that_change_a_dataset_have_no_default(options: Callable[[Any], Any]) -> None:
    assert {flag.default for flag in flags_of(options).values()} == {None}


def test_a_build_without_flags_has_the_defaults_of_the_record() -> None:
    assert parse("a", "b") == BuildConfig(inputs=("a", "b"))


def test_flags_of_every_type_are_parsed() -> None:
    config = parse(
        *("a", "--masked-lm-prob", "0.2", "--workers", "3", "--overwrite", "--recipe", "bert"),
        *("--validation", "b", "--validation", "c", "--source-weight", "wiki=2", "-o", "d"),
    )
    assert config == BuildConfig(
        inputs=("a",),
        masked_lm_prob=0.2,
        workers=3,
        overwrite=True,
        validation=("b", "c"),
        source_weight=(("wiki", 2.0),),
        out="d",
    )


def test_only_flags_that_were_typed_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("seed = 7\nmask-variants = 3\n")
    config = parse("a", "--mask-variants", "10", config_path=str(path))
    assert (config.seed, config.mask_variants) == (7, 10)


@pytest.mark.parametrize("weight", ["wiki", "wiki=", "=", "wiki=two"])
def test_a_weight_without_a_number_is_refused(weight: str) -> None:
    with pytest.raises(ConfigError, match="source_weight is '.*'; write it as NAME=2.0."):
        parse("a", "--source-weight", weight)


def parse_pretrain(*arguments: str, config_path: str | None = None) -> PretrainConfig:
    @click.command()
    @click.argument("data")
    @pretrain_options
    def command(**flags: object) -> None: ...

    context = command.make_context("pretrain", list(arguments))
    return pretrain_config_from_flags(context, config_path, context.params)


def test_every_setting_of_a_run_is_a_flag_with_its_default_and_help() -> None:
    flags = flags_of(pretrain_options)
    fields = {item.name: item for item in dataclasses.fields(PretrainConfig)}
    assert flags.keys() == fields.keys() - {"data"}
    for name, flag in flags.items():
        assert flag.default == fields[name].default, name
        assert flag.help == fields[name].metadata["help"], name


def test_flags_of_a_run_win_over_the_file_and_that_over_the_recipe(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('recipe = "budget"\nlearning-rate = 1e-3\nseed = 7\n')
    config = parse_pretrain(
        *("d", "-o", "run", "--seed", "8", "--epochs", "2", "--no-compile", "--next-sentence"),
        config_path=str(path),
    )
    assert (config.data, config.out, config.seed, config.learning_rate) == ("d", "run", 8, 1e-3)
    assert (config.epochs, config.steps, config.compile) == (2, None, False)
    assert (config.global_batch_size, config.next_sentence) == (4096, True)


def test_an_unknown_key_of_a_run_names_its_help(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text("max-seq-length = 7\n")
    with pytest.raises(ConfigError, match="unknown key 'max_seq_length'; see clozemill pretrain "):
        parse_pretrain("d", config_path=str(path))


@pytest.mark.parametrize(
    "settings",
    [
        {"recipe": "cpu-demo", "masking": "static", "num_static_variants": 3},
        {"epochs": 2, "warmup_share": 0.2, "compile": True, "overwrite": True},
        {"recipe": "budget", "next_sentence": False, "stop_after": 7, "keep": 1},
        {"recipe": "bert-original", "init_from": "a model", "steps": 20_000},
    ],
)
def test_a_run_is_started_elsewhere_with_the_settings_it_has_here(settings: dict[str, Any]) -> None:
    config = pretrain_config({"data": "a b", "out": "run", **settings})
    parsed = parse_pretrain(*pretrain_arguments(config))
    # Given weights have a size of their own; what the recipe names would be refused.
    model = config.model if config.init_from is None else PretrainConfig(steps=1).model
    assert parsed == dataclasses.replace(config, recipe=None, model=model)
