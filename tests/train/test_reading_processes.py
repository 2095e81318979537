"""Ranks as real processes, which would hang if one of them had fewer turns than another."""

import contextlib
import json
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from tests.train.dump_rows import GLOBAL_BATCH_SIZE
from tests.train.processes import run_module, start_module
from tests.train.small_readings import BuiltDataset, rows_expected, with_shards

from clozemill.train.instances import PretrainingInstances
from clozemill.train.order import BatchOrder, turns_per_step

pytestmark = pytest.mark.slow


def steps_read(
    data: Path, out: Path, steps: range, *, ranks: int, num_workers: int = 0
) -> list[list[str]]:
    """Return the rows of each step that so many processes read, in the order of the batch."""
    done = run_module(
        "tests.train.dump_rows",
        data,
        out,
        steps.start,
        steps.stop,
        num_workers,
        ranks=ranks,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    turns = [json.loads((out / f"{steps.start}-{rank}.json").read_text()) for rank in range(ranks)]
    each = turns_per_step(GLOBAL_BATCH_SIZE, micro_batch_size=1, world_size=ranks)
    assert [len(found) for found in turns] == [each * len(steps)] * ranks
    return [
        [
            row
            for turn in range(step * each, (step + 1) * each)
            for found in turns
            for row in found[turn]
        ]
        for step in range(len(steps))
    ]


def steps_expected(instances: PretrainingInstances, steps: range) -> list[list[str]]:
    order = BatchOrder(instances, global_batch_size=GLOBAL_BATCH_SIZE, length_window=2)
    batches = [instances[order.global_batch(step)] for step in steps]
    return [[repr(row) for row in rows_expected(batch)] for batch in batches]


def test_two_processes_with_two_workers_share_three_uneven_shards(
    built: BuiltDataset, tmp_path: Path
) -> None:
    """Case: shards of 5, 5 and 1; the same number of turns, all 11 instances once, no hang."""
    data = with_shards(built(), tmp_path / "data", [5, 5, 1])
    instances = PretrainingInstances(data, masking="dynamic")
    rows = steps_read(data.folder, tmp_path, range(6), ranks=2, num_workers=2)
    assert rows == steps_expected(instances, range(6))
    for epoch in (0, 1):
        seen = sum(rows[3 * epoch : 3 * epoch + 3], [])
        indices = range(11 * epoch, 11 * (epoch + 1))
        assert sorted(seen) == sorted(map(repr, rows_expected(instances.__getitems__(indices))))


def test_one_process_goes_on_where_two_stopped(built: BuiltDataset, tmp_path: Path) -> None:
    """Case: stopped after step 5 of a run of 12; nothing lost, repeated or masked anew."""
    data = with_shards(built("webdataset"), tmp_path / "data", [7, 3, 2, 8])
    instances = PretrainingInstances(data, masking="dynamic")
    first = steps_read(data.folder, tmp_path, range(5), ranks=2)
    second = steps_read(data.folder, tmp_path, range(5, 12), ranks=1)
    assert first + second == steps_expected(instances, range(12))


def test_loader_workers_leave_with_a_process_that_is_killed(
    built: BuiltDataset, tmp_path: Path
) -> None:
    """Also those that wait for work, who would else wait for ever."""
    process = start_module("tests.train.dump_rows", built().folder, tmp_path, 0, 10**9, 2)
    root = psutil.Process(process.pid)
    try:
        deadline = time.monotonic() + 120
        while len(children := root.children(recursive=True)) < 4 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert len(children) >= 4, "a resource tracker, a fork server and two workers"
        time.sleep(2)  # until all workers have begun
    finally:
        process.kill()
        process.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    for child in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    process.communicate()
    assert alive == []
