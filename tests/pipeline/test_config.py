import dataclasses
from pathlib import Path
from typing import Any

import pytest

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"masked_lm_prob": 1.5}, "masked_lm_prob is 1.5; it must be between 0.0 and 1.0."),
        (
            {"validation_fraction": 1},
            "validation_fraction is 1.0, which leaves nothing for training; it must be below 1.",
        ),
        ({"max_seq_length": 4}, "max_seq_length is 4; it must be between 5 and 65535."),
        ({"seed": True}, "seed is True; it must be a whole number."),
        (
            {"recipe": "bart"},
            "recipe is 'bart'; it must be one of bert, roberta-full, roberta-doc.",
        ),
        (
            {"mask_token_prob": 0.9, "random_token_prob": 0.2},
            "mask_token_prob 0.9 and random_token_prob 0.2 add up to more than 1; lower one of "
            "them.",
        ),
        (
            {"source_weight": (("wiki", -1.0),)},
            "source_weight wiki is -1.0; it must be between 0.0 and 1000.0.",
        ),
        ({"workers": 1.5}, "workers is 1.5; it must be a whole number."),
        ({"seed": "7"}, "seed is '7'; it must be a whole number."),
        ({"out": 3}, "out is 3; it must be text."),
        ({"inputs": 7}, "inputs is 7; it must be a list of texts."),
        (
            {"language": "de_DE"},
            "language is 'de_DE'; it must be a code in lower case, such as en or zh-hant "
            "(sentencex would split like English).",
        ),
        ({"source": "a\udcff"}, r"source is a\xff, which is not UTF-8; spell it otherwise."),
        (
            {"source_weight": (("\ud800", 1.0),)},
            r"source_weight is \ud800, which is not UTF-8; spell it otherwise.",
        ),
        ({"inputs": ("\udcff",)}, r"inputs is \xff, which is not UTF-8; spell it otherwise."),
        ({"inputs": (1,)}, "inputs is (1,); it must be a list of texts."),
        (
            {"source_weight": ("wiki=2",)},
            "source_weight is ('wiki=2',); it must be a table of numbers.",
        ),
        (
            {"source_weight": (("wiki", "2"),)},
            "source_weight is (('wiki', '2'),); it must be a table of numbers.",
        ),
        (
            {"masked_lm_prob": float("nan")},
            "masked_lm_prob is nan; it must be between 0.0 and 1.0.",
        ),
        (
            {"source_weight": (("wiki", float("inf")),)},
            "source_weight wiki is inf; it must be between 0.0 and 1000.0.",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_is_named_with_its_value(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as error:
        BuildConfig(**settings)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_every_field_has_help_and_a_kind() -> None:
    fields = dataclasses.fields(BuildConfig)
    assert fields
    for item in fields:
        assert item.metadata["help"].endswith("."), item.name
        assert item.metadata["kind"] in {"input", "instances", "masks", "layout", "execution"}


def test_settings_of_a_kind_leave_the_others_out() -> None:
    config = BuildConfig(workers=3, format="webdataset")
    assert config.settings("layout")["format"] == "webdataset"
    assert "workers" not in config.settings("input", "instances", "masks", "layout")


def test_paths_lists_tables_and_one_text_are_taken_for_what_fields_hold() -> None:
    plain = BuildConfig(inputs=("txt/",), source_weight=(("a", 2), ("b", 3)), out="o")
    given: dict[str, Any] = {"inputs": [Path("txt")], "source_weight": {"b": 3, "a": 2}}
    assert BuildConfig(**{**given, "out": Path("o")}) == dataclasses.replace(plain, inputs=("txt",))
    assert dataclasses.replace(plain, inputs="txt/") == plain  # type: ignore[arg-type]
