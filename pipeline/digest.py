"""Digests: whether two datasets hold the same instances, whatever files hold them.

A digest tells accidents: a flipped bit, a row lost, doubled or masked otherwise. It is no proof
against somebody who makes rows up so that a sum comes out, which is possible with sums of any hash
of this size (Wagner 2002); so the hash is a fast one.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

from clozemill.pipeline.canonical import binary_column, join_rows, record_column
from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.instance_ids import span_records
from clozemill.pipeline.instances import NO_MASKS

_HEADER = np.dtype(
    [
        ("instance_id", "V16"),
        ("next_sentence_label", "i1"),
        ("token_width", "u1"),
        ("num_tokens", "<u4"),
        ("segment_b_start", "<u4"),
        ("num_chunk_sentences", "<u4"),
        ("num_spans", "<u4"),
        ("source_bytes", "<u4"),
    ]
)
_MASK_HEADER = np.dtype([("token_width", "u1"), ("num_variants", "<u4")])


@dataclass(slots=True, kw_only=True)
class RowSum:
    """Count and sum modulo 2^128 of the XXH3-128 of rows: no order, no grouping."""

    count: int = 0
    """Rows added."""

    total: int = 0
    """Sum of their hashes, each read as a big-endian number."""

    def add(self, hashes: list[bytes]) -> None:
        """Add 16-byte hashes."""
        # uint32 words summed in 64 bits cannot overflow below 2^32 rows.
        words = np.frombuffer(b"".join(hashes), ">u4").reshape(-1, 4).sum(axis=0, dtype=np.uint64)
        total = sum(int(word) << (32 * place) for place, word in enumerate(reversed(words)))
        self.count += len(hashes)
        self.total = (self.total + total) % (1 << 128)

    def merge(self, other: "RowSum") -> None:
        """Add another sum, of other rows."""
        self.count += other.count
        self.total = (self.total + other.total) % (1 << 128)

    def hexdigest(self) -> str:
        """Return the sum as 32 hex digits."""
        return f"{self.total:032x}"


@dataclass(slots=True, kw_only=True)
class Digest:
    """The two digests of a split: its instances without their masks, and with them."""

    instances: RowSum = field(default_factory=RowSum)
    """Equal for builds that differ in masks alone."""

    dataset: RowSum = field(default_factory=RowSum)
    """Equal for equal instances with equal masks."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a record batch."""
        columns = read_columns(batch)
        instances = instance_hashes(columns, batch.column("source").dictionary)
        self.instances.add(instances)
        self.dataset.add(dataset_hashes(columns, instances))

    def merge(self, other: "Digest") -> None:
        """Add the digest of other rows."""
        self.instances.merge(other.instances)
        self.dataset.merge(other.dataset)


def instance_hashes(columns: InstanceColumns, source_names: pa.Array) -> list[bytes]:
    """Return per row XXH3-128 of: header, source (UTF-8), token ids, spans.

    The header is packed little-endian: instance id (16 bytes), next-sentence label (int8, -1 for
    null), bytes per token id (uint8), then as uint32 the number of tokens, `segment_b_start`,
    `num_chunk_sentences`, the number of spans and the bytes of the source. Token ids take two
    bytes if all ids of the row are below 65,536 and else four; spans are 32 bytes each.
    """
    tokens, spans = columns.tokens, columns.spans
    source = source_names.cast(pa.binary()).take(pa.array(columns.sources))
    width = _token_widths(tokens.input_ids, tokens.starts)
    header = np.empty(len(columns.instance_ids), _HEADER)
    header["instance_id"] = np.ascontiguousarray(columns.instance_ids).view("V16").reshape(-1)
    header["next_sentence_label"] = columns.next_sentence_label
    header["token_width"] = width
    header["num_tokens"] = np.diff(tokens.starts)
    header["segment_b_start"] = tokens.segment_b_start
    header["num_chunk_sentences"] = columns.num_chunk_sentences
    header["num_spans"] = np.diff(spans.starts)
    header["source_bytes"] = pc.binary_length(source).to_numpy()
    rows = join_rows(
        record_column(header),
        source,
        _token_column(tokens.input_ids, tokens.starts, width),
        binary_column(span_records(spans), spans.starts),
    )
    return [xxh3_128_digest(row) for row in rows]


def dataset_hashes(columns: InstanceColumns, instances: list[bytes]) -> list[bytes]:
    """Return per row XXH3-128 of: the row's instance hash, header, counts, positions, shown ids.

    The header is bytes per shown id (uint8, by the same rule) and the number of variants
    (uint32). Counts are the selected positions of each variant (uint32); positions (uint16) and
    shown ids follow, variant by variant.

    Args:
        columns: Instances.
        instances: Their `instance_hashes`.
    """
    num_rows, num_variants = len(instances), columns.num_variants
    masks = columns.masks or NO_MASKS
    variants = np.arange(num_rows + 1, dtype=np.int64) * num_variants
    starts = masks.starts[variants]
    width = _token_widths(masks.token_ids, starts)
    header = np.empty(num_rows, _MASK_HEADER)
    header["token_width"] = width
    header["num_variants"] = num_variants
    rows = join_rows(
        pa.array(instances, pa.binary()),
        record_column(header),
        binary_column(np.diff(masks.starts).astype("<u4"), variants),
        binary_column(masks.positions.astype("<u2", copy=False), starts),
        _token_column(masks.token_ids, starts, width),
    )
    return [xxh3_128_digest(row) for row in rows]


def _token_widths(ids: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return per row 2 if all its ids fit two bytes, else 4: the value decides, not the type."""
    widths = np.full(len(starts) - 1, 2, np.uint8)
    if ids.dtype.itemsize > 2:
        places = np.flatnonzero(ids >= 1 << 16)
        widths[np.searchsorted(starts, places, side="right") - 1] = 4
    return widths


def _token_column(
    ids: NDArray[Any], starts: NDArray[np.int64], widths: NDArray[np.uint8]
) -> pa.Array:
    if not (widths == 4).any():
        return binary_column(ids.astype("<u2", copy=False), starts)
    narrow = binary_column((ids & 0xFFFF).astype("<u2"), starts)
    return pc.if_else(pa.array(widths == 4), binary_column(ids.astype("<u4"), starts), narrow)
