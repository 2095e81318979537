"""Instances of any open record batches, copied together in one call.

A record batch is opened once: its columns are checked, so that no row can make a kernel read or
write out of bounds whatever a file holds, and the addresses of its arrays go into a table. Then
any rows of any open batches are gathered without touching Python objects.

Legend: N instances asked for, T tokens of them, K variants stored.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.dataset import allowed_schemas
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.instances import MaskBatch, TokenBatch, take_runs
from clozemill.pipeline.jit import array_at, kernel
from clozemill.pipeline.manifest import Manifest

_IDS, _STARTS, _TOKENS, _BORDERS, _LABELS, _OVERLAY_STARTS, _POSITIONS, _SHOWN = range(8)
# The columns of the table of addresses.

_STARTS_LIKE = np.empty(0, np.int64)
_WORDS_LIKE = np.empty(0, np.uint64)
_LABELS_LIKE = np.empty(0, np.int8)


class InstanceRows(NamedTuple):
    """Instances as they are stored, without masks."""

    instance_ids: NDArray[np.uint64]
    """(N, 2): the 16-byte ids as two little-endian words."""

    tokens: TokenBatch
    """What a model would read unmasked."""

    next_sentence_label: NDArray[np.int8]
    """(N,): 0 next, 1 random, -1 where the recipe has no pairs."""

    def take(self, rows: NDArray[np.int64]) -> "InstanceRows":
        """Return some of them, in the order asked for."""
        starts, places = take_runs(self.tokens.starts, rows)
        tokens = self.tokens
        return InstanceRows(
            self.instance_ids[rows],
            TokenBatch(tokens.input_ids[places], starts, tokens.segment_b_start[rows]),
            self.next_sentence_label[rows],
        )


class Layout(NamedTuple):
    """What a manifest promises of every row of a split; what kernels rely on."""

    vocab_size: int
    """All token ids are below it."""

    max_seq_length: int
    """No instance is longer."""

    num_variants: int
    """K."""

    has_pairs: bool
    """Whether there are segments B and labels."""

    token_like: NDArray[Any]
    """Nothing, of the type of token ids."""

    border_like: NDArray[Any]
    """Nothing, of the type of `segment_b_start`."""

    position_like: NDArray[Any]
    """Nothing, of the type of masks' positions."""


def layout_of(manifest: Manifest, split: str) -> Layout:
    """Return what a manifest says about the rows of a split."""
    schema = allowed_schemas(manifest)[0]
    shown = schema.field("masks").type.value_type.value_type
    return Layout(
        vocab_size=manifest.tokenizer.vocab_size,
        max_seq_length=manifest.max_seq_length,
        num_variants=manifest.splits[split].num_variants,
        has_pairs=manifest.has_pairs,
        token_like=_nothing_of(schema.field("input_ids").type.value_type),
        border_like=_nothing_of(schema.field("segment_b_start").type),
        position_like=_nothing_of(shown.field("position").type),
    )


def _nothing_of(kind: pa.DataType) -> NDArray[Any]:
    return np.empty(0, kind.to_pandas_dtype())


def checked_columns(batch: pa.RecordBatch, layout: Layout, where: str) -> InstanceColumns:
    """Return the columns of a record batch that has the dataset's schema.

    Args:
        batch: Validated in full, so that its offsets lie within its buffers.
        layout: What its rows must keep to.
        where: Names the shard and the batch in errors.

    Raises:
        DatasetError: A row could make a kernel or a model read out of bounds.
    """
    try:
        columns = read_columns(batch)
    except DatasetError as error:
        raise DatasetError(f"{where}: {error}") from error
    fault = _fault_of(columns, layout)
    if fault is not None:
        raise DatasetError(
            f"{where} cannot be used: {fault}; copy it again or rebuild the dataset."
        )
    return columns


def _fault_of(columns: InstanceColumns, layout: Layout) -> str | None:
    if columns.num_variants != layout.num_variants:
        return (
            f"it stores {columns.num_variants} mask variants, but the manifest says "
            f"{layout.num_variants}"
        )
    row, kind = _find_fault(columns.tokens, columns.next_sentence_label, layout)
    if kind < 0 and columns.masks is not None:
        row, kind = _find_mask_fault(columns.tokens.starts, columns.masks, layout)
    return None if kind < 0 else f"row {row} has {_FAULTS[kind]}"


_FAULTS = (
    "no tokens, or more than max_seq_length",
    "a segment_b_start outside the row",
    "a token id that the vocabulary does not have",
    "a next_sentence_label that the recipe does not give",
    "masks whose positions are outside the row or not ascending",
    "a shown token id that the vocabulary does not have",
)


@kernel
def _find_fault(tokens: TokenBatch, labels: NDArray[np.int8], layout: Layout) -> tuple[int, int]:
    for row in range(labels.size):
        begin, end = tokens.starts[row], tokens.starts[row + 1]
        if not 0 < end - begin <= layout.max_seq_length:
            return row, 0
        if tokens.segment_b_start[row] > end - begin:
            return row, 1
        largest = np.int64(0)
        for place in range(begin, end):
            largest = max(largest, np.int64(tokens.input_ids[place]))
        if largest >= layout.vocab_size:
            return row, 2
        if (labels[row] not in (0, 1)) if layout.has_pairs else labels[row] != -1:
            return row, 3
    return -1, -1


@kernel
def _find_mask_fault(
    starts: NDArray[np.int64], masks: MaskBatch, layout: Layout
) -> tuple[int, int]:
    for row in range(starts.size - 1):
        length = starts[row + 1] - starts[row]
        for overlay in range(row * layout.num_variants, (row + 1) * layout.num_variants):
            before = np.int64(-1)
            largest = np.int64(0)
            num_misplaced = 0
            for place in range(masks.starts[overlay], masks.starts[overlay + 1]):
                position = np.int64(masks.positions[place])
                num_misplaced += 1 if position <= before else 0
                before = position
                largest = max(largest, np.int64(masks.token_ids[place]))
            if num_misplaced or before >= length:
                return row, 4
            if largest >= layout.vocab_size:
                return row, 5
    return -1, -1


class OpenBatches:
    """Checked record batches in numbered slots, and their rows by slot and place."""

    def __init__(self, layout: Layout, num_slots: int) -> None:
        """Make empty slots."""
        self.layout = layout
        self._arrays: dict[int, list[NDArray[Any]]] = {}
        self._addresses = np.zeros((num_slots, 8), np.int64)

    @property
    def num_slots(self) -> int:
        """How many batches can be open."""
        return len(self._addresses)

    def grow(self, num_slots: int) -> None:
        """Make room for more."""
        more = np.zeros((num_slots - self.num_slots, 8), np.int64)
        self._addresses = np.concatenate([self._addresses, more])

    def put(self, slot: int, columns: InstanceColumns) -> None:
        """Put a batch without fault in a slot, in place of what was there."""
        tokens, masks = columns.tokens, columns.masks
        arrays: list[NDArray[Any]] = [columns.instance_ids, tokens.starts, tokens.input_ids]
        arrays += [tokens.segment_b_start, columns.next_sentence_label]
        if masks is not None:
            arrays += [masks.starts, masks.positions, masks.token_ids]
        # Kept, so that the addresses stay good; spans are not, which may be a quarter of a batch.
        self._arrays[slot] = arrays
        self._addresses[slot] = 0
        for column, array in enumerate(arrays):
            assert array.flags.c_contiguous
            self._addresses[slot, column] = array.ctypes.data

    def lengths(self, slot: int) -> NDArray[np.int64]:
        """Return the lengths of all rows of a slot."""
        return np.diff(self._arrays[slot][_STARTS])

    def read(self, places: NDArray[np.int64]) -> InstanceRows:
        """Return the rows at (N, 2) slots and rows within them."""
        layout = self.layout
        ids, starts, borders, labels = _gather_rows(self._addresses, places, layout.border_like)
        input_ids = _gather_tokens(self._addresses, places, starts, layout.token_like)
        return InstanceRows(ids, TokenBatch(input_ids, starts, borders), labels)

    def overlays(self, places: NDArray[np.int64], variants: NDArray[np.int64]) -> MaskBatch:
        """Return a stored overlay of each of those rows; `variants` (N,) are all stored."""
        layout = self.layout
        positions, token_ids, starts = _gather_overlays(self._addresses, places, variants, layout)
        return MaskBatch(positions, token_ids, starts)


@kernel
def _gather_rows(
    addresses: NDArray[np.int64], places: NDArray[np.int64], border_like: NDArray[Any]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int8]]:
    num_rows = len(places)
    ids = np.empty((num_rows, 2), np.uint64)
    starts = np.zeros(num_rows + 1, np.int64)
    borders = np.empty(num_rows, np.int64)
    labels = np.empty(num_rows, np.int8)
    for i in range(num_rows):
        slot, row = places[i]
        from_ids = array_at(addresses[slot, _IDS], 2 * row + 2, _WORDS_LIKE)
        from_starts = array_at(addresses[slot, _STARTS], row + 2, _STARTS_LIKE)
        ids[i, 0] = from_ids[2 * row]
        ids[i, 1] = from_ids[2 * row + 1]
        starts[i + 1] = starts[i] + from_starts[row + 1] - from_starts[row]
        borders[i] = array_at(addresses[slot, _BORDERS], row + 1, border_like)[row]
        labels[i] = array_at(addresses[slot, _LABELS], row + 1, _LABELS_LIKE)[row]
    return ids, starts, borders, labels


@kernel
def _gather_tokens(
    addresses: NDArray[np.int64],
    places: NDArray[np.int64],
    starts: NDArray[np.int64],
    token_like: NDArray[Any],
) -> NDArray[Any]:
    out = np.empty(starts[-1], token_like.dtype)
    for i in range(len(places)):
        slot, row = places[i]
        first = array_at(addresses[slot, _STARTS], row + 1, _STARTS_LIKE)[row]
        length = starts[i + 1] - starts[i]
        source = array_at(addresses[slot, _TOKENS], first + length, token_like)
        out[starts[i] : starts[i + 1]] = source[first : first + length]
    return out


@kernel
def _gather_overlays(
    addresses: NDArray[np.int64],
    places: NDArray[np.int64],
    variants: NDArray[np.int64],
    layout: Layout,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64]]:
    starts = np.zeros(len(places) + 1, np.int64)
    first = np.empty(len(places), np.int64)
    for i in range(len(places)):
        slot, row = places[i]
        overlay = row * layout.num_variants + variants[i]
        source = array_at(addresses[slot, _OVERLAY_STARTS], overlay + 2, _STARTS_LIKE)
        first[i] = source[overlay]
        starts[i + 1] = starts[i] + source[overlay + 1] - source[overlay]
    positions = np.empty(starts[-1], layout.position_like.dtype)
    token_ids = np.empty(starts[-1], layout.token_like.dtype)
    for i in range(len(places)):
        slot = places[i, 0]
        begin, end = first[i], first[i] + starts[i + 1] - starts[i]
        from_positions = array_at(addresses[slot, _POSITIONS], end, layout.position_like)
        from_shown = array_at(addresses[slot, _SHOWN], end, layout.token_like)
        positions[starts[i] : starts[i + 1]] = from_positions[begin:end]
        token_ids[starts[i] : starts[i + 1]] = from_shown[begin:end]
    return positions, token_ids, starts
