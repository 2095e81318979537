"""Sentences to token ids, as flat arrays.

The fast encoder looks words up; `words.py` says where that gives the ids of `tokenizers`.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline import wordtable
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.tokenizer import PretrainingTokenizer, backend_steps
from clozemill.pipeline.words import (
    MAX_WORDS,
    empty_table,
    is_word_local,
    look_up_words,
    make_splitting,
    utf8,
    word_rules,
)
from clozemill.pipeline.wordtable import Trie

CHUNK_BYTES = 1 << 18
"""Sentences are looked up this many bytes at a time, which keeps the working arrays in cache."""

_BLANKS = " \t\n\r"
_BATCH_SENTENCES = 4096
"""`tokenizers` sees so many at once: it keeps more per token than its id until they are read."""


class Encoded(NamedTuple):
    """The tokens of some sentences (S sentences, T tokens)."""

    token_ids: NDArray[np.unsignedinteger]
    """uint16 or uint32 (T,): the ids of all sentences, without specials, end to end."""

    starts: NDArray[np.int64]
    """(S + 1,): where each sentence starts in `token_ids`; some may be empty."""


class Encoder:
    """Encodes sentences with `tokenizers` itself; right for every tokenizer."""

    num_special_in_text: int
    """How often running text gave the id of a special token; each became unk."""

    def __init__(self, tokenizer: PretrainingTokenizer) -> None:
        """Prepare to encode with a tokenizer."""
        self.tokenizer = tokenizer
        self.num_special_in_text = 0
        self._is_reserved = np.zeros(tokenizer.vocab_size, np.bool_)
        self._is_reserved[tokenizer.special_ids] = True
        self._is_reserved[tokenizer.unk_id] = False
        self._prefix = sentence_prefix(tokenizer)

    def encode(self, sentences: Sequence[str]) -> Encoded:
        """Return the ids of sentences; a special token found in running text becomes unk."""
        return self.encode_utf8(*utf8(sentences))

    def encode_utf8(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> Encoded:
        """Return the ids of sentences that are given as UTF-8.

        Args:
            text: uint8 (bytes,): all sentences, end to end.
            starts: int64 (S + 1,): where each starts in `text`, and where the last one ends.
        """
        bare = [
            text[start:end].tobytes().decode().strip(_BLANKS)
            for start, end in itertools.pairwise(starts.tolist())
        ]
        spaced = [self._prefix + sentence if sentence else "" for sentence in bare]
        encoded = _encode_plain(self.tokenizer, spaced)
        is_reserved = self._is_reserved[encoded.token_ids]
        self.num_special_in_text += int(np.count_nonzero(is_reserved))
        encoded.token_ids[is_reserved] = self.tokenizer.unk_id
        return encoded


def sentence_prefix(tokenizer: PretrainingTokenizer) -> str:
    """Return what stands before each sentence when it is encoded.

    In byte-level BPE a blank belongs to the word after it: in running text a sentence begins
    with a blank, and the blanks at its end are the next one's.
    """
    kinds = {step["type"] for step in backend_steps(tokenizer.backend, "pre_tokenizer")}
    return " " if "ByteLevel" in kinds else ""


class WordEncoder(Encoder):
    """Encodes BERT's WordPiece by looking words up; `tokenizers` sees unseen odd words alone."""

    def __init__(self, tokenizer: PretrainingTokenizer, *, max_words: int = MAX_WORDS) -> None:
        """Prepare to encode with a tokenizer for which `is_word_local` holds.

        Args:
            tokenizer: The tokenizer.
            max_words: Room for so many words, a power of two; when it is full, the table starts
                afresh. A sentence that alone fills it goes to `tokenizers`.
        """
        super().__init__(tokenizer)
        rules = word_rules(tokenizer)
        self._limits = (rules.is_lower_case, rules.max_word_characters, tokenizer.unk_id)
        self._splitting = make_splitting(rules)
        self._trie = _trie(tokenizer.pieces)
        self._max_words = max_words
        self._table = empty_table(max_words)
        self._reserved_words: dict[int, int] = {}

    def encode_utf8(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> Encoded:
        """Return the ids of sentences: see `Encoder.encode_utf8`."""
        if len(starts) == 1:
            return Encoded(np.empty(0, self.tokenizer.token_dtype), np.zeros(1, np.int64))
        parts = list(self._encode_all(text, starts))
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.diff(part.starts) for part in parts])
        return Encoded(np.concatenate([part.token_ids for part in parts]), starts_of(lengths))

    def _encode_all(self, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> Iterator[Encoded]:
        first, num_sentences = 0, len(starts) - 1
        while first < num_sentences:
            limit = starts[first] + CHUNK_BYTES
            last = max(first + 1, int(np.searchsorted(starts, limit, "right")) - 1)
            chunk = self._look_up(text, starts[first : last + 1])
            if chunk is None:
                yield super().encode_utf8(text, starts[first : first + 2])
                first += 1
                continue
            yield chunk
            first += len(chunk.starts) - 1

    def _look_up(self, text: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Encoded | None:
        """Return the ids of the first sentences, as many as the table takes; None for none."""
        num_before = int(self._table.sizes[0])
        word_ids, word_ends = look_up_words(text, offsets, self._splitting, self._table)
        self._resolve(num_before)
        if len(word_ends) == 0:
            self._table = empty_table(self._max_words)
            self._reserved_words.clear()
            return self._look_up(text, offsets) if num_before else None
        self._count_specials(word_ids)
        return self._gather(word_ids, word_ends)

    def _gather(self, word_ids: NDArray[np.int32], word_ends: NDArray[np.int64]) -> Encoded:
        starts = np.zeros(len(word_ends) + 1, np.int64)
        num_tokens = wordtable.count_tokens(self._table, word_ids, word_ends, starts[1:])
        token_ids = np.empty(num_tokens, self.tokenizer.token_dtype)
        wordtable.copy_tokens(self._table, word_ids, token_ids)
        return Encoded(token_ids, starts)

    def _resolve(self, first_word: int) -> None:
        """Find the pieces of the words from `first_word` on."""
        table = self._table
        num_words, first_piece = map(int, table.sizes)
        if first_word == num_words:
            return
        left_over = np.zeros(num_words - first_word, np.bool_)
        if wordtable.resolve_words(table, first_word, self._trie, self._limits, left_over):
            self._resolve_odd(first_word + np.flatnonzero(left_over))
        new = self._table.pieces[first_piece : self._table.sizes[1]]
        if self._is_reserved[new].any():
            self._reserve(first_word, first_piece)

    def _resolve_odd(self, words: NDArray[np.int64]) -> None:
        """Let `tokenizers` find the pieces of words that are not ASCII letters and digits."""
        starts, text = self._table.word_starts, self._table.word_bytes
        texts = [text[starts[w] : starts[w + 1]].tobytes().decode() for w in words.tolist()]
        encoded = _encode_plain(self.tokenizer, texts)
        first = int(self._table.sizes[1])
        last = first + len(encoded.token_ids)
        # A word of ASCII letters and digits has at most a piece a byte; others may have more.
        if last + len(text) - starts[self._table.sizes[0]] > len(self._table.pieces):
            more = np.empty(last, np.uint32)
            self._table = self._table._replace(pieces=np.concatenate([self._table.pieces, more]))
        self._table.pieces[first:last] = encoded.token_ids
        self._table.piece_spans[words, 0] = first + encoded.starts[:-1]
        self._table.piece_spans[words, 1] = first + encoded.starts[1:]
        self._table.sizes[1] = last

    def _reserve(self, first_word: int, first_piece: int) -> None:
        """Turn special tokens among new pieces into unk, and note the words they are in."""
        table = self._table
        spans = table.piece_spans[first_word : table.sizes[0]]
        by_start = np.argsort(spans[:, 0], kind="stable")
        places = first_piece + np.flatnonzero(
            self._is_reserved[table.pieces[first_piece : table.sizes[1]]]
        )
        owners = np.searchsorted(spans[by_start, 0], places, "right") - 1
        for word in (first_word + by_start[owners]).tolist():
            self._reserved_words[word] = self._reserved_words.get(word, 0) + 1
        table.pieces[places] = self.tokenizer.unk_id

    def _count_specials(self, word_ids: NDArray[np.int32]) -> None:
        for word, num_specials in self._reserved_words.items():
            self.num_special_in_text += num_specials * int(np.count_nonzero(word_ids == word))


def make_encoder(tokenizer: PretrainingTokenizer) -> Encoder:
    """Return the fastest encoder that is known to give the tokenizer's own ids."""
    return WordEncoder(tokenizer) if is_word_local(tokenizer) else Encoder(tokenizer)


def _trie(pieces: tuple[str, ...]) -> Trie:
    entries = []
    for token_id, piece in enumerate(pieces):
        bare = piece.removeprefix("##")
        if bare.isascii() and bare.isalnum():
            entries.append((bare.encode(), int(bare != piece), token_id))
    starts = starts_of([len(text) for text, _, _ in entries])
    text = np.frombuffer(b"".join(text for text, _, _ in entries), np.uint8)
    numbers = np.array([entry[1:] for entry in entries], np.int64).reshape(-1, 2).T.copy()
    most_nodes = int(starts[-1]) + 2
    num_nodes = wordtable.add_pieces(_empty_trie(most_nodes), text, starts, *numbers)
    # Once more in the smallest table, which stays in cache.
    trie = _empty_trie(num_nodes)
    wordtable.add_pieces(trie, text, starts, *numbers)
    return trie


def _empty_trie(most_nodes: int) -> Trie:
    num_slots = 1 << (most_nodes * 3 // 2).bit_length()
    return Trie(np.zeros(num_slots, np.int64), np.full(most_nodes, -1, np.int64))


def _encode_plain(tokenizer: PretrainingTokenizer, sentences: Sequence[str]) -> Encoded:
    lengths: list[int] = []
    parts: list[NDArray[np.unsignedinteger]] = []
    for first in range(0, len(sentences), _BATCH_SENTENCES):
        batch = list(sentences[first : first + _BATCH_SENTENCES])
        encodings = tokenizer.backend.encode_batch_fast(batch, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        lengths += map(len, ids)
        parts.append(np.fromiter(itertools.chain.from_iterable(ids), tokenizer.token_dtype))
    return Encoded(
        np.concatenate(parts or [np.empty(0, tokenizer.token_dtype)]), starts_of(lengths)
    )
