import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from clozemill.model.vocabulary_loss import vocabulary_loss

S, H, V = 37, 16, 50_021  # more than one portion of rows


def random_parts(dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    wanted = torch.randint(0, V, (S,), generator=generator)
    return draw(S, H), draw(V, H), draw(V), wanted


def gradients_of(total: Tensor, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(3.0 * total, inputs))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-6), (torch.float32, 2e-6)])
def test_loss_and_gradients_are_those_of_projection_and_cross_entropy(
    dtype: torch.dtype, tolerance: float
) -> None:
    hidden, weight, bias, wanted = random_parts(dtype)
    inputs = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
    logits = F.linear(hidden, weight, bias)
    plain = F.cross_entropy(logits, wanted, reduction="none")
    found = vocabulary_loss(hidden, weight, bias, wanted)
    assert torch.allclose(found.losses.to(dtype), plain, rtol=tolerance, atol=0.0)
    assert torch.equal(found.is_correct, logits.argmax(1) == wanted)
    expected = gradients_of(plain.sum(), *inputs)
    for ours, theirs in zip(gradients_of(found.total, *inputs), expected, strict=True):
        assert ours.dtype == dtype
        assert float((ours - theirs).abs().max()) <= tolerance * float(theirs.abs().max())


def test_autocast_rounds_products_but_not_the_softmax() -> None:
    hidden, weight, bias, wanted = random_parts(torch.float32)
    inputs = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
    with torch.autocast("cpu", torch.bfloat16):
        found = vocabulary_loss(hidden, weight, bias, wanted)
    logits = (hidden.bfloat16() @ weight.bfloat16().T).float() + bias
    plain = F.cross_entropy(logits, wanted, reduction="none")
    assert torch.allclose(found.losses, plain, rtol=1e-6)
    expected = gradients_of(plain.sum(), *inputs)
    for ours, theirs in zip(gradients_of(found.total, *inputs), expected, strict=True):
        assert ours.dtype == torch.float32
        assert float((ours - theirs).abs().max()) <= 0.02 * float(theirs.abs().max())


def test_without_gradients_only_losses_are_made() -> None:
    hidden, weight, bias, wanted = random_parts(torch.float32)
    with torch.no_grad():
        found = vocabulary_loss(hidden, weight, bias, wanted)
    trained = vocabulary_loss(hidden.requires_grad_(), weight, bias, wanted)
    assert torch.equal(found.losses, trained.losses)
    assert not found.total.requires_grad
    assert trained.total.requires_grad
    assert not trained.losses.requires_grad


def test_no_positions_give_no_loss_and_zero_gradients() -> None:
    _, weight, bias, _ = random_parts(torch.float32)
    hidden = torch.empty(0, H)
    inputs = [tensor.requires_grad_() for tensor in (hidden, weight, bias)]
    found = vocabulary_loss(hidden, weight, bias, torch.empty(0, dtype=torch.int64))
    assert float(found.total.detach()) == 0.0
    for gradient in gradients_of(found.total, *inputs):
        assert not gradient.any()


def test_a_logit_that_is_not_finite_makes_the_loss_so() -> None:
    hidden, weight, bias, wanted = random_parts(torch.float32)
    bias[7] = torch.inf
    assert not vocabulary_loss(hidden, weight, bias, wanted).losses.isfinite().any()
