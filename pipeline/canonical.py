"""Canonical bytes of rows: what instance ids and digests are hashed from.

A row's bytes are fixed-size records and variable-size runs, little-endian, one after the other.
They are joined for a whole batch at once by Arrow, so no row costs a Python call before its hash.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

SPAN_RECORD = np.dtype(
    [
        ("document_id", "V16"),
        ("first_sentence", "<u4"),
        ("num_sentences", "<u4"),
        ("cut_front", "<u4"),
        ("cut_back", "<u4"),
    ]
)
"""One span as 32 bytes; an instance's spans follow each other in order."""


def binary_column(values: NDArray[Any], starts: NDArray[np.int64]) -> pa.Array:
    r"""Return row i as the bytes of `values[starts[i]:starts[i + 1]]`, without a copy.

    >>> binary_column(np.array([1, 2, 3], "<u2"), np.array([0, 1, 3])).to_pylist()
    [b'\x01\x00', b'\x02\x00\x03\x00']
    """
    values = np.ascontiguousarray(values)
    offsets = (starts * values.dtype.itemsize).astype(np.int32)
    # Arrow's offsets are signed 32 bit; batches are bounded far below that (see rows_per_batch).
    assert len(starts) == 0 or int(starts[-1]) * values.dtype.itemsize < 2**31
    # NumPy exports no buffer of a record with void fields: bytes are what is meant anyway.
    data = pa.py_buffer(values.view(np.uint8).reshape(-1) if values.size else b"")
    buffers = [None, pa.py_buffer(offsets), data]
    return pa.Array.from_buffers(pa.binary(), len(starts) - 1, buffers)


def record_column(records: NDArray[Any]) -> pa.Array:
    """Return row i as the bytes of the i-th fixed-size record."""
    return binary_column(records, np.arange(len(records) + 1, dtype=np.int64))


def join_rows(*columns: pa.Array) -> list[bytes]:
    """Return for every row the bytes of its columns, one after the other."""
    joined: list[bytes] = pc.binary_join_element_wise(
        *columns, pa.scalar(b"", pa.binary())
    ).to_pylist()
    return joined
