"""Local workers: results, errors, death, and what they leave behind."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.pipeline.small_corpora import ROOT, environment

from clozemill.pipeline.engine import WORKER_ENVIRONMENT, LocalEngine, make_engine, usable_cores
from clozemill.pipeline.errors import ClozemillError, InputError


def square(number: int) -> int:
    return number * number


def process_id(number: int) -> int:
    return os.getpid()


def meet_another(folder: str) -> int:
    """Return this process's id once a second process has come to the folder as well."""
    Path(folder, str(os.getpid())).touch()
    stop = time.monotonic() + 60
    while len(os.listdir(folder)) < 2:
        assert time.monotonic() < stop, "one worker gets all tasks"
        time.sleep(0.01)
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


def start_script(folder: Path, text: str, **told: str) -> "subprocess.Popen[str]":
    """Start a script in an environment that says nothing of threads but what it is told."""
    guarded = "if __name__ == '__main__':\n" + textwrap.indent(text, "    ")
    path = folder / "script.py"
    path.write_text(f"from tests.pipeline.test_engine import *\n{guarded}")
    paths = os.pathsep.join([str(ROOT), environment()["PYTHONPATH"]])
    own = environment(PYTHONPATH=paths)
    untold = {name: value for name, value in own.items() if name not in WORKER_ENVIRONMENT}
    return subprocess.Popen(
        [sys.executable, path], env={**untold, **told}, stdout=subprocess.PIPE, text=True
    )


def is_running(number: int) -> bool:
    """Return whether there is such a process; one that is only not yet buried has ended."""
    try:
        return bool(psutil.Process(number).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


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


def test_one_worker_is_this_process_and_two_are_others(engine: LocalEngine, tmp_path: Path) -> None:
    with LocalEngine(1) as alone:
        assert list(alone.run(process_id, [0])) == [os.getpid()]
    found = set(engine.run(meet_another, [str(tmp_path)] * 6))
    assert len(found) == 2
    assert os.getpid() not in found


@pytest.mark.parametrize("told", [{}, {"OMP_NUM_THREADS": "3", "RAYON_NUM_THREADS": "2"}])
def test_workers_keep_to_one_thread_unless_told_otherwise(
    told: dict[str, str], tmp_path: Path
) -> None:
    process = start_script(
        tmp_path,
        "before = dict(os.environ)\n"
        "with LocalEngine(2) as engine:\n"
        "    print(json.dumps(list(engine.run(variables, range(2)))))\n"
        "assert dict(os.environ) == before\n",
        **told,
    )
    with process:
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert json.loads(out) == [{**WORKER_ENVIRONMENT, **told}] * 2


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
    assert not any(is_running(worker) for worker in workers)


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
        "with LocalEngine(2) as engine:\n"
        "    results = engine.run(sleep_long, [0.2, 0.2, 600.0, 600.0])\n"
        "    print(next(results), next(results), flush=True)\n"
        "    list(results)\n"
    )
    with start_script(tmp_path, script) as process:
        assert process.stdout is not None
        workers = {int(word) for word in process.stdout.readline().split()}
        assert workers
        assert all(is_running(worker) for worker in workers)
        process.kill()
    stop = time.monotonic() + 30
    while any(is_running(worker) for worker in workers):
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
