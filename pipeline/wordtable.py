"""Kernels that look words up instead of encoding them: a word table and a trie of pieces.

BERT's WordPiece never looks across white space or ASCII punctuation, so the pieces of a word
are found once and copied ever after. Nothing here knows Unicode: `wordcuts` says where words are,
and those that are not plain ASCII letters and digits are left to `tokenizers`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.jit import lean_kernel, lean_njit, load_word
from clozemill.pipeline.wordcuts import Cuts

_PRIME = np.uint64(0xD6E8FEB86659FD93)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_LONG = np.uint64(0xFF00000000000000)
_ONE = np.uint64(1)
_SHORT = 15
"""A word of at most so many bytes is its own key."""
_NODE = 0xFFFFFFFF


class WordTable(NamedTuple):
    """Words seen so far, found by their bytes, and their pieces (W words at most)."""

    slots: NDArray[np.uint64]
    """(power of two >= 2 W, 3): open addressing; the low and the high half of a word's key, and its
    place + 1, 0 if empty."""

    word_starts: NDArray[np.int64]
    """(W + 1,): where each word starts in `word_bytes`."""

    word_bytes: NDArray[np.uint8]
    """The words, end to end. Compared in full, so that no collision can give wrong ids."""

    piece_spans: NDArray[np.int64]
    """(W, 2): where each word's pieces start and end in `pieces`."""

    pieces: NDArray[np.uint32]
    """Token ids of the words, in the order in which they were found."""

    sizes: NDArray[np.int64]
    """(2,): how many words there are, and how many pieces."""


class _Word(NamedTuple):
    """A word in a text, and what it is found by."""

    start: int
    """Its first byte."""

    end: int
    """The byte after its last."""

    low: np.uint64
    high: np.uint64
    """Its key: up to fifteen bytes are their own, and longer ones a hash; the top byte tells."""


class Trie(NamedTuple):
    """The vocabulary's pieces of ASCII letters and digits; node 0 opens a word, 1 continues it."""

    edges: NDArray[np.int64]
    """(power of two > edges,): open addressing; (node * 256 + byte) * 2^32 + node there, or 0."""

    token_ids: NDArray[np.int64]
    """(nodes,): the piece that ends here, -1 where none does."""


@lean_kernel
def find_words(
    text: NDArray[np.uint8],
    cuts: Cuts,
    table: WordTable,
    word_ids: NDArray[np.int32],
) -> int:
    """Look words up, adding unseen ones to the table.

    Args:
        text: The bytes that hold the words.
        cuts: Where they are.
        table: Changed in place: unseen words are added, still without pieces.
        word_ids: (W,): filled with the words' places in the table.

    Returns:
        How many words were looked up; fewer than W if the table became full.
    """
    for i in range(len(cuts.starts)):
        word = _word(text, cuts.starts[i], cuts.ends[i])
        slot = _slot(text, word, table)
        if table.slots[slot, 2] == 0 and not _add(text, word, slot, table):
            return i
        word_ids[i] = table.slots[slot, 2] - _ONE
    return len(cuts.starts)


@lean_njit
def _word(text: NDArray[np.uint8], start: int, end: int) -> _Word:
    """Return the word with its key."""
    length = end - start
    if length <= _SHORT and start + 16 <= len(text):
        low = load_word(text, start) & _lowest_bytes(min(length, 8))
        high = load_word(text, start + 8) & _lowest_bytes(max(length, 8) - 8)
        return _Word(start, end, low, high | np.uint64(length) << np.uint64(56))
    low = high = np.uint64(0)
    if length <= _SHORT:
        for place in range(end - 1, start + 7, -1):
            high = high << np.uint64(8) | np.uint64(text[place])
        for place in range(min(end, start + 8) - 1, start - 1, -1):
            low = low << np.uint64(8) | np.uint64(text[place])
        return _Word(start, end, low, high | np.uint64(length) << np.uint64(56))
    for place in range(start, end - 8, 8):
        low = (low ^ load_word(text, place)) * _PRIME
        low ^= low >> np.uint64(32)
    low = (low ^ load_word(text, end - 8)) * _PRIME
    return _Word(start, end, low ^ low >> np.uint64(32), _LONG)


@lean_njit
def _lowest_bytes(count: int) -> np.uint64:
    """Return 64 bits of which the lowest `count` bytes, 0 to 8, are ones."""
    half = np.uint64(4 * count)  # twice, since a shift by 64 bits is undefined
    return ((_ONE << half) << half) - _ONE


@lean_njit
def _slot(text: NDArray[np.uint8], word: _Word, table: WordTable) -> np.uint64:
    """Return the slot of a word, or the empty one where it would go."""
    slots = table.slots
    mask = np.uint64(len(slots) - 1)
    slot = ((word.low ^ word.high * _PRIME) * _MIX) >> np.uint64(32) & mask
    while slots[slot, 2] != 0:
        if (
            slots[slot, 0] == word.low
            and slots[slot, 1] == word.high
            and (word.high < _LONG or _is_same(text, word, table, slots[slot, 2] - _ONE))
        ):
            break
        slot = (slot + _ONE) & mask
    return slot


@lean_njit
def _is_same(text: NDArray[np.uint8], word: _Word, table: WordTable, known: np.uint64) -> bool:
    """Compare a word of eight bytes or more with one in the table."""
    first = table.word_starts[known]
    length = word.end - word.start
    if table.word_starts[known + _ONE] - first != length:
        return False
    for place in range(0, length - 8, 8):
        if load_word(text, word.start + place) != load_word(table.word_bytes, first + place):
            return False
    last = length - 8
    return bool(load_word(text, word.start + last) == load_word(table.word_bytes, first + last))


@lean_njit
def _add(text: NDArray[np.uint8], word: _Word, slot: np.uint64, table: WordTable) -> bool:
    """Add a word at an empty slot; return whether there was room."""
    number = table.sizes[0]
    first = table.word_starts[number]
    last = first + word.end - word.start
    if number + 2 > len(table.word_starts) or last > len(table.word_bytes):
        return False
    for place in range(word.start, word.end):
        table.word_bytes[first + place - word.start] = text[place]
    table.word_starts[number + 1] = last
    table.sizes[0] = number + 1
    table.slots[slot, 0] = word.low
    table.slots[slot, 1] = word.high
    table.slots[slot, 2] = np.uint64(number + 1)
    return True


@lean_kernel
def resolve_words(
    table: WordTable,
    first_word: int,
    trie: Trie,
    limits: tuple[bool, int, int],
    left_over: NDArray[np.bool_],
) -> int:
    """Find the pieces of new words made of ASCII letters and digits.

    Greedy longest match from the left (Devlin et al. 2019; `google-research/bert
    tokenization.py:308`); a word that is too long or cannot be spelt is one unk.

    Args:
        table: Changed in place: gains pieces. Words left over get none, for the time being.
        first_word: The first word without pieces.
        trie: The vocabulary.
        limits: Whether to lower-case, the most characters of a word, and the id of unk.
        left_over: (new words,): set where a word holds any other byte.

    Returns:
        How many words are left over.
    """
    num_left_over = 0
    is_lower_case, most, unk_id = limits
    for word in range(first_word, table.sizes[0]):
        start, end = table.word_starts[word], table.word_starts[word + 1]
        first_piece = last_piece = table.sizes[1]
        if not _is_plain(table.word_bytes, start, end):
            left_over[word - first_word] = True
            num_left_over += 1
        else:
            if end - start <= most:
                last_piece = _spell(table, start, end, trie, is_lower_case, first_piece)
            if last_piece <= first_piece:
                table.pieces[first_piece] = unk_id
                last_piece = first_piece + 1
        table.piece_spans[word, 0] = first_piece
        table.piece_spans[word, 1] = last_piece
        table.sizes[1] = last_piece
    return num_left_over


@lean_njit
def _is_plain(text: NDArray[np.uint8], start: int, end: int) -> bool:
    for place in range(start, end):
        byte = text[place]
        if not (97 <= byte <= 122 or 65 <= byte <= 90 or 48 <= byte <= 57):
            return False
    return True


@lean_njit
def _spell(
    table: WordTable, start: int, end: int, trie: Trie, is_lower_case: bool, num_pieces: int
) -> int:
    """Return the number of pieces after those of this word, -1 if it cannot be spelt."""
    root = 0
    while start < end:
        node, place = root, start
        found, found_end = -1, start
        while place < end:
            byte = np.int64(table.word_bytes[place])
            if is_lower_case and 65 <= byte <= 90:
                byte += 32
            node = trie.edges[_edge_slot(trie.edges, node << 8 | byte)] & _NODE
            if node == 0:
                break
            place += 1
            if trie.token_ids[node] >= 0:
                found, found_end = trie.token_ids[node], place
        if found < 0:
            return -1
        table.pieces[num_pieces] = found
        num_pieces += 1
        start = found_end
        root = 1
    return num_pieces


@lean_njit
def _edge_slot(edges: NDArray[np.int64], edge: int | np.int64) -> int:
    """Return the slot of the edge `node * 256 + byte`, or the empty one where it would go."""
    mask = len(edges) - 1
    slot = np.int64((np.uint64(edge) * _MIX) >> np.uint64(32)) & mask
    while edges[slot] != 0 and edges[slot] >> 32 != edge:
        slot = (slot + 1) & mask
    return int(slot)


@lean_kernel
def add_pieces(
    trie: Trie,
    piece_bytes: NDArray[np.uint8],
    piece_starts: NDArray[np.int64],
    roots: NDArray[np.int64],
    token_ids: NDArray[np.int64],
) -> int:
    """Put pieces into an empty trie, each below its root; return the number of nodes."""
    num_nodes = 2
    for piece in range(len(token_ids)):
        node = roots[piece]
        for place in range(piece_starts[piece], piece_starts[piece + 1]):
            edge = node * 256 + np.int64(piece_bytes[place])
            slot = _edge_slot(trie.edges, edge)
            if trie.edges[slot] == 0:
                trie.edges[slot] = edge << 32 | num_nodes
                num_nodes += 1
            node = trie.edges[slot] & _NODE
        trie.token_ids[node] = token_ids[piece]
    return num_nodes


@lean_kernel
def count_tokens(
    table: WordTable,
    word_ids: NDArray[np.int32],
    word_ends: NDArray[np.int64],
    token_ends: NDArray[np.int64],
) -> int:
    """Fill in where each sentence's tokens end; return how many there are in all."""
    num_tokens = 0
    place = 0
    for sentence in range(len(word_ends)):
        while place < word_ends[sentence]:
            word = word_ids[place]
            num_tokens += table.piece_spans[word, 1] - table.piece_spans[word, 0]
            place += 1
        token_ends[sentence] = num_tokens
    return num_tokens


@lean_kernel
def copy_tokens(
    table: WordTable,
    word_ids: NDArray[np.int32],
    token_ids: NDArray[np.unsignedinteger],
) -> None:
    """Write the pieces of words, one word after the other."""
    num_tokens = 0
    for place in range(len(word_ids)):
        word = word_ids[place]
        for piece in range(table.piece_spans[word, 0], table.piece_spans[word, 1]):
            token_ids[num_tokens] = table.pieces[piece]
            num_tokens += 1
