"""The columns of a record batch of instances as NumPy arrays.

Legend: N instances of a batch, P spans, K variants.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.instances import MaskBatch, Spans, TokenBatch


class InstanceColumns(NamedTuple):
    """Everything that record batches of instances need. Starts may begin above 0 (a slice)."""

    instance_ids: NDArray[np.uint8]
    """(N, 16)."""

    tokens: TokenBatch
    """Token ids and segment border of the N instances."""

    masks: MaskBatch | None
    """N x K overlays, or None where no variant is stored."""

    num_variants: int
    """K; 0 with no masks."""

    next_sentence_label: NDArray[np.int8]
    """(N,): 0 next, 1 random, -1 none (null on disk)."""

    num_chunk_sentences: NDArray[Any]
    """(N,): own sentences of the chunk; 0 where the recipe has no pairs."""

    spans: Spans
    """The spans of the N instances."""

    sources: NDArray[Any]
    """(N,): place of the first document's source in the dataset's sorted sources."""


def read_columns(batch: pa.RecordBatch) -> InstanceColumns:
    """Return the columns of a record batch, as views of its buffers where types allow.

    Integer widths are those of the file; starts are int64 and begin at 0.

    Raises:
        DatasetError: Instances of the batch store different numbers of variants.
    """
    starts, ids = list_parts(batch.column("input_ids"))
    span_starts, spans = list_parts(batch.column("spans"))
    document_ids, *numbers = spans.flatten()
    num_variants, masks = _read_masks(batch.column("masks"))
    label = batch.column("next_sentence_label").fill_null(-1)
    return InstanceColumns(
        instance_ids=binary16_array(batch.column("instance_id")),
        tokens=TokenBatch(
            input_ids=ids.to_numpy(),
            starts=starts,
            segment_b_start=batch.column("segment_b_start").to_numpy(),
        ),
        masks=masks,
        num_variants=num_variants,
        next_sentence_label=label.to_numpy(),
        num_chunk_sentences=batch.column("num_chunk_sentences").to_numpy(),
        spans=Spans(span_starts, binary16_array(document_ids), *(n.to_numpy() for n in numbers)),
        sources=batch.column("source").indices.to_numpy(),
    )


def list_parts(lists: pa.Array) -> tuple[NDArray[np.int64], pa.Array]:
    """Return where each list starts, counted from 0, and the values of all lists."""
    starts = lists.offsets.to_numpy().astype(np.int64)
    first, last = int(starts[0]), int(starts[-1])
    return starts - first, lists.values.slice(first, last - first)


def binary16_array(ids: pa.Array) -> NDArray[np.uint8]:
    """Return 16-byte values as (N, 16) bytes, without a copy."""
    data = np.frombuffer(ids.buffers()[1] or b"", np.uint8)
    return data[16 * ids.offset : 16 * (ids.offset + len(ids))].reshape(-1, 16)


def _read_masks(column: pa.Array) -> tuple[int, MaskBatch | None]:
    variant_starts, overlays = list_parts(column)
    counts = np.diff(variant_starts)
    num_variants = int(counts[0]) if len(counts) else 0
    if (counts != num_variants).any():
        raise DatasetError(
            f"one batch stores {num_variants} mask variants for some instances and "
            f"{int(counts[counts != num_variants][0])} for others; rebuild the dataset."
        )
    if not num_variants:
        return 0, None
    starts, shown = list_parts(overlays)
    positions, token_ids = shown.flatten()
    return num_variants, MaskBatch(positions.to_numpy(), token_ids.to_numpy(), starts)


def one_batch(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of one batch or more, which have one schema, as one batch."""
    batch: pa.RecordBatch = pa.Table.from_batches(parts).combine_chunks().to_batches()[0]
    return batch
