"""Evaluation: the losses over a split with its stored masks, so that the same model is given the
same number every time, whatever masks it was trained on."""

from collections.abc import Iterable

import torch
from accelerate import Accelerator

from clozemill.train.loss import Batch, PretrainingObjective
from clozemill.train.steps import count_batch, micro_batch_sums


def evaluate(
    accelerator: Accelerator,
    objective: PretrainingObjective,
    batches: Iterable[Batch],
    *,
    mask_id: int,
) -> dict[str, float]:
    """Return the sums over all batches of all ranks: losses, right answers and counts.

    Args:
        accelerator: Decides device, precision and ranks.
        objective: Not wrapped for data-parallel training; nothing is exchanged but the sums.
        batches: Of this rank; together the ranks have each instance once.
        mask_id: Id of `[MASK]`.
    """
    was_training = objective.training
    objective.eval()
    sums: dict[str, float] = {}
    with torch.inference_mode():
        for batch in batches:
            found = micro_batch_sums(
                accelerator, objective, batch, mask_id=mask_id
            )
            row = {name: float(value) for name, value in found._asdict().items()}
            for name, value in {**row, **count_batch(batch, mask_id)}.items():
                sums[name] = sums.get(name, 0.0) + value
    objective.train(was_training)
    return sum_over_ranks(accelerator, sums)
