import json
import re
import sys
from pathlib import Path

import pytest

from clozemill.cli import cli
from clozemill.demo import STEPS, write_corpus
from clozemill.pipeline.dataset import open_dataset
from clozemill.train.metrics import EvaluationRow, StartRow, exact_columns, read_metrics

README = (Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_corpus_of_the_demo_has_speeches_without_stage_notes(tmp_path: Path) -> None:
    count = write_corpus(tmp_path / "speeches.jsonl")
    lines = (tmp_path / "speeches.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    assert len(records) == count >= 240
    assert not any("[Applause]" in record["text"] for record in records)
    assert all(record["id"] and record["text"] for record in records)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the README has, in an empty one."""
    monkeypatch.chdir(tmp_path)
    return Path("demo-out")


@pytest.mark.slow
def test_without_a_package_of_training_the_demo_shows_the_rest_and_says_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # As if it were not installed; of torch, scipy would take the None for the module.
    monkeypatch.setitem(sys.modules, "safetensors", None)
    assert not cli.main(["demo"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "is sound: " in shown
    assert "$ clozemill pretrain " not in shown
    assert shown.endswith(
        "\nWhat is left to show trains an encoder, for which safetensors is not installed: pip "
        "install 'clozemill[train]', and run the same command again.\n"
    )
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["audit.html", "data", "speeches.jsonl", "vocab"]


@pytest.mark.slow
def test_the_demo_runs_every_verb_that_it_shows_and_its_encoder_learns(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not cli.main(["demo"], standalone_mode=False)
    printed = capsys.readouterr()
    shown = printed.out
    for step in STEPS:
        assert f"$ clozemill {step.arguments(folder)[0]} " in shown
    assert "is sound: " in shown
    assert "variant 1: " in shown
    assert "a sound dataset fails at most 1 time in 1,000,000" in shown
    for page in ("audit.html", "study.html"):
        assert "<svg" in (folder / page).read_text(encoding="utf-8")
    _check_trainings(folder, shown)
    _check_study(folder, shown)
    _check_readme(shown + printed.err)


def _check_trainings(folder: Path, shown: str) -> None:
    """Check that the long run falls below the line, and that the short one is its begin."""
    static, dynamic = (read_metrics(folder / n / "metrics.jsonl") for n in ("static", "dynamic"))
    start = static[0]
    assert isinstance(start, StartRow)
    last = static[-1]
    assert isinstance(last, EvaluationRow)
    assert last.mlm_loss is not None
    assert start.context_free_loss is not None
    assert last.mlm_loss < start.context_free_loss - 0.5
    at_100 = [
        exact_columns(row)
        for rows in (static, dynamic)
        for row in rows
        if isinstance(row, EvaluationRow) and row.step == 100
    ]
    assert len(at_100) == 2
    assert at_100[0] == at_100[1]
    measured = re.findall(r"^MLM loss +([\d.]+) ", shown, re.MULTILINE)
    assert measured == [f"{last.mlm_loss:.3f}"], "an export is what was trained"


def _check_study(folder: Path, shown: str) -> None:
    """Check that its encoders have learnt to read, and never saw what they are measured on."""
    assert "what is seen in 20 epochs" in shown
    assert "No arm beats" not in shown
    measured, held_out = (
        _validation_documents(folder / "few"),
        _validation_documents(folder / "short"),
    )
    assert len(measured) == 2
    assert measured < held_out


def _validation_documents(data: Path) -> set[bytes]:
    rows = [row for batch in open_dataset(data).documents() for row in batch.to_pylist()]
    return {row["document_id"] for row in rows if row["split"] == "validation"}


def _check_readme(shown: str) -> None:
    """Check that what the README shows of a demo is what it prints, but for numbers."""
    (block,) = re.findall(r"What `make demo` prints.*?```\n(.*?)```", README, re.DOTALL)
    lines = [line for line in block.splitlines() if line]
    assert len(lines) > 15
    printed = {_without_numbers(line) for line in shown.splitlines()}
    assert [line for line in lines if _without_numbers(line) not in printed] == []


def _without_numbers(line: str) -> str:
    """Return a line's words; numbers that a training gives depend on the machine."""
    return " ".join(re.sub(r"[\d.,]*\d", "0", line).split())
