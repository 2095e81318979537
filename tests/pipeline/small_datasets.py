"""Instances made from a NumPy generator, for tests of what is on disk."""

import numpy as np
import pyarrow as pa

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.identity import Spans, instance_ids
from clozemill.pipeline.instances import MaskBatch, TokenBatch

CLS, SEP, MASK = 101, 102, 103
SOURCES = pa.array(["", "books", "news"])


def starts_of(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def make_columns(
    num_rows: int,
    *,
    length: int | None = None,
    max_seq_length: int = 128,
    num_variants: int = 10,
    seed: int = 0,
    vocab_size: int = 30_000,
) -> InstanceColumns:
    """Pairs with sound borders, spans and masks; `length` fixes all lengths."""
    rng = np.random.default_rng(seed)
    lengths = (
        np.full(num_rows, length) if length else rng.integers(5, max_seq_length + 1, size=num_rows)
    )
    starts = starts_of(lengths)
    dtype = np.uint16 if vocab_size <= 65_536 else np.uint32
    ids = rng.integers(1000, vocab_size, size=starts[-1]).astype(dtype)
    borders = rng.integers(3, lengths - 1)
    ids[starts[:-1]], ids[starts[1:] - 1], ids[starts[:-1] + borders - 1] = CLS, SEP, SEP
    label = rng.integers(0, 2, size=num_rows).astype(np.int8)
    first = np.repeat(np.arange(num_rows), 2)
    first[1::2] = np.where(label == 1, num_rows + np.arange(num_rows), first[1::2])
    documents = np.zeros((2 * num_rows, 16), np.uint8)
    documents[:, :8] = first.astype("<u8").view(np.uint8).reshape(-1, 8)
    numbers = np.ones((4, 2 * num_rows), np.int64)
    numbers[0] = np.tile([0, 1], num_rows)
    numbers[2:] = 0
    spans = Spans(np.arange(num_rows + 1, dtype=np.int64) * 2, documents, *numbers)
    return InstanceColumns(
        instance_ids=instance_ids(bytes(16), np.full(num_rows, seed), spans),
        tokens=TokenBatch(ids, starts, borders),
        masks=make_masks(rng, ids, starts, borders, num_variants) if num_variants else None,
        num_variants=num_variants,
        next_sentence_label=label,
        num_chunk_sentences=np.where(label == 1, 1, 2),
        spans=spans,
        sources=rng.integers(0, len(SOURCES), size=num_rows),
    )


def make_masks(
    rng: np.random.Generator,
    ids: np.ndarray,
    starts: np.ndarray,
    borders: np.ndarray,
    num_variants: int,
) -> MaskBatch:
    positions, counts = [], []
    for begin, end, border in zip(starts[:-1], starts[1:], borders, strict=True):
        length = int(end - begin)
        maskable = np.setdiff1d(np.arange(1, length - 1), [border - 1])
        count = min(len(maskable), max(1, round(length * 0.15)))
        for _ in range(num_variants):
            positions.append(np.sort(rng.permutation(maskable)[:count]))
            counts.append(count)
    flat = np.concatenate(positions)
    small = np.uint8 if flat.max(initial=0) < 256 else np.uint16
    return MaskBatch(
        flat.astype(small), np.full(len(flat), MASK, ids.dtype), starts_of(np.array(counts))
    )
