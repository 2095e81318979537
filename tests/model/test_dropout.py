"""Dropout on a CPU: its share, its scale, its gradient, and that it can be absent."""

import math

import pytest
import torch

from clozemill.model.dropout import dropout


@pytest.mark.parametrize("prob", [0.1, 0.5, 0.003])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_share_is_dropped_and_the_rest_scaled_up(prob: float, dtype: torch.dtype):
    torch.manual_seed(0)
    count = 400_000
    found = dropout(torch.ones(4, count // 4, dtype=dtype), prob, training=True)
    share = round(prob * 65536) / 65536
    kept = torch.tensor(1 / (1 - share), dtype=dtype)
    assert set(found.unique().tolist()) == {0.0, kept.item()}
    dropped = found.flatten() == 0
    bound = 4 * math.sqrt(prob * (1 - prob) / (count / 4))
    for lane in range(4):  # four elements share a random word
        assert dropped[lane::4].float().mean() == pytest.approx(share, abs=bound)
    both = (dropped[0::4] & dropped[1::4]).float().mean()
    assert both == pytest.approx(share**2, abs=4 * math.sqrt(share**2 / (count / 4)))


@pytest.mark.parametrize("shape", [(), (1,), (3, 7), (0, 5)])
def test_any_shape_keeps_its_shape(shape: tuple[int, ...]):
    assert dropout(torch.ones(shape), 0.3, training=True).shape == shape


def test_the_gradient_passes_where_the_value_did():
    values = torch.linspace(1, 2, 1001, requires_grad=True)
    found = dropout(values, 0.4, training=True)
    found.backward(torch.full_like(found, 3.0))
    assert 300 < (found == 0).sum() < 500
    assert torch.allclose(values.grad, 3 * (found / values).detach())


def test_nothing_happens_outside_training_or_at_zero():
    values = torch.ones(5)
    state = torch.get_rng_state()
    assert dropout(values, 0.5, training=False) is values
    assert dropout(values, 0.0, training=True) is values
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(values, torch.ones(5))


def test_every_value_of_the_generator_is_used():
    torch.manual_seed(0)
    # At one 65536th, all but the lowest of the 16-bit numbers are kept.
    found = dropout(torch.ones(1 << 22), 1 / 65536, training=True)
    assert (found == 0).sum().item() == pytest.approx(64, abs=32)
