"""Models to and from folders of Hugging Face's form: `config.json` and `model.safetensors`.

Tensors have the same names and layout on both sides, so a folder that `save_pretrained` wrote is
loaded by `transformers` as it is, and a BERT of the hub by `load_pretrained`. Only safetensors are
read: loading a pickle (`pytorch_model.bin`) may run whatever code its author put there.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import BertConfig
from clozemill.model.weights import TIED, plain_name, tensor_shapes
from clozemill.pipeline.errors import ModelError
from clozemill.pipeline.files import atomic_file, is_plain_name, open_regular

CONFIG_NAME = "config.json"
WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
"""Names which file holds which tensor, where there are several."""

_MOST_JSON_BYTES = 1 << 24

_OWN_FIELDS = ("next_sentence", "causal")
"""Fields that Hugging Face spells otherwise: by `architectures` and by `is_decoder`."""


def save_pretrained(
    model: nn.Module,
    folder: str | os.PathLike[str],
    *,
    extra_config: Mapping[str, Any] | None = None,
) -> None:
    """Write a model so that `transformers` loads it; each file is complete or absent.

    Args:
        model: a BertForPreTraining, which may be compiled or wrapped for several processes.
        folder: made if absent; `config.json` and `model.safetensors` in it are replaced.
        extra_config: further entries of config.json, such as what the model was trained on;
            `transformers` keeps them and `load_pretrained` ignores them.

    Raises:
        ModelError: An extra entry has the name of a field, or the folder cannot be made.
        DatasetError: A file cannot be written.
    """
    config = config_entries(unwrapped(model).config)
    taken = sorted(set(config) & set(extra_config or {}))
    if taken:
        raise ModelError(f"extra_config has the entry {taken[0]!r}, which the model sets itself.")
    weights = safetensors.torch.save(stored_tensors(model), metadata={"format": "pt"})
    text = json.dumps(config | dict(extra_config or {}), indent=2, sort_keys=True)
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ModelError(
            f"cannot make the folder {path}: {error.strerror}; choose another one."
        ) from error
    with atomic_file(path / WEIGHTS_NAME) as sink:
        sink.write(weights)
    with atomic_file(path / CONFIG_NAME) as sink:  # last: it makes the folder a model
        sink.write(text.encode() + b"\n")


def load_pretrained(
    folder: str | os.PathLike[str], *, next_sentence: bool | None = None
) -> BertForPreTraining:
    """Return the model in a folder that `save_pretrained` or `transformers` wrote, in float32.

    Accepts names of 2018 (`gamma`, `beta`), prefixes of wrappers, and weights in several files.

    Args:
        folder: with `config.json` and safetensors.
        next_sentence: whether the model is to have the pooler and the next-sentence head; false
            leaves out what the folder has of them. None is what the folder has.

    Raises:
        ModelError: The folder holds no BERT for pretraining: a file is absent, damaged or a
            pickle, or a tensor is missing, left over, or of another shape than `config.json`
            says. The text names the first one.
    """
    path = Path(folder)
    entries = _read_json(path / CONFIG_NAME)
    tensors = _untied(_canonical(_read_weights(path), path), entries, path)
    tensors, has_next_sentence = _choose_heads(tensors, next_sentence, path)
    config = _parse_config(entries, has_next_sentence, path / CONFIG_NAME)
    _check_tensors(tensors, config, path)
    model = BertForPreTraining(config, seed=None)
    model.load_state_dict(tensors)  # copies, so that nothing stays mapped to the files
    return model


def unwrapped(model: nn.Module) -> BertForPreTraining:
    """Return the model inside of what `torch.compile` and data parallelism put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
        if inner is None:
            break
        model = inner
    if not isinstance(model, BertForPreTraining):
        raise TypeError(f"expected a BertForPreTraining, got {type(model).__name__}")
    return model


def stored_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model under their stored names: float32, on the CPU, each once."""
    state = unwrapped(model).state_dict()
    named = {plain_name(name): tensor for name, tensor in state.items()}
    return {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in named.items()
        if name not in TIED
    }


def config_entries(config: BertConfig) -> dict[str, Any]:
    """Return what Hugging Face's config.json says of a model."""
    if config.next_sentence:
        architecture = "BertForPreTraining"
    else:
        architecture = "BertLMHeadModel" if config.causal else "BertForMaskedLM"
    fields = dataclasses.asdict(config)
    return {name: value for name, value in fields.items() if name not in _OWN_FIELDS} | {
        "architectures": [architecture],
        "dtype": "float32",
        "is_decoder": config.causal,
        "model_type": "bert",
        "tie_word_embeddings": True,
    }


def _parse_config(entries: dict[str, Any], next_sentence: bool, path: Path) -> BertConfig:
    """Return the configuration that the entries of a config.json stand for."""
    for name, only, what in (
        ("model_type", "bert", "bert"),
        ("position_embedding_type", "absolute", "absolute positions"),
    ):
        if (value := entries.get(name, only)) != only:
            raise ModelError(f"{path} has {name} {value!r}; only {what} can be loaded.")
    if entries.get("vocab_size") is None:
        raise ModelError(f"{path} has no vocab_size; copy the folder again.")
    names = {item.name for item in dataclasses.fields(BertConfig)} - set(_OWN_FIELDS)
    fields = {k: v for k, v in entries.items() if k in names and v is not None}
    try:
        return BertConfig(
            **fields, next_sentence=next_sentence, causal=entries.get("is_decoder") or False
        )
    except ModelError as error:
        raise ModelError(f"{path} cannot be used: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file of a stranger."""
    try:
        with open_regular(path) as stream:
            data = stream.read(_MOST_JSON_BYTES + 1)
    except OSError as error:
        raise ModelError(
            f"cannot read {path}: {error.strerror}; name the folder of a model in Hugging Face's "
            "form."
        ) from error
    try:
        table = json.loads(data) if len(data) <= _MOST_JSON_BYTES else None
    except (ValueError, RecursionError):
        table = None
    if not isinstance(table, dict):
        raise ModelError(f"{path} is not a JSON object; copy the folder again.")
    return table


def _read_weights(folder: Path) -> dict[str, Tensor]:
    """Return all tensors of a folder, mapped and not yet read."""
    if (folder / WEIGHTS_NAME).exists():
        return _read_safetensors(folder / WEIGHTS_NAME)
    if not (folder / INDEX_NAME).exists():
        raise ModelError(_no_weights(folder))
    index = _read_json(folder / INDEX_NAME).get("weight_map")
    files = list(index.values()) if isinstance(index, dict) else []
    if not files or not all(isinstance(name, str) and is_plain_name(name) for name in files):
        raise ModelError(
            f"{folder / INDEX_NAME} names no files of weights here; copy the folder again."
        )
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(files)):
        tensors |= _read_safetensors(folder / name)
    return tensors


def _no_weights(folder: Path) -> str:
    pickles = sorted(p.name for p in folder.iterdir() if p.suffix in (".bin", ".pt", ".pth"))
    if pickles:
        return (
            f"{folder} has its weights in {pickles[0]}, a pickle, which can run code when it is "
            "loaded; convert it with transformers' save_pretrained if you trust it."
        )
    return f"{folder} has no {WEIGHTS_NAME}; name the folder of a model in Hugging Face's form."


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        open_regular(path).close()  # a pipe would be waited for
        return safetensors.torch.load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise ModelError(
            f"{path} cannot be read as safetensors ({_one_line(error)}); copy it again."
        ) from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _canonical(tensors: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Return the tensors under the names that the model uses, without buffers of old versions."""
    named: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        plain = _todays_name(name)
        if plain in named:
            raise ModelError(f"{folder} has two tensors {plain}; copy the folder again.")
        if not re.fullmatch(r"bert\.embeddings\.(position_ids|token_type_ids)", plain):
            named[plain] = tensor
    return named


def _todays_name(name: str) -> str:
    """Return a tensor's name in the plain model, in today's spelling.

    >>> _todays_name("module.bert.embeddings.LayerNorm.gamma")
    'bert.embeddings.LayerNorm.weight'
    """
    name = plain_name(name)
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


def _untied(tensors: dict[str, Tensor], entries: dict[str, Any], folder: Path) -> dict[str, Tensor]:
    """Return the tensors with tied ones under their first names alone."""
    stored = {TIED.get(name, name): tensor for name, tensor in tensors.items()} | {
        name: tensor for name, tensor in tensors.items() if name not in TIED
    }
    for second, first in TIED.items():
        if second in tensors and not torch.equal(tensors[second], stored[first]):
            raise ModelError(
                f"{folder} has different values for {second} and {first}; only a model that "
                "predicts with its table of token embeddings can be loaded."
            )
        if second not in tensors and entries.get("tie_word_embeddings") is False:
            raise ModelError(
                f"{folder} has no {second}, but its {CONFIG_NAME} says that it is not tied "
                "(tie_word_embeddings); save the model again."
            )
    return stored


def _choose_heads(
    tensors: dict[str, Tensor], next_sentence: bool | None, folder: Path
) -> tuple[dict[str, Tensor], bool]:
    """Return the tensors to load, and whether pooler and next-sentence head are among them."""
    parts = ("bert.pooler.", "cls.seq_relationship.")
    if next_sentence is False:
        return {k: v for k, v in tensors.items() if not k.startswith(parts)}, False
    pooler, head = (any(k.startswith(part) for k in tensors) for part in parts)
    if pooler == head and (head or next_sentence is None):
        return tensors, head
    trouble = "which belong together" if pooler != head else "but both were asked for"
    raise ModelError(
        f"{folder} has {'a' if pooler else 'no'} pooler and {'a' if head else 'no'} next-sentence "
        f"head, {trouble}; load it without next_sentence."
    )


def _check_tensors(tensors: dict[str, Tensor], config: BertConfig, folder: Path) -> None:
    """Raise `ModelError` unless the tensors are those of the configuration, all of them."""
    mend = f"copy the folder again, or correct {CONFIG_NAME}."
    if config.num_hidden_layers > len(tensors):  # or a hostile number takes for ever
        raise ModelError(
            f"{folder} has {len(tensors)} tensors, too few for the {config.num_hidden_layers} "
            f"layers of its {CONFIG_NAME}; {mend}"
        )
    shapes = tensor_shapes(config)
    for name, shape in shapes.items():
        if name not in tensors:
            raise ModelError(
                f"{folder} has no tensor {name}; name a folder with a BERT and its head for "
                "masked tokens."
            )
        found = tuple(tensors[name].shape)
        if found != shape:
            raise ModelError(
                f"{name} in {folder} has shape {found}, but {CONFIG_NAME} asks for {shape}, with "
                f"vocab_size {config.vocab_size}; {mend}"
            )
        if not tensors[name].is_floating_point():
            raise ModelError(
                f"{name} in {folder} holds {tensors[name].dtype}; weights are floating-point "
                "numbers."
            )
    unexpected = sorted(set(tensors) - set(shapes))
    if unexpected:
        raise ModelError(
            f"{folder} has the tensor {unexpected[0]}, which BERT for pretraining has not; name a "
            "folder of BertForPreTraining or BertForMaskedLM."
        )
