"""What a training tells while it runs: rows for its log, for trackers and for a person."""

import contextlib
import dataclasses
import datetime
import os
import resource
import sys
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Any, TypeAlias

import torch

import clozemill
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import RunError
from clozemill.train.assembly import Assembly
from clozemill.train.baselines import measure_baselines
from clozemill.train.launch import precision_of
from clozemill.train.metrics import MetricsLog, Row, cannot_write, start_row
from clozemill.train.optimizers import decay_names
from clozemill.train.runs import Run
from clozemill.train.throughput import device_peak
from clozemill.train.window import Measured

OnRow: TypeAlias = Callable[[Row], None]

NOTES_NAME = "train.log"
"""Lines for a person: what each start was, which parameters decay, what was skipped."""

_TRACKED_PROJECT = "clozemill"


class Reporter:
    """Writes rows in the first process, and nothing in the others."""

    def __init__(self, parts: Assembly, run: Run, on_row: OnRow | None) -> None:
        """Open the log of a run; rows after the step that it goes on from are dropped.

        Raises:
            RunError: The log cannot be read or written.
        """
        self._accelerator = parts.accelerator
        self._on_row = on_row
        self._log = None
        self.notices: list[str] = []
        """What opening the log has found."""
        self._notes: FileIO | None = None
        with contextlib.ExitStack() as files:
            if parts.accelerator.is_main_process:
                self._log = files.enter_context(MetricsLog(run.metrics, last_step=run.step))
                self.notices = self._log.notices
                self._notes = files.enter_context(_open_notes(run.folder / NOTES_NAME))
            for text in (*_facts_of_start(parts, run), *run.notices, *self.notices):
                self.note(text)
            self._peak_flops = self._measure_peak() if parts.accelerator.is_main_process else None
            if parts.config.log_with is not None:
                settings = {n: v for n, v in parts.facts.settings.items() if v is not None}
                parts.accelerator.init_trackers(_TRACKED_PROJECT, config=settings)
            self._files = files.pop_all()

    def _measure_peak(self) -> float:
        """Return the FLOP/s of the devices of all ranks together."""
        peak = device_peak(self._accelerator.device, precision_of(self._accelerator))
        num_ranks: int = self._accelerator.num_processes
        return peak.flops_per_second * num_ranks

    def note(self, text: str) -> None:
        """Add a line for a person to train.log.

        Raises:
            RunError: The disk is full.
        """
        if self._notes is None:
            return
        line = f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S} {text}\n"
        try:
            self._notes.write(line.encode())
        except OSError as error:
            raise cannot_write(Path(self._notes.name), error) from error

    def write(self, row: Row) -> None:
        """Add a row to the log, and pass it on.

        Raises:
            RunError: The disk is full.
        """
        if self._log is not None:
            self._log.append(row)
            if self._on_row is not None:
                self._on_row(row)
        self._accelerator.log(_numbers(row), step=row.step)

    def write_start(self, dataset: Dataset, eval_instances: int | None) -> None:
        """Write the reference lines of the data, which take a few seconds to find, once."""
        if self._log is None or self._log.num_rows:
            return
        self.write(start_row(measure_baselines(dataset, eval_instances=eval_instances)))

    def measure(self) -> Measured:
        """Return what a row says of the machine."""
        device = self._accelerator.device
        return Measured(peak_flops=self._peak_flops, peak_memory_bytes=_peak_memory(device))

    def sync(self) -> None:
        """Force the log to disk."""
        if self._log is not None:
            self._log.sync()

    def __enter__(self) -> "Reporter":
        """Return the reporter."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the logs and trackers."""
        with self._files:
            if error[0] is not None:
                with contextlib.suppress(RunError):  # what ended the training is the one to tell
                    self.note(f"ended by {error[1]!r}")
        # Not `end_training`: it also leaves the group of processes, which others still use.
        for tracker in self._accelerator.trackers:
            tracker.finish()


def _numbers(row: Row) -> dict[str, Any]:
    """Return the numbers of a row, named by its kind, as trackers show them."""
    return {
        f"{row.kind}/{name}": value
        for name, value in dataclasses.asdict(row).items()
        if isinstance(value, int | float) and name != "step"
    }


def _facts_of_start(parts: Assembly, run: Run) -> Iterator[str]:
    """Yield what a start does, a sentence each: for who wonders later."""
    execution, config = parts.facts.execution, parts.config
    yield (
        f"clozemill {clozemill.__version__}, torch {execution.torch_version}: from step "
        f"{run.step or 0} to {parts.schedule.num_steps} on {execution.num_processes} x "
        f"{execution.device}, {execution.num_threads} threads each"
    )
    theirs = os.environ.get("ACCELERATE_MIXED_PRECISION")
    unfollowed = (
        f"; accelerate's configuration says {theirs}, which this wins over"
        if theirs not in (None, parts.accelerator.mixed_precision)
        else ""
    )
    yield f"precision {execution.precision} ({config.precision} was asked for){unfollowed}"
    decayed, exempt = decay_names(parts.model)
    yield f"gradients are clipped at {config.clip_norm}" if config.clip_norm else "no clipping"
    yield f"weight decay {config.weight_decay} on {len(decayed)}: {', '.join(decayed)}"
    yield f"no weight decay on {len(exempt)}: {', '.join(exempt)}"


def _open_notes(path: Path) -> FileIO:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise cannot_write(path, error) from error


def _peak_memory(device: torch.device) -> int:
    """Return the most bytes used so far: of a GPU by tensors, else of this process in all."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        # Not ru_maxrss: that begins with the size of the process that started this one.
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split("VmHWM:")[1].split()[0]) * 1024
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
