"""The MLM loss of each validation document: what a bootstrap over documents draws from.

The masks are those that a training is evaluated on: variant 0 of the validation split, the same for
all arms and seeds.

Legend: n instances, B rows of a micro-batch, T tokens of a row, S selected positions of all.
"""

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clozemill.analysis.study_records import DocumentLosses
from clozemill.model.bert import BertForPreTraining
from clozemill.model.vocabulary_loss import vocabulary_loss
from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.train.assembly import VALIDATION
from clozemill.train.config import PretrainConfig
from clozemill.train.encoders import find_encoder
from clozemill.train.launch import start_accelerator
from clozemill.train.loader import LoaderSettings, evaluation_batches
from clozemill.train.loss import Batch, Inputs, find_inputs, find_targets


def document_losses(config: PretrainConfig) -> DocumentLosses:
    """Return the losses of a run's newest weights on what it is evaluated on, under variant 0.

    Args:
        config: Of the run, which lies in `config.out`.

    Raises:
        ClozemillError: The run or the dataset cannot be read.
    """
    accelerator = start_accelerator(config)
    dataset = open_dataset(config.data)
    encoder = find_encoder(Path(config.out)).model.to(accelerator.device)
    model = accelerator.prepare_model(_SelectedLosses(encoder), evaluation_mode=True).eval()
    mask_id = dataset.manifest.tokenizer.special_ids["mask"]
    loading = LoaderSettings(
        micro_batch_size=config.micro_rows(1), pad_to_multiple_of=config.pad_to_multiple_of or 1
    )
    batches = evaluation_batches(dataset, loading, num_instances=config.eval_instances)
    with torch.inference_mode():
        found = [_row_sums(model, batch, mask_id, accelerator.device) for batch in batches]
    sums, counts = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return _by_document(dataset, sums, counts)


def _row_sums(
    model: nn.Module, batch: Batch, mask_id: int, device: torch.device
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return of each row of a micro-batch the nats and the number of selected tokens, both (B,)."""
    targets = find_targets(batch, mask_id)
    num_rows, length = batch["input_ids"].shape
    mask = find_inputs(batch).attention_mask
    inputs = Inputs(
        batch["input_ids"].to(device),
        batch["token_type_ids"].to(device),
        None if mask is None else mask.to(device),
    )
    losses = model(inputs, targets.positions.to(device), targets.original_ids.to(device))  # (S,)
    rows = (targets.positions // length).numpy()  # (S,)
    nats = losses.cpu().double().numpy()  # (S,)
    sums = np.bincount(rows, weights=nats, minlength=num_rows).astype(np.float64)
    return sums, np.bincount(rows, minlength=num_rows).astype(np.int64)


class _SelectedLosses(nn.Module):
    """An encoder whose result is the loss of each selected position, and not their mean."""

    def __init__(self, model: BertForPreTraining) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Inputs, selected: Tensor, original_ids: Tensor) -> Tensor:
        """Return float32 (S,): nats. The arguments are as in `Inputs` and `Targets`."""
        features = self.model.features(
            input_ids=inputs.input_ids,
            token_type_ids=inputs.token_type_ids,
            attention_mask=inputs.attention_mask,
            selected=selected,
        )
        decoder = self.model.cls.predictions.decoder
        return vocabulary_loss(
            features.predictions, decoder.weight, decoder.bias, original_ids
        ).losses


def _by_document(
    dataset: Dataset, sums: NDArray[np.float64], counts: NDArray[np.int64]
) -> DocumentLosses:
    """Return sums over the instances of each document; both arrays are (n,)."""
    columns = read_columns(dataset.take(VALIDATION, np.arange(len(sums))))
    firsts = columns.spans.document_ids[columns.spans.starts[:-1]]
    numbers: dict[bytes, int] = {}
    documents = [numbers.setdefault(row.tobytes(), len(numbers)) for row in firsts]
    return DocumentLosses(
        mlm_loss_sums=tuple(np.bincount(documents, weights=sums).tolist()),
        selected=tuple(np.bincount(documents, weights=counts).astype(int).tolist()),
    )
