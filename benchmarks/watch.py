"""Running a command in a fresh process, and watching what its process tree takes."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import psutil  # type: ignore[import-untyped]

SECONDS_BETWEEN_SAMPLES = 0.1
LIBRARIES = ("clozemill", "tokenizers", "sentencex", "pyarrow", "numpy", "numba")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a command took."""

    seconds: float
    """From its start to its end, by the clock on the wall."""

    peak_pss_bytes: int
    """Most memory of the process tree at once; a page shared by n processes is 1/n of each."""

    peak_rss_bytes: int
    """The same sum with shared pages counted in every process."""

    stdout: str


def run_watched(command: Sequence[str], environment: Mapping[str, str]) -> Watched:
    """Run a command to its end.

    Raises:
        click.ClickException: It failed; the text ends with what it said.
    """
    # Files, not pipes: nobody reads while the clock runs.
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, env={**os.environ, **environment}
        )
        watch = _Watch(process.pid)
        watch.start()
        code = process.wait()
        seconds = time.perf_counter() - started
        watch.stop()
        stdout.seek(0)
        stderr.seek(0)
        if code:
            raise click.ClickException(f"{' '.join(command)} ended with {code}: {stderr.read()}")
        return Watched(
            seconds=seconds,
            peak_pss_bytes=watch.peak_pss_bytes,
            peak_rss_bytes=watch.peak_rss_bytes,
            stdout=stdout.read(),
        )


class _Watch(threading.Thread):
    """Samples the memory of a process and all below it."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.root = psutil.Process(pid)
        self.is_over = threading.Event()
        self.peak_pss_bytes = 0
        self.peak_rss_bytes = 0

    def run(self) -> None:
        while not self.is_over.wait(SECONDS_BETWEEN_SAMPLES):
            try:
                tree = [self.root, *self.root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            pss, rss = zip(*map(_memory, tree), strict=True)
            self.peak_pss_bytes = max(self.peak_pss_bytes, sum(pss))
            self.peak_rss_bytes = max(self.peak_rss_bytes, sum(rss))

    def stop(self) -> None:
        self.is_over.set()
        self.join()


def _memory(process: psutil.Process) -> tuple[int, int]:
    """Return proportional and resident bytes; nothing for a process that has ended."""
    try:
        memory = process.memory_full_info()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return 0, 0
    return memory.pss, memory.rss


def machine() -> dict[str, str | int]:
    """Return what the figures depend on: processor, cores, memory, versions, date."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in LIBRARIES},
        "date": datetime.date.today().isoformat(),
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
