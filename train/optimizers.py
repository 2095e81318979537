"""Optimizers, which parameters decay, and an optimizer's state as named tensors.

All three are decoupled: the decay of a weight is no part of its gradient and of the moments.

    BertAdam   u = m / (sqrt(v) + eps)              + wd * w     w -= lr * u
    AdamW      u = m' / (sqrt(v') + eps)            + wd * w     w -= lr * u
    Lamb       r = m' / (sqrt(v') + eps)            + wd * w     w -= lr * (|w| / |r|) * r

with m = b1 * m + (1 - b1) * g, v = b2 * v + (1 - b2) * g^2, and m' = m / (1 - b1^t),
v' = v / (1 - b2^t) at step t. The gradient is clipped before, by its norm over all parameters;
none of the optimizers clips.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from clozemill.model.weights import plain_name
from clozemill.pipeline.errors import RunError
from clozemill.train.config import PretrainConfig

_EXEMPT = ("LayerNorm", "layer_norm", "bias")
"""A parameter with one of these in its name does not decay
(`google-research/bert optimization.py:65`)."""


class DecayNames(NamedTuple):
    """The parameters of a model, by whether weight decay applies to them."""

    decayed: tuple[str, ...]
    """Matrices, embeddings among them."""

    exempt: tuple[str, ...]
    """Scales of LayerNorm, and biases."""


def decay_names(model: nn.Module) -> DecayNames:
    """Return which parameters decay and which do not, for the log."""
    names = [name for name, parameter in _named(model).items() if parameter.requires_grad]
    return DecayNames(
        tuple(name for name in names if not _is_exempt(name)), tuple(filter(_is_exempt, names))
    )


def _is_exempt(name: str) -> bool:
    return any(part in name for part in _EXEMPT)


def _named(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return the parameters by their names in the plain model."""
    return {plain_name(name): parameter for name, parameter in model.named_parameters()}


def make_optimizer(config: PretrainConfig, model: nn.Module) -> Optimizer:
    """Return the optimizer of a run, with a learning rate of 0 until `set_learning_rate`.

    The model must be on its device. Both kinds of Adam are torch's, fused on CPUs and GPUs.
    """
    parameters, names = _named(model), decay_names(model)
    decays = (float(config.weight_decay), 0.0)
    groups = [
        {"params": [parameters[name] for name in group], "weight_decay": decay}
        for group, decay in zip(names, decays, strict=True)
    ]
    settings: dict[str, Any] = {
        "lr": 0.0,
        "betas": (float(config.beta1), float(config.beta2)),
        "eps": float(config.epsilon),
    }
    if config.optimizer == "lamb":
        return Lamb(groups, **settings)
    is_fused = all(p.device.type in ("cpu", "cuda") for p in parameters.values())
    kind = BertAdam if config.optimizer == "bert-adam" else torch.optim.AdamW
    return kind(groups, **settings, fused=is_fused)


def set_learning_rate(optimizer: Optimizer, rate: float) -> None:
    """Make the next steps with this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


_LATE = 1e30
"""A step so late that 1 - b^t is 1 for every b below 1."""


class BertAdam(torch.optim.AdamW):
    """Adam without bias correction, as BERT was trained (`optimization.py:88-171`).

    It is AdamW for which it is always late: m' = m and v' = v, so torch's fused kernel serves. As
    m and v start at 0, the update of step 1 is (1 - b1) / sqrt(1 - b2) whatever the gradient:
    3.16 for the original's 0.9 and 0.999, against AdamW's 1.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter that has a gradient."""
        for weight in (weight for group in self.param_groups for weight in group["params"]):
            if weight.grad is None:
                continue
            if not self.state[weight]:
                self.state[weight] = {
                    "step": torch.empty((), device=weight.device),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight),
                }
            self.state[weight]["step"].fill_(_LATE)
        return super().step(closure)


class _Moments(NamedTuple):
    """The parameters of a group that have a gradient, and what goes with them, in one order."""

    weights: list[Tensor]
    gradients: list[Tensor]
    means: list[Tensor]
    """m."""
    squares: list[Tensor]
    """v."""
    steps: list[float]
    """t: how often each was updated, this time included."""


class Lamb(Optimizer):
    """LAMB (You et al. 2020, algorithm 2), with phi the identity.

    As NVIDIA's `FusedLAMB` without `use_nvlamb`, and as Google's, parameters that are exempt from
    decay are not scaled by the trust ratio either, and the ratio is 1 where a norm is 0. Theirs
    clips the whole gradient to norm 1 first; here that is `clip_norm`, as for every optimizer.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        """Take parameter groups with a `weight_decay` each."""
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            moments = self._moments(group)
            if not moments.weights:
                continue
            _average_gradients(moments, group["betas"])
            updates = _direction(moments, group["betas"], group["eps"])
            if group["weight_decay"]:
                torch._foreach_add_(updates, moments.weights, alpha=group["weight_decay"])
                torch._foreach_mul_(updates, _trust_ratios(moments.weights, updates))
            torch._foreach_add_(moments.weights, updates, alpha=-group["lr"])

    def _moments(self, group: dict[str, Any]) -> _Moments:
        weights = [weight for weight in group["params"] if weight.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                self.state[weight] = {
                    "step": torch.zeros(()),
                    "exp_avg": torch.zeros_like(weight),
                    "exp_avg_sq": torch.zeros_like(weight),
                }
            self.state[weight]["step"] += 1.0
        states = [self.state[weight] for weight in weights]
        return _Moments(
            weights,
            [weight.grad for weight in weights],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [float(state["step"]) for state in states],
        )


def _average_gradients(moments: _Moments, betas: tuple[float, float]) -> None:
    beta1, beta2 = betas
    gradients = moments.gradients
    torch._foreach_mul_(moments.means, beta1)
    torch._foreach_add_(moments.means, gradients, alpha=1.0 - beta1)
    torch._foreach_mul_(moments.squares, beta2)
    torch._foreach_addcmul_(moments.squares, gradients, gradients, 1.0 - beta2)


def _direction(moments: _Moments, betas: tuple[float, float], eps: float) -> list[Tensor]:
    """Return m' / (sqrt(v') + eps)."""
    beta1, beta2 = betas
    roots = torch._foreach_sqrt(moments.squares)
    torch._foreach_div_(roots, [math.sqrt(1.0 - beta2**step) for step in moments.steps])
    torch._foreach_add_(roots, eps)
    torch._foreach_mul_(roots, [1.0 - beta1**step for step in moments.steps])
    return list(torch._foreach_div(moments.means, roots))


def _trust_ratios(weights: list[Tensor], updates: list[Tensor]) -> list[Tensor]:
    """Return |w| / |r| of each tensor; 1 where one of them is 0."""
    norms = zip(torch._foreach_norm(weights), torch._foreach_norm(updates), strict=True)
    return [torch.where((w > 0) & (r > 0), w / r, 1.0) for w, r in norms]


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimizer's state as tensors named `exp_avg.PARAMETER` and the like.

    Together with the settings of the run it is all that the optimizer knows: the learning rate
    is set anew at each step. The tensors are the optimizer's own, not copies.

    Args:
        optimizer: From `make_optimizer`, also as `accelerate` wraps it.
        model: The model whose parameters it has, also wrapped.
    """
    return {
        f"{key}.{name}": value
        for name, parameter in _named(model).items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(
    optimizer: Optimizer,
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    *,
    where: str = "the saved state of the optimizer",
) -> None:
    """Give the optimizer the state that `optimizer_tensors` returned; tensors are copied.

    Args:
        optimizer: Of the same settings.
        model: The model whose parameters it has, also wrapped.
        tensors: All of them, or none where no step was made.
        where: What they are from, for errors.

    Raises:
        RunError: A tensor belongs to no parameter, has another shape or type, or one is missing.
    """
    parameters = {n: p for n, p in _named(model).items() if p.requires_grad}
    state: dict[str, dict[str, Tensor]] = {}
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition(".")
        if name not in parameters:
            raise _does_not_fit(where, f"holds {full_name!r:.100}, which belongs to no parameter")
        shape = () if key == "step" else tuple(parameters[name].shape)
        if tuple(tensor.shape) != shape:
            raise _does_not_fit(
                where, f"holds {full_name!r:.100} of shape {tuple(tensor.shape)}, not {shape}"
            )
        if tensor.dtype != torch.float32:
            raise _does_not_fit(
                where, f"holds {full_name!r:.100} of type {tensor.dtype}, not float32"
            )
        state.setdefault(name, {})[key] = tensor.detach().clone()
    for name in parameters:
        if state and state.get(name, {}).keys() != {"step", "exp_avg", "exp_avg_sq"}:
            raise _does_not_fit(where, f"lacks a tensor of {name}")
    in_order = [p for group in optimizer.param_groups for p in group["params"]]
    place_of = {id(parameter): place for place, parameter in enumerate(in_order)}
    optimizer.load_state_dict(
        {
            "state": {place_of[id(parameters[name])]: value for name, value in state.items()},
            "param_groups": optimizer.state_dict()["param_groups"],
        }
    )


def _does_not_fit(where: str, what: str) -> RunError:
    return RunError(
        f"{where} {what}; it is of another model or optimizer, so start from its weights alone, "
        "with --init-from."
    )
