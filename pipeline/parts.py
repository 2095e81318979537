"""Parts: tokenized documents between the stages, in files from which any range of ids is a slice.

A part is an Arrow IPC file of one record batch whose documents stand in id order, so that the
documents of a run of *cells* are found by binary search and read without a copy. A document's
cell is the first 16 bits of its id.

Legend: D documents, S sentences, T tokens.
"""

from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.pipeline.files import atomic_file
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.jit import kernel

NUM_CELLS = 1 << 16
"""A format constant: buckets are made of whole cells."""

_LISTS = {"tokens": "num_tokens", "sentence_lengths": "num_sentences"}
"""The list columns of a part, and what the length of a list is called."""


class DocumentFacts(NamedTuple):
    """What is known of documents beside their texts."""

    document_ids: list[bytes]
    """(D,): 16 bytes each."""

    sources: list[str]
    """(D,): the corpus of each."""

    external_ids: list[str | None]
    """(D,): the user's own ids."""

    origin_paths: list[str]
    """(D,): the input file of each."""

    origin_offsets: list[int]
    """(D,): where in it each begins."""

    num_characters: list[int]
    """(D,): of the normalised texts."""


class PartColumns(NamedTuple):
    """The documents of a part in id order; equal ids stand together, in any order."""

    facts: DocumentFacts
    """All but the tokens."""

    is_validation: bool
    """Whether they were read from inputs named for validation."""

    token_ids: NDArray[np.unsignedinteger]
    """(T,): of all sentences, without specials."""

    token_starts: NDArray[np.int64]
    """(D + 1,): where the tokens of each document start."""

    sentence_lengths: NDArray[np.uint32]
    """(S,): tokens of each sentence that has any."""

    sentence_starts: NDArray[np.int64]
    """(D + 1,): where the sentences of each document start in `sentence_lengths`."""

    is_unknown: NDArray[np.bool_]
    """(T,): which tokens are unknown ones."""


def write_part(path: Path, columns: PartColumns) -> int:
    """Write a part, complete or not at all; return its size in bytes.

    Raises:
        DatasetError: The file cannot be written.
    """
    batch = _part_batch(columns)
    with atomic_file(path) as sink, pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.num_bytes


def _part_batch(columns: PartColumns) -> pa.RecordBatch:
    facts = columns.facts
    return pa.record_batch(
        {
            "document_id": pa.array(facts.document_ids, pa.binary(16)),
            "is_validation": pa.array(
                [columns.is_validation] * len(facts.document_ids), pa.bool_()
            ),
            "source": pa.array(facts.sources, pa.string()),
            "external_id": pa.array(facts.external_ids, pa.string()),
            "origin_path": pa.array(facts.origin_paths, pa.string()),
            "origin_offset": pa.array(facts.origin_offsets, pa.int64()),
            "num_characters": pa.array(facts.num_characters, pa.int64()),
            "num_unknown": _counts(columns.is_unknown, columns.token_starts),
            "longest_sentence": _longest(columns.sentence_lengths, columns.sentence_starts),
            "shortest_sentence": _shortest(columns.sentence_lengths, columns.sentence_starts),
            "tokens": _lists(columns.token_ids, columns.token_starts),
            "sentence_lengths": _lists(columns.sentence_lengths, columns.sentence_starts),
        }
    )


def _counts(flags: NDArray[np.bool_], starts: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.diff(np.searchsorted(np.flatnonzero(flags), starts)), pa.int64())


def _longest(lengths: NDArray[np.uint32], starts: NDArray[np.int64]) -> pa.Array:
    """Return the tokens of each document's longest sentence; 0 where it has none."""
    longest = np.maximum.reduceat(np.append(lengths, 0), starts[:-1])
    return pa.array(np.where(np.diff(starts) > 0, longest, 0), pa.int64())


def _shortest(lengths: NDArray[np.uint32], starts: NDArray[np.int64]) -> pa.Array:
    """Return the tokens of each document's shortest sentence; 0 where it has none."""
    shortest = np.minimum.reduceat(np.append(lengths, np.uint32(2**32 - 1)), starts[:-1])
    return pa.array(np.where(np.diff(starts) > 0, shortest, 0), pa.int64())


def _lists(values: NDArray[Any], starts: NDArray[np.int64]) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(starts, pa.int64()), pa.array(values))


def open_part(path: Path) -> pa.RecordBatch:
    """Return a part's documents, memory-mapped: columns are read when they are used."""
    return pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)


def part_ids(part: pa.RecordBatch) -> NDArray[np.uint64]:
    """Return the document ids of a part, (D, 2) as two little-endian words, without a copy."""
    column = part["document_id"]
    words = np.frombuffer(column.buffers()[1], np.uint64)
    return words[2 * column.offset : 2 * (column.offset + len(column))].reshape(-1, 2)


def big_endian(ids: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return ids as words that sort as their bytes do."""
    return ids.byteswap()


def cells_of(ids: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the cell of each document (D,): the first two bytes of its id, big-endian."""
    first = ids[:, 0] & np.uint64(0xFFFF)
    return ((first & np.uint64(0xFF)) << np.uint64(8) | first >> np.uint64(8)).astype(np.int64)


def cell_rows(part: pa.RecordBatch, first_cell: int, stop_cell: int) -> slice:
    """Return the rows of a part whose documents lie in the cells, from a few of its ids."""
    column = part["document_id"]
    begin, end = 8 * column.offset, 8 * (column.offset + len(column))
    cells = np.frombuffer(column.buffers()[1], ">u2")[begin:end:8]  # (D,), a view
    # Not `searchsorted`, which would copy the view: every bucket asks every part.
    first = bisect_left(cells, first_cell)
    return slice(first, bisect_left(cells, stop_cell, lo=first))


def list_lengths(column: pa.LargeListArray) -> NDArray[np.int64]:
    """Return the length of each list of a column without nulls, (D,)."""
    lengths: NDArray[np.int64] = np.diff(column.offsets.to_numpy())
    return lengths


def without_lists(part: pa.RecordBatch, number: int, rows: slice) -> pa.RecordBatch:
    """Return rows of a part with each list replaced by its length and its place.

    So rows of many parts can be sorted, dropped and doubled before any token is copied; the
    lists of those left are then gathered by `gather_lists`.

    Args:
        part: From `open_part`.
        number: Place of the part among the paths that `gather_lists` will be given.
        rows: Which rows.
    """
    piece = part.slice(rows.start, rows.stop - rows.start)
    columns = {name: piece[name] for name in part.schema.names if name not in _LISTS}
    for name, length_name in _LISTS.items():
        columns[length_name] = pa.array(list_lengths(piece[name]))
        columns[f"{name}_start"] = piece[name].offsets[:-1]
    columns["part"] = pa.repeat(pa.scalar(number, pa.int64()), len(piece))
    return pa.record_batch(columns)


def gather_lists(
    table: pa.Table, rows: NDArray[np.int64], paths: Sequence[Path]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return tokens and sentence lengths, end to end, of the given rows of `without_lists`.

    Every part is opened once for both: with many parts and buckets it is opening that takes time.
    """
    parts = table["part"].to_numpy()[rows]
    lists = [_Lists(name, table, rows) for name in _LISTS]
    for number in np.unique(parts):
        part = open_part(paths[number])
        chosen = np.flatnonzero(parts == number)
        for each in lists:
            each.copy_from(part, chosen)
    tokens, sentence_lengths = (each.out for each in lists)
    return tokens, sentence_lengths


class _Lists:
    """The lists of one column, end to end, as they are gathered from parts."""

    def __init__(self, name: str, table: pa.Table, rows: NDArray[np.int64]) -> None:
        self.name = name
        self.lengths = table[_LISTS[name]].to_numpy()[rows]
        self.sources = table[f"{name}_start"].to_numpy()[rows]
        self.starts = starts_of(self.lengths)
        self.out: NDArray[Any] = np.empty(0)

    def copy_from(self, part: pa.RecordBatch, chosen: NDArray[np.int64]) -> None:
        values = part[self.name].values.to_numpy()
        if self.out.dtype != values.dtype:
            self.out = np.empty(int(self.starts[-1]), values.dtype)
        _copy_runs(
            values, self.sources[chosen], self.lengths[chosen], self.out, self.starts[chosen]
        )


@kernel
def _copy_runs(
    values: NDArray[Any],
    sources: NDArray[np.int64],
    lengths: NDArray[np.int64],
    out: NDArray[Any],
    targets: NDArray[np.int64],
) -> None:
    for i in range(len(sources)):
        out[targets[i] : targets[i] + lengths[i]] = values[sources[i] : sources[i] + lengths[i]]
