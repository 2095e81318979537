"""Parameters and operations: published, counted from the module, counted by torch."""

import pytest
import torch
from tests.model.small_models import flat_positions, pull, small_batch, small_config, small_model
from torch.utils.flop_counter import FlopCounterMode

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import PRESETS, preset
from clozemill.model.flops import forward_flops, num_parameters, training_flops

PUBLISHED = {
    "tiny": 4_433_468,
    "mini": 11_267_900,
    "small": 29_058_876,
    "medium": 41_668_412,
    "base": 110_106_428,
}


@pytest.mark.parametrize("name", PRESETS)
def test_parameters_are_the_published_count_and_the_modules(name: str):
    config = preset(name, vocab_size=30522)
    with torch.device("meta"):
        model = BertForPreTraining(config, seed=None)
    counted = sum(parameter.numel() for parameter in model.parameters())
    assert num_parameters(config) == counted
    assert counted == PUBLISHED.get(name, 336_226_108)  # the last is bert-large-uncased with heads


def test_parameters_without_next_sentence_are_the_modules():
    config = small_config(next_sentence=False)
    model = BertForPreTraining(config)
    assert num_parameters(config) == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("next_sentence", [True, False])
@pytest.mark.parametrize("is_selected", [True, False])
def test_operations_are_those_that_torch_counts(is_selected: bool, next_sentence: bool):
    # With dropout attention is computed by products that the counter knows.
    model = small_model(next_sentence=next_sentence, attention_probs_dropout_prob=0.1).train()
    batch = small_batch()
    selected = flat_positions(batch) if is_selected else None
    with FlopCounterMode(display=False) as forward:
        logits = model(*batch, selected)
    with FlopCounterMode(display=False) as backward:
        pull(logits).backward()
    sizes = {
        "num_rows": 5,
        "num_tokens": 21,
        "num_selected": None if selected is None else len(selected),
    }
    assert forward.get_total_flops() == forward_flops(model.config, **sizes)
    total = forward.get_total_flops() + backward.get_total_flops()
    assert total == training_flops(model.config, **sizes)


def test_no_rows_cost_nothing():
    assert training_flops(small_config(), num_rows=0, num_tokens=9, num_selected=0) == 0


def test_base_at_length_128_is_near_six_operations_per_weight_and_token():
    config = preset("base", vocab_size=30522)
    per_token = training_flops(config, num_rows=1, num_tokens=128) / 128
    assert per_token == pytest.approx(6 * num_parameters(config), rel=0.03)
