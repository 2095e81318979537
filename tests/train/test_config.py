import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.train.config import (
    RECIPES,
    PretrainConfig,
    check_unchanged,
    pretrain_config,
    read_recipe,
)

KINDS = {"training", "numerics", "execution"}
NO_LENGTH = (
    "neither steps nor epochs is given; say how long to train, such as --epochs 3, or name a "
    "recipe (bert-original, roberta, budget, cpu-demo)."
)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, NO_LENGTH),
        (
            {"steps": 5, "epochs": 1},
            "steps is 5 and epochs is 1, which exclude each other; drop one of them.",
        ),
        ({"steps": 0}, "steps is 0; it must be between 1 and 1000000000."),
        (
            {"steps": 5, "global_batch_size": 0},
            "global_batch_size is 0; it must be between 1 and 10000000.",
        ),
        (
            {"steps": 5, "warmup_steps": 6},
            "warmup_steps is 6, but the run has 5 steps; lower it, or give a warmup_share.",
        ),
        (
            {"steps": 5, "schedule": "step"},
            "schedule is 'step'; it must be one of linear, cosine, wsd, bert.",
        ),
        (
            {"steps": 5, "init_from": "a", "continue_from": "b"},
            "init_from is 'a' and continue_from is 'b', which exclude each other; drop one of "
            "them.",
        ),
        (
            {"steps": 5, "masking": "dynamic", "num_static_variants": 4},
            "num_static_variants is 4, but masking is dynamic and reads no stored variants; drop "
            "one of them.",
        ),
        ({"steps": 5, "learning_rate": "1e-4"}, "learning_rate is '1e-4'; it must be a number."),
        ({"steps": 5, "beta2": 1.0}, "beta2 is 1.0; it must be between 0.0 and 0.999999999."),
        ({"steps": 5, "next_sentence": 1}, "next_sentence is 1; it must be true or false."),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_value(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        PretrainConfig(**settings)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"steps": 6},
            "warmup_steps is 40 (set by the recipe cpu-demo), but the run has 6 steps; lower it,",
        ),
        ({"steps": 6, "warmup_steps": 7}, "warmup_steps is 7, but the run has 6 steps; lower it,"),
    ],
)
def test_a_setting_that_nobody_typed_is_said_to_be_of_the_recipe(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        pretrain_config({"recipe": "cpu-demo"}, settings)
    assert str(error.value).startswith(message)


def test_a_micro_batch_is_no_more_than_the_share_of_a_rank() -> None:
    config = pretrain_config({"recipe": "cpu-demo"}, {"global_batch_size": 12})
    assert config.micro_batch_size == 64
    assert [config.micro_rows(num_ranks) for num_ranks in (1, 2, 5)] == [12, 6, 3]


def test_every_field_has_help_and_a_kind() -> None:
    fields = dataclasses.fields(PretrainConfig)
    assert fields
    for item in fields:
        assert item.metadata["help"].endswith("."), item.name
        assert item.metadata["kind"] in KINDS, item.name


def test_steps_of_epochs_count_a_last_batch_that_is_not_full() -> None:
    config = PretrainConfig(epochs=3, global_batch_size=10)
    assert [config.num_steps(n) for n in (1, 10, 11, 100)] == [3, 3, 6, 30]
    assert PretrainConfig(steps=7).num_steps(1_000) == 7


def test_a_micro_batch_is_never_more_than_the_share_of_a_rank() -> None:
    assert PretrainConfig(steps=1, global_batch_size=8).micro_rows(1) == 8
    assert PretrainConfig(steps=1, global_batch_size=8).micro_rows(3) == 3
    assert PretrainConfig(steps=1, global_batch_size=256).micro_rows(2) == 32
    assert PretrainConfig(steps=1, global_batch_size=8, micro_batch_size=6).micro_rows(2) == 4


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_whole_configuration_of_training_settings(name: str) -> None:
    settings = read_recipe(name)
    config = pretrain_config({"recipe": name})
    assert settings
    assert all(getattr(config, key) == value for key, value in settings.items())
    stated = {"model", "steps", "optimizer", "schedule", "learning_rate", "masking"}
    assert settings.keys() >= stated


def test_every_recipe_file_has_a_name_that_can_be_asked_for() -> None:
    folder = Path(__file__).resolve().parents[2] / "train" / "recipes"
    files = {path.stem: path for path in folder.glob("*.toml")}
    assert files.keys() == set(RECIPES)
    for path in files.values():
        assert tomllib.loads(path.read_text(encoding="ascii"))


def test_the_original_recipe_is_the_published_one() -> None:
    config = pretrain_config({"recipe": "bert-original"})
    assert (config.optimizer, config.schedule) == ("bert-adam", "bert")
    assert (config.beta1, config.beta2, config.epsilon) == (0.9, 0.999, 1e-6)
    assert (config.steps, config.global_batch_size, config.warmup_steps) == (1_000_000, 256, 10_000)
    assert (config.learning_rate, config.weight_decay, config.clip_norm) == (1e-4, 0.01, 1.0)
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1)
    assert config.hidden_act == "gelu_new"


def test_later_layers_win_over_earlier_ones_and_over_the_recipe() -> None:
    config = pretrain_config(
        {"recipe": "roberta", "learning_rate": 1e-3, "seed": 4}, {"seed": 5, "model": "tiny"}
    )
    assert (config.learning_rate, config.seed, config.model) == (1e-3, 5, "tiny")
    assert (config.recipe, config.beta2, config.steps) == ("roberta", 0.98, 125_000)


def test_the_recipe_of_the_last_layer_is_meant() -> None:
    assert pretrain_config({"recipe": "roberta"}, {"recipe": "budget"}).steps == 23_000


def test_epochs_take_the_place_of_steps_given_before() -> None:
    assert pretrain_config({"recipe": "budget"}, {"epochs": 2}).steps is None
    assert pretrain_config({"epochs": 2}, {"steps": 9}).epochs is None


def test_a_share_of_warmup_takes_the_place_of_steps_given_before() -> None:
    shared = pretrain_config({"recipe": "roberta"}, {"warmup_share": 0.5, "steps": 100})
    assert shared.num_warmup_steps(100) == 50
    assert pretrain_config({"recipe": "budget"}, {"warmup_steps": 7}).num_warmup_steps(100) == 7


def test_both_ways_of_saying_the_warmup_in_one_layer_are_refused() -> None:
    with pytest.raises(ConfigError, match="warmup_steps is 3 and warmup_share is 0.1, which"):
        pretrain_config({"steps": 9, "warmup_steps": 3, "warmup_share": 0.1})


def test_an_unknown_recipe_is_refused() -> None:
    with pytest.raises(ConfigError, match="recipe is 'bart'; it must be one of bert-original, "):
        pretrain_config({"recipe": "bart"})


def test_going_on_with_other_execution_settings_is_fine() -> None:
    saved = PretrainConfig(steps=9).settings("training")
    check_unchanged(saved, PretrainConfig(steps=9, micro_batch_size=4, keep=7, data="b"), "run")


def test_going_on_with_another_training_setting_is_refused_by_name() -> None:
    saved = PretrainConfig(steps=9).settings("training")
    with pytest.raises(RunError) as error:
        check_unchanged(saved, PretrainConfig(steps=9, learning_rate=1e-3), "run/step-5")
    assert str(error.value) == (
        "learning_rate is 0.001, but run/step-5 was trained with 0.0005; give that, or train into "
        "another folder."
    )


def test_a_run_whose_settings_have_other_names_is_refused_by_name() -> None:
    saved = PretrainConfig(steps=9).settings("training")
    saved["hidden_dropout"] = saved.pop("hidden_dropout_prob")
    with pytest.raises(RunError) as error:
        check_unchanged(saved, PretrainConfig(steps=9), "run/step-5")
    assert str(error.value) == (
        "run/step-5 does not say its hidden_dropout_prob; another clozemill wrote it."
    )


def test_a_training_setting_that_the_run_was_not_given_is_to_be_left_out() -> None:
    saved = PretrainConfig(steps=9).settings("training")
    with pytest.raises(RunError, match="is 5, but run was trained without; leave it out, or "):
        check_unchanged(saved, PretrainConfig(steps=9, num_static_variants=5), "run")
