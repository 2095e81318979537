"""What the plan needs to know of all documents together, counted from the parts.

Of documents with one id one counts: copies can be in several parts, but all are in one cell, so
cells are worked on some at a time.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import ids_of_copies
from clozemill.pipeline.parts import (
    NUM_CELLS,
    big_endian,
    cells_of,
    list_lengths,
    open_part,
    part_ids,
)
from clozemill.pipeline.splits import num_passes, source_weights, split_hashes, split_rule

_DOCUMENTS_AT_ONCE = 500_000


def documents_needed(config: BuildConfig) -> int:
    """Return the fewest documents of a split that the recipe can work with."""
    return 2 if config.has_pairs else 1


@dataclass(slots=True, kw_only=True)
class Counts:
    """What the plan needs to know of all documents together; row 1 is validation."""

    documents: NDArray[np.int64]
    """(2, cells): distinct documents that make instances."""

    tokens: NDArray[np.int64]
    """(2, cells): their tokens, once per pass and kept copy."""

    smallest: NDArray[np.uint64]
    """The smallest split hashes, as many as a split needs documents."""

    largest: NDArray[np.uint64]
    """The largest ones."""

    num_held_out: int = 0
    """Documents of training inputs that validation inputs hold out."""

    most_sentences: int = 0
    """Of one document."""

    longest_sentence: int = 0
    """In tokens."""

    shortest_train_sentence: int = sys.maxsize
    """In tokens, among documents for training."""


def count_documents(
    paths: Sequence[Path], sources: Sequence[str], config: BuildConfig, threshold: int
) -> Counts:
    """Return the counts of all parts, under a threshold of validation documents."""
    needed = documents_needed(config)
    rule = split_rule(config, threshold)
    none = np.empty(0, np.uint64)
    cells = np.zeros((2, 2, NUM_CELLS), np.int64)
    counts = Counts(documents=cells[0], tokens=cells[1], smallest=none, largest=none)
    for census in _censuses(paths, sources, config):
        side = rule.is_validation(census.ids, census.from_validation_input).astype(np.int64)
        places = side, cells_of(census.ids)
        np.add.at(counts.documents, places, 1)
        np.add.at(counts.tokens, places, census.num_drawn_tokens)
        hashes = split_hashes(census.ids, np.uint64(config.split_seed))
        counts.smallest = np.sort(np.concatenate([counts.smallest, hashes]))[:needed]
        counts.largest = np.sort(np.concatenate([counts.largest, hashes]))[-needed:]
        counts.num_held_out += int(census.is_held_out.sum())
        counts.most_sentences = int(census.num_sentences.max(initial=counts.most_sentences))
        counts.longest_sentence = int(census.longest_sentence.max(initial=counts.longest_sentence))
        counts.shortest_train_sentence = int(
            census.shortest_sentence[side == 0].min(initial=counts.shortest_train_sentence)
        )
    return counts


class _Piece(NamedTuple):
    """Some rows of a part, in id order; all (D,) but for the ids, (D, 2)."""

    ids: NDArray[np.uint64]
    num_tokens: NDArray[np.int64]
    num_sentences: NDArray[np.int64]
    longest_sentence: NDArray[np.int64]
    """In tokens."""

    shortest_sentence: NDArray[np.int64]
    """In tokens."""

    from_validation_input: NDArray[np.bool_]
    sources: NDArray[np.int64]
    """Place of each one's source among all."""


class _Census(NamedTuple):
    """Distinct documents that make instances, in id order; all (D,) but for the ids, (D, 2)."""

    ids: NDArray[np.uint64]
    num_drawn_tokens: NDArray[np.int64]
    """Its tokens, once per pass of itself and of its kept copies."""

    num_sentences: NDArray[np.int64]
    longest_sentence: NDArray[np.int64]
    """In tokens."""

    shortest_sentence: NDArray[np.int64]
    """In tokens."""

    from_validation_input: NDArray[np.bool_]
    """Whether any copy of it was."""

    is_held_out: NDArray[np.bool_]
    """Whether only some copies were."""


def _censuses(
    paths: Sequence[Path], sources: Sequence[str], config: BuildConfig
) -> Iterator[_Census]:
    """Yield the distinct documents some cells at a time, which bounds memory.

    Parts are opened and closed as they are used: there may be more than a process may hold open.
    """
    num_documents = sum(len(open_part(path)) for path in paths)
    num_turns = min(num_documents // _DOCUMENTS_AT_ONCE + 1, NUM_CELLS)
    borders = np.linspace(0, NUM_CELLS, num_turns + 1).astype(np.int64)
    rows = [np.searchsorted(cells_of(part_ids(open_part(path))), borders) for path in paths]
    weights = source_weights(sources, config)
    for i in range(len(borders) - 1):
        pieces = [
            _piece(path, slice(starts[i], starts[i + 1]), sources)
            for path, starts in zip(paths, rows, strict=True)
            if starts[i + 1] > starts[i]
        ]
        if pieces:
            piece = _Piece(*map(np.concatenate, zip(*pieces, strict=True)))
            yield _census(piece, weights, config)


def _piece(path: Path, rows: slice, sources: Sequence[str]) -> _Piece:
    part = open_part(path).slice(rows.start, rows.stop - rows.start)
    return _Piece(
        ids=part_ids(part).copy(),
        num_tokens=list_lengths(part["tokens"]),
        num_sentences=list_lengths(part["sentence_lengths"]),
        longest_sentence=part["longest_sentence"].to_numpy(),
        shortest_sentence=part["shortest_sentence"].to_numpy(),
        from_validation_input=part["is_validation"].to_numpy(zero_copy_only=False),
        sources=pc.index_in(part["source"], pa.array(sources, pa.string())).to_numpy(),
    )


def _census(piece: _Piece, weights: NDArray[np.float64], config: BuildConfig) -> _Census:
    # Among equal documents the smallest source counts, and one validation copy holds all out.
    order = np.lexsort((piece.sources, *big_endian(piece.ids).T[::-1]))
    ids = piece.ids[order]
    is_first = np.append(True, (ids[1:] != ids[:-1]).any(axis=1))
    firsts = np.flatnonzero(is_first)
    if config.duplicates == "keep":
        ids = ids_of_copies(ids, np.arange(len(ids)) - firsts[np.cumsum(is_first) - 1])
    passes = num_passes(ids, weights[piece.sources[order]], config)
    if config.duplicates == "drop":
        passes[~is_first] = 0
    times = np.add.reduceat(passes, firsts)
    enough = piece.num_sentences[order][firsts] >= max(config.min_document_sentences, 1)
    kept = np.flatnonzero(enough & (times > 0))
    rows = order[firsts[kept]]
    from_validation = piece.from_validation_input[order]
    is_validation = np.logical_or.reduceat(from_validation, firsts)
    is_always = np.logical_and.reduceat(from_validation, firsts)
    return _Census(
        ids=piece.ids[rows],
        num_drawn_tokens=piece.num_tokens[rows] * times[kept],
        num_sentences=piece.num_sentences[rows],
        longest_sentence=piece.longest_sentence[rows],
        shortest_sentence=piece.shortest_sentence[rows],
        from_validation_input=is_validation[kept],
        is_held_out=(is_validation & ~is_always)[kept],
    )
