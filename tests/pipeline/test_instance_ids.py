import hashlib
import struct

import numpy as np

from clozemill.pipeline.instance_ids import instance_ids
from clozemill.pipeline.instances import Spans


def test_id_is_the_hash_that_the_format_describes():
    spans = Spans(
        np.array([0, 2, 3]),
        np.arange(48, dtype=np.uint8).reshape(3, 16),
        np.array([5, 6, 70_000]),
        np.array([1, 2, 3], np.uint32),
        np.array([0, 4, 5], np.uint16),
        np.array([9, 0, 70_001]),
    )
    fingerprint = bytes(range(16))
    ids = instance_ids(fingerprint, np.array([0, 7]), spans)

    def expected(pass_number: int, *places: int) -> bytes:
        data = fingerprint + struct.pack("<II", pass_number, len(places))
        for i in places:
            numbers = (
                int(column[i])
                for column in (
                    spans.first_sentence,
                    spans.num_sentences,
                    spans.cut_front,
                    spans.cut_back,
                )
            )
            data += spans.document_ids[i].tobytes() + struct.pack("<4I", *numbers)
        return hashlib.blake2b(data, digest_size=16).digest()

    assert ids.shape == (2, 16)
    assert ids[0].tobytes() == expected(0, 0, 1)
    assert ids[1].tobytes() == expected(7, 2)


def test_slice_of_spans_keeps_its_ids():
    rng = np.random.default_rng(0)
    starts = np.array([0, 2, 4, 5, 9])
    spans = Spans(starts, rng.integers(0, 256, (9, 16), np.uint8), *rng.integers(0, 9, (4, 9)))
    whole = instance_ids(bytes(16), np.zeros(4, np.int64), spans)
    part = instance_ids(bytes(16), np.zeros(2, np.int64), spans._replace(starts=starts[1:4]))
    assert (part == whole[1:3]).all()


def test_no_instances_have_no_ids():
    empty = np.zeros(0, np.int64)
    spans = Spans(np.zeros(1, np.int64), np.zeros((0, 16), np.uint8), empty, empty, empty, empty)
    assert instance_ids(bytes(16), empty, spans).shape == (0, 16)
