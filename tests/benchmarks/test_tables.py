"""What benchmarks print and keep."""

import json
from pathlib import Path

import pytest
from benchmarks.tables import give, markdown_table


def test_a_table_has_names_to_the_left_and_numbers_to_the_right() -> None:
    assert markdown_table(("step of", "ratio"), [["clozemill", "1.19"]]) == (
        "| step of | ratio |\n| --- | ---: |\n| clozemill | 1.19 |"
    )


@pytest.mark.parametrize("is_json", [False, True])
def test_what_is_kept_is_json_whatever_is_printed(
    is_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    give({"seconds": 2}, "2 s", is_json=is_json, save=tmp_path / "saved.json")
    assert json.loads((tmp_path / "saved.json").read_text()) == {"seconds": 2}
    printed = capsys.readouterr().out
    assert printed == ((tmp_path / "saved.json").read_text() if is_json else "2 s\n")
