"""How far long work has come, on standard error."""

import contextlib
import math
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar
from rich.text import Text

from clozemill.pipeline.progress import OnProgress, Progress
from clozemill.printing import is_terminal, tell

if TYPE_CHECKING:
    from clozemill.train.reporting import OnRow

_SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def progress_bar(*, is_shown: bool) -> Iterator[OnProgress]:
    """Give a callback that shows progress on standard error.

    A bar with rate and time left on a terminal, and a line now and then elsewhere.
    """
    if not is_shown:
        yield lambda progress: None
    elif is_terminal(sys.stderr):
        with ProgressBar(
            TextColumn("{task.description:<8}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  {task.fields[rate]:>16}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        ) as bar:
            yield _Bar(bar)
    else:
        yield _ProgressLines()


@contextlib.contextmanager
def live_rows(*, is_shown: bool) -> "Iterator[OnRow]":
    """Give a callback that shows the rows of a training on standard error.

    One line that changes on a terminal, and a line now and then elsewhere; evaluations stay.
    """
    # Here, as a build shows its progress without torch.
    from clozemill.train.metrics import Row, TrainRow
    from clozemill.training_tables import row_text

    def show_live(row: Row) -> None:
        if isinstance(row, TrainRow):
            live.update(Text(row_text(row)), refresh=True)
        else:
            live.console.print(row_text(row))

    def tell_now_and_then(row: Row) -> None:
        if pace.is_due(time.monotonic(), at_once=not isinstance(row, TrainRow)):
            tell(row_text(row))

    if not is_shown:
        yield lambda row: None
    elif is_terminal(sys.stderr):
        console = Console(stderr=True, highlight=False)
        with Live(console=console, auto_refresh=False) as live:
            yield show_live
    else:
        pace = _Pace()
        yield tell_now_and_then


class _Pace:
    """Says when a line is due where there is no terminal: a while after the last one."""

    def __init__(self) -> None:
        self.last = -math.inf

    def is_due(self, now: float, *, at_once: bool) -> bool:
        """Return whether to tell a line now; `at_once`: whenever the last one was."""
        if not at_once and now - self.last < _SECONDS_BETWEEN_LINES:
            return False
        self.last = now
        return True


class _Bar:
    def __init__(self, bar: ProgressBar) -> None:
        self.bar = bar
        self.stages: dict[str, Any] = {}

    def __call__(self, progress: Progress) -> None:
        if progress.stage not in self.stages:
            task = self.bar.add_task(progress.stage, total=progress.total or 1, rate="")
            self.stages[progress.stage] = (task, time.monotonic())
        task, started = self.stages[progress.stage]
        rate = _rate(progress, time.monotonic() - started)
        self.bar.update(task, completed=progress.done or not progress.total, rate=rate)


class _ProgressLines:
    def __init__(self) -> None:
        self.stage = ""
        self.is_told_end = False
        self.started = time.monotonic()
        self.pace = _Pace()

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.stage != self.stage:
            self.stage, self.started, self.pace.last = progress.stage, now, now
            self.is_told_end = False
        is_end = progress.done == progress.total and progress.done > 0
        if is_end and self.is_told_end:
            return  # of an input without bytes
        self.is_told_end = is_end
        if self.pace.is_due(now, at_once=is_end):
            share = 100 * progress.done / max(progress.total, 1)
            rate = _rate(progress, now - self.started)
            tell(f"{progress.stage} {share:.0f} % {rate}")


def _rate(progress: Progress, seconds: float) -> str:
    if not progress.done or seconds < 0.1:
        return ""
    if progress.unit == "questions":
        return f"{progress.done} of {progress.total}"
    unit = {"bytes": "MB/s", "tokens": "M tokens/s"}[progress.unit]
    return f"{progress.done / seconds / 1e6:.1f} {unit}"
