"""Attention by its formula, where torch's fused one refuses, lacks dropout or is slower.

Legend: B rows, T tokens, N heads, D features of a head.
"""

import math

import torch
from torch import Tensor

from clozemill.model.dropout import dropout


def prefers_formula(query: Tensor, dropout_prob: float) -> bool:
    """Return whether the formula is to take the place of `scaled_dot_product_attention`.

    On a CPU torch's fused kernel has no dropout, and its backward pass in bfloat16 takes four
    times as long as that of the formula (54 ms against 14 ms for 32 x 128 tokens of 4 x 64
    features on one core with AMX, torch 2.13). On a GPU some of its kernels refuse a batch without
    rows, which a rank gets at the end of an epoch (pytorch issue 133780).
    """
    if query.shape[0] == 0:
        return True
    if query.device.type != "cpu":
        return False
    needs_gradient = torch.is_grad_enabled() and query.requires_grad
    return dropout_prob > 0.0 or (needs_gradient and query.dtype == torch.bfloat16)


def attend_by_formula(
    query: Tensor, key: Tensor, value: Tensor, dropout_prob: float, visible: Tensor | None
) -> Tensor:
    """Return softmax(Q K^T / sqrt(D)) V (Vaswani et al. 2017, equation 1), all (B, N, T, D).

    `visible`, bool (B or 1, 1, T or 1, T), says which keys a query sees; None is all of them.
    """
    scores = (query / math.sqrt(query.shape[-1])) @ key.transpose(-1, -2)  # -> (B, N, T, T)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    weights = dropout(scores.softmax(-1), dropout_prob, training=True)
    return weights @ value  # (B, N, T, T) -> (B, N, T, D)
