"""Progress for a terminal and for a log."""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.train.small_rows import start_row_of_a_corpus, train_row, window

from clozemill.pipeline.progress import Progress
from clozemill.progress_bars import live_rows, progress_bar


def steps(unit: str, total: int) -> Iterator[Progress]:
    for done in (0, total // 2, total):
        yield Progress(stage="working", unit=unit, done=done, total=total)  # type: ignore[arg-type]


@contextmanager
def stage_of_seconds(seconds: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    clock = iter(range(1_000))
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: next(clock) * seconds)
        yield


@pytest.mark.parametrize(("unit", "name"), [("bytes", "MB/s"), ("tokens", "M tokens/s")])
def test_a_log_gets_a_line_with_the_rate_at_the_end_of_a_stage(
    unit: str, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        stage_of_seconds(1.0, monkeypatch),
        progress_bar(is_shown=True) as on_progress,
    ):
        for progress in steps(unit, 6_000_000):
            on_progress(progress)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"working 100 % 3.0 {name}\n"


def test_an_end_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(is_shown=True) as on_progress:
        for progress in [*steps("bytes", 6_000_000)] * 2:
            on_progress(progress)
            if progress.done == progress.total:
                on_progress(progress)  # as after a file without bytes
    assert capsys.readouterr().err.count("working 100 %") == 2


def test_a_log_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        stage_of_seconds(20.0, monkeypatch),
        progress_bar(is_shown=True) as on_progress,
    ):
        for progress in steps("tokens", 6_000_000):
            on_progress(progress)
    assert capsys.readouterr().err.splitlines()[0] == "working 50 % 0.1 M tokens/s"


def test_a_log_gets_all_evaluations_and_other_rows_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with stage_of_seconds(4.0, monkeypatch), live_rows(is_shown=True) as on_row:
        for step in range(1, 7):
            on_row(train_row(step))
        on_row(window().evaluation_row(step=6, split="validation"))
        on_row(start_row_of_a_corpus())
    told = [line.partition(":")[0].split("  ")[:2] for line in capsys.readouterr().err.splitlines()]
    assert told == [
        *([f"step {step}", "epoch 0"] for step in (1, 4)),
        ["step 6", "validation"],
        ["lines to beat"],
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with live_rows(is_shown=True) as on_row:
        on_row(train_row(5))
        on_row(window().evaluation_row(step=5, split="validation"))
    assert "step 5  epoch 0  MLM" in terminal.getvalue()
    assert "step 5  validation: MLM" in terminal.getvalue()


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar(is_shown=True) as on_progress:
        for progress in steps("tokens", 100):
            on_progress(progress)
    assert "working" in terminal.getvalue()
    assert "100 %" in terminal.getvalue()


def test_nothing_is_shown_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(is_shown=False) as on_progress, live_rows(is_shown=False) as on_row:
        for progress in steps("bytes", 10):
            on_progress(progress)
        on_row(train_row(1))
    assert capsys.readouterr() == ("", "")
