"""A stage: the same function over many tasks, with progress and the time it took."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from clozemill.pipeline.engine import Engine
from clozemill.pipeline.progress import Progress


class _Sized(Protocol):
    @property
    def num_units(self) -> int: ...


Task = TypeVar("Task", bound=_Sized)
Receipt = TypeVar("Receipt")


class Stages:
    """Runs the stages on the engine, and tells how far they are and how long they took."""

    seconds: dict[str, float]
    """How long each stage took."""

    def __init__(self, engine: Engine, on_progress: Callable[[Progress], None]) -> None:
        """Take the engine, and what is called after each task."""
        self._engine = engine
        self._on_progress = on_progress
        self.seconds = {}

    def run(
        self, stage: str, function: Callable[[Task], Receipt], tasks: Sequence[Task]
    ) -> list[Receipt]:
        """Return the receipts in the order of the tasks; the largest tasks start first."""
        started = time.monotonic()
        total = sum(task.num_units for task in tasks)
        done = 0
        self._on_progress(Progress(stage=stage, done=0, total=total))
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i].num_units)
        receipts: dict[int, Receipt] = {}
        numbered = [_Numbered(number=i, function=function, task=tasks[i]) for i in order]
        with contextlib.closing(self._engine.run(_run_numbered, numbered)) as results:
            for number, receipt in results:
                receipts[number] = receipt
                done += tasks[number].num_units
                self._on_progress(Progress(stage=stage, done=done, total=total))
        self.seconds[stage] = time.monotonic() - started
        return [receipts[i] for i in range(len(tasks))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """A task with its place, since engines give results back in any order."""

    number: int
    function: Callable[[Any], Any]
    task: Any


def _run_numbered(item: _Numbered) -> tuple[int, Any]:
    return item.number, item.function(item.task)
