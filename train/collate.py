"""Instances become the tensors of a micro-batch.

Legend: B instances, T tokens of the longest, rounded up if asked for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.instances import MaskBatch, TokenBatch
from clozemill.pipeline.jit import kernel
from clozemill.train.instances import MaskedInstances, joined_instances

IGNORED = -100
"""Label of a position that is not predicted; what torch's cross-entropy leaves out."""


class PretrainingCollator:
    """Turns instances into a dict of int64 tensors.

    - `input_ids` (B, T): what the model reads: masked, padded with `pad_id`.
    - `attention_mask` (B, T): 1 at tokens, 0 at padding.
    - `token_type_ids` (B, T): 1 from segment B on, 0 before it and at padding.
    - `labels` (B, T): the original id at positions to predict, -100 elsewhere.
    - `next_sentence_label` (B,): 0 next, 1 random; no such key where the recipe has no pairs.

    B may be 0: then all are empty, with T = `pad_to_multiple_of`.
    """

    def __init__(self, pad_id: int, *, pad_to_multiple_of: int = 1) -> None:
        """Take what padding needs.

        Args:
            pad_id: `PretrainingInstances.pad_id`.
            pad_to_multiple_of: T is a multiple of this; 8 suits some accelerators.
        """
        if pad_to_multiple_of < 1:
            raise ConfigError(f"pad_to_multiple_of is {pad_to_multiple_of}; it must be at least 1.")
        self._pad_id = pad_id
        self._multiple = pad_to_multiple_of

    def __call__(
        self, instances: MaskedInstances | Sequence[MaskedInstances]
    ) -> dict[str, torch.Tensor]:
        """Return the tensors of a batch, or of several that become one."""
        if not isinstance(instances, MaskedInstances):
            instances = joined_instances(instances)
        tokens = instances.tokens
        longest = int(np.diff(tokens.starts).max(initial=1))
        shape = (len(instances), -(-longest // self._multiple) * self._multiple)
        arrays = _Arrays(*(np.empty(shape, np.int64) for _ in _Arrays._fields))
        _fill(tokens, instances.masks, self._pad_id, arrays)
        batch = {
            name: torch.from_numpy(array)
            for name, array in zip(_Arrays._fields, arrays, strict=True)
        }
        if instances.next_sentence_label is not None:
            labels = instances.next_sentence_label.astype(np.int64)
            batch["next_sentence_label"] = torch.from_numpy(labels)
        return batch


class _Arrays(NamedTuple):
    """What a batch is made of; all (B, T)."""

    input_ids: NDArray[np.int64]
    attention_mask: NDArray[np.int64]
    token_type_ids: NDArray[np.int64]
    labels: NDArray[np.int64]


@kernel
def _fill(tokens: TokenBatch, masks: MaskBatch, pad_id: int, out: _Arrays) -> None:
    width = out.input_ids.shape[1]
    for row in range(out.input_ids.shape[0]):
        begin = tokens.starts[row]
        length = tokens.starts[row + 1] - begin
        border = tokens.segment_b_start[row]
        for place in range(length):
            out.input_ids[row, place] = tokens.input_ids[begin + place]
            out.attention_mask[row, place] = 1
            out.token_type_ids[row, place] = place >= border
        for place in range(length, width):
            out.input_ids[row, place] = pad_id
            out.attention_mask[row, place] = 0
            out.token_type_ids[row, place] = 0
        for place in range(width):
            out.labels[row, place] = IGNORED
        for selected in range(masks.starts[row], masks.starts[row + 1]):
            place = masks.positions[selected]
            out.labels[row, place] = out.input_ids[row, place]
            out.input_ids[row, place] = masks.token_ids[selected]
