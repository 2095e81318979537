"""A single step of plain gradient descent, whose change of the weights is the gradient.

torchrun --nproc_per_node 2 -m tests.train.one_step DATA OUT MICRO_BATCH_SIZE
"""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from safetensors.torch import save_file

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import preset
from clozemill.pipeline.dataset import open_dataset
from clozemill.train.instances import PretrainingInstances
from clozemill.train.launch import end_group_at_exit
from clozemill.train.loader import LoaderSettings, micro_batches
from clozemill.train.loss import PretrainingObjective
from clozemill.train.order import BatchOrder
from clozemill.train.steps import Learner, StepResult
from clozemill.train.tensors import model_tensors

GLOBAL_BATCH_SIZE = 8


def take_step(
    data: Path, micro_batch_size: int, *, step: int = 0
) -> tuple[StepResult, dict[str, torch.Tensor]]:
    """Return what a step saw, and its gradient by parameter."""
    accelerator = Accelerator(mixed_precision="no", cpu=True)
    dataset = open_dataset(data)
    instances = PretrainingInstances(dataset, "train", masking="dynamic")
    order = BatchOrder(instances, global_batch_size=GLOBAL_BATCH_SIZE)
    loading = LoaderSettings(
        micro_batch_size=micro_batch_size,
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
    )
    model = _small_model(dataset.manifest.tokenizer.vocab_size)
    before = {name: tensor.clone() for name, tensor in model_tensors(model).items()}
    objective, optimizer = accelerator.prepare(
        PretrainingObjective(model), torch.optim.SGD(model.parameters(), lr=0.0)
    )
    learner = Learner(
        accelerator,
        objective=objective,
        optimizer=optimizer,
        mask_id=dataset.manifest.tokenizer.special_ids["mask"],
        clip_norm=0.0,
        seed=0,
    )
    batches = list(micro_batches(instances, order, loading, steps=range(step, step + 1)))
    result = learner.step(batches, number=step + 1, learning_rate=1.0)
    after = model_tensors(model)
    return result, {name: before[name].double() - after[name].double() for name in before}


def _small_model(vocab_size: int) -> BertForPreTraining:
    shape = preset(
        "tiny",
        vocab_size=vocab_size,
        max_position_embeddings=64,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return BertForPreTraining(shape, seed=3)


if __name__ == "__main__":
    end_group_at_exit()
    result, gradient = take_step(Path(sys.argv[1]), int(sys.argv[3]))
    if Accelerator(cpu=True).is_main_process:
        save_file(gradient, sys.argv[2])
