"""The page that describes run folders: its tables are those of the code, and its blocks run."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.train.small_rows import start_row_of_a_corpus, train_row, window
from tests.train.small_runs import save_steps

from clozemill.train.metrics import ROW_KINDS, MetricsLog

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder under the name that the page uses."""
    monkeypatch.chdir(tmp_path)
    save_steps(tmp_path / "RUN" / "checkpoints", 5)
    with MetricsLog(tmp_path / "RUN" / "metrics.jsonl") as log:
        log.append(start_row_of_a_corpus())
        log.append(train_row(5))
        log.append(window().evaluation_row(step=5, split="validation"))
    return tmp_path / "RUN"


def blocks(language: str) -> list[str]:
    found = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found
    return found


def column_lines(kind: str) -> list[str]:
    """Return the table of a kind of row, as the page has it."""
    lines = ["| column | unit | | meaning |", "| --- | --- | --- | --- |"]
    for item in dataclasses.fields(ROW_KINDS[kind]):
        facts = item.metadata
        exactness = "measured" if facts["measured"] else "exact"
        lines.append(f"| `{item.name}` | {facts['unit']} | {exactness} | {facts['help']} |")
    return lines


@pytest.mark.parametrize("kind", ROW_KINDS)
def test_the_columns_are_those_of_the_code(kind: str) -> None:
    section = PAGE.split(f"### kind `{kind}`\n")[1].split("\n#")[0]
    assert [line for line in section.splitlines() if line.startswith("|")] == column_lines(kind)


def test_the_query_finds_the_rows_of_training(run: Path) -> None:
    (query,) = blocks("sql")
    assert duckdb.sql(query).fetchall() == [(5, 3.0, 1e-4, 45.0)]


def test_the_python_blocks_run(run: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python"):
        exec(block, names)
    assert names["losses"] == [(5, 3.0)]
    assert names["tensors"].keys() == {"table.weight", "dense.weight", "dense.bias", "decoder.bias"}


def test_the_keys_of_a_state_are_those_of_the_code() -> None:
    from clozemill.train.checkpoints import TrainingState
    from clozemill.train.facts import DatasetFacts, Execution, RunFacts

    for record in (TrainingState, RunFacts, DatasetFacts, Execution):
        for item in dataclasses.fields(record):
            assert f"`{item.name}`" in PAGE, item.name
