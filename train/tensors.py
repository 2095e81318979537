"""Tensors by name: of a model, of its optimizer, and in safetensors files.

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
from torch.optim import Optimizer

from clozemill.pipeline.errors import RunError

Tensors = dict[str, Tensor]
"""Tensors on the CPU, contiguous and none sharing memory with another, by name."""

_OS_ERROR = re.compile(r"\(os error (\d+)\)")


def plain_name(name: str) -> str:
    """Return a parameter's name in the plain model.

    >>> plain_name("module._orig_mod.bert.pooler.dense.bias")
    'bert.pooler.dense.bias'
    """
    return name.replace("_orig_mod.", "").removeprefix("module.")


def model_tensors(model: nn.Module) -> Tensors:
    """Return the parameters and stored buffers of a model.

    Of tensors that share memory only the first is there, as Hugging Face files have it: for a
    tied decoder that is the token table.
    """
    return {name: _on_cpu(tensor) for name, tensor in _own_tensors(model).items()}


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


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> Tensors:
    """Return the state of an optimizer: `exp_avg.NAME` and the like for each parameter NAME.

    Before the first step there is none.

    Raises:
        RunError: Some parameters have a state and some have none, which could not be told from
            a damaged file later.
    """
    found = {}
    for name, parameter in _optimized(optimizer, model).items():
        for kind, value in optimizer.state.get(parameter, {}).items():
            assert isinstance(value, Tensor), f"{kind} of an optimizer must be a tensor"
            found[f"{kind}.{name}"] = _on_cpu(value)
    _check_kinds(found, _optimized(optimizer, model), "the optimizer")
    return found


def put_optimizer_tensors(
    optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor], *, where: str
) -> None:
    """Give an optimizer the state that `optimizer_tensors` returned; its settings stay.

    Raises:
        RunError: A tensor is missing, left over, or of another shape or type than a state of
            its parameter. The optimizer is then as it was.
    """
    parameters = _optimized(optimizer, model)
    kinds = _check_kinds(tensors, parameters, where)
    for name, parameter in parameters.items():
        for kind in kinds:
            tensor = tensors[f"{kind}.{name}"]
            shape = tensor.shape if tensor.dim() == 0 else parameter.shape  # a count of steps
            _check_like(tensor, shape, torch.float32, f"{where}: {kind}.{name}")
    # The optimizer's own loading moves each tensor to where its kernels expect it.
    state = {
        number: {kind: tensors[f"{kind}.{name}"].clone() for kind in kinds}
        for number, name in enumerate(parameters)
        if kinds
    }
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, marked as Hugging Face marks its own.

    Raises:
        OSError: The disk is full, or the folder cannot be written.
    """
    try:
        save_file(dict(tensors), path, metadata={"format": "pt"})
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


def _optimized(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters of an optimizer by name, in its own order."""
    names = {id(parameter): plain_name(name) for name, parameter in model.named_parameters()}
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    return {names[id(parameter)]: parameter for parameter in parameters}


def _on_cpu(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU: training goes on while or after it is written."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def _check_kinds(
    tensors: Mapping[str, Tensor], parameters: Mapping[str, Tensor], where: str
) -> list[str]:
    """Return the kinds of state in a file, such as `exp_avg`, if each parameter has all of them."""
    first = next(iter(parameters), "")
    kinds = sorted(name.removesuffix(f".{first}") for name in tensors if name.endswith(f".{first}"))
    kinds = [kind for kind in kinds if "." not in kind]
    _check_names({f"{kind}.{name}" for kind in kinds for name in parameters}, tensors.keys(), where)
    return kinds


def _check_names(expected: Set[str], found: Set[str], where: str) -> None:
    missing, extra = sorted(expected - found), sorted(found - expected)
    if missing:
        raise RunError(f"{where} lacks the tensor {missing[0]}, and {len(missing) - 1} more.")
    if extra:
        raise RunError(f"{where} has the tensor {extra[0]:.100}, which does not belong there.")


def _check_like(tensor: Tensor, shape: torch.Size, dtype: torch.dtype, where: str) -> None:
    if tensor.shape != shape or tensor.dtype != dtype:
        raise RunError(
            f"{where} is {_text(tensor.dtype, tensor.shape)}; it must be {_text(dtype, shape)}."
        )


def _text(dtype: torch.dtype, shape: torch.Size) -> str:
    """Return a tensor's type and shape, such as `float32 [2, 128]`."""
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
