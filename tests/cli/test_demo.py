import json
from pathlib import Path

import pytest

from clozemill.cli import cli
from clozemill.demo import demo_steps, write_corpus


def test_the_corpus_of_the_demo_has_speeches_without_stage_notes(tmp_path: Path) -> None:
    count = write_corpus(tmp_path / "speeches.jsonl")
    lines = (tmp_path / "speeches.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == count >= 240
    assert not any("[Applause]" in record["text"] for record in records)
    assert all(record["id"] and record["text"] for record in records)


@pytest.mark.slow
def test_the_demo_runs_every_verb_that_it_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not cli.main(["demo", "--out", str(tmp_path / "d")], standalone_mode=False)
    shown = capsys.readouterr().out
    for step in demo_steps(tmp_path / "d"):
        assert f"$ clozemill {step.arguments[0]} " in shown
    assert "is sound: " in shown
    assert "variant 1: " in shown
    assert (tmp_path / "d" / "data" / "manifest.json").exists()
