"""The ids of instances: 128 bits of hash over where the tokens of each come from."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.canonical import SPAN_RECORD, binary_column, join_rows, record_column
from clozemill.pipeline.instances import Spans

_HEADER = np.dtype([("fingerprint", "V16"), ("pass_number", "<u4"), ("num_spans", "<u4")])


def span_records(spans: Spans) -> NDArray[Any]:
    """Return the spans as (P,) little-endian records of 32 bytes."""
    records = np.empty(len(spans.first_sentence), SPAN_RECORD)
    records["document_id"] = np.ascontiguousarray(spans.document_ids).view("V16").reshape(-1)
    for name in ("first_sentence", "num_sentences", "cut_front", "cut_back"):
        records[name] = getattr(spans, name)
    return records


def instance_ids(
    fingerprint: bytes, pass_number: NDArray[np.int64], spans: Spans
) -> NDArray[np.uint8]:
    """Return the (N, 16) ids of instances: BLAKE2b-128 of what each one is.

    Hashed are, little-endian: the 16-byte instance fingerprint of the configuration, the pass
    number and the number of spans as uint32, then each span as in `SPAN_RECORD`. Nothing else
    enters, so an instance keeps its id in every bucket, shard, format and machine.

    Args:
        fingerprint: 16 raw bytes.
        pass_number: (N,), the pass that drew each instance.
        spans: The spans of the N instances.

    >>> one = np.array([1])
    >>> spans = Spans(np.array([0, 1]), np.zeros((1, 16), np.uint8), one, one, one, one)
    >>> instance_ids(bytes(16), np.array([0]), spans).tobytes().hex()
    '4ed1c974f0df9739d9292467446d7af9'
    """
    assert len(fingerprint) == 16
    header = np.empty(len(pass_number), _HEADER)
    header["fingerprint"] = np.frombuffer(fingerprint, "V16")
    header["pass_number"] = pass_number
    header["num_spans"] = np.diff(spans.starts)
    rows = join_rows(record_column(header), binary_column(span_records(spans), spans.starts))
    digests = [hashlib.blake2b(row, digest_size=16).digest() for row in rows]
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
