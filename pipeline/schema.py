"""The columns of an instance and of a document on disk, and how NumPy arrays become them.

Legend: N instances of a batch, P spans, K variants.
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.instances import NO_MASKS, Spans, position_dtype

MOST_BATCH_ROWS = 1_024
"""Instances in a record batch: small enough to stay in cache, large enough to cost no overhead."""

_MOST_BATCH_VALUES = 1 << 24
"""Keeps every list offset far below 2^31 and a batch below about 100 MB, for any length."""


def rows_per_batch(max_seq_length: int, num_variants: int) -> int:
    """Return how many instances a record batch of the dataset holds.

    >>> rows_per_batch(128, 10), rows_per_batch(512, 10), rows_per_batch(65_535, 10)
    (1024, 1024, 23)
    """
    return max(1, min(MOST_BATCH_ROWS, _MOST_BATCH_VALUES // (max_seq_length * (1 + num_variants))))


def _field(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _list(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_field("item", kind))


def _smallest_unsigned(value: int) -> pa.DataType:
    return pa.uint16() if value < 1 << 16 else pa.uint32()


def _index_type(num_sources: int) -> pa.DataType:
    if num_sources <= 1 << 7:
        return pa.int8()
    return pa.int16() if num_sources <= 1 << 15 else pa.int32()


def instance_schema(
    *,
    token_dtype: np.dtype[Any],
    max_seq_length: int,
    num_sources: int = 1,
    most_span_value: int = 2**32 - 1,
) -> pa.Schema:
    """Return the schema of an instance shard.

    Integer widths follow from the dataset, so that rows stay small; the digest ignores them.

    Args:
        token_dtype: See `instances.token_dtype`.
        max_seq_length: Longest instance; up to 256, positions take one byte.
        num_sources: Entries of the dictionary of sources.
        most_span_value: No sentence number, sentence count or cut is larger. Below 65,536
            spans take 24 bytes, else 32.
    """
    token = pa.from_numpy_dtype(token_dtype)
    position = pa.from_numpy_dtype(position_dtype(max_seq_length))
    number = _smallest_unsigned(most_span_value)
    shown = pa.struct([_field("position", position), _field("token_id", token)])
    span = pa.struct(
        [_field("document_id", pa.binary(16))]
        + [_field(name, number) for name in Spans._fields[2:]]
    )
    return pa.schema(
        [
            _field("instance_id", pa.binary(16)),
            _field("input_ids", _list(token)),
            _field("segment_b_start", _smallest_unsigned(max_seq_length)),
            pa.field("next_sentence_label", pa.int8(), nullable=True),
            _field("masks", _list(_list(shown))),
            _field("num_chunk_sentences", _smallest_unsigned(max_seq_length)),
            _field("spans", _list(span)),
            _field("source", pa.dictionary(_index_type(num_sources), pa.string())),
        ]
    )


def document_schema() -> pa.Schema:
    """Return the schema of `documents-*.arrow`: one row per distinct document.

    `targets` holds, per pass, the token length the document aimed for in that pass; it is empty
    where the recipe draws none. `num_duplicates` counts the other documents of the same text.
    `expected_random` and `expected_next` are its exact expectations of such instances, over all
    passes; 0 where the recipe has none.
    `fate` is `kept`, or the ledger's reason for leaving the document out.
    """
    counts = ("num_characters", "num_sentences", "num_tokens", "num_unknown")
    return pa.schema(
        [
            _field("document_id", pa.binary(16)),
            _field("split", pa.string()),
            _field("source", pa.string()),
            pa.field("external_id", pa.string(), nullable=True),
            *(_field(name, pa.int64()) for name in counts),
            _field("targets", _list(pa.uint16())),
            _field("num_passes", pa.int64()),
            _field("num_duplicates", pa.int64()),
            _field("expected_random", pa.float64()),
            _field("expected_next", pa.float64()),
            _field("fate", pa.string()),
        ]
    )


def instance_batch(
    columns: InstanceColumns, schema: pa.Schema, source_names: pa.Array
) -> pa.RecordBatch:
    """Return the columns as one record batch; no Python object is made per row.

    Args:
        columns: At most `rows_per_batch` instances.
        schema: From `instance_schema`; a value too large for its type is a `DatasetError`.
        source_names: The dataset's sorted sources, the same in every batch of every shard:
            an Arrow file holds one dictionary.
    """
    types = {field.name: field.type for field in schema}
    tokens, spans = columns.tokens, columns.spans
    indices = _numbers(columns.sources, types["source"].index_type, "source")
    arrays = {
        "instance_id": _binary16(columns.instance_ids),
        "input_ids": _lists(
            types["input_ids"],
            tokens.starts,
            _numbers(_run(tokens.input_ids, tokens.starts), _item(types["input_ids"]), "input_ids"),
        ),
        "next_sentence_label": _labels(columns.next_sentence_label),
        "masks": _masks(columns, types["masks"]),
        "spans": _spans(spans, types["spans"]),
        "source": pa.DictionaryArray.from_arrays(indices, source_names),
    }
    for name, values in (
        ("segment_b_start", tokens.segment_b_start),
        ("num_chunk_sentences", columns.num_chunk_sentences),
    ):
        arrays[name] = _numbers(values, types[name], name)
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _item(kind: pa.DataType) -> pa.DataType:
    return kind.value_type


def _run(values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[Any]:
    return values[int(starts[0]) : int(starts[-1])]


def _numbers(values: NDArray[Any], kind: pa.DataType, name: str) -> pa.Array:
    dtype = np.dtype(kind.to_pandas_dtype())
    if values.dtype != dtype and len(values):
        limits, low, high = np.iinfo(dtype), int(values.min()), int(values.max())
        if low < limits.min or high > limits.max:
            raise DatasetError(
                f"column {name} holds {low if low < limits.min else high}, which does not fit "
                f"{dtype.name}; build with the wider schema."
            )
    fitted = np.ascontiguousarray(values, dtype)
    return pa.Array.from_buffers(kind, len(fitted), [None, pa.py_buffer(fitted)])


def _binary16(ids: NDArray[np.uint8]) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(ids).reshape(-1))
    return pa.Array.from_buffers(pa.binary(16), len(ids), [None, data])


def _lists(kind: pa.DataType, starts: NDArray[np.int64], values: pa.Array) -> pa.Array:
    assert int(starts[-1]) - int(starts[0]) < 2**31
    offsets = pa.py_buffer((starts - starts[0]).astype(np.int32))
    return pa.Array.from_buffers(kind, len(starts) - 1, [None, offsets], children=[values])


def _struct(kind: pa.DataType, length: int, children: list[pa.Array]) -> pa.Array:
    return pa.Array.from_buffers(kind, length, [None], children=children)


def _labels(labels: NDArray[np.int8]) -> pa.Array:
    """Return labels with -1 as null; a null's slot holds 0, so equal arrays have equal bytes."""
    is_valid = labels >= 0
    if is_valid.all():
        return _numbers(labels, pa.int8(), "next_sentence_label")
    bits = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    values = pa.py_buffer(np.where(is_valid, labels, 0).astype(np.int8))
    return pa.Array.from_buffers(pa.int8(), len(labels), [bits, values])


def _masks(columns: InstanceColumns, kind: pa.DataType) -> pa.Array:
    num_rows, inner = len(columns.instance_ids), _item(kind)
    shown = _item(inner)
    masks = columns.masks or NO_MASKS
    children = [
        _numbers(_run(masks.positions, masks.starts), shown.field(0).type, "masks.position"),
        _numbers(_run(masks.token_ids, masks.starts), shown.field(1).type, "masks.token_id"),
    ]
    overlays = _lists(inner, masks.starts, _struct(shown, len(children[0]), children))
    rows = np.arange(num_rows + 1, dtype=np.int64) * columns.num_variants
    return _lists(kind, rows, overlays)


def _spans(spans: Spans, kind: pa.DataType) -> pa.Array:
    item = _item(kind)
    children = [_binary16(_run(spans.document_ids, spans.starts))]
    for index, name in enumerate(Spans._fields[2:], 1):
        values = _run(getattr(spans, name), spans.starts)
        children.append(_numbers(values, item.field(index).type, f"spans.{name}"))
    return _lists(kind, spans.starts, _struct(item, len(children[0]), children))
