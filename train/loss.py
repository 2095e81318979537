"""The pretraining loss: sums over selected tokens and over pairs, never means of batches.

A mean over a micro-batch weighs its tokens by how many others happen to be beside them, so the
gradient would depend on how a global batch is cut. Sums do not: they are divided once, by the
counts of the whole global batch.

Legend: B rows, T tokens, S selected positions, V vocabulary.
Source: Devlin et al. 2019, section 3.1: the sum of the mean masked LM likelihood and the mean
next sentence prediction likelihood.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clozemill.model.bert import BertForPreTraining
from clozemill.model.vocabulary_loss import VocabularyLoss, vocabulary_loss
from clozemill.train.collate import IGNORED

Batch = dict[str, Tensor]
"""A collated micro-batch: see `PretrainingCollator`."""


class Inputs(NamedTuple):
    """What the encoder reads of a micro-batch."""

    input_ids: Tensor
    """int64 (B, T): token ids with the overlay applied."""

    token_type_ids: Tensor
    """int64 (B, T): 0 in A, 1 in B."""

    attention_mask: Tensor | None
    """int64 (B, T): 0 at padding; None where no row is padded."""


class Targets(NamedTuple):
    """What a micro-batch asks the model for."""

    positions: Tensor
    """int64 (S,): selected positions, counted through the rows: row * T + position."""

    original_ids: Tensor
    """int64 (S,): the token ids that were there before masking."""

    is_masked: Tensor
    """bool (S,): whether the input shows [MASK] there."""

    next_sentence_label: Tensor | None
    """int64 (B,): 0 next, 1 random; None where the recipe makes no pairs."""


class LossSums(NamedTuple):
    """Sums over a micro-batch, named as in `Window`; only the first two have gradients."""

    mlm_loss_sum: Tensor
    """Cross-entropy in nats, summed over the selected positions."""

    nsp_loss_sum: Tensor
    """Cross-entropy in nats, summed over the pairs."""

    mask_only_loss_sum: Tensor
    """The part of `mlm_loss_sum` at positions that show [MASK]."""

    mlm_correct: Tensor
    """Selected positions whose most likely token is the original."""

    nsp_correct: Tensor
    """Pairs whose more likely label is theirs."""


class PretrainingObjective(nn.Module):
    """An encoder with the loss on top: what Accelerate wraps and what is called for each batch.

    With the loss inside, logits never leave the wrapper, which would copy them to float32.
    """

    def __init__(self, model: BertForPreTraining) -> None:
        """Keep the encoder as `model`; its parameters are the only ones."""
        super().__init__()
        self.model = model

    def forward(self, inputs: Inputs, targets: Targets) -> LossSums:
        """Return the sums of one micro-batch."""
        features = self.model.features(
            input_ids=inputs.input_ids,
            token_type_ids=inputs.token_type_ids,
            attention_mask=inputs.attention_mask,
            selected=targets.positions,
        )
        decoder = self.model.cls.predictions.decoder
        predicted = vocabulary_loss(
            features.predictions, decoder.weight, decoder.bias, targets.original_ids
        )
        return loss_sums(predicted, features.seq_relationship_logits, targets)


def find_inputs(batch: Batch) -> Inputs:
    """Return what the encoder reads of a collated micro-batch."""
    mask = batch["attention_mask"]
    # Attention is faster where nothing is hidden.
    return Inputs(batch["input_ids"], batch["token_type_ids"], None if mask.all() else mask)


def find_targets(batch: Batch, mask_id: int) -> Targets:
    """Return what a collated micro-batch asks for.

    Call it before the batch moves to an accelerator: how many positions are selected is a
    question that a GPU would have to stop for.
    """
    labels = batch["labels"].reshape(-1)
    positions = (labels != IGNORED).nonzero().squeeze(1)
    shown = batch["input_ids"].reshape(-1)[positions]
    return Targets(positions, labels[positions], shown == mask_id, batch.get("next_sentence_label"))


def loss_sums(
    predicted: VocabularyLoss, next_sentence_logits: Tensor | None, targets: Targets
) -> LossSums:
    """Return the sums of a micro-batch; without selected positions they are 0 and not NaN.

    Args:
        predicted: The loss at the selected positions.
        next_sentence_logits: (B, 2), or None for an encoder without that head.
        targets: from `find_targets`.

    >>> logits = torch.log(torch.tensor([[0.8, 0.2], [0.25, 0.75]]))
    >>> positions, originals = torch.tensor([2, 4]), torch.tensor([0, 0])
    >>> predicted = vocabulary_loss(torch.eye(2), logits.T, torch.zeros(2), originals)
    >>> targets = Targets(positions, originals, torch.tensor([False, True]), None)
    >>> f"{loss_sums(predicted, None, targets).mlm_loss_sum / 2:.6f}"  # (-ln 0.8 - ln 0.25) / 2
    '0.804719'
    """
    nothing = predicted.losses.new_zeros(())
    nsp_loss = nsp_correct = nothing
    wanted = targets.next_sentence_label
    if next_sentence_logits is not None:
        if wanted is None:
            # A head that is not trained has a gradient of 0: ranks wait for every parameter's.
            nsp_loss = 0.0 * next_sentence_logits.sum()
        else:
            nsp_loss = F.cross_entropy(next_sentence_logits.float(), wanted, reduction="sum")
            nsp_correct = next_sentence_logits.detach().argmax(1).eq(wanted).sum()
    return LossSums(
        mlm_loss_sum=predicted.total,
        nsp_loss_sum=nsp_loss,
        mask_only_loss_sum=torch.where(targets.is_masked, predicted.losses, nothing).sum(),
        mlm_correct=predicted.is_correct.sum(),
        nsp_correct=nsp_correct,
    )
