"""Encoders with trained weights, wherever they lie: a run, one of its checkpoints, or an export."""

from dataclasses import dataclass
from pathlib import Path

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import BertConfig
from clozemill.model.convert import CONFIG_NAME, load_pretrained
from clozemill.model.weights import tensor_shapes
from clozemill.pipeline.dataset_names import TOKENIZER_FOLDER
from clozemill.pipeline.errors import RunError, TokenizerError
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer
from clozemill.train.checkpoints import (
    STATE_NAME,
    Checkpoint,
    TrainingState,
    find_latest,
    load_checkpoint,
)
from clozemill.train.facts import CHECKPOINTS_NAME, RUN_NAME
from clozemill.train.tensors import put_model_tensors

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TrainedEncoder:
    """An encoder, and what is known of where it comes from."""

    folder: Path
    """The checkpoint, or the folder in Hugging Face's form."""

    model: BertForPreTraining
    """The encoder with its weights, in float32 on the CPU."""

    state: TrainingState | None
    """Where its training stood; None for a folder in Hugging Face's form."""

    def tokenizer_hash(self) -> str | None:
        """Return the hash of the tokenizer that its ids are of, or None if nothing says it.

        Raises:
            TokenizerError: The tokenizer beside the weights cannot be used.
        """
        if self.state is not None:
            return self.state.facts.dataset.tokenizer_hash
        return hash_of_tokenizer_in(self.folder)


def hash_of_tokenizer_in(folder: Path) -> str | None:
    """Return the hash of the tokenizer that a folder holds beside its weights, or None.

    Raises:
        TokenizerError: It cannot be used.
    """
    if any((folder / name).exists() for name in _TOKENIZER_FILES):
        return load_tokenizer(folder).hash
    return None


def find_encoder(path: Path) -> TrainedEncoder:
    """Return the encoder that a folder holds, and where it comes from.

    Args:
        path: A run (its newest complete checkpoint counts), a checkpoint, or a folder that
            `clozemill export` or `transformers` wrote.

    Raises:
        RunError: It is none of them, or has no complete checkpoint.
        ModelError: The weights cannot be read.
    """
    if (path / CONFIG_NAME).exists():
        return TrainedEncoder(folder=path, model=load_pretrained(path), state=None)
    folder = newest_checkpoint(path)
    checkpoint = load_checkpoint(folder)
    model = encoder_of_checkpoint(checkpoint, where=folder)
    return TrainedEncoder(folder=folder, model=model, state=checkpoint.state)


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


def encoder_of_checkpoint(checkpoint: Checkpoint, *, where: Path) -> BertForPreTraining:
    """Return the encoder in a checkpoint that was loaded from a folder.

    Raises:
        RunError: Its facts are of no encoder of ours, or its tensors do not fit them.
        ModelError: A size of the encoder cannot be used.
    """
    try:
        shape = BertConfig(**checkpoint.state.facts.model)
    except TypeError as error:
        raise RunError(f"the model of {where} is not one that this clozemill knows.") from error
    found = {name: tuple(tensor.shape) for name, tensor in checkpoint.model.items()}
    # Before memory is taken for whatever sizes a stranger wrote there.
    if shape.num_hidden_layers > len(found) or found != tensor_shapes(shape):
        raise RunError(f"{where} has other tensors than the model that its state describes.")
    model = BertForPreTraining(shape, seed=None)
    put_model_tensors(model, checkpoint.model, where=str(where))
    return model


def find_tokenizer(encoder: TrainedEncoder, given: Path | None = None) -> PretrainingTokenizer:
    """Return the tokenizer of an encoder's ids.

    It lies beside the weights, or, for a run, in the dataset that was trained on.

    Args:
        encoder: From `find_encoder`.
        given: A tokenizer to use in its place, such as that of a dataset which has moved.

    Raises:
        RunError: The dataset is gone, or the tokenizer is not the one of the training.
        TokenizerError: There is none, or it cannot be used.
    """
    if encoder.state is None:
        return load_tokenizer(given or encoder.folder)
    facts = encoder.state.facts.dataset
    folder = given or Path(facts.path) / TOKENIZER_FOLDER
    if given is None and not folder.is_dir():
        raise RunError(
            f"the tokenizer of {encoder.folder} lies in the dataset {facts.path!r:.200}, which is "
            "not there; give the tokenizer's folder with --tokenizer. The next time, let clozemill "
            "export put model and tokenizer into one folder."
        )
    tokenizer = load_tokenizer(folder)
    if tokenizer.hash != facts.tokenizer_hash:
        raise TokenizerError(
            f"{folder} holds the tokenizer {tokenizer.hash}, but {encoder.folder} was trained with "
            f"{facts.tokenizer_hash:.80}; give that one with --tokenizer."
        )
    return tokenizer
