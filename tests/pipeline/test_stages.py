"""Stages: order, progress, time and memory of what the tasks did."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from clozemill.pipeline.engine import LocalEngine
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.stages import Stages


@dataclass(frozen=True)
class Fill:
    """A task that takes so many bytes."""

    num_units: int


def fill(task: Fill) -> int:
    return int(np.ones(task.num_units, np.uint8).sum())


def run(workers: int, sizes: list[int]) -> tuple[list[int], list[Progress], Any]:
    seen: list[Progress] = []
    with LocalEngine(workers) as engine:
        stages = Stages(engine, seen.append)
        receipts = stages.run("filling", fill, [Fill(size) for size in sizes], unit="bytes")
    return receipts, seen, stages


def test_receipts_come_in_the_order_of_the_tasks_and_the_largest_task_is_first() -> None:
    receipts, seen, _ = run(1, [1, 3, 2])
    assert receipts == [1, 3, 2]
    assert [(p.done, p.total) for p in seen] == [(0, 6), (3, 6), (5, 6), (6, 6)]
    assert {(p.stage, p.unit) for p in seen} == {("filling", "bytes")}


def test_a_stage_without_tasks_is_done_at_once() -> None:
    receipts, seen, _ = run(1, [])
    assert receipts == []
    assert [(p.done, p.total) for p in seen] == [(0, 0)]


@pytest.mark.slow
def test_the_peak_memory_is_that_of_the_largest_worker() -> None:
    _, _, small = run(2, [1_000, 1_000])
    size = small.peak_process_bytes + 100_000_000
    _, _, large = run(2, [1_000, size])
    assert 50_000_000 < small.peak_process_bytes < size <= large.peak_process_bytes


def test_every_stage_is_timed() -> None:
    with LocalEngine(1) as engine:
        stages = Stages(engine, lambda progress: None)
        started = time.monotonic()
        with stages.timed("sleeping"):
            time.sleep(0.05)
        stages.run("filling", fill, [Fill(1_000)], unit="bytes")
        passed = time.monotonic() - started
    assert list(stages.seconds) == ["sleeping", "filling"]
    assert stages.seconds["sleeping"] >= 0.05
    assert sum(stages.seconds.values()) == pytest.approx(passed, abs=0.05)
