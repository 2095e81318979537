"""A tiny model with a tied decoder, its optimizer, and checkpoints of both."""

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from clozemill.train.checkpoints import Checkpoint, TrainingState, save_checkpoint
from clozemill.train.config import PretrainConfig
from clozemill.train.facts import DatasetFacts, Execution, RunFacts
from clozemill.train.optimizers import optimizer_tensors
from clozemill.train.tensors import model_tensors
from clozemill.train.window import Window

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Return the environment of a process that imports this package and these tests."""
    return {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


class TiedModel(nn.Module):
    """A token table whose transpose is the decoder."""

    def __init__(self, *, vocab_size: int = 11, hidden_size: int = 4) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.decoder = nn.Linear(hidden_size, vocab_size)
        self.decoder.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.decoder(torch.tanh(self.dense(self.table(ids))))
        return logits


class SmallTraining:
    """A model and its optimizer, trained by one batch per step that follows from the step."""

    def __init__(self, *, hidden_size: int = 4) -> None:
        torch.manual_seed(1)
        self.model = TiedModel(hidden_size=hidden_size)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, number: int) -> float:
        generator = torch.Generator().manual_seed(number)
        ids = torch.randint(0, 11, (8,), generator=generator)
        loss = nn.functional.cross_entropy(self.model(ids), ids.roll(1))
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()


def small_execution(**facts: object) -> Execution:
    defaults: dict[str, object] = {
        "python_version": "3.11.7",
        "torch_version": "2.13.0",
        "accelerate_version": "1.15.0",
        "device": "cpu",
        "cpu_capability": "AVX512",
        "precision": "fp32",
        "num_threads": 2,
        "num_processes": 1,
        "micro_batch_size": 8,
    }
    return Execution(**{**defaults, **facts})  # type: ignore[arg-type]


def small_dataset(**facts: object) -> DatasetFacts:
    defaults: dict[str, object] = {
        "path": "data",
        "dataset_digests": {"train": "11" * 16, "validation": "12" * 16},
        "instances_digests": {"train": "21" * 16, "validation": "22" * 16},
        "instances_fingerprint": "33" * 16,
        "tokenizer_hash": "44" * 16,
        "max_seq_length": 32,
    }
    return DatasetFacts(**{**defaults, **facts})  # type: ignore[arg-type]


def small_facts(config: PretrainConfig | None = None, **changes: object) -> RunFacts:
    config = config or PretrainConfig(steps=10)
    defaults: dict[str, object] = {
        "settings": config.settings("training", "numerics", "execution"),
        "model": {"vocab_size": 11, "hidden_size": 4},
        "dataset": small_dataset(),
        "execution": small_execution(),
    }
    return RunFacts(**{**defaults, **changes})  # type: ignore[arg-type]


def small_state(step: int, **changes: object) -> TrainingState:
    defaults: dict[str, object] = {
        "step": step,
        "epoch": 1,
        "position": 24,
        "num_tokens": 12_345,
        "num_instances": 99,
        "facts": small_facts(),
        "window": Window(steps=2, mlm_loss_sum=0.1 + 0.2, selected=7, seconds=1.5),
    }
    return TrainingState(**{**defaults, **changes})  # type: ignore[arg-type]


def small_checkpoint(step: int, training: SmallTraining | None = None) -> Checkpoint:
    if training is None:
        training = SmallTraining()
        training.step(step)
    return Checkpoint(
        state=small_state(step),
        model=model_tensors(training.model),
        optimizer=optimizer_tensors(training.optimizer, training.model),
    )


def save_steps(folder: Path, *steps: int) -> list[Path]:
    return [save_checkpoint(folder, small_checkpoint(step)) for step in steps]
