"""Sums over steps or batches, and the rows of the log that are made of them.

Means are taken once, of sums over all tokens: a mean of the means of batches would weigh a token by
how many others happen to be beside it.
"""

import dataclasses
from dataclasses import dataclass

from clozemill.train.metrics import EvaluationRow, TrainRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a row needs to know of the machine."""

    peak_flops: float | None = None
    """Operations a second of all devices together; None if unknown."""

    peak_memory_bytes: int | None = None
    """Highest use so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Sums over steps or batches, of all ranks together; `+` joins two of them.

    A checkpoint carries the sums since the last logged row, so a resumed log is equal to one that
    was never interrupted.
    """

    steps: int = 0
    """Optimizer updates; 0 in an evaluation."""

    mlm_loss_sum: float = 0.0
    """Nats over selected tokens."""

    mask_only_loss_sum: float = 0.0
    """Nats over selected tokens that show `[MASK]`."""

    nsp_loss_sum: float = 0.0
    """Nats over pairs."""

    selected: int = 0
    """Tokens predicted."""

    mask_only: int = 0
    """Tokens predicted that show `[MASK]`."""

    mlm_correct: int = 0
    """Tokens predicted whose original is ranked first."""

    pairs: int = 0
    """Instances with a next-sentence label."""

    nsp_correct: int = 0
    """Pairs whose label is ranked first."""

    instances: int = 0
    """Instances seen."""

    tokens: int = 0
    """Tokens without padding."""

    positions: int = 0
    """Tokens with padding."""

    seconds: float = 0.0
    """Wall time."""

    data_wait_seconds: float = 0.0
    """Part of it spent waiting for batches."""

    flops: float = 0.0
    """Floating-point operations of the matrix products, forward and backward."""

    def __add__(self, other: "Window") -> "Window":
        """Return the sums over both."""
        return Window(
            **{
                item.name: getattr(self, item.name) + getattr(other, item.name)
                for item in dataclasses.fields(self)
            }
        )

    def train_row(
        self,
        *,
        step: int,
        epoch: int,
        learning_rate: float,
        gradient_norm: float,
        measured: Measured,
    ) -> TrainRow:
        """Return the row of the steps summed here."""
        means, absent = self._means()
        return TrainRow(
            step=step,
            epoch=epoch,
            steps=self.steps,
            **means,
            learning_rate=learning_rate,
            gradient_norm=gradient_norm,
            instances=self.instances,
            pairs=self.pairs,
            tokens=self.tokens,
            padding_share=_ratio(self.positions - self.tokens, self.positions),
            selected=self.selected,
            mask_only=self.mask_only,
            seconds=self.seconds,
            tokens_per_second=_ratio(self.tokens, self.seconds),
            selected_per_second=_ratio(self.selected, self.seconds),
            data_wait_share=_ratio(self.data_wait_seconds, self.seconds),
            mfu=_ratio(self.flops, self.seconds * (measured.peak_flops or 0.0)),
            peak_memory_bytes=measured.peak_memory_bytes,
            absent=absent,
        )

    def evaluation_row(self, *, step: int, split: str) -> EvaluationRow:
        """Return the row of the batches summed here."""
        means, absent = self._means()
        return EvaluationRow(
            step=step,
            split=split,
            **means,
            instances=self.instances,
            pairs=self.pairs,
            tokens=self.tokens,
            selected=self.selected,
            mask_only=self.mask_only,
            seconds=self.seconds,
            absent=absent,
        )

    def _means(self) -> tuple[dict[str, float | None], dict[str, str]]:
        means = {
            "mlm_loss": _ratio(self.mlm_loss_sum, self.selected),
            "mask_only_loss": _ratio(self.mask_only_loss_sum, self.mask_only),
            "nsp_loss": _ratio(self.nsp_loss_sum, self.pairs),
            "mlm_accuracy": _ratio(self.mlm_correct, self.selected),
            "nsp_accuracy": _ratio(self.nsp_correct, self.pairs),
        }
        return means, {name: "none counted" for name, mean in means.items() if mean is None}


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None
