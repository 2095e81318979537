"""How much memory the tensors of a training step take: an estimate, before any of them exists.

Weights, gradients and moments are exact. Activations are counted from what the forward pass of
`model/bert.py` keeps for the backward pass; kernels keep a little more or less, and allocators
round up, so expect the whole to be within half as much again (a test holds it to that on a CPU).
The interpreter and torch take some 400 MB besides, and on a CPU more in time (docs/training.md).

Legend: B rows, T tokens of a row, H hidden, N heads, I intermediate, S selected, V vocabulary.
"""

from dataclasses import dataclass

from clozemill.model.config import BertConfig
from clozemill.model.flops import num_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardSize:
    """The sizes of one forward pass."""

    num_rows: int
    """B."""

    num_tokens: int
    """T, with padding."""

    num_selected: int
    """S, of all rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes of tensors on one device or in one process."""

    weights_bytes: int
    """Weights in fp32 and, in 16-bit precision, their copies for matrix products."""

    gradients_bytes: int
    """Gradients in fp32."""

    optimizer_bytes: int
    """Two moments in fp32; for LAMB also its updates."""

    activations_bytes: int
    """What the backward pass of a micro-batch needs, with the logits and their gradient."""

    @property
    def total_bytes(self) -> int:
        """All of them together."""
        return (
            self.weights_bytes
            + self.gradients_bytes
            + self.optimizer_bytes
            + self.activations_bytes
        )


def estimate_memory(
    shape: BertConfig, batch: ForwardSize, *, precision: str, optimizer: str, device: str = "cpu"
) -> MemoryEstimate:
    """Return the memory of a training step.

    Args:
        shape: The encoder.
        batch: Its largest micro-batch.
        precision: fp32, bf16 or fp16.
        optimizer: adamw, bert-adam or lamb.
        device: cpu or cuda, which keep different parts of the loss.
    """
    size = num_parameters(shape)
    is_short = precision != "fp32"
    return MemoryEstimate(
        weights_bytes=size * (6 if is_short else 4),
        gradients_bytes=size * 4,
        optimizer_bytes=size * (16 if optimizer == "lamb" else 8),
        activations_bytes=_activation_bytes(shape, batch, 2 if is_short else 4)
        + _logits_bytes(shape, batch, 2 if is_short else 4, device),
    )


def _activation_bytes(shape: BertConfig, batch: ForwardSize, size: int) -> int:
    """Return the bytes that are kept for the backward pass, where an activation has so many."""
    tokens = batch.num_rows * batch.num_tokens
    has_dropout = shape.hidden_dropout_prob > 0.0
    # The layer's input, query, key, value, context, two sums, and the output of the first half.
    kept = 8 * shape.hidden_size + 2 * shape.intermediate_size
    per_token = kept * size + (2 * shape.hidden_size if has_dropout else 0)
    if shape.attention_probs_dropout_prob > 0.0:
        # The formula keeps probabilities, what dropout leaves of them, and what it dropped.
        per_token += shape.num_attention_heads * batch.num_tokens * (2 * size + 1)
    embeddings = tokens * shape.hidden_size * (4 + size)
    return shape.num_hidden_layers * tokens * per_token + embeddings


def _logits_bytes(shape: BertConfig, batch: ForwardSize, size: int, device: str) -> int:
    """Return the bytes that the loss over the vocabulary takes, where a logit has so many."""
    num_logits = batch.num_selected * shape.vocab_size
    if device == "cpu":
        return num_logits * size  # once, in place: see `model/vocabulary_loss.py`
    # Logits, their logarithms in fp32, and the gradients of both.
    return num_logits * 2 * (size + 4)
