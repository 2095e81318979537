import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clozemill.pipeline.errors import RunError
from clozemill.train.config import PretrainConfig
from clozemill.train.optimizers import (
    decay_names,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_learning_rate,
)

OPTIMIZERS = ("adamw", "bert-adam", "lamb")
LR, BETA1, BETA2, EPS, DECAY = 0.1, 0.9, 0.999, 1e-6, 0.01


class Tiny(nn.Module):
    """The kinds of parameters that a BERT has, under its names."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.word_embeddings = nn.Embedding(7, 4)
        self.dense = nn.Linear(4, 4)
        self.LayerNorm = nn.LayerNorm(4)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))

    def forward(self, ids: Tensor) -> Tensor:
        hidden: Tensor = self.LayerNorm(self.dense(self.word_embeddings(ids)))
        return hidden


def config(**settings: Any) -> PretrainConfig:
    own = {"beta1": BETA1, "beta2": BETA2, "epsilon": EPS, "weight_decay": DECAY}
    return PretrainConfig(**{"steps": 10, **own, **settings})


def started(name: str, model: nn.Module, lr: float = LR) -> torch.optim.Optimizer:
    optimizer = make_optimizer(config(optimizer=name), model)
    set_learning_rate(optimizer, lr)
    return optimizer


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def test_layer_norms_and_biases_are_exempt_from_decay_and_embeddings_are_not() -> None:
    names = decay_names(Tiny())
    assert names.decayed == ("word_embeddings.weight", "dense.weight")
    assert names.exempt == ("dense.bias", "LayerNorm.weight", "LayerNorm.bias")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_parameter_is_in_one_group_and_only_matrices_decay(name: str) -> None:
    model = Tiny()
    optimizer = make_optimizer(config(optimizer=name), model)
    of_group = [sorted(id(p) for p in group["params"]) for group in optimizer.param_groups]
    named = dict(model.named_parameters())
    assert of_group == [sorted(id(named[n]) for n in names) for names in decay_names(model)]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [DECAY, 0.0]


def test_the_first_step_of_bert_adam_corrects_no_bias() -> None:
    model = Tiny()
    before = weights(model)
    train(model, started("bert-adam", model), range(1))
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        mean, square = (1 - BETA1) * parameter.grad, (1 - BETA2) * parameter.grad**2
        update = mean / (square.sqrt() + EPS)
        if name in decay_names(model).decayed:
            update = update + DECAY * before[name]
        torch.testing.assert_close(parameter.detach(), before[name] - LR * update)


def test_bert_adam_adds_epsilon_outside_the_root_and_without_correction() -> None:
    # A gradient of 1e-4 has root sqrt(0.001) * 1e-4 = 3.16e-6, of the size of epsilon.
    model = Tiny()
    before = model.LayerNorm.bias.detach().clone()
    model.LayerNorm.bias.grad = torch.full((4,), 1e-4)
    started("bert-adam", model).step()
    expected = before - LR * 1e-5 / (1e-4 * 0.001**0.5 + 1e-6)
    torch.testing.assert_close(model.LayerNorm.bias.detach(), expected)


def test_bert_adam_follows_the_formula_over_several_steps() -> None:
    model = Tiny()
    name = "dense.weight"
    weight = weights(model)[name].double()
    mean = square = torch.zeros_like(weight)
    optimizer = started("bert-adam", model)
    for step in range(5):
        train(model, optimizer, range(step, step + 1))
        gradient = model.dense.weight.grad
        assert gradient is not None
        mean = BETA1 * mean + (1 - BETA1) * gradient.double()
        square = BETA2 * square + (1 - BETA2) * gradient.double() ** 2
        weight = weight - LR * (mean / (square.sqrt() + EPS) + DECAY * weight)
    torch.testing.assert_close(weights(model)[name].double(), weight, rtol=1e-5, atol=1e-6)


def test_adamw_takes_a_first_step_of_the_learning_rate() -> None:
    model = Tiny()
    before = weights(model)
    train(model, started("adamw", model), range(1))
    for name in decay_names(model).exempt:
        parameter = model.get_parameter(name)
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.detach(), before[name] - LR * parameter.grad.sign())


def test_lamb_moves_a_matrix_by_the_learning_rate_times_its_norm() -> None:
    model = Tiny()
    before = weights(model)
    train(model, started("lamb", model), range(1))
    for name in decay_names(model).decayed:
        moved = model.get_parameter(name).detach() - before[name]
        torch.testing.assert_close(moved.norm(), LR * before[name].norm())
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        direction = gradient.sign() + DECAY * before[name]
        torch.testing.assert_close(moved / moved.norm(), -direction / direction.norm())


def test_lamb_does_not_scale_what_does_not_decay() -> None:
    model, other = Tiny(), Tiny()
    train(model, started("lamb", model), range(3))
    train(other, started("adamw", other), range(3))
    for name in decay_names(model).exempt:
        torch.testing.assert_close(model.get_parameter(name), other.get_parameter(name))


def test_lamb_has_ratio_one_for_a_matrix_of_zeros() -> None:
    model = Tiny()
    with torch.no_grad():
        model.dense.weight.zero_()
    train(model, started("lamb", model), range(1))
    assert model.dense.weight.grad is not None
    torch.testing.assert_close(model.dense.weight.detach(), -LR * model.dense.weight.grad.sign())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rate_of_zero_moves_no_weight_but_fills_the_moments(name: str) -> None:
    model = Tiny()
    before = weights(model)
    optimizer = started(name, model, lr=0.0)
    train(model, optimizer, range(1))
    assert all(torch.equal(before[n], p) for n, p in model.named_parameters())
    assert optimizer_tensors(optimizer, model)["exp_avg.dense.weight"].abs().min() > 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_going_on_from_saved_tensors_gives_the_same_bytes(name: str) -> None:
    model = Tiny()
    optimizer = started(name, model)
    train(model, optimizer, range(3))
    saved_weights = copy.deepcopy(model.state_dict())
    saved = {key: value.clone() for key, value in optimizer_tensors(optimizer, model).items()}
    train(model, optimizer, range(3, 6))

    resumed = Tiny()
    resumed.load_state_dict(saved_weights)
    again = make_optimizer(config(optimizer=name), resumed)
    load_optimizer_tensors(again, resumed, saved)
    set_learning_rate(again, LR)
    train(resumed, again, range(3, 6))

    ours, theirs = optimizer_tensors(again, resumed), optimizer_tensors(optimizer, model)
    assert ours.keys() == theirs.keys() > {"exp_avg.dense.weight", "exp_avg_sq.dense.bias"}
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    assert all(torch.equal(p, model.get_parameter(n)) for n, p in resumed.named_parameters())


def test_loaded_tensors_are_copies() -> None:
    model = Tiny()
    optimizer = started("bert-adam", model)
    train(model, optimizer, range(1))
    saved = {key: value.clone() for key, value in optimizer_tensors(optimizer, model).items()}
    kept = {key: value.clone() for key, value in saved.items()}
    load_optimizer_tensors(optimizer, model, saved)
    train(model, optimizer, range(1, 3))
    assert saved
    assert all(torch.equal(saved[key], kept[key]) for key in saved)


def test_an_optimizer_that_made_no_step_has_no_tensors_and_loads_none() -> None:
    model = Tiny()
    optimizer = started("adamw", model)
    assert optimizer_tensors(optimizer, model) == {}
    load_optimizer_tensors(optimizer, model, {})
    assert optimizer_tensors(optimizer, model) == {}


def test_names_are_those_of_the_bare_model_however_it_is_wrapped() -> None:
    class Wrapper(nn.Module):
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    model = Tiny()
    optimizer = started("adamw", model)
    train(model, optimizer, range(1))
    bare = optimizer_tensors(optimizer, model)
    wrapped = optimizer_tensors(optimizer, Wrapper(model))
    assert bare
    assert wrapped.keys() == bare.keys()


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda saved: saved.update({"exp_avg.other.weight": torch.zeros(2)}),
            "holds 'exp_avg.other.weight', which belongs to no parameter",
        ),
        (
            lambda saved: saved.update({"step.dense.bias": torch.zeros(3)}),
            r"holds 'step.dense.bias' of shape \(3,\), not \(\)",
        ),
        (
            lambda saved: saved.update({"exp_avg.dense.bias": torch.zeros(4).half()}),
            r"holds 'exp_avg.dense.bias' of type torch.float16, not float32",
        ),
        (
            lambda saved: saved.update({"exp_avg.dense.bias": torch.zeros(3)}),
            r"holds 'exp_avg.dense.bias' of shape \(3,\), not \(4,\)",
        ),
        (lambda saved: saved.pop("exp_avg.dense.bias"), "lacks a tensor of dense.bias"),
    ],
)
def test_tensors_of_another_model_are_refused(edit: Any, message: str) -> None:
    model = Tiny()
    optimizer = started("adamw", model)
    train(model, optimizer, range(1))
    saved = dict(optimizer_tensors(optimizer, model))
    edit(saved)
    with pytest.raises(RunError, match=message):
        load_optimizer_tensors(optimizer, model, saved)
