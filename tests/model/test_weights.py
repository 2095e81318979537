"""Fresh weights: a function of the seed alone, of the right distribution, none forgotten."""

import math

import pytest
import torch
from tests.model.small_models import small_config

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import preset
from clozemill.model.weights import TIED, tensor_shapes


def test_weights_are_a_function_of_the_seed_alone():
    torch.manual_seed(1)
    first = BertForPreTraining(small_config(), seed=7).state_dict()
    torch.manual_seed(2)
    torch.rand(5)
    state = torch.get_rng_state()
    second = BertForPreTraining(small_config(), seed=7).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    assert len(first) > 40
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = BertForPreTraining(small_config(), seed=8).state_dict()
    matrices = [name for name in first if first[name].dim() == 2]
    assert len(matrices) > 20
    assert not any(torch.equal(first[name], other[name]) for name in matrices)


def test_no_two_matrices_are_alike():
    state = BertForPreTraining(small_config(), seed=0).state_dict()
    starts = [tuple(t.flatten()[:4].tolist()) for n, t in state.items() if t.dim() == 2]
    assert len(starts) > 20
    assert len(set(starts)) == len(starts) - 1  # the decoder is the table of tokens


def test_matrices_are_normal_up_to_two_deviations_and_the_rest_starts_neutral():
    config = preset("tiny", vocab_size=8000, initializer_range=0.05)
    seen = set()
    for name, tensor in BertForPreTraining(config, seed=3).state_dict().items():
        if tensor.dim() == 1:
            kind = "norm" if name.endswith("LayerNorm.weight") else "bias"
            assert torch.equal(tensor, torch.full_like(tensor, float(kind == "norm")))
        else:
            kind = "matrix"
            assert tensor.abs().max() <= 0.1
            # A normal cut at two deviations keeps 0.8796 of its own.
            error = 4 / math.sqrt(2 * tensor.numel())
            assert tensor.std() / 0.05 == pytest.approx(0.8796, abs=error)
            assert tensor.mean() == pytest.approx(0, abs=4 * 0.05 / math.sqrt(tensor.numel()))
        seen.add(kind)
    assert seen == {"norm", "bias", "matrix"}


@pytest.mark.parametrize("next_sentence", [True, False])
def test_the_table_of_shapes_is_that_of_the_module(next_sentence: bool):
    config = small_config(next_sentence=next_sentence)
    state = BertForPreTraining(config).state_dict()
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items() if name not in TIED}
    assert shapes == tensor_shapes(config)
    assert len(state) == len(shapes) + len(TIED)
    assert any("pooler" in name for name in shapes) == next_sentence
    assert len(shapes) == 10 + 16 * 3 + (4 if next_sentence else 0)
