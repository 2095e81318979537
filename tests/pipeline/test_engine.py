"""Local workers: results, errors, death, and what they leave behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.pipeline.small_corpora import environment

from clozemill.pipeline.engine import WORKER_ENVIRONMENT, LocalEngine, make_engine, usable_cores
from clozemill.pipeline.errors import ClozemillError, InputError


def square(number: int) -> int:
    return number * number


def process_id(number: int) -> int:
    time.sleep(0.2)
    return os.getpid()


def fail_at_three(number: int) -> int:
    if number == 3:
        raise InputError(f"{number} cannot be read; choose another.")
    return number


def die_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def sleep_long(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def variables(number: int) -> dict[str, str | None]:
    return {name: os.environ.get(name) for name in WORKER_ENVIRONMENT}


def first_signal_of_a_worker(number: int) -> object:
    return signal.getsignal(signal.SIGINT)


@pytest.fixture(scope="module")
def engine() -> Iterator[LocalEngine]:
    with LocalEngine(2) as engine:
        yield engine


@pytest.mark.parametrize("num_tasks", [0, 1, 2, 17])
def test_every_result_comes_once(engine: LocalEngine, num_tasks: int) -> None:
    expected = [i * i for i in range(num_tasks)]
    assert sorted(engine.run(square, range(num_tasks))) == expected
    with LocalEngine(1) as alone:
        assert list(alone.run(square, range(num_tasks))) == expected


def test_one_worker_is_this_process_and_two_are_others(engine: LocalEngine) -> None:
    with LocalEngine(1) as alone:
        assert list(alone.run(process_id, [0])) == [os.getpid()]
    found = set(engine.run(process_id, range(6)))
    assert len(found) == 2
    assert os.getpid() not in found


def test_workers_keep_to_one_thread_unless_told_otherwise(engine: LocalEngine) -> None:
    before = dict(os.environ)
    assert "RAYON_NUM_THREADS" not in before
    results = list(engine.run(variables, range(2)))
    assert results == [WORKER_ENVIRONMENT] * 2
    assert dict(os.environ) == before


def test_workers_leave_interrupts_to_their_parent(engine: LocalEngine) -> None:
    assert list(engine.run(first_signal_of_a_worker, [0])) == [signal.SIG_IGN]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_a_task_is_that_error(workers: int) -> None:
    with (
        LocalEngine(workers) as engine,
        pytest.raises(InputError, match="3 cannot be read; choose another."),
    ):
        list(engine.run(fail_at_three, range(6)))


def test_the_death_of_a_worker_is_one_error() -> None:
    with (
        LocalEngine(2) as engine,
        pytest.raises(ClozemillError, match="a worker process died, perhaps because memory"),
    ):
        list(engine.run(die_at_three, range(6)))


def test_leaving_early_stops_the_workers() -> None:
    started = time.monotonic()
    with LocalEngine(2) as engine:
        with contextlib.closing(engine.run(sleep_long, [0.0, 0.0, 600.0, 600.0])) as results:
            workers = {next(results), next(results)}
        assert workers
    assert time.monotonic() - started < 60
    assert not any(psutil.pid_exists(worker) for worker in workers)


def test_handlers_of_signals_are_as_before() -> None:
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    with LocalEngine(2) as engine:
        list(engine.run(square, range(2)))
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == before


def test_a_thread_can_use_an_engine() -> None:
    results: list[int] = []

    def use() -> None:
        with LocalEngine(2) as engine:
            results.extend(engine.run(square, [2, 3]))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert sorted(results) == [4, 9]


def test_workers_leave_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = (
        "from tests.pipeline.test_engine import *\n"
        "if __name__ == '__main__':\n"
        "    with LocalEngine(2) as engine:\n"
        "        results = engine.run(sleep_long, [0.2, 0.2, 600.0, 600.0])\n"
        "        print(next(results), next(results), flush=True)\n"
        "        list(results)\n"
    )
    (tmp_path / "script.py").write_text(script)
    root = str(Path(__file__).resolve().parents[2])
    paths = os.pathsep.join([root, environment()["PYTHONPATH"]])
    with subprocess.Popen(
        [sys.executable, tmp_path / "script.py"],
        env=environment(PYTHONPATH=paths),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        workers = {int(word) for word in process.stdout.readline().split()}
        assert workers
        assert all(psutil.pid_exists(worker) for worker in workers)
        process.kill()
    stop = time.monotonic() + 5
    while any(psutil.pid_exists(worker) for worker in workers):
        assert time.monotonic() < stop
        time.sleep(0.02)


def test_usable_cores_are_those_of_the_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    assert 1 <= usable_cores() <= len(allowed)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_an_engine_is_made_by_name() -> None:
    assert isinstance(make_engine("local", workers=3, ray_address=None), LocalEngine)
