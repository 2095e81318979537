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

from clozemill.train.collate import IGNORED
from clozemill.train.loss import Batch, Inputs, LossSums, Targets, find_inputs, find_targets
from clozemill.train.optimizers import set_learning_rate
from clozemill.train.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one step saw and did, over all ranks."""

    window: Window
    """Its sums and counts."""

    gradient_norm: float
    """Euclidean norm of the whole gradient before clipping."""

    is_finite: bool
    """Whether the optimizer was called; if not, the weights are those before."""

    should_stop: bool
    """Whether some rank was asked to stop."""


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
        counts, should_stop = self._global_counts(micro_batches, is_asked_to_stop)
        losses = self._backward(micro_batches, number, counts)
        limit = self.clip_norm or math.inf
        norm = float(self.accelerator.clip_grad_norm_(self.objective.parameters(), limit))
        window = Window(steps=1, **counts, **_as_window(losses))
        is_finite = math.isfinite(window.mlm_loss_sum + window.nsp_loss_sum)
        # A loss scaler expects gradients beyond fp16 now and then, and skips such steps itself.
        if is_finite and (math.isfinite(norm) or self.accelerator.scaler is not None):
            set_learning_rate(self.optimizer, learning_rate)
            self.optimizer.step()
        else:
            is_finite = False
        self.optimizer.zero_grad()
        return StepResult(
            window=window, gradient_norm=norm, is_finite=is_finite, should_stop=should_stop
        )

    def _backward(
        self, micro_batches: Sequence[Batch], number: int, counts: dict[str, int]
    ) -> list[float]:
        """Leave the gradient of the global batch in the parameters; return its loss sums."""
        self.objective.train()
        world, rank = self.accelerator.num_processes, self.accelerator.process_index
        device = self.accelerator.device
        totals = torch.zeros(len(LossSums._fields), dtype=torch.float64, device=device)
        for turn, batch in enumerate(micro_batches):
            is_last = turn == len(micro_batches) - 1
            # By the micro-batch's place in the global batch, which no number of ranks changes.
            seed_dropout(self.seed, number, turn * world + rank)
            with contextlib.nullcontext() if is_last else self.accelerator.no_sync(self.objective):
                sums = micro_batch_sums(self.objective, batch, mask_id=self.mask_id, device=device)
                loss = sums.mlm_loss_sum / max(counts["selected"], 1)
                loss = loss + sums.nsp_loss_sum / max(counts["pairs"], 1)
                # Data-parallel training averages over ranks what is to be summed.
                self.accelerator.backward(loss * world)
            totals += torch.stack([value.detach().double() for value in sums])
        return sum_over_ranks(self.accelerator, totals)

    def _global_counts(
        self, micro_batches: Sequence[Batch], is_asked_to_stop: bool
    ) -> tuple[dict[str, int], bool]:
        """Return the counts of the global batch, and whether any rank was asked to stop."""
        own = sum_counts(count_batch(batch, self.mask_id) for batch in micro_batches)
        vector = torch.tensor([*own.values(), int(is_asked_to_stop)], dtype=torch.float64)
        *counts, stops = sum_over_ranks(self.accelerator, vector.to(self.accelerator.device))
        return dict(zip(own, map(int, counts), strict=True)), stops > 0


def seed_dropout(seed: int, step: int, micro_batch: int) -> None:
    """Seed torch for one micro-batch, so that a resumed run drops what an unbroken one would.

    Args:
        seed: The run's.
        step: Number of the step, from 1.
        micro_batch: Its place in the global batch.
    """
    words = np.random.SeedSequence([seed, step, micro_batch]).generate_state(1, np.uint64)
    torch.manual_seed(int(words[0]))


def count_batch(batch: Batch, mask_id: int) -> dict[str, int]:
    """Return the counts of a micro-batch, named as in `Window`."""
    is_selected = batch["labels"] != IGNORED
    rows = len(batch["input_ids"])
    return {
        "selected": int(is_selected.sum()),
        "mask_only": int((is_selected & (batch["input_ids"] == mask_id)).sum()),
        "pairs": rows if "next_sentence_label" in batch else 0,
        "instances": rows,
        "tokens": int(batch["attention_mask"].sum()),
        "positions": batch["input_ids"].numel(),
    }


def sum_counts(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    """Return the sums of the counts of at least one micro-batch, by name."""
    rows = list(counts)
    return {name: sum(row[name] for row in rows) for name in rows[0]}


def micro_batch_sums(
    objective: nn.Module, batch: Batch, *, mask_id: int, device: torch.device
) -> LossSums:
    """Return the loss sums of a micro-batch, which may lie on another device."""
    inputs, targets = find_inputs(batch), find_targets(batch, mask_id)
    sums: LossSums = objective(Inputs(*_moved(inputs, device)), Targets(*_moved(targets, device)))
    return sums


def _moved(tensors: Iterable[Any], device: torch.device) -> Iterator[Any]:
    return (None if part is None else part.to(device, non_blocking=True) for part in tensors)


def sum_over_ranks(accelerator: Accelerator, values: torch.Tensor) -> list[float]:
    """Return the sums of each rank's values."""
    if accelerator.num_processes > 1:
        values = accelerator.reduce(values, "sum")
    return [float(value) for value in values.tolist()]


def _as_window(sums: Sequence[float]) -> dict[str, Any]:
    """Return loss sums by name; right answers are whole numbers."""
    named = zip(LossSums._fields, sums, strict=True)
    return {name: int(value) if name.endswith("_correct") else value for name, value in named}


def evaluate(
    accelerator: Accelerator, objective: nn.Module, batches: Iterable[Batch], *, mask_id: int
) -> Window:
    """Return the sums over all batches of all ranks, without dropout.

    With stored masks the same weights give the same sums every time, whatever masks they were
    trained on.

    Args:
        accelerator: Decides device, precision and ranks.
        objective: Not wrapped for data-parallel training: only sums are exchanged.
        batches: Of this rank, at least one; together the ranks have each instance once.
        mask_id: Id of `[MASK]`.
    """
    was_training = objective.training
    objective.eval()
    device = accelerator.device
    totals = torch.zeros(len(LossSums._fields), dtype=torch.float64, device=device)
    counts = []
    with torch.inference_mode():
        for batch in batches:
            sums = micro_batch_sums(objective, batch, mask_id=mask_id, device=device)
            totals += torch.stack([value.double() for value in sums])
            counts.append(count_batch(batch, mask_id))
    objective.train(was_training)
    own = sum_counts(counts)
    vector = torch.cat([totals, torch.tensor(list(own.values()), device=device).double()])
    sums_of_all = sum_over_ranks(accelerator, vector)
    losses, numbers = sums_of_all[: len(totals)], sums_of_all[len(totals) :]
    return Window(**_as_window(losses), **dict(zip(own, map(int, numbers), strict=True)))
