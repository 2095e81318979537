"""When attention is computed by its formula."""

import pytest
import torch
from torch.nn import functional as F

from clozemill.model.attention_cpu import attend_by_formula, prefers_formula


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_batch_without_rows_goes_by_the_formula_on_any_device(device: str) -> None:
    rows = [torch.empty(n, 2, 5, 4, device=device) for n in (0, 3)]
    assert [prefers_formula(query, 0.0) for query in rows] == [True, False]


def test_the_formula_is_the_fused_attention_and_takes_no_rows_too() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 5, 4, generator=generator, dtype=torch.float64)
    visible = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])[:, None, None, :]
    found = attend_by_formula(query, key, value, 0.0, visible)
    expected = F.scaled_dot_product_attention(query, key, value, visible)
    torch.testing.assert_close(found, expected)
    nothing = attend_by_formula(query[:0].requires_grad_(), key[:0], value[:0], 0.0, visible[:0])
    assert nothing.shape == (0, 2, 5, 4)
    nothing.sum().backward()
