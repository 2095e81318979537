"""The layout without padding gives what the padded one gives, at every real token."""

import pytest
import torch
from tests.model.small_models import (
    Batch,
    flat_positions,
    gradients,
    pull,
    small_batch,
    small_config,
    small_model,
    worst,
)
from torch import Tensor

from clozemill.model.bert import BertForPreTraining, PretrainingLogits
from clozemill.model.unpadded import Unpadded, can_attend_unpadded, real_tokens

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def both_layouts(
    model: BertForPreTraining, batch: Batch, selected: Tensor | None
) -> tuple[PretrainingLogits, PretrainingLogits, float]:
    """Return the logits of the padded and the other layout, and how far gradients differ."""
    logits, grads = [], []
    for padding_free in (False, True):
        model.bert.padding_free = padding_free
        model.zero_grad()
        logits.append(model(*batch, selected))
        predictions = logits[-1].prediction_logits
        if selected is None:
            predictions = predictions[batch.attention_mask.bool()]
        pull(logits[-1]._replace(prediction_logits=predictions)).backward()
        grads.append(gradients(model))
    names = [name for name in grads[0] if not name.endswith("key.bias")]  # those are rounding
    return logits[0], logits[1], max(worst(grads[1][name], grads[0][name]) for name in names)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_logits_and_gradients_equal_those_of_the_padded_layout(dense: bool, causal: bool):
    model = small_model(causal=causal).double()
    batch = small_batch()
    padded, unpadded, difference = both_layouts(
        model, batch, None if dense else flat_positions(batch)
    )
    real = batch.attention_mask.bool() if dense else slice(None)
    assert unpadded.prediction_logits.shape == padded.prediction_logits.shape
    assert worst(unpadded.prediction_logits[real], padded.prediction_logits[real]) <= 1e-13
    assert worst(unpadded.seq_relationship_logits, padded.seq_relationship_logits) <= 1e-13
    assert difference <= 1e-12


def test_holes_in_a_row_and_rows_of_padding_alone_are_laid_out_too():
    model = small_model().double()
    batch = small_batch([21, 0, 12])
    mask = batch.attention_mask.clone()
    mask[0, 5:9] = 0
    batch = batch._replace(attention_mask=mask)
    padded, unpadded, difference = both_layouts(model, batch, flat_positions(batch))
    assert worst(unpadded.prediction_logits, padded.prediction_logits) <= 1e-13
    assert worst(unpadded.seq_relationship_logits, padded.seq_relationship_logits) <= 1e-13
    assert difference <= 1e-12


def test_a_row_that_begins_with_padding_takes_the_padded_layout():
    model = small_model().double()
    batch = small_batch([21, 9])
    mask = batch.attention_mask.flip(1).contiguous()
    padded, unpadded, _ = both_layouts(model, batch._replace(attention_mask=mask), None)
    assert torch.equal(unpadded.prediction_logits, padded.prediction_logits)
    assert torch.equal(unpadded.seq_relationship_logits, padded.seq_relationship_logits)


def test_packing_takes_out_padding_and_padding_puts_zeros_back():
    batch = small_batch([3, 1, 4], num_tokens=5)
    layout = Unpadded(batch.attention_mask.bool(), causal=False, has_kernel=False)
    hidden = torch.arange(1.0, 31.0).view(3, 5, 2)
    packed = layout.pack(hidden)
    assert packed[:, 0].tolist() == [1, 3, 5, 11, 21, 23, 25, 27]
    assert layout.places(torch.tensor([0, 2, 5, 10, 13])).tolist() == [0, 2, 3, 4, 7]
    assert torch.equal(layout.pad(packed), hidden * batch.attention_mask[:, :, None])


def test_real_tokens_are_said_only_where_some_are_not():
    mask = small_batch([3, 0, 5], num_tokens=5).attention_mask
    assert real_tokens(None) is None
    assert real_tokens(torch.ones_like(mask)) is None
    found = real_tokens(mask)
    assert found is not None
    assert found.tolist() == [[True] * 3 + [False] * 2, [True] * 5, [True] * 5]


def test_a_cpu_keeps_the_padded_layout():
    config = small_config()
    cpu = torch.device("cpu")
    assert not can_attend_unpadded(cpu, torch.bfloat16, config, training=False)


@pytest.mark.parametrize("causal", [False, True])
def test_torch_takes_the_call_of_its_kernel(causal: bool):
    pytest.importorskip("torch.nn.attention.varlen")
    real = small_batch().attention_mask.bool()
    layout = Unpadded(real, causal=causal, has_kernel=True)
    shape = (int(real.sum()), 4, 64)
    # Without a device there are no numbers, but names, shapes and the backward pass are checked.
    query = torch.empty(shape, dtype=torch.bfloat16, device="meta", requires_grad=True)
    context = layout.attend(query, query, query, 0.0)
    assert context.shape == shape
    context.sum().backward()
    assert query.grad is not None


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dense", [False, True])
def test_a_gpus_kernel_gives_what_the_padded_layout_gives(dense: bool, causal: bool):
    model = small_model(hidden_size=256, causal=causal).cuda().train()
    batch = Batch(*(tensor.cuda() for tensor in small_batch()))
    selected = None if dense else flat_positions(Batch(*(t.cpu() for t in batch))).cuda()
    config, gpu = model.config, batch.input_ids.device
    with torch.autocast("cuda", torch.bfloat16):
        assert can_attend_unpadded(gpu, torch.float32, config, training=True)
        padded, unpadded, difference = both_layouts(model, batch, selected)
    real = batch.attention_mask.bool() if dense else slice(None)
    found, expected = unpadded.prediction_logits[real], padded.prediction_logits[real]
    assert worst(found.float(), expected.float()) < 0.05
    assert difference < 0.1


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_takes_padding_out_only_where_its_kernel_runs():
    gpu, config = torch.device("cuda"), small_config(hidden_size=256)
    assert can_attend_unpadded(gpu, torch.bfloat16, config, training=True)
    assert not can_attend_unpadded(gpu, torch.float32, config, training=True)
    assert not can_attend_unpadded(
        gpu, torch.bfloat16, small_config(), training=True
    )  # 12 features
    dropping = small_config(hidden_size=256, attention_probs_dropout_prob=0.1)
    assert not can_attend_unpadded(gpu, torch.bfloat16, dropping, training=True)
    assert can_attend_unpadded(gpu, torch.bfloat16, dropping, training=False)


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_gives_the_logits_of_a_cpu():
    model, batch = small_model(), small_batch()
    expected = model(*batch)
    found = model.cuda()(*(tensor.cuda() for tensor in batch))
    for logits, wanted in zip(found, expected, strict=True):
        assert worst(logits.cpu(), wanted) < 1e-4
