"""Parts: tokenized documents between the stages, in files from which any range of ids is a slice.

A part is an Arrow IPC file of one record batch whose documents stand in id order, so that the
documents of a run of *cells* are found by binary search and read without a copy. A document's
cell is the first 16 bits of its id.

Legend: D documents, S sentences, T tokens.
"""

import ctypes
import mmap
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
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

_MOST_MAPPED = 1 << 13
"""Parts kept mapped by a process, which the system lets map 65,530 files or pieces."""

_PARTS_AT_ONCE = 32
"""Parts of which pages are in memory together, about a megabyte each."""

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
    # Not `searchsorted`, which would copy the view.
    first = bisect_left(cells, first_cell)
    return slice(first, bisect_left(cells, stop_cell, lo=first))


def list_lengths(column: pa.LargeListArray) -> NDArray[np.int64]:
    """Return the length of each list of a column without nulls, (D,)."""
    lengths: NDArray[np.int64] = np.diff(column.offsets.to_numpy())
    return lengths


class Parts:
    """All parts of a build, each mapped when it is first used and kept so, up to `_MOST_MAPPED`.

    Every bucket asks every part, and most of the time of that was opening it.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        """Take the files; none is opened yet."""
        self._paths = paths
        self._mapped: dict[int, tuple[pa.Buffer, pa.RecordBatch]] = {}

    def rows(self, first_cell: int, stop_cell: int) -> pa.Table:
        """Return the rows of some cells from all parts, with each list's length and place.

        So rows can be sorted, dropped and doubled before any token is copied; the lists of those
        left are then gathered by `gather_lists`.
        """
        tables = []
        for first in range(0, len(self._paths), _PARTS_AT_ONCE):
            numbers = range(first, min(first + _PARTS_AT_ONCE, len(self._paths)))
            # One piece alone would stay a view of pages that are given back below; beside one
            # without rows it is copied.
            pieces = [(first, self._part(first).slice(0, 0))]
            for number in numbers:
                part = self._part(number)
                rows = cell_rows(part, first_cell, stop_cell)
                if rows.start < rows.stop:
                    pieces.append((number, part.slice(rows.start, rows.stop - rows.start)))
            tables.append(_without_lists(pieces))
            self._release(numbers)
        return pa.concat_tables(tables).combine_chunks()

    def gather_lists(
        self, table: pa.Table, rows: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return tokens and sentence lengths, end to end, of some rows of a table of `rows`."""
        numbers = table["part"].to_numpy()[rows]
        lists = [_Lists(name, table, rows) for name in _LISTS]
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            for each in lists:
                each.copy_from(self._part(number), chosen)
            self._release([number])
        tokens, sentence_lengths = (each.out for each in lists)
        return tokens, sentence_lengths

    def _release(self, numbers: Iterable[int]) -> None:
        """Give back the memory of what was read of some parts; they stay mapped."""
        for number in self._mapped.keys() & set(numbers):
            _forget_pages(self._mapped[number][0])

    def _part(self, number: int) -> pa.RecordBatch:
        if number not in self._mapped:
            if len(self._mapped) >= _MOST_MAPPED:
                self._mapped.clear()
            # Arrow's map holds no file descriptor, of which a process may have a thousand; that of
            # Python's `mmap` does.
            mapped = pa.memory_map(str(self._paths[number])).read_buffer()
            self._mapped[number] = mapped, pa.ipc.open_file(mapped).get_batch(0)
        return self._mapped[number][1]


def _forget_pages(mapped: pa.Buffer) -> None:
    """Take the pages of a mapped file out of this process; they are read again when used."""
    _madvise()(mapped.address, mapped.size, mmap.MADV_DONTNEED)


@lru_cache(maxsize=1)
def _madvise() -> Any:
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    return madvise


def _without_lists(pieces: Sequence[tuple[int, pa.RecordBatch]]) -> pa.Table:
    """Return numbered pieces of parts as one table, with each list replaced."""
    batches = [piece for _, piece in pieces]
    names = [name for name in batches[0].schema.names if name not in _LISTS]
    table = pa.Table.from_batches([batch.select(names) for batch in batches]).combine_chunks()
    for name, length_name in _LISTS.items():
        lengths = np.concatenate([list_lengths(batch[name]) for batch in batches])
        starts = np.concatenate([batch[name].offsets.to_numpy()[:-1] for batch in batches])
        table = table.append_column(length_name, pa.array(lengths))
        table = table.append_column(f"{name}_start", pa.array(starts))
    numbers = np.repeat([number for number, _ in pieces], list(map(len, batches)))
    return table.append_column("part", pa.array(numbers, pa.int64()))


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
