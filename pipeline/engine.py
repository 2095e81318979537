"""Engines map a function over independent tasks: local processes, or a Ray cluster.

A task and its result are small and picklable; what a task makes it writes to disk. So an
engine needs no order, no state and no scheduler of ours, and every engine gives the same bytes.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait as wait_for_handles
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from clozemill.pipeline.errors import ClozemillError, ConfigError

Task = TypeVar("Task")
Result = TypeVar("Result")

_PRELOAD = "clozemill.pipeline.preload"
"""What workers need, and later this process too."""

_PRELOAD_WORKERS = "clozemill.pipeline.preload_workers"
"""The same, imported once, before workers are forked."""

_UNGUARDED = (
    "workers import the script that starts a build and must not start another; put what the "
    'script does below `if __name__ == "__main__":`.'
)

_FAILED_TO_START = 1
"""Exit code of a worker that raised before it took a task; signals give negative ones."""

Results: TypeAlias = Generator[Result, None, None]
"""Results as they come; closing it early stops the work."""

# One thread in each worker, and large blocks that glibc keeps instead of giving them back to the
# system and faulting them in again for the next batch (4 % of a build's time).
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_MMAP_THRESHOLD_": "1073741824",
    "MALLOC_TRIM_THRESHOLD_": "1073741824",
}


class Engine(Protocol):
    """Runs functions over tasks, in any order, and gives back each result once."""

    def __enter__(self) -> "Engine":
        """Begin to start workers; does not wait for them."""

    def __exit__(self, *error: object) -> None:
        """Stop all workers."""

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Results[Result]:
        """Yield the results as they come."""


def usable_cores() -> int:
    """Return how many cores this process may use: its affinity, and its cgroup's quota."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores or 1, max(1, int(quota) // int(period)))
    return cores or 1


def num_worker_processes(engine: str, workers: int | None) -> int:
    """Return how many processes the local engine starts; 0 where it needs none but this one."""
    num_workers = workers or usable_cores()
    return num_workers if engine == "local" and num_workers > 1 else 0


def make_engine(name: str, *, workers: int | None, ray_address: str | None) -> Engine:
    """Return the engine of that name."""
    if name == "ray":
        from clozemill.pipeline.engine_ray import RayEngine

        return RayEngine(ray_address, workers=workers)
    return LocalEngine(workers or usable_cores())


def start_fork_server(*modules: str) -> None:
    """Start the process that workers are forked from, while this one goes on; once is enough.

    A fork server, since Arrow's and the tokenizer's threads do not survive a plain fork, and
    since it imports once what all workers need.

    Args:
        modules: What else they will import, as their parent's script does.

    Raises:
        ConfigError: This is a worker that imports the script that started it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise ConfigError(_UNGUARDED)
    multiprocessing.get_context("forkserver").set_forkserver_preload([_PRELOAD_WORKERS, *modules])
    # The server would start it, which lets interrupts in again before the server itself starts.
    resource_tracker.ensure_running()
    with _environment(WORKER_ENVIRONMENT), _interrupts_held_back():
        forkserver.ensure_running()


class LocalEngine:
    """Processes of the standard library; one worker runs in this very process."""

    def __init__(self, workers: int) -> None:
        """Take the number of worker processes."""
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "LocalEngine":
        """Begin to start the workers."""
        if num_worker_processes("local", self._workers):
            start_fork_server()
            context = multiprocessing.get_context("forkserver")
            self._pool = ProcessPoolExecutor(
                self._workers, mp_context=context, initializer=start_worker
            )
        return self

    def __exit__(self, *error: object) -> None:
        """Stop the workers, whatever they are doing."""
        if self._pool is not None:
            _stop(self._pool)

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Results[Result]:
        """Yield the results as they come.

        Raises:
            ClozemillError: A worker died, for instance because memory ran out.
            ConfigError: Workers cannot import the script that started the build.
        """
        if self._pool is None:
            yield from map(function, tasks)
            return
        try:
            # Submitting is what starts the workers.
            with _interrupts_held_back():
                pending = [self._pool.submit(function, task) for task in tasks]
            processes = list(self._pool._processes.values())
            # This process will need the same, and has nothing to do but wait.
            threading.Thread(target=importlib.import_module, args=[_PRELOAD]).start()
            for future in as_completed(pending):
                yield future.result()
        except BrokenProcessPool as error:
            # Wait for the thread that collects the exit codes; two readers lose them.
            self._pool.shutdown()
            if any(process.exitcode == _FAILED_TO_START for process in processes):
                raise ConfigError(_UNGUARDED) from error
            raise ClozemillError(
                "a worker process died, perhaps because memory ran out; the same command "
                "resumes the build, with fewer --workers if memory is short."
            ) from error


def _stop(pool: ProcessPoolExecutor) -> None:
    processes = list((pool._processes or {}).values())
    manager: threading.Thread | None = pool._executor_manager_thread  # type: ignore[assignment]
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
    if manager is not None:
        manager.join()  # or the interpreter's end may wake it as it closes its pipe


def start_worker() -> None:
    """Leave interrupts to the parent, and leave with it even when it is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        raise ConfigError("a worker was started outside a pool.")

    def follow_parent() -> None:
        wait_for_handles([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow_parent, daemon=True).start()


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let no interrupt in before every process is started, and none ever into the processes.

    A process that is only half told what it is, or is importing, dies of it with a traceback.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # interrupts go to the main thread
        return
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {n: signal.signal(n, lambda number, _: caught.append(number)) for n in numbers}
    # What is blocked here stays blocked in the processes; other threads still take it for us.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if caught:
            signal.raise_signal(caught[0])


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set variables that the processes started inside inherit."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: os.environ.get(name, value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
