"""The cross-entropy over a vocabulary, together with the projection to it.

The logits of S selected positions are the largest tensor of a step of a small encoder: S x V. Taken
apart into projection, softmax and loss, each keeps a copy of its own in float32. Here they exist
once, in the precision of the product, and turn into their own gradient in place: since the loss is
a sum, that gradient is softmax minus one-hot whatever follows. Rows are worked on in portions that
stay in the cache.

Legend: S selected positions, H hidden, V vocabulary.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

_PORTION_NUMBERS = 1 << 20
"""About how many logits a portion holds: 4 MB of float32."""


class VocabularyLoss(NamedTuple):
    """The loss of S positions; only the sum has a gradient."""

    total: Tensor
    """float32 (): cross-entropy in nats, summed."""

    losses: Tensor
    """float32 (S,): of each position."""

    is_correct: Tensor
    """bool (S,): whether the most likely token is the original."""


def vocabulary_loss(hidden: Tensor, weight: Tensor, bias: Tensor, wanted: Tensor) -> VocabularyLoss:
    """Return the cross-entropy of `hidden @ weight.T + bias` against the tokens that are wanted.

    Under autocast the products are in its precision; the softmax is float32 always.

    Args:
        hidden: (S, H); S may be 0.
        weight: (V, H), the decoder's: the table of tokens.
        bias: (V,).
        wanted: int64 (S,), ids of the original tokens.
    """
    device = hidden.device.type
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    if device == "cpu" and not torch.compiler.is_compiling():
        parts = _InPlace.apply(hidden, weight, bias, wanted, dtype)  # type: ignore[no-untyped-call]
        return VocabularyLoss(*parts)
    logits = F.linear(hidden, weight, bias)  # (S, H) -> (S, V)
    losses = F.cross_entropy(logits.float(), wanted, reduction="none")  # (S,)
    is_correct = logits.detach().argmax(1) == wanted
    return VocabularyLoss(losses.sum(), losses.detach(), is_correct)


class _InPlace(torch.autograd.Function):
    """Projection and loss in one, for a CPU."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, wanted: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor, Tensor]:
        needs_gradient = any(ctx.needs_input_grad)
        with torch.autocast("cpu", enabled=False):
            low_hidden, low_weight = hidden.to(dtype), weight.to(dtype)
            logits = low_hidden @ low_weight.T  # (S, V)
            bias_gradient = torch.zeros_like(bias)
            losses = hidden.new_empty(len(hidden), dtype=torch.float32)
            is_correct = torch.empty(len(hidden), dtype=torch.bool)
            portion = max(1, _PORTION_NUMBERS // weight.shape[0])
            for begin in range(0, len(hidden), portion):
                rows = slice(begin, begin + portion)
                out = losses[rows], is_correct[rows]
                gradient = _finish_rows(logits[rows], bias, wanted[rows], out=out)
                if needs_gradient:
                    bias_gradient += gradient.sum(0)
                    logits[rows] = gradient
            if needs_gradient:
                ctx.save_for_backward(
                    logits @ low_weight,  # (S, V) -> (S, H)
                    logits.T @ low_hidden,  # (V, S) -> (V, H)
                    bias_gradient,
                )
                ctx.dtypes = hidden.dtype, weight.dtype, bias.dtype
        ctx.mark_non_differentiable(losses, is_correct)
        return losses.sum(), losses, is_correct

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        scaled = (
            tensor.to(dtype, copy=True).mul_(gradients[0])
            for tensor, dtype in zip(ctx.saved_tensors, ctx.dtypes, strict=True)
        )
        return (*scaled, None, None)


def _finish_rows(
    logits: Tensor, bias: Tensor, wanted: Tensor, *, out: tuple[Tensor, Tensor]
) -> Tensor:
    """Fill in loss and rightness of some rows; return the gradient of their sum, float32."""
    scores = logits.float() + bias
    highest, best = scores.max(1)
    own = scores.gather(1, wanted[:, None])  # (rows, 1)
    probabilities = scores.softmax(1)
    # ln sum exp(scores) = highest - ln(probability of it), which is at least 1 / V.
    torch.sub(highest - probabilities.gather(1, best[:, None])[:, 0].log(), own[:, 0], out=out[0])
    torch.eq(best, wanted, out=out[1])
    return probabilities.scatter_add_(1, wanted[:, None], torch.full_like(own, -1.0))
