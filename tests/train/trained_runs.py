"""Runs of a few steps, for tests of what is done with a trained encoder."""

from pathlib import Path
from typing import Any

from clozemill.train.config import PretrainConfig
from clozemill.train.pretrain import PretrainReport, pretrain


def train_briefly(data: Path, out: Path, **settings: Any) -> PretrainReport:
    """Train a tiny encoder for nine steps, evaluate it and save it at the sixth and the ninth."""
    defaults: dict[str, Any] = {
        "model": "tiny",
        "steps": 9,
        "precision": "fp32",
        "threads": 1,
        "global_batch_size": 16,
        "learning_rate": 5e-3,
        "eval_every": 3,
        "eval_instances": 30,
        "checkpoint_every": 6,
    }
    return pretrain(PretrainConfig(data=str(data), out=str(out), **{**defaults, **settings}))
