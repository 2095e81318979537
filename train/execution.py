"""On what a training runs: the facts that decide whether its numbers can be bit-equal."""

import dataclasses
import platform
from dataclasses import dataclass
from importlib.metadata import version

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """Facts that change no sample and no mask, but the last bits of sums."""

    python_version: str
    """Of the interpreter."""

    torch_version: str
    """Of the installed torch, with its build."""

    accelerate_version: str
    """Of the installed accelerate."""

    device: str
    """`cpu`, or the name of the accelerator."""

    cpu_capability: str
    """The instruction set of torch's CPU kernels, such as `AVX512`."""

    num_threads: int
    """Threads of one process inside an operation."""

    num_processes: int
    """Ranks that share the global batch."""

    micro_batch_size: int
    """Rows of one forward on one rank."""


def current_execution(*, device: str, num_processes: int, micro_batch_size: int) -> Execution:
    """Return the facts of this process; threads must have been set before."""
    return Execution(
        python_version=platform.python_version(),
        torch_version=torch.__version__,
        accelerate_version=version("accelerate"),
        device=device,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        num_threads=torch.get_num_threads(),
        num_processes=num_processes,
        micro_batch_size=micro_batch_size,
    )


def changes(before: Execution, now: Execution) -> list[str]:
    """Return what differs, one text per fact with both values; Python itself adds no floats."""
    return [
        f"{item.name} was {old!r} and is {new!r}"
        for item in dataclasses.fields(Execution)
        if item.name != "python_version"
        and (old := getattr(before, item.name)) != (new := getattr(now, item.name))
    ]
