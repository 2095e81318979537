"""What a machine could do at most: the whole of which a step's `mfu` is a share.

That is the model FLOPs utilization (Chowdhery et al. 2022, appendix B): the multiplications
and additions that the step's matrix products need (`model.flops`), over its seconds, over the
peak of the device. Work that the model does not need, such as padding, does not count as done.
"""

import re
import time
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The type of matrix products by the name of a precision."""

_DATA_SHEETS: dict[str, float] = {
    r"B200": 2250e12,
    r"H200 NVL": 835e12,
    r"H200": 989e12,
    r"H100 NVL": 835e12,
    r"H100 PCIe": 756e12,
    r"H100": 989e12,
    r"A100": 312e12,
    r"A30": 165e12,
    r"A10": 125e12,
    r"L40S": 362e12,
    r"L4": 121e12,
}
"""Dense bf16 and fp16 FLOP/s by the name of the device; the first that occurs in it counts.

From NVIDIA's data sheets; where they give the figure with sparsity, half of it.
"""

_CPU_SIZE = 1_024
_GPU_SIZE = 8_192
# Of square matrices, large enough that starting a product costs nothing.


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """The most FLOP/s that one device, or the threads of one rank, can do."""

    flops_per_second: float
    """Additions and multiplications of matrix products, per second."""

    source: str
    """`measured`, or the data sheet it is from."""


def device_peak(device: torch.device, precision: str) -> Peak:
    """Return the peak of the device for a precision: from a data sheet if known, else measured.

    On a CPU it is measured with the threads that torch has now, in about 0.3 s.

    Args:
        device: Where the model runs.
        precision: fp32, bf16 or fp16.
    """
    if device.type == "cuda" and precision != "fp32":
        name = torch.cuda.get_device_name(device)
        known = data_sheet_peak(name)
        if known is not None:
            return Peak(flops_per_second=known, source=f"data sheet of {name}")
    measured = measure_peak(device, DTYPES[precision])
    return Peak(flops_per_second=measured, source="measured")


def data_sheet_peak(device_name: str) -> float | None:
    """Return the dense bf16 FLOP/s of a GPU, or None if we know no figure for it.

    >>> data_sheet_peak("NVIDIA A100-SXM4-80GB"), data_sheet_peak("NVIDIA A10G")
    (312000000000000.0, None)
    """
    for name, peak in _DATA_SHEETS.items():
        if re.search(rf"\b{name}\b", device_name):
            return peak
    return None


def measure_peak(device: torch.device, dtype: torch.dtype, *, seconds: float = 0.3) -> float:
    """Return the FLOP/s of the fastest of several products of square matrices.

    It is what is free now: other work on the machine lowers it.
    """
    size = _CPU_SIZE if device.type == "cpu" else _GPU_SIZE
    matrix = torch.ones(size, size, dtype=dtype, device=device)
    out = torch.empty_like(matrix)
    _timed_product(matrix, out)  # the first one sets the library up
    best = _timed_product(matrix, out)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = min(best, _timed_product(matrix, out))
    return 2.0 * size**3 / best


def _timed_product(matrix: Tensor, out: Tensor) -> float:
    begin = time.perf_counter()
    torch.mm(matrix, matrix, out=out)
    if matrix.device.type == "cuda":
        torch.cuda.synchronize(matrix.device)
    return time.perf_counter() - begin
