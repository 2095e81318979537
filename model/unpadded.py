"""Rows of different lengths laid end to end, so that no layer computes anything for padding.

What dense layers, normalization and dropout do to a token does not depend on its row, so only
attention has to know where rows end. On a GPU one kernel attends within all rows at once (Dao et
al. 2022, FlashAttention).

Legend: B rows, T tokens of a padded row, P real tokens of all rows, N heads, D features of a
head, H hidden.
"""

import importlib.util

import torch
from torch import Tensor
from torch.nn import functional as F

from clozemill.model.config import BertConfig


def real_tokens(attention_mask: Tensor | None) -> Tensor | None:
    """Return where tokens are not padding, bool (B, T), or None where all are real.

    A row of padding alone counts as real: its output means nothing, but is finite. A compiler
    would have to end its graph to ask whether all are, so there a mask is one of padding.
    """
    if attention_mask is None:
        return None
    if not torch.compiler.is_compiling() and bool(attention_mask.all()):
        return None
    real = attention_mask.bool()
    return real | ~real.any(1, keepdim=True)


def can_attend_unpadded(
    device: torch.device, dtype: torch.dtype, config: BertConfig, *, training: bool
) -> bool:
    """Return whether one kernel can attend within rows of different lengths.

    Torch has it since 2.10. It wants a GPU of Ampere or later, 16-bit numbers, heads of a multiple
    of 8 up to 256 features, and no dropout of attention probabilities.

    Args:
        device: where the batch is.
        dtype: of the weights; autocast has precedence.
        config: of the model.
        training: whether dropout happens.
    """
    if device.type != "cuda" or importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return False
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
    return (
        dtype in (torch.float16, torch.bfloat16)
        and not (training and config.attention_probs_dropout_prob > 0.0)
        and config.head_size % 8 == 0
        and config.head_size <= 256
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


class Unpadded:
    """Where the real tokens of a batch stand once its padding is taken out."""

    def __init__(self, real: Tensor, *, causal: bool, has_kernel: bool) -> None:
        """Lay out a batch.

        Args:
            real: bool (B, T), false at padding; every row has a real token.
            causal: whether a token sees itself and what is left of it only.
            has_kernel: as `can_attend_unpadded` says; else rows are attended one by one.
        """
        self._shape = real.shape
        self._causal = causal
        self._has_kernel = has_kernel
        flat = real.flatten()
        self._positions = flat.nonzero().squeeze(1)  # (P,) where each token stood in B * T
        self._places = flat.cumsum(0) - 1  # (B * T,) where it stands in P
        self._lengths = real.sum(1).tolist()  # B numbers
        ends = real.sum(1).cumsum(0, dtype=torch.int32)
        self._borders = F.pad(ends, (1, 0))  # (B + 1,) where rows begin and end in P

    def pack(self, hidden: Tensor) -> Tensor:
        """Return the real tokens, (B, T, H) -> (P, H)."""
        return hidden.flatten(0, 1).index_select(0, self._positions)

    def pad(self, hidden: Tensor) -> Tensor:
        """Return all rows with zeros as padding, (P, H) -> (B, T, H)."""
        padded = hidden.new_zeros(self._shape.numel(), hidden.shape[-1])
        return padded.index_copy(0, self._positions, hidden).view(*self._shape, -1)

    def places(self, positions: Tensor) -> Tensor:
        """Return where tokens went, flat positions b * T + t of real tokens -> places in P."""
        return self._places[positions]

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
        """Return what each token gathers within its row; all tensors are (P, N, D)."""
        if self._has_kernel:
            return self._attend_at_once(query, key, value)
        rows = (torch.split(x, self._lengths) for x in (query, key, value))
        return torch.cat(
            [self._attend_row(q, k, v, dropout_prob) for q, k, v in zip(*rows, strict=True)]
        )

    def _attend_at_once(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn  # not in every torch

        borders, longest = self._borders, max(self._lengths)
        window = (-1, 0) if self._causal else (-1, -1)  # how far to see left and right; -1 all
        context = varlen_attn(
            query, key, value, borders, borders, longest, longest, window_size=window
        )
        assert isinstance(context, Tensor)  # and not a pair, which nothing here asks for
        return context

    def _attend_row(self, query: Tensor, key: Tensor, value: Tensor, dropout_prob: float) -> Tensor:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))  # -> (N, t, D)
        context = F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout_prob, is_causal=self._causal
        )
        return context.transpose(0, 1)  # -> (t, N, D)
