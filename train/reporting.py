"""What a training tells while it runs: rows for its log, for trackers and for a person."""

import dataclasses
import resource
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from clozemill.pipeline.dataset import Dataset
from clozemill.train.assembly import Assembly
from clozemill.train.baselines import measure_baselines
from clozemill.train.launch import precision_of
from clozemill.train.metrics import Measured, MetricsLog, Row, start_row
from clozemill.train.runs import Run
from clozemill.train.throughput import device_peak

OnRow: TypeAlias = Callable[[Row], None]

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
        if parts.accelerator.is_main_process:
            self._log = MetricsLog(run.metrics, last_step=run.step)
            self.notices = self._log.notices
        self._peak_flops = self._measure_peak() if parts.accelerator.is_main_process else None
        if parts.config.log_with is not None:
            settings = {n: v for n, v in parts.facts.settings.items() if v is not None}
            parts.accelerator.init_trackers(_TRACKED_PROJECT, config=settings)

    def _measure_peak(self) -> float:
        """Return the FLOP/s of the devices of all ranks together."""
        peak = device_peak(self._accelerator.device, precision_of(self._accelerator))
        num_ranks: int = self._accelerator.num_processes
        return peak.flops_per_second * num_ranks

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
        """End the log and trackers."""
        if self._log is not None:
            self._log.close()
        self._accelerator.end_training()


def _numbers(row: Row) -> dict[str, Any]:
    """Return the numbers of a row, named by its kind, as trackers show them."""
    return {
        f"{row.kind}/{name}": value
        for name, value in dataclasses.asdict(row).items()
        if isinstance(value, int | float) and name != "step"
    }


def _peak_memory(device: torch.device) -> int:
    """Return the most bytes used so far: of a GPU by tensors, else of this process in all."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
