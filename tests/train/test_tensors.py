from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from tests.train.small_runs import SmallTraining, small_checkpoint

from clozemill.pipeline.errors import RunError
from clozemill.train.tensors import model_tensors, put_model_tensors, read_tensors


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.pop("dense.bias"), "lacks 1 of 4 tensors: dense.bias"),
        (lambda t: t.clear(), "lacks 4 of 4 tensors: decoder.bias"),
        (lambda t: t.update(extra=torch.zeros(1)), "has the tensor 'extra', which does not belong"),
        (lambda t: t.update({"a\nb": torch.zeros(1)}), r"has the tensor 'a\\nb', which does not"),
        (
            lambda t: t.update({"dense.bias": torch.zeros(5)}),
            r"dense.bias is float32 \[5\]; it must be float32 \[4\]",
        ),
        (
            lambda t: t.update({"dense.bias": torch.zeros(4, dtype=torch.float16)}),
            r"dense.bias is float16 \[4\]; it must be float32 \[4\]",
        ),
        (
            lambda t: t.update({"dense.bias": torch.zeros(4, dtype=torch.complex64)}),
            r"dense.bias is complex64 \[4\]; it must be float32 \[4\]",
        ),
    ],
)
def test_tensors_of_another_model_are_refused_and_change_nothing(
    edit: Callable[[Any], object], message: str, tmp_path: Path
) -> None:
    saved = small_checkpoint(1)
    tensors = {name: tensor.clone() for name, tensor in saved.model.items()}
    edit(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    model = SmallTraining().model
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(RunError, match=message) as error:
        put_model_tensors(model, read_tensors(tmp_path / "model.safetensors"), where="model")
    assert "\n" not in str(error.value)
    assert all(map(torch.equal, before, model.parameters()))


def test_names_are_those_of_the_plain_model(tmp_path: Path) -> None:
    model = SmallTraining().model
    wrapped = torch.nn.ModuleDict({"module": torch.nn.ModuleDict({"_orig_mod": model})})
    assert model_tensors(wrapped).keys() == model_tensors(model).keys()
