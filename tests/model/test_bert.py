"""The forward pass: equal to transformers, and what masks, selections and dropout do to it."""

import copy
import warnings
from typing import Any

import pytest
import torch
from tests.model.small_models import (
    LENGTHS,
    Batch,
    flat_positions,
    gradients,
    pull,
    small_batch,
    small_config,
    small_model,
    twin_of,
    worst,
)
from torch import Tensor, nn

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import preset
from clozemill.pipeline.errors import ModelError

# The small model's logits are about 10, so 1e-6 of their scale is a handful of last bits.
CLOSE = {torch.float32: 1e-6, torch.float64: 1e-14}


def run_twin(twin: Any, batch: Batch) -> Any:
    return twin(
        input_ids=batch.input_ids,
        token_type_ids=batch.token_type_ids,
        attention_mask=batch.attention_mask,
    )


# Equal to transformers


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
def test_logits_equal_those_of_transformers(hidden_act: str, causal: bool, dtype: torch.dtype):
    model = small_model(hidden_act=hidden_act, causal=causal).to(dtype)
    batch = small_batch()
    expected = run_twin(twin_of(model), batch)
    found = model(*batch)
    assert found.prediction_logits.dtype == dtype
    assert found.prediction_logits.std() > 1  # far from the initial scale
    assert worst(found.prediction_logits, expected.prediction_logits) <= CLOSE[dtype]
    assert worst(found.seq_relationship_logits, expected.seq_relationship_logits) <= CLOSE[dtype]
    if hidden_act == "gelu" and dtype == torch.float32:  # the other GELU is Python there
        assert torch.equal(found.prediction_logits, expected.prediction_logits)
        assert torch.equal(found.seq_relationship_logits, expected.seq_relationship_logits)


@pytest.mark.parametrize("hidden_act", ["gelu", "gelu_new"])
def test_gradients_equal_those_of_transformers(hidden_act: str):
    model = small_model(hidden_act=hidden_act)
    twin = twin_of(model)
    batch = small_batch()
    selected = flat_positions(batch)
    pull(model(*batch, selected)).backward()
    output = run_twin(twin, batch)
    rows = output.prediction_logits.flatten(0, 1)[selected]
    (pull((rows, output.seq_relationship_logits))).backward()
    found, expected = gradients(model), gradients(twin)
    assert sorted(found) == sorted(expected)
    for name in found:
        # A key's bias moves all scores of a query alike, so its gradient is rounding alone.
        if not name.endswith("key.bias"):
            assert worst(found[name], expected[name]) <= 5e-6, name


def test_without_next_sentence_it_is_transformers_masked_language_model():
    for causal in (False, True):
        model = small_model(next_sentence=False, causal=causal)
        found = model(*small_batch())
        expected = run_twin(twin_of(model), small_batch())
        assert found.seq_relationship_logits is None
        assert worst(found.prediction_logits, expected.logits) <= 1e-6


def test_padding_on_the_left_and_in_between_is_not_seen_either():
    batch = small_batch()
    mask = batch.attention_mask.clone()
    mask[0, :4] = 0
    mask[2, 7:9] = 0
    batch = batch._replace(attention_mask=mask)
    model = small_model()
    expected = run_twin(twin_of(model), batch).prediction_logits
    assert worst(model(*batch).prediction_logits, expected) <= 1e-6


def test_the_two_gelus_differ():
    batch = small_batch()
    exact, tanh = (
        small_model(hidden_act=act)(*batch).prediction_logits for act in ("gelu", "gelu_new")
    )
    assert 1e-5 < worst(tanh, exact) < 1e-2


def test_absent_arguments_mean_one_segment_and_no_padding():
    model = small_model()
    ids = small_batch([21] * 3).input_ids
    alone = model(ids)
    spelled = model(ids, torch.zeros_like(ids), torch.ones_like(ids))
    assert torch.equal(alone.prediction_logits, spelled.prediction_logits)
    assert torch.equal(alone.seq_relationship_logits, spelled.seq_relationship_logits)


# Who sees whom


def changed_rows(model: BertForPreTraining, batch: Batch, position: int) -> Tensor:
    """Return which positions' logits change, (B, T), when one token of every row does."""
    other = batch.input_ids.clone()
    other[:, position] = (other[:, position] + 7) % 200 + 1
    before = model(*batch).prediction_logits
    after = model(other, *batch[1:]).prediction_logits
    return (before != after).any(-1)


@pytest.mark.parametrize("lengths", [[21] * 4, [21, 20, 17, 21]])
def test_a_causal_model_never_sees_its_future_and_the_encoder_does(lengths: list[int]):
    batch = small_batch(lengths)
    for position in (1, 9, 16):
        seen = changed_rows(small_model(causal=True), batch, position)
        assert not seen[:, :position].any()
        assert seen[:, position].all()
        assert seen[0, position:].all()
        assert changed_rows(small_model(), batch, position)[0].all()


def test_causal_and_bidirectional_models_differ_in_the_mask_alone():
    encoder, decoder = small_model(), small_model(causal=True)
    states = encoder.state_dict(), decoder.state_dict()
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    one_token = small_batch([1] * 3, num_tokens=1)
    assert torch.equal(*(model(*one_token).prediction_logits for model in (encoder, decoder)))


@pytest.mark.parametrize("causal", [False, True])
def test_real_tokens_do_not_depend_on_padding(causal: bool):
    model = small_model(causal=causal).double()
    batch = small_batch()
    found = model(*batch)
    for row, length in enumerate(LENGTHS):
        alone = model(
            batch.input_ids[row : row + 1, :length], batch.token_type_ids[row, :length][None]
        )
        assert worst(found.prediction_logits[row, :length], alone.prediction_logits[0]) <= 1e-13
        assert worst(found.seq_relationship_logits[row], alone.seq_relationship_logits[0]) <= 1e-13
    noise = torch.where(batch.attention_mask.bool(), batch.input_ids, 77)
    other = model(noise, *batch[1:]).prediction_logits
    real = batch.attention_mask.bool()
    assert torch.equal(other[real], found.prediction_logits[real])


@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_padding_alone_and_padding_on_the_left_stay_finite(causal: bool):
    model = small_model(causal=causal)
    batch = small_batch([21, 0, 9, 0])
    mask = batch.attention_mask.flip(1).contiguous()  # padding on the left of row 2
    for padded in (batch, batch._replace(attention_mask=mask)):
        logits = model(*padded)
        pull(logits).backward()
        assert logits.prediction_logits.isfinite().all()
        assert all(grad.isfinite().all() for grad in gradients(model).values())


# Selected positions


@pytest.mark.parametrize(
    "changes", [{}, {"causal": True}, {"next_sentence": False}, {"num_hidden_layers": 1}]
)
def test_selected_positions_have_the_logits_and_gradients_of_the_whole(changes: dict[str, Any]):
    batch = small_batch()
    selected = flat_positions(batch)
    assert 15 < len(selected) < 40
    model, dense = (small_model(**changes).double() for _ in range(2))
    found, whole = model(*batch, selected), dense(*batch)
    rows = whole.prediction_logits.flatten(0, 1)[selected]
    assert worst(found.prediction_logits, rows) <= 1e-13
    if whole.seq_relationship_logits is not None:
        assert worst(found.seq_relationship_logits, whole.seq_relationship_logits) <= 1e-13
    pull(found).backward()
    pull(whole._replace(prediction_logits=rows)).backward()
    expected = gradients(dense)
    for name, grad in gradients(model).items():
        if not name.endswith("key.bias"):
            assert worst(grad, expected[name]) <= 1e-12, name


def test_positions_may_come_in_any_order_and_twice():
    model, batch = small_model().double(), small_batch()
    flat = model(*batch).prediction_logits.flatten(0, 1)
    selected = torch.tensor([60, 3, 3, 0, 22])
    assert worst(model(*batch, selected).prediction_logits, flat[selected]) <= 1e-13


@pytest.mark.parametrize("next_sentence", [True, False])
@pytest.mark.parametrize("lengths", [LENGTHS, []], ids=["rows", "no rows"])
def test_nothing_selected_gives_no_logits_and_zero_gradients(
    lengths: list[int], next_sentence: bool
):
    model = small_model(next_sentence=next_sentence).train()
    logits = model(*small_batch(lengths), torch.empty(0, dtype=torch.int64))
    assert logits.prediction_logits.shape == (0, 211)
    loss = logits.prediction_logits.sum()
    if next_sentence:
        assert logits.seq_relationship_logits.shape == (len(lengths), 2)
        loss = loss + logits.seq_relationship_logits.sum() * 0
    loss.backward()
    assert loss == 0
    assert all(grad.eq(0).all() for grad in gradients(model).values())  # all of them have one


def test_no_rows_give_no_logits():
    logits = small_model()(*small_batch([]))
    assert logits.prediction_logits.shape == (0, 21, 211)
    assert logits.seq_relationship_logits.shape == (0, 2)


def test_a_row_longer_than_the_positions_is_refused():
    with pytest.raises(ModelError, match="a row has 41 tokens, .* is 40; cut the row"):
        small_model()(torch.ones(2, 41, dtype=torch.int64))
    assert small_model()(torch.ones(2, 40, dtype=torch.int64)).prediction_logits.isfinite().all()


# Dropout


def places_of_dropout(model: BertForPreTraining) -> list[nn.Module]:
    return [module for module in model.modules() if hasattr(module, "dropout_prob")]


def test_dropout_is_at_every_place_of_bert_in_training_and_nowhere_else():
    batch = small_batch()
    dropless = small_model()
    model = small_model(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.2)
    places = places_of_dropout(model)
    assert len(places) == 1 + 3 * 3  # embeddings; attention, its output and the layer's output
    expected = dropless(*batch).prediction_logits
    assert torch.equal(model(*batch).prediction_logits, expected)
    model.train()
    first, second = (model(*batch).prediction_logits for _ in range(2))
    assert not torch.equal(first, second)
    for module in places:
        for other in places:
            other.dropout_prob = 0.5 if other is module else 0.0
        first, second = (model(*batch).prediction_logits for _ in range(2))
        assert not torch.equal(first, second)
    for module in places:
        module.dropout_prob = 0.0
    assert worst(model(*batch).prediction_logits, expected) <= 1e-6


def test_dropout_follows_torchs_seed():
    model = small_model(hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1).train()
    found = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        found.append(model(*small_batch()).prediction_logits)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_without_dropout_no_random_number_is_drawn():
    model = small_model().train()
    state = torch.get_rng_state()
    pull(model(*small_batch())).backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_attention_with_dropout_sees_what_it_sees_without():
    # Attention is then computed by its formula; the smallest share that counts drops almost none.
    for causal in (False, True):
        batch = small_batch()
        plain = small_model(causal=causal)(*batch).prediction_logits
        model = small_model(causal=causal, attention_probs_dropout_prob=1 / 65536).train()
        assert worst(model(*batch).prediction_logits, plain) < 2e-3


# 16 bits


@pytest.mark.parametrize("training", [False, True])
def test_bfloat16_logits_and_gradients_are_near_those_of_float32(training: bool):
    model, batch = BertForPreTraining(small_config(), seed=4).train(training), small_batch()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)  # between the initial scale and that of the other tests
    selected = flat_positions(batch)
    expected = model(*batch, selected)
    with torch.autocast("cpu", torch.bfloat16):
        found = model(*batch, selected)
    assert found.prediction_logits.dtype == torch.bfloat16
    for low, full in zip(found, expected, strict=True):
        assert 0 < worst(low.float(), full) < 0.05
    labels = torch.arange(len(selected))
    loss = nn.functional.cross_entropy(found.prediction_logits.float(), labels)
    full_loss = nn.functional.cross_entropy(expected.prediction_logits, labels)
    assert loss.isfinite()
    assert abs(loss - full_loss) < 0.02 * full_loss
    full_loss.backward()
    wanted = {name: grad.clone() for name, grad in gradients_of(model).items()}
    model.zero_grad()
    loss.backward()
    for name, grad in gradients_of(model).items():
        assert grad.dtype == torch.float32
        if not name.endswith("key.bias"):
            assert worst(grad, wanted[name]) < 0.1, name


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    """Return those that the loss of masked tokens reaches."""
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert len(found) == len(list(model.parameters())) - 4  # pooler, next-sentence head
    return found


def test_a_model_of_16_bits_runs_without_autocast():
    model = small_model().to(torch.bfloat16)
    assert model(*small_batch()).prediction_logits.isfinite().all()


# Ties


def assert_tied(model: BertForPreTraining) -> None:
    words = model.bert.embeddings.word_embeddings.weight
    head = model.cls.predictions
    assert head.decoder.weight is words
    assert head.decoder.bias is head.bias
    assert len(list(model.parameters())) == len(model.state_dict()) - 2


def test_the_decoder_stays_tied_through_moves_copies_and_loads():
    model = small_model()
    assert_tied(model)
    assert_tied(model.to(torch.float64).to(torch.float32))
    assert_tied(copy.deepcopy(model))
    for assign in (False, True):
        other = BertForPreTraining(small_config())
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        other.load_state_dict(state, assign=assign)
        assert_tied(other)
        assert torch.equal(*(m(*small_batch()).prediction_logits for m in (model, other)))


def test_a_load_misses_no_second_name_but_every_first_one():
    state = small_model().state_dict()
    for name in ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"):
        del state[name]
    model = BertForPreTraining(small_config())
    model.load_state_dict(state)
    assert_tied(model)
    del state["cls.predictions.bias"]
    with pytest.raises(
        RuntimeError, match=r'Missing key\(s\) in state_dict: "cls.predictions.bias"'
    ):
        model.load_state_dict(state)


def test_a_step_keeps_the_tie_and_moves_both_uses():
    model = small_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    before = model.cls.predictions.decoder.weight.clone()
    pull(model(*small_batch())).backward()
    optimizer.step()
    assert_tied(model)
    assert not torch.equal(model.bert.embeddings.word_embeddings.weight, before)


@pytest.mark.slow
def test_a_compiled_model_computes_the_same():
    import shutil

    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs g++ on a CPU")
    model, batch = small_model(), small_batch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.compile warns of its own making
        compiled = torch.compile(model)
        found = compiled(*batch, flat_positions(batch))
        pull(found).backward()
    grads = {name: grad.clone() for name, grad in gradients(model).items()}
    model.zero_grad()
    expected = model(*batch, flat_positions(batch))
    pull(expected).backward()
    assert worst(found.prediction_logits, expected.prediction_logits) <= 5e-6
    for name, grad in gradients(model).items():
        if not name.endswith("key.bias"):
            assert worst(grads[name], grad) <= 2e-5, name


@pytest.mark.slow
def test_a_fresh_model_predicts_as_if_it_knew_nothing():
    model = BertForPreTraining(preset("mini", vocab_size=30522)).eval()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 30522, (4, 64), generator=generator)
    with torch.no_grad():
        logits = model(ids)
    loss = nn.functional.cross_entropy(logits.prediction_logits.flatten(0, 1), ids.flatten())
    next_sentence = nn.functional.cross_entropy(
        logits.seq_relationship_logits, torch.tensor([0, 1, 0, 1])
    )
    assert loss == pytest.approx(10.33, abs=0.15)  # ln 30522
    assert next_sentence == pytest.approx(0.693, abs=0.05)  # ln 2
