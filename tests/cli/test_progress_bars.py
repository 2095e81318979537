"""Progress for a terminal and for a log."""

import io
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from clozemill.pipeline.progress import Progress
from clozemill.progress_bars import progress_bar


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


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_bar(is_shown=True) as on_progress:
        for progress in steps("tokens", 100):
            on_progress(progress)
    assert "working" in terminal.getvalue()
    assert "100 %" in terminal.getvalue()


def test_nothing_is_shown_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(is_shown=False) as on_progress:
        for progress in steps("bytes", 10):
            on_progress(progress)
    assert capsys.readouterr() == ("", "")
