"""Dropout that does nothing where it has nothing to do, and is quick on a CPU.

`torch.nn.functional.dropout` draws one Bernoulli number per element there, on one core; a step of
a small model spends a tenth of its time on that. Here one 64-bit word serves four elements.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

_LEVELS = 1 << 16
"""Values of the 16 bits that decide an element."""


def dropout(hidden: Tensor, prob: float, training: bool) -> Tensor:
    """Return the tensor with elements set to zero at random and the others scaled up to match.

    In expectation nothing changes (Srivastava et al. 2014). Draws come from torch's default
    generator of the device, which `torch.manual_seed` sets.

    Args:
        hidden: any shape.
        prob: share to set to zero, below 1. On a CPU it is rounded to a multiple of 1 / 65536,
            and the scale with it, so the expectation is exact.
        training: if false, the tensor itself is returned, as it is if `prob` is 0.
    """
    if not training or prob == 0.0:
        return hidden
    if hidden.device.type != "cpu" or torch.compiler.is_compiling():
        # A compiler fuses it with its neighbours, and miscounts a view of other elements.
        return F.dropout(hidden, prob)
    num_dropped = round(prob * _LEVELS)
    keep = _random_levels(hidden.shape) >= num_dropped - _LEVELS // 2
    # In place on the product alone: the backward pass needs `keep`, not what was multiplied.
    return (hidden * keep).mul_(_LEVELS / (_LEVELS - num_dropped))


def _random_levels(shape: torch.Size) -> Tensor:
    """Return int16 numbers, all 65536 values alike."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:count].view(shape)
