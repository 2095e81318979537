import warnings

import pytest
import torch

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import preset
from clozemill.model.vocabulary_loss import VocabularyLoss, vocabulary_loss
from clozemill.train.collate import IGNORED
from clozemill.train.loss import (
    Batch,
    PretrainingObjective,
    Targets,
    find_inputs,
    find_targets,
    loss_sums,
)


def targets_of(originals: list[int], *, label: torch.Tensor | None = None) -> Targets:
    places = torch.arange(len(originals))
    ids = torch.tensor(originals, dtype=torch.int64)
    return Targets(places, ids, torch.ones(len(originals)) > 0, label)


def predicted(logits: torch.Tensor, originals: list[int]) -> VocabularyLoss:
    """Return the loss of these logits, made by a projection of one-hot rows."""
    one_hot = torch.eye(len(logits), dtype=logits.dtype)
    no_bias = torch.zeros(logits.shape[1], dtype=logits.dtype)
    return vocabulary_loss(one_hot, logits.T, no_bias, torch.tensor(originals))


def logits_with_losses(losses: list[float]) -> torch.Tensor:
    """Return logits over two tokens, the first of which has these losses."""
    probabilities = torch.exp(-torch.tensor(losses, dtype=torch.float64))
    return torch.log(torch.stack([probabilities, 1 - probabilities], dim=1))


def test_tokens_weigh_the_same_however_they_are_cut_into_batches() -> None:
    one = loss_sums(predicted(logits_with_losses([4.0]), [0]), None, targets_of([0]))
    nine = loss_sums(predicted(logits_with_losses([1.0] * 9), [0] * 9), None, targets_of([0] * 9))
    mean = (one.mlm_loss_sum + nine.mlm_loss_sum) / 10
    assert abs(float(mean) - 1.3) < 1e-6


def test_nothing_selected_is_no_loss_and_a_finite_gradient() -> None:
    hidden = torch.ones(0, 3, requires_grad=True)
    weight = torch.ones(7, 3, requires_grad=True)
    targets = targets_of([])
    loss = vocabulary_loss(hidden, weight, torch.zeros(7), targets.original_ids)
    sums = loss_sums(loss, None, targets)
    sums.mlm_loss_sum.backward()
    assert float(sums.mlm_loss_sum.detach()) == float(sums.mlm_correct) == 0.0
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.zeros(7, 3))


def test_labels_say_what_was_there_and_the_input_what_shows_mask() -> None:
    # `the tea is cold` with `tea` kept and `cold` masked: PAD=0 CLS=1 SEP=2 MASK=3.
    batch: Batch = {
        "input_ids": torch.tensor([[1, 4, 5, 6, 3, 2, 0]]),
        "labels": torch.tensor([[IGNORED, IGNORED, 5, IGNORED, 7, IGNORED, IGNORED]]),
    }
    targets = find_targets(batch, mask_id=3)
    assert targets.positions.tolist() == [2, 4]
    assert targets.original_ids.tolist() == [5, 7]
    assert targets.is_masked.tolist() == [False, True]
    assert targets.next_sentence_label is None


def test_sums_tell_masked_positions_and_right_answers_apart() -> None:
    logits = torch.tensor([[5.0, 0.0, 0.0], [0.0, 5.0, 0.0], [0.0, 0.0, 5.0]])
    shown = torch.tensor([True, False, True])
    targets = Targets(torch.arange(3), torch.tensor([0, 1, 0]), shown, torch.tensor([1, 0]))
    pairs = torch.tensor([[0.0, 2.0], [0.0, 2.0]])
    sums = loss_sums(predicted(logits, [0, 1, 0]), pairs, targets)
    right, wrong = 0.013386, 5.013386  # -log softmax of 5 and of 0 beside 0 and 5
    assert abs(float(sums.mlm_loss_sum) - (2 * right + wrong)) < 1e-5
    assert abs(float(sums.mask_only_loss_sum) - (right + wrong)) < 1e-5
    assert int(sums.mlm_correct) == 2
    assert int(sums.nsp_correct) == 1
    assert abs(float(sums.nsp_loss_sum) - (0.126928 + 2.126928)) < 1e-5


def test_a_head_without_labels_has_a_gradient_of_zero() -> None:
    pairs = torch.ones(2, 2, requires_grad=True)
    sums = loss_sums(predicted(torch.zeros(1, 4), [0]), pairs, targets_of([0]))
    sums.nsp_loss_sum.backward()
    assert pairs.grad is not None
    assert torch.equal(pairs.grad, torch.zeros(2, 2))


@pytest.mark.parametrize("num_padded", [0, 3])
def test_the_objective_is_one_graph_for_a_compiler_with_padding_and_without(
    num_padded: int,
) -> None:
    ids = torch.arange(5, 37).reshape(2, 16)
    mask = torch.ones_like(ids)
    mask[1, 16 - num_padded :] = 0
    labels = torch.full_like(ids, IGNORED)
    labels[:, 3] = 7
    batch: Batch = {
        "input_ids": ids,
        "token_type_ids": torch.zeros_like(ids),
        "attention_mask": mask,
        "labels": labels,
        "next_sentence_label": torch.tensor([0, 1]),
    }
    shape = preset("tiny", vocab_size=40, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    objective = PretrainingObjective(BertForPreTraining(shape))
    given = find_inputs(batch), find_targets(batch, mask_id=4)
    assert (given[0].attention_mask is None) == (num_padded == 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler warns of its own making
        # It raises where a graph would break.
        found = torch.compile(objective, fullgraph=True, backend="eager")(*given)
    torch.testing.assert_close(found, objective(*given))
