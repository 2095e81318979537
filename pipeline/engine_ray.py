"""The same tasks on a running Ray cluster whose nodes see one file system.

Ray retries a task whose node or process was lost, and a task that is done twice writes the same
bytes, so losing a node costs time and nothing else.
"""

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from clozemill.pipeline.engine import WORKER_ENVIRONMENT, Result, Results, Task
from clozemill.pipeline.errors import ClozemillError, ConfigError

_MOST_RETRIES = 8
"""How often a task may lose its worker before the build stops."""

_PATIENCE_SECONDS = 5.0
_FRESH_SECONDS = 5.0
"""How long the number of the cluster's cores is believed."""


class RayEngine:
    """Runs tasks as Ray tasks of one core each."""

    def __init__(self, address: str | None, *, workers: int | None) -> None:
        """Take the cluster's address (by default the one Ray finds) and the most tasks at once."""
        try:
            import ray
        except ImportError as error:
            raise ConfigError(
                "engine is 'ray', but Ray is not installed; pip install 'clozemill[ray]'."
            ) from error
        self._ray: Any = ray
        self._address = address or os.environ.get("RAY_ADDRESS") or "auto"
        self._workers = workers
        self._is_ours = False

    def __enter__(self) -> "RayEngine":
        """Connect to the cluster.

        Raises:
            ConfigError: There is no cluster at the address.
        """
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            self._connect()
        return self

    def __exit__(self, *error: object) -> None:
        """Leave the cluster as it was found."""
        if self._is_ours:
            self._ray.shutdown()

    def run(self, function: Callable[[Task], Result], tasks: Sequence[Task]) -> Results[Result]:
        """Yield the results as they come.

        Raises:
            ClozemillError: A task lost its worker too often.
        """
        remote = self._ray.remote(num_cpus=1, max_retries=_MOST_RETRIES)(function)
        waiting = list(reversed(tasks))
        most = _Refreshed(self._most_at_once)
        running: list[Any] = []
        try:
            while waiting or running:
                while waiting and len(running) < most():
                    running.append(remote.remote(waiting.pop()))
                done, running = self._ray.wait(running, num_returns=1)
                yield from self._results(done)
        finally:
            for reference in running:
                self._ray.cancel(reference, force=True)

    def _connect(self) -> None:
        try:
            _knock(self._address)
            with _terminations_kept():
                self._ray.init(
                    address=self._address,
                    log_to_driver=False,
                    logging_level="warning",
                    runtime_env={"env_vars": WORKER_ENVIRONMENT},
                )
        except OSError as error:
            raise ConfigError(
                f"no Ray cluster at {self._address!r}; start one with `ray start --head`, or give "
                "--ray-address."
            ) from error

    def _most_at_once(self) -> int:
        cores = int(self._ray.cluster_resources().get("CPU", 1))
        # Twice the cores keeps every node busy while this process waits.
        return self._workers or 2 * cores

    def _results(self, done: Sequence[Any]) -> list[Any]:
        try:
            results: list[Any] = self._ray.get(list(done))
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from None
        except self._ray.exceptions.RayError as error:
            raise ClozemillError(
                f"a Ray task was lost {_MOST_RETRIES} times ({type(error).__name__}); see the "
                "cluster's logs, then run the same command again to resume."
            ) from error
        return results


class _Refreshed:
    """A number that is asked for again every few seconds: nodes come and go."""

    def __init__(self, ask: Callable[[], int]) -> None:
        self._ask = ask
        self._value = 0
        self._stale_at = 0.0

    def __call__(self) -> int:
        """Return the number as of a few seconds ago at most."""
        if time.monotonic() >= self._stale_at:
            self._value = self._ask()
            self._stale_at = time.monotonic() + _FRESH_SECONDS
        return self._value


def _knock(address: str) -> None:
    """Raise `OSError` if nobody answers at HOST:PORT, which Ray would wait for for minutes."""
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _PATIENCE_SECONDS).close()


@contextlib.contextmanager
def _terminations_kept() -> Iterator[None]:
    """Keep what SIGTERM does here; Ray would have it leave with the exit code 15."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
