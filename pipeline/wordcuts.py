"""Kernels that cut text into words, at the bytes that end one.

Nothing here knows Unicode: what a byte does to a word is told by `Splitting`. The loops avoid
branches on it, since which byte comes next cannot be foreseen.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.jit import lean_kernel, lean_njit, load_word, lowest_one

INSIDE, BLANK, ALONE, WIDE = 0, 1, 3, 7
"""What a byte does to a word: goes on, ends it, is a word itself, or opens a character of three
bytes that is, or may be, a word itself. Bit 0: ends a word; bit 1: is one; bit 2: is long."""

_BLOCK = 64
"""Bytes whose marks are looked at together, one bit each."""

_LOW_BITS = np.uint64(0x0101010101010101)
_PACK = np.uint64(0x0102040810204080)
_TOP_BYTE = np.uint64(56)
_ONE = np.uint64(1)


class Splitting(NamedTuple):
    """Where words end."""

    byte_kinds: NDArray[np.uint8]
    """(256,): one of INSIDE, BLANK, ALONE, WIDE for every byte."""

    stands_alone: NDArray[np.bool_]
    """(65536,): code points of three UTF-8 bytes that are a word of their own."""


class Cuts(NamedTuple):
    """The words of S sentences (W words), end to end."""

    starts: NDArray[np.int64]
    """(W,): where each word starts in the text."""

    ends: NDArray[np.int64]
    """(W,): where it ends."""

    sentence_ends: NDArray[np.int64]
    """(S,): where each sentence's words end among the words."""


def cut_words(text: NDArray[np.uint8], offsets: NDArray[np.int64], splitting: Splitting) -> Cuts:
    """Return the words of sentences.

    Args:
        text: UTF-8 bytes that hold all sentences.
        offsets: (S + 1,): where each sentence starts in `text`, and where the last one ends.
        splitting: Where words end.
    """
    num_bytes = int(offsets[-1] - offsets[0])
    marks = np.empty(num_bytes + _BLOCK, np.uint8)
    # At most a word for every byte, and one more that is begun and not counted.
    starts, ends = np.empty((2, num_bytes + 1), np.int64)
    sentence_ends = np.empty(len(offsets) - 1, np.int64)
    num_words = _cut(text, offsets, splitting, marks, starts, ends, sentence_ends)
    return Cuts(starts[:num_words], ends[:num_words], sentence_ends)


@lean_kernel
def _cut(
    text: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    splitting: Splitting,
    marks: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    sentence_ends: NDArray[np.int64],
) -> int:
    """Write where words start and end; return how many there are.

    Each is written first and counted only if it is one, which needs no branch.
    """
    base = offsets[0]
    _mark(text, base, offsets[-1], splitting.byte_kinds, splitting.stands_alone, marks)
    num_words = 0
    for sentence in range(len(offsets) - 1):
        start, end = offsets[sentence], offsets[sentence + 1]
        for block in range(start, end, _BLOCK):
            bits = _block_bits(marks, block - base, end - block)
            while bits != 0:
                place = block + lowest_one(bits)
                bits &= bits - _ONE
                kind = np.int64(marks[place - base])
                starts[num_words], ends[num_words] = start, place
                num_words += start < place
                start = place + 1 + (kind >> 1 & 2)  # WIDE takes three bytes
                starts[num_words], ends[num_words] = place, start
                num_words += kind >> 1 & 1  # ALONE and WIDE are words themselves
        starts[num_words], ends[num_words] = start, end
        num_words += start < end
        sentence_ends[sentence] = num_words
    return num_words


@lean_njit
def _mark(
    text: NDArray[np.uint8],
    first: int,
    last: int,
    byte_kinds: NDArray[np.uint8],
    stands_alone: NDArray[np.bool_],
    marks: NDArray[np.uint8],
) -> None:
    """Write what each byte does to a word."""
    for place in range(first, last):
        kind = byte_kinds[text[place]]
        if kind == WIDE and not stands_alone[_code_point(text, place)]:
            kind = np.uint8(INSIDE)
        marks[place - first] = kind


@lean_njit
def _block_bits(marks: NDArray[np.uint8], first: int, length: int) -> np.uint64:
    """Return one bit for each of the next 64 bytes, at most `length`: whether it ends a word."""
    bits = np.uint64(0)
    for i in range(8):
        eight = load_word(marks, first + 8 * i) & _LOW_BITS
        # The product moves bit 8 j to bit 56 + j.
        bits |= (eight * _PACK >> _TOP_BYTE) << np.uint64(8 * i)
    if length < _BLOCK:
        bits &= (_ONE << np.uint64(length)) - _ONE
    return bits


@lean_njit
def _code_point(text: NDArray[np.uint8], place: int) -> int:
    """Return the code point of three UTF-8 bytes."""
    first, second, third = text[place], text[place + 1], text[place + 2]
    return int((first & 15) << 12 | (second & 63) << 6 | (third & 63))
