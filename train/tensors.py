"""Tensors by name: of a model, and in safetensors files.

Names are those of the plain model: what a compiler or a wrapper for many ranks puts before or
between them is left out, so a file fits any way of running.
"""

import os
import re
from collections.abc import Mapping, Set
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from clozemill.model.weights import plain_name
from clozemill.pipeline.errors import RunError

Tensors = dict[str, Tensor]
"""Tensors by name, none sharing memory with another."""

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def model_tensors(model: nn.Module) -> Tensors:
    """Return the parameters and stored buffers of a model.

    Of tensors that share memory only the first is there, as Hugging Face files have it: for a
    tied decoder that is the token table. They are the model's own, not copies.
    """
    return {name: tensor.detach() for name, tensor in _own_tensors(model).items()}


def put_model_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, where: str) -> None:
    """Copy tensors into a model, whose ties stay as they are.

    Raises:
        RunError: A tensor is missing, left over, or of another shape or type than the model's.
            The model is then as it was.
    """
    own = _own_tensors(model)
    _check_names(own.keys(), tensors.keys(), where)
    for name, tensor in own.items():
        _check_like(tensors[name], tensor.shape, tensor.dtype, f"{where}: {name}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, marked as Hugging Face marks its own.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    on_cpu = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(on_cpu, path, metadata={"format": "pt"})
    except SafetensorError as error:  # which is what becomes of an OSError in there
        number = _OS_ERROR.search(str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def read_tensors(path: Path) -> Tensors:
    """Return the tensors of a safetensors file; nothing in it can run.

    Raises:
        RunError: It cannot be read, or is no safetensors file.
    """
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{path} is not a readable safetensors file ({reason:.200}).") from error


def _own_tensors(model: nn.Module) -> Tensors:
    """Return a model's own tensors by plain name, each once, without copies."""
    stored = model.state_dict(keep_vars=True)
    own: Tensors = {}
    seen: set[int] = set()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in stored and id(tensor) not in seen:
            seen.add(id(tensor))
            own[plain_name(name)] = tensor
    return own


def _check_names(expected: Set[str], found: Set[str], where: str) -> None:
    missing, extra = sorted(expected - found), sorted(found - expected)
    if missing:
        raise RunError(f"{where} lacks {len(missing)} of {len(expected)} tensors: {missing[0]}.")
    if extra:
        raise RunError(f"{where} has the tensor {extra[0]!r:.100}, which does not belong there.")


def _check_like(tensor: Tensor, shape: torch.Size, dtype: torch.dtype, where: str) -> None:
    if tensor.shape != shape or tensor.dtype != dtype:
        raise RunError(
            f"{where} is {_text(tensor.dtype, tensor.shape)}; it must be {_text(dtype, shape)}."
        )


def _text(dtype: torch.dtype, shape: torch.Size) -> str:
    """Return a tensor's type and shape, such as `float32 [2, 128]`."""
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
