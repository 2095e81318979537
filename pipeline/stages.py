"""A stage: the same function over many tasks, with progress, the time it took and its memory."""

import contextlib
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

from clozemill.pipeline.engine import Engine
from clozemill.pipeline.progress import OnProgress, Progress


class _Sized(Protocol):
    @property
    def num_units(self) -> int: ...


Task = TypeVar("Task", bound=_Sized)
Receipt = TypeVar("Receipt")


class Stages:
    """Runs the stages on the engine, and tells how far they are and what they took."""

    seconds: dict[str, float]
    """How long each stage took."""

    peak_process_bytes: int
    """The most resident memory of any process that worked, so far."""

    def __init__(self, engine: Engine, on_progress: OnProgress) -> None:
        """Take the engine, and what is called after each task."""
        self._engine = engine
        self._on_progress = on_progress
        self.seconds = {}
        self.peak_process_bytes = 0

    @contextlib.contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        """Run something in this process as a stage."""
        started = time.monotonic()
        yield
        self.seconds[stage] = time.monotonic() - started
        self.peak_process_bytes = max(self.peak_process_bytes, _peak_bytes())

    def run(
        self,
        stage: str,
        function: Callable[[Task], Receipt],
        tasks: Sequence[Task],
        *,
        unit: Literal["bytes", "tokens"],
    ) -> list[Receipt]:
        """Return the receipts in the order of the tasks; the largest tasks start first."""
        with self.timed(stage):
            receipts = dict(self._receipts(stage, function, tasks, unit))
        return [receipts[i] for i in range(len(tasks))]

    def _receipts(
        self,
        stage: str,
        function: Callable[[Task], Receipt],
        tasks: Sequence[Task],
        unit: Literal["bytes", "tokens"],
    ) -> Iterator[tuple[int, Receipt]]:
        total = sum(task.num_units for task in tasks)
        done = 0
        self._on_progress(Progress(stage=stage, unit=unit, done=0, total=total))
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i].num_units)
        numbered = [_Numbered(number=i, function=function, task=tasks[i]) for i in order]
        with contextlib.closing(self._engine.run(_run_numbered, numbered)) as results:
            for number, receipt, peak_bytes in results:
                yield number, receipt
                self.peak_process_bytes = max(self.peak_process_bytes, peak_bytes)
                done += tasks[number].num_units
                self._on_progress(Progress(stage=stage, unit=unit, done=done, total=total))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """A task with its place, since engines give results back in any order."""

    number: int
    function: Callable[[Any], Any]
    task: Any


def _run_numbered(item: _Numbered) -> tuple[int, Any, int]:
    """Return the task's place, its receipt, and the worker's peak memory.

    The worker tells: those of the fork server and of Ray are nobody's children here.
    """
    return item.number, item.function(item.task), _peak_bytes()


def _peak_bytes() -> int:
    """Return the most resident memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
