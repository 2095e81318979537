from pathlib import Path
from typing import Any

import pytest

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.settings import read_config_file


def read(path: Path) -> dict[str, Any]:
    return read_config_file(path, BuildConfig, verb="build")


def test_one_input_of_a_toml_file_needs_no_list(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text('inputs = "x.jsonl"\n')
    assert BuildConfig(**read(path)).inputs == ("x.jsonl",)


def test_a_toml_file_gives_settings_spelled_either_way(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    path.write_text(
        'max-seq-length = 64\nmask_variants = 4\ninputs = ["a"]\n[source-weight]\nwiki = 2.0\n'
    )
    config = BuildConfig(**read(path))
    assert (config.max_seq_length, config.mask_variants) == (64, 4)
    assert config.inputs == ("a",)
    assert config.source_weight == (("wiki", 2.0),)


@pytest.mark.parametrize(
    "content",
    ['source-weight = ["wiki=2"]', "inputs = [1]", "seed = nan", "masked_lm_prob = inf"],
)
def test_a_value_of_the_wrong_type_in_a_file_is_a_config_error(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "c.toml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=" is .*; it must be "):
        BuildConfig(**read(path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("max_seq_len = 3\n", "has the unknown key 'max_seq_len'; did you mean max_seq_length."),
        ("zzz = 3\n", "has the unknown key 'zzz'; see clozemill build --help."),
        ("= 3\n", "is not TOML"),
        ('source = "\udcff"\n', "is not TOML"),
    ],
)
def test_a_bad_configuration_file_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "c.toml"
    path.write_text(content, errors="surrogateescape")
    with pytest.raises(ConfigError, match=message):
        read(path)


def test_an_absent_configuration_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the configuration"):
        read(tmp_path / "none.toml")
