"""Where a build's time goes, and what it was doing when it held most memory.

    python -m benchmarks.profile_build --tier quick

Builds with one worker in this process, while a thread looks at the stack now and then. Unlike a
tracing profiler that costs the build next to nothing, and kernels count for the lines that call
them.
"""

import collections
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import click
import psutil  # type: ignore[import-untyped]

from benchmarks.build import VOCAB, find_tier
from benchmarks.corpus import QUICK, corpora_dir
from clozemill.pipeline.build import build
from clozemill.pipeline.config import BuildConfig

SECONDS_BETWEEN_SAMPLES = 0.004
_OURS = f"{Path('clozemill', 'pipeline')}"
_WRAPPERS = ("jit.py",)
"""Files whose functions stand between a line and the kernel that it calls."""


class Sampler(threading.Thread):
    """Counts the time of one thread's functions, and keeps the stack of the largest memory."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Sample the thread that makes this."""
        super().__init__(daemon=True)
        self.clock = clock
        self.watched = threading.get_ident()
        self.is_over = threading.Event()
        self.process = psutil.Process()
        self.total = 0.0
        self.with_callees: dict[str, float] = collections.defaultdict(float)
        self.by_line: dict[str, float] = collections.defaultdict(float)
        self.peak_bytes = 0
        self.peak_stack: list[str] = []
        self.peaks: dict[str, int] = {}

    def run(self) -> None:
        """Sample until stopped; a sample weighs the time since the one before."""
        before = self.clock()
        while not self.is_over.wait(SECONDS_BETWEEN_SAMPLES):
            frames = _our_frames(sys._current_frames()[self.watched])
            now = self.clock()
            self._count(frames, now - before)
            before = now

    def stop(self) -> None:
        """Stop sampling."""
        self.is_over.set()
        self.join()

    def _count(self, frames: list[tuple[str, str]], seconds: float) -> None:
        self.total += seconds
        for function in {function for function, _ in frames}:
            self.with_callees[function] += seconds
        self.by_line[frames[0][1] if frames else "outside the pipeline"] += seconds
        memory = self.process.memory_info().rss
        for function, _ in frames:
            self.peaks[function] = max(memory, self.peaks.get(function, 0))
        if memory > self.peak_bytes:
            self.peak_bytes, self.peak_stack = memory, [line for _, line in frames]


def _our_frames(frame: FrameType | None) -> list[tuple[str, str]]:
    """Return function and line of the pipeline's frames, innermost first."""
    found = []
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if _OURS in str(path) and path.name not in _WRAPPERS:
            function = f"{path.name} {frame.f_code.co_qualname}"
            found.append((function, f"{path.name}:{frame.f_lineno} {frame.f_code.co_name}"))
        frame = frame.f_back
    return found


def report(sampler: Sampler, num_rows: int) -> str:
    """Return the tables."""
    lines = [f"{sampler.total:.1f} s", "", "with callees: seconds, share, largest RSS inside (MB)"]
    for name, seconds in _largest(sampler.with_callees, num_rows):
        share = seconds / sampler.total
        lines.append(f"{seconds:8.2f} {share:6.1%} {sampler.peaks[name] / 1e6:7.0f}  {name}")
    lines += ["", "by the innermost line of ours: seconds, share"]
    for name, seconds in _largest(sampler.by_line, num_rows):
        lines.append(f"{seconds:8.2f} {seconds / sampler.total:6.1%}  {name}")
    stack = " < ".join(sampler.peak_stack)
    return "\n".join([*lines, "", f"peak RSS {sampler.peak_bytes / 1e6:.0f} MB in {stack}"])


def _largest(seconds: dict[str, float], num_rows: int) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda item: -item[1])[:num_rows]


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@click.command()
@click.option("--tier", default=QUICK, show_default=True)
@click.option("--variants", default=10, show_default=True)
@click.option("--clock", type=click.Choice(list(CLOCKS)), default="wall", show_default=True)
@click.option("--rows", default=40, show_default=True)
@click.option("--work", type=click.Path(path_type=Path), help="Keeps made corpora between runs.")
def main(tier: str, variants: int, clock: str, rows: int, work: Path | None) -> None:
    """Profile a build with one worker."""
    with tempfile.TemporaryDirectory(prefix="clozemill-bench-") as temporary:
        config = BuildConfig(
            inputs=find_tier(tier, work or Path(temporary)).files,
            tokenizer=str(corpora_dir() / "vocab" / VOCAB),
            out=str(Path(temporary) / "dataset"),
            mask_variants=variants,
            workers=1,
        )
        sampler = Sampler(CLOCKS[clock])
        sampler.start()
        build(config)
        sampler.stop()
    click.echo(report(sampler, rows))


if __name__ == "__main__":
    main()
