"""Encoders with trained weights, wherever they lie: a run, one of its checkpoints, or an export."""

from pathlib import Path

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import BertConfig
from clozemill.model.convert import CONFIG_NAME, load_pretrained
from clozemill.pipeline.errors import RunError
from clozemill.train.checkpoints import STATE_NAME, find_latest, load_checkpoint
from clozemill.train.runs import CHECKPOINTS_NAME, RUN_NAME
from clozemill.train.tensors import put_model_tensors


def load_encoder(path: Path) -> BertForPreTraining:
    """Return the encoder that a folder holds.

    Args:
        path: A run (its newest complete checkpoint counts), a checkpoint, or a folder that
            `clozemill export` or `transformers` wrote.

    Raises:
        RunError: It is none of them, or has no complete checkpoint.
        ModelError: The weights cannot be read.
    """
    if (path / CONFIG_NAME).exists():
        return load_pretrained(path)
    return encoder_of_checkpoint(newest_checkpoint(path))


def newest_checkpoint(path: Path) -> Path:
    """Return the newest complete checkpoint of a run; a checkpoint is its own.

    Raises:
        RunError: There is none.
    """
    if (path / STATE_NAME).exists():
        return path
    if not (path / RUN_NAME).exists():
        raise RunError(f"{path} holds neither a model, a checkpoint nor a run; check the path.")
    found, _ = find_latest(path / CHECKPOINTS_NAME)
    if found is None:
        raise RunError(f"{path} has no checkpoint yet; train it first.")
    return found


def encoder_of_checkpoint(path: Path) -> BertForPreTraining:
    """Return the encoder in a checkpoint.

    Raises:
        RunError: It is incomplete or damaged.
    """
    checkpoint = load_checkpoint(path)
    model = BertForPreTraining(BertConfig(**checkpoint.state.facts.model), seed=None)
    put_model_tensors(model, checkpoint.model, where=str(path))
    return model
