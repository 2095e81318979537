"""A step looked at again: which instances it saw, and what each of them alone does to the loss."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate.utils import gather_object

from clozemill.pipeline.errors import RunError
from clozemill.train.assembly import Assembly, assemble, put_checkpoint
from clozemill.train.checkpoints import defect, list_checkpoints, load_checkpoint
from clozemill.train.config import PretrainConfig
from clozemill.train.facts import CHECKPOINTS_NAME, check_same_run, read_run
from clozemill.train.launch import start_accelerator
from clozemill.train.loader import micro_batches
from clozemill.train.loss import Batch
from clozemill.train.order import micro_batches_of
from clozemill.train.schedules import learning_rate
from clozemill.train.steps import StepResult, micro_batch_sums

_MOST_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceLoss:
    """An instance of a step, and its losses by itself, without dropout."""

    instance_id: str
    """32 hex digits, as `clozemill inspect --instance` takes them."""

    number: int
    """Its place in the split."""

    variant: int
    """The masking it was shown with."""

    num_tokens: int
    """Its length."""

    num_selected: int
    """Tokens predicted."""

    mlm_loss: float
    """Nats, mean over its selected tokens; 0 without any."""

    nsp_loss: float
    """Nats; 0 where the recipe has no pairs."""

    @property
    def is_finite(self) -> bool:
        """Whether both losses are numbers."""
        return math.isfinite(self.mlm_loss) and math.isfinite(self.nsp_loss)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What a step did."""

    step: int
    """Its number, from 1."""

    result: StepResult
    """Sums over the global batch, with dropout as it was."""

    instances: tuple[InstanceLoss, ...]
    """Those of this rank, in the order of its micro-batches, with the weights before the step."""


def replay_step(config: PretrainConfig, step: int) -> Replay:
    """Take a step of a run again, from the newest checkpoint before it; write nothing.

    Args:
        config: The run's settings and folder.
        step: Its number, from 1.

    Raises:
        RunError: The folder holds no run, or one of other settings; it has no such step; no
            checkpoint before the step is complete; or a step between is not finite.
        ClozemillError: The run's parts cannot be put together.
    """
    folder = Path(config.out)
    read_run(folder)
    accelerator = start_accelerator(config)
    parts = assemble(config, accelerator)
    _check_is_step(step, parts.schedule.num_steps)
    path = _checkpoint_before(folder, step)
    checkpoint = load_checkpoint(path)
    check_same_run(checkpoint.state.facts, config, parts.facts, str(path))
    put_checkpoint(checkpoint, parts.model, parts.learner.optimizer, where=path)
    for number, batches in steps_of(parts, range(checkpoint.state.step, step)):
        instances = () if number < step - 1 else tuple(instance_losses(parts, number, batches))
        rate = learning_rate(parts.schedule, number)
        result = parts.learner.step(batches, number=number + 1, learning_rate=rate)
        if number < step - 1 and not result.is_finite:
            raise RunError(describe_nonfinite(parts, number, batches, result))
    return Replay(step=step, result=result, instances=instances)


def _check_is_step(step: int, num_steps: int) -> None:
    if not 1 <= step <= num_steps:
        raise RunError(f"step {step} cannot be replayed: the run has the steps 1 to {num_steps}.")


def _checkpoint_before(folder: Path, step: int) -> Path:
    for number, path in list_checkpoints(folder / CHECKPOINTS_NAME):
        if number < step and defect(path) is None:
            return path
    raise RunError(
        f"{folder} has no complete checkpoint before step {step}; choose a later step, or train "
        "with a larger --keep."
    )


def steps_of(parts: Assembly, steps: range) -> Iterator[tuple[int, list[Batch]]]:
    """Yield the number of each step, from 0, and this rank's micro-batches of it."""
    found = iter(micro_batches(parts.instances, parts.order, parts.loading, steps=steps))
    turns = parts.loading.turns(parts.order.global_batch_size)
    for step in steps:
        yield step, [parts.without_unused(next(found)) for _ in range(turns)]


def instance_losses(parts: Assembly, step: int, batches: Iterable[Batch]) -> Iterator[InstanceLoss]:
    """Yield the instances of this rank's micro-batches, with their losses under the weights now."""
    own = micro_batches_of(
        parts.order.global_batch(step),
        micro_batch_size=parts.loading.micro_batch_size,
        rank=parts.loading.rank,
        world_size=parts.loading.world_size,
    )
    for indices, batch in zip(own, batches, strict=False):  # a rank without rows has more turns
        ids = parts.instances[indices.tolist()].instance_ids
        for row, index in enumerate(indices.tolist()):
            one = {name: tensor[row : row + 1] for name, tensor in batch.items()}
            yield _instance_loss(parts, one, ids[row].tobytes().hex(), index)


def _instance_loss(parts: Assembly, batch: Batch, instance_id: str, index: int) -> InstanceLoss:
    objective = parts.objective
    objective.eval()
    with torch.inference_mode():
        sums = micro_batch_sums(
            objective,
            batch,
            mask_id=parts.learner.mask_id,
            device=parts.accelerator.device,
        )
    epoch, number = divmod(index, len(parts.instances))
    num_selected = int((batch["labels"] >= 0).sum())
    return InstanceLoss(
        instance_id=instance_id,
        number=number,
        variant=_variant_of(parts, epoch),
        num_tokens=int(batch["attention_mask"].sum()),
        num_selected=num_selected,
        mlm_loss=float(sums.mlm_loss_sum) / max(1, num_selected),
        nsp_loss=float(sums.nsp_loss_sum),
    )


def _variant_of(parts: Assembly, epoch: int) -> int:
    return int(parts.instances.schedule.variants_of(np.array([epoch]))[0])


def describe_nonfinite(parts: Assembly, step: int, batches: list[Batch], result: StepResult) -> str:
    """Return what to tell of a step whose loss or gradient is not finite; all ranks must call it.

    Args:
        parts: With the weights before the step.
        step: Its number, from 0.
        batches: This rank's micro-batches.
        result: What the step saw.
    """
    found = list(instance_losses(parts, step, batches))
    culprits = [f"{i.instance_id} (number {i.number})" for i in found if not i.is_finite]
    culprits = gather_object(culprits)
    epoch = parts.order.epoch_of(step)
    window = result.window
    alone = (
        f"{len(culprits)} instances alone have no finite loss: {', '.join(culprits[:_MOST_NAMED])}"
        if culprits
        else f"each instance alone has a finite loss; the first is {found[0].instance_id}"
        if found
        else "each instance alone has a finite loss"
    )
    return (
        f"the loss of step {step + 1} is not finite (MLM sum {window.mlm_loss_sum}, NSP sum "
        f"{window.nsp_loss_sum}, gradient norm {result.gradient_norm}; epoch {epoch}, variant "
        f"{_variant_of(parts, epoch)}); {alone}. The weights before it are saved: "
        f"look at the step with --replay {step + 1}, or start again with a lower learning rate."
    )
