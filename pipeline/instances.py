"""The flat arrays that instances are made of, between the recipes and the shards.

Legend: D documents, S sentences, T tokens, N instances, P spans.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


def starts_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Return where runs of these lengths start that follow each other, and where the last ends.

    >>> starts_of([2, 0, 3])
    array([0, 2, 2, 5])
    """
    lengths = np.asarray(lengths)
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, dtype=np.int64, out=starts[1:])
    return starts


def take_runs(
    starts: NDArray[np.int64], chosen: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where chosen runs start once they follow each other, and the places of their values.

    >>> take_runs(np.array([0, 2, 2, 5]), np.array([2, 0]))
    (array([0, 3, 5]), array([2, 3, 4, 0, 1]))
    """
    lengths = starts[chosen + 1] - starts[chosen]
    own_starts = starts_of(lengths)
    # A value's place: its run's start, counted on within the run.
    places = np.arange(own_starts[-1]) + np.repeat(starts[chosen] - own_starts[:-1], lengths)
    return own_starts, places


def token_dtype(vocab_size: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of token ids: two bytes where the vocabulary fits them, else four.

    >>> token_dtype(30_522), token_dtype(250_000)
    (dtype('uint16'), dtype('uint32'))
    """
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def position_dtype(max_seq_length: int) -> np.dtype[np.unsignedinteger]:
    """Return the type of positions in instances: one byte where that is enough."""
    return np.dtype(np.uint8 if max_seq_length <= 256 else np.uint16)


class Corpus(NamedTuple):
    """The documents of one bucket and split, in id order, as flat arrays."""

    tokens: NDArray[np.unsignedinteger]
    """uint16 or uint32 (T,): token ids of all sentences, without specials."""

    sentence_starts: NDArray[np.int64]
    """(S + 1,): where each sentence starts in `tokens`. No sentence is empty."""

    document_starts: NDArray[np.int64]
    """(D + 1,): where each document starts among the sentences. No document is empty."""

    document_ids: NDArray[np.uint64]
    """(D, 2): the 16-byte document ids as two little-endian words."""

    num_passes: NDArray[np.int64]
    """(D,): how often the document's instances are drawn; pass numbers are 0 .. n - 1."""

    text_groups: NDArray[np.int64]
    """(D,): equal for the copies of one text that `--duplicates keep` leaves, else distinct."""


class Instances(NamedTuple):
    """Instances as runs of sentences, before any token is copied.

    A span is a run of sentences of one document. An instance reads
    `[CLS] span [SEP] span [SEP] ...`; in a pair the first span is A and the second is B.
    """

    pass_number: NDArray[np.int64]
    """(N,): the pass of the (first) document that drew it."""

    next_sentence_label: NDArray[np.int8]
    """(N,): 0 next, 1 random, -1 where the recipe has no pairs."""

    num_chunk_sentences: NDArray[np.int64]
    """(N,): own sentences in the chunk that made the pair; 0 where the recipe has no pairs."""

    span_starts: NDArray[np.int64]
    """(N + 1,): where each instance's spans start in the arrays below."""

    span_document: NDArray[np.int64]
    """(P,): the document, as its place in the corpus."""

    span_first_sentence: NDArray[np.int64]
    """(P,): its first sentence, counted within the document."""

    span_num_sentences: NDArray[np.int64]
    """(P,): how many sentences it runs over."""

    span_cut_front: NDArray[np.int64]
    """(P,): tokens of its first sentences that are not in the instance."""

    span_cut_back: NDArray[np.int64]
    """(P,): tokens of its last sentences that are not in the instance."""


class Spans(NamedTuple):
    """The spans of N instances as they are read and written: with the ids of their documents."""

    starts: NDArray[np.int64]
    """(N + 1,): where each instance's spans start in the arrays below."""

    document_ids: NDArray[np.uint8]
    """(P, 16): id of the document a span is of."""

    first_sentence: NDArray[Any]
    """(P,): its first sentence, counted within the document."""

    num_sentences: NDArray[Any]
    """(P,): how many sentences it runs over."""

    cut_front: NDArray[Any]
    """(P,): tokens of those sentences missing before the span's first token."""

    cut_back: NDArray[Any]
    """(P,): tokens of those sentences missing after the span's last token."""

    def take(self, rows: NDArray[np.int64]) -> "Spans":
        """Return the spans of some instances, in the order asked for."""
        starts, places = take_runs(self.starts, rows)
        return Spans(starts, *(values[places] for values in self[1:]))


class TokenBatch(NamedTuple):
    """Assembled instances: what a model reads, unmasked and without padding."""

    input_ids: NDArray[np.unsignedinteger]
    """(T,): token ids of all instances with their specials, one after the other."""

    starts: NDArray[np.int64]
    """(N + 1,): where each instance starts in `input_ids`."""

    segment_b_start: NDArray[np.int64]
    """(N,): first position of B; the length where there is no B."""


class MaskBatch(NamedTuple):
    """Overlays of N instances x K variants, instance by instance, variant by variant."""

    positions: NDArray[np.unsignedinteger]
    """uint8 or uint16: selected positions within the instance, ascending."""

    token_ids: NDArray[np.unsignedinteger]
    """Same length: what the input shows at each selected position."""

    starts: NDArray[np.int64]
    """(N * K + 1,): where each overlay starts in the two arrays above."""


NO_MASKS = MaskBatch(np.empty(0, np.uint8), np.empty(0, np.uint16), np.zeros(1, np.int64))
"""Of instances without variants."""
