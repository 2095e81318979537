import dataclasses
import runpy
from pathlib import Path
from typing import Any

import pytest

from clozemill.cli import cli
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.settings import read_config_file
from clozemill.train.config import PretrainConfig

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_settings_is_what_the_records_say() -> None:
    make = runpy.run_path(str(ROOT / "docs" / "make_settings.py"))
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == make["settings_page"](), "run `python docs/make_settings.py`"


def test_the_example_of_a_configuration_file_is_one(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    path = tmp_path / "corpus.toml"
    path.write_text(page.split("```toml\n")[1].split("```")[0])
    config = BuildConfig(**read_config_file(path, BuildConfig, verb="build"))
    assert config.validation == ("held-out.jsonl",)
    assert config.source_weight == (("wiki", 2.0),)


@pytest.mark.parametrize("record", [BuildConfig, PretrainConfig])
def test_every_setting_has_a_row_whatever_its_kind(record: Any) -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    names = [item.name for item in dataclasses.fields(record)]
    assert names
    assert [name for name in names if f"| `{name}` |" not in page] == []


def test_all_verbs_but_the_demo_have_json_as_the_page_says() -> None:
    flags = {n: {f for p in verb.params for f in p.opts} for n, verb in cli.commands.items()}
    assert {name for name, own in flags.items() if "--json" not in own} == {"demo"}
    assert {"build", "pretrain"} <= {name for name, own in flags.items() if "--quiet" in own}
