import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from tests.pipeline.small_datasets import SOURCES, digest_of, make_batches, make_columns, schema_for

from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.digest import Digest, instance_hashes
from clozemill.pipeline.schema import instance_schema


def slow_hashes(row: dict[str, Any]) -> tuple[bytes, bytes]:
    """Both hashes of a row, restated from docs/format.md on Python values."""

    def ids(values: list[int]) -> tuple[int, bytes]:
        width = 4 if any(value >= 65_536 for value in values) else 2
        return width, b"".join(value.to_bytes(width, "little") for value in values)

    width, tokens = ids(row["input_ids"])
    label = -1 if row["next_sentence_label"] is None else row["next_sentence_label"]
    source = row["source"].encode()
    data = row["instance_id"] + struct.pack("<bB", label, width)
    data += struct.pack("<5I", len(row["input_ids"]), row["segment_b_start"],
                        row["num_chunk_sentences"], len(row["spans"]), len(source))  # fmt: skip
    data += source + tokens
    for span in row["spans"]:
        document_id, *numbers = span.values()
        data += document_id + struct.pack("<4I", *numbers)
    instance = xxhash.xxh3_128_digest(data)
    shown = [item for variant in row["masks"] for item in variant]
    width, tokens = ids([item["token_id"] for item in shown])
    data = instance + struct.pack("<BI", width, len(row["masks"]))
    data += b"".join(struct.pack("<I", len(variant)) for variant in row["masks"])
    data += b"".join(struct.pack("<H", item["position"]) for item in shown) + tokens
    return instance, xxhash.xxh3_128_digest(data)


def slow_sums(batches: list[pa.RecordBatch]) -> tuple[str, str]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert rows
    pairs = [slow_hashes(row) for row in rows]
    sums = [sum(int.from_bytes(pair[k], "big") for pair in pairs) % 2**128 for k in (0, 1)]
    return f"{sums[0]:032x}", f"{sums[1]:032x}"


@pytest.mark.parametrize("vocab_size", [30_000, 70_000])
@pytest.mark.parametrize("num_variants", [0, 3])
def test_digest_is_what_the_format_describes(vocab_size: int, num_variants: int):
    columns = make_columns(30, vocab_size=vocab_size, num_variants=num_variants)
    label = columns.next_sentence_label.copy()
    label[3] = -1
    schema = schema_for(vocab_size=vocab_size)
    batches = make_batches(columns._replace(next_sentence_label=label), 16, schema)
    digest = digest_of(batches)
    assert (digest.instances.hexdigest(), digest.dataset.hexdigest()) == slow_sums(batches)
    assert digest.instances.count == digest.dataset.count == 30


def test_order_batches_and_merging_do_not_matter():
    columns = make_columns(40)
    whole = digest_of(make_batches(columns, 64))
    table = pa.Table.from_batches(make_batches(columns, 64))
    shuffled = table.take(pa.array(np.random.default_rng(1).permutation(40))).combine_chunks()
    first, second = Digest(), Digest()
    first.add(shuffled.to_batches()[0].slice(0, 13))
    second.add(shuffled.to_batches()[0].slice(13))
    first.merge(second)
    assert first == whole


def test_integer_widths_do_not_matter():
    columns = make_columns(20)
    wide = instance_schema(token_dtype=np.dtype(np.uint32), max_seq_length=65_535, num_sources=999)
    assert digest_of(make_batches(columns, 16, wide)) == digest_of(make_batches(columns))


def test_names_of_sources_count_and_not_their_numbers():
    columns = make_columns(20)
    other = pa.array(["aaa", *SOURCES.to_pylist()])
    moved = columns._replace(sources=columns.sources + 1)
    assert instance_hashes(moved, other) == instance_hashes(columns, SOURCES)
    assert instance_hashes(columns, other) != instance_hashes(columns, SOURCES)


def test_masks_change_the_dataset_digest_alone():
    columns = make_columns(20)
    few = make_columns(20, num_variants=2)
    ids = few.tokens.input_ids
    assert (ids == columns.tokens.input_ids).all()
    one, two = digest_of(make_batches(columns)), digest_of(make_batches(few))
    assert one.instances == two.instances
    assert one.dataset != two.dataset


@pytest.mark.parametrize("column", ["instance_ids", "next_sentence_label", "num_chunk_sentences"])
def test_every_column_counts(column: str):
    columns = make_columns(10)
    values = getattr(columns, column).copy()
    values[4] = 1 - values[4]
    changed = columns._replace(**{column: values})
    one, two = (instance_hashes(c, SOURCES) for c in (columns, changed))
    assert [a == b for a, b in zip(one, two, strict=True)] == [i != 4 for i in range(10)]


def test_rows_that_share_their_bytes_differently_have_other_hashes():
    # Without the lengths in the header, moving a token between two rows could go unseen.
    columns = read_columns(make_batches(make_columns(2))[0])
    starts = columns.tokens.starts.copy()
    starts[1] -= 1
    moved = columns._replace(tokens=columns.tokens._replace(starts=starts))
    assert set(instance_hashes(columns, SOURCES)).isdisjoint(instance_hashes(moved, SOURCES))
