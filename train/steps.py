"""One optimizer step over a global batch: any number of micro-batches on any number of ranks.

The gradient is that of the sum over selected tokens divided by their count in the *global*
batch, plus the same over pairs. So how a global batch is cut changes nothing but rounding.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from clozemill.train.loss import (
    IGNORED_LABEL,
    Batch,
    Inputs,
    LossSums,
    Targets,
    find_inputs,
    find_targets,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one step saw and did, over all ranks."""

    sums: dict[str, float]
    """Sums over the global batch: losses (nats), right answers, and counts, by column name."""

    gradient_norm: float
    """Euclidean norm of the whole gradient before clipping."""

    is_finite: bool
    """Whether the optimizer could step; if not, the weights are those before."""

    should_stop: bool
    """Whether some rank was asked to stop."""


_COUNTS = ("selected", "pairs", "masked", "tokens", "positions", "instances", "stop")


class Learner:
    """An encoder with its objective and optimizer, and how they take a step."""

    def __init__(
        self,
        accelerator: Accelerator,
        *,
        objective: nn.Module,
        optimizer: torch.optim.Optimizer,
        mask_id: int,
        clip_norm: float,
        seed: int,
    ) -> None:
        """Take what `accelerator.prepare` returned.

        Args:
            accelerator: Made with `gradient_accumulation_steps=1`: it would average.
            objective: A `PretrainingObjective`, wrapped or not.
            optimizer: Over its parameters.
            mask_id: Id of `[MASK]`.
            clip_norm: Largest gradient norm; 0 is no limit.
            seed: Of dropout.
        """
        self.accelerator = accelerator
        self.objective = objective
        self.optimizer = optimizer
        self.mask_id = mask_id
        self.clip_norm = clip_norm
        self.seed = seed

    def step(
        self,
        micro_batches: Sequence[Batch],
        *,
        number: int,
        learning_rate: float,
        is_asked_to_stop: bool = False,
    ) -> StepResult:
        """Take one step over this rank's micro-batches of a global batch.

        All ranks call it with equally many micro-batches; a micro-batch may have no rows.

        Args:
            micro_batches: On any device.
            number: The step's number, from 1: it keys dropout.
            learning_rate: Of this step.
            is_asked_to_stop: Of this rank; any rank stops all, after the step.
        """
        counts = self._global_counts(micro_batches, is_asked_to_stop)
        losses = self._backward(micro_batches, number, counts)
        limit = self.clip_norm or math.inf
        norm = float(self.accelerator.clip_grad_norm_(self.objective.parameters(), limit))
        sums = {**counts, **self._reduced(dict(zip(LossSums._fields, losses, strict=True)))}
        is_scaled = self.accelerator.scaler is not None
        # A loss scaler expects gradients beyond fp16 now and then, and skips such steps itself.
        is_finite = math.isfinite(sums["mlm_loss"] + sums["nsp_loss"]) and (
            is_scaled or math.isfinite(norm)
        )
        if is_finite:
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate
            self.optimizer.step()
        self.optimizer.zero_grad()
        should_stop = sums.pop("stop") > 0
        return StepResult(
            sums=sums, gradient_norm=norm, is_finite=is_finite, should_stop=should_stop
        )

    def _backward(
        self, micro_batches: Sequence[Batch], number: int, counts: dict[str, float]
    ) -> list[float]:
        """Leave the gradient of the global batch in the parameters; return this rank's sums."""
        self.objective.train()
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        totals = torch.zeros(len(LossSums._fields), dtype=torch.float64)
        totals = totals.to(self.accelerator.device)
        for turn, batch in enumerate(micro_batches):
            is_last = turn == len(micro_batches) - 1
            # By the micro-batch's place in the global batch, which no number of ranks changes.
            seed_dropout(self.seed, number, turn * world + rank)
            with self._synchronised(is_last):
                sums = micro_batch_sums(
                    self.objective, batch, mask_id=self.mask_id, device=self.accelerator.device
                )
                loss = sums.mlm_loss / max(counts["selected"], 1)
                loss = loss + sums.nsp_loss / max(counts["pairs"], 1)
                # Data-parallel training averages over ranks what is to be summed.
                self.accelerator.backward(loss * world)
            totals += torch.stack([value.detach().double() for value in sums])
        return [float(value) for value in totals.tolist()]

    def _synchronised(self, is_last: bool) -> contextlib.AbstractContextManager[Any]:
        """Return where gradients are exchanged: after the last micro-batch of a step alone."""
        return contextlib.nullcontext() if is_last else self.accelerator.no_sync(self.objective)

    def _global_counts(
        self, micro_batches: Sequence[Batch], is_asked_to_stop: bool
    ) -> dict[str, float]:
        own = dict.fromkeys(_COUNTS, 0.0)
        own["stop"] = float(is_asked_to_stop)
        for batch in micro_batches:
            for name, count in count_batch(batch, self.mask_id).items():
                own[name] += count
        return self._reduced(own)

    def _reduced(self, values: dict[str, float]) -> dict[str, float]:
        """Return the sums over all ranks."""
        if self.accelerator.num_processes == 1:
            return values
        own = torch.tensor(list(values.values()), dtype=torch.float64)
        total = self.accelerator.reduce(own.to(self.accelerator.device), "sum")
        return dict(zip(values, total.tolist(), strict=True))


def seed_dropout(seed: int, step: int, micro_batch: int) -> None:
    """Seed torch for one micro-batch, so that a resumed run drops what an unbroken one would.

    Args:
        seed: The run's.
        step: Number of the step, from 1.
        micro_batch: Its place in the global batch.
    """
    words = np.random.SeedSequence([seed, step, micro_batch]).generate_state(1, np.uint64)
    torch.manual_seed(int(words[0]))


def count_batch(batch: Batch, mask_id: int) -> dict[str, float]:
    """Return the counts of a micro-batch: selected, pairs, masked, tokens, positions, instances."""
    is_selected = batch["labels"] != IGNORED_LABEL
    rows = len(batch["input_ids"])
    return {
        "selected": float(is_selected.sum()),
        "masked": float((is_selected & (batch["input_ids"] == mask_id)).sum()),
        "pairs": float(rows if "next_sentence_label" in batch else 0),
        "tokens": float(batch["attention_mask"].sum()),
        "positions": float(batch["input_ids"].numel()),
        "instances": float(rows),
    }


def micro_batch_sums(
    objective: nn.Module, batch: Batch, *, mask_id: int, device: torch.device
) -> LossSums:
    """Return the loss sums of a micro-batch, which may lie on another device."""
    inputs, targets = find_inputs(batch), find_targets(batch, mask_id)
    sums: LossSums = objective(Inputs(*_moved(inputs, device)), Targets(*_moved(targets, device)))
    return sums


def _moved(tensors: Iterable[Any], device: torch.device) -> Iterator[Any]:
    return (None if part is None else part.to(device, non_blocking=True) for part in tensors)
