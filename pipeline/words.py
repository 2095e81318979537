"""Where words end: what lets them be looked up instead of encoded.

Words can be encoded one by one if they end at characters c that no step moves, joins or
removes: N(x c y) = N(x) N(c) N(y) for the normalizer N, whatever x and y are, and the
pre-tokenizer cuts on both sides of c. For BERT's normalizer and pre-tokenizer this is so for
blank, tab, LF, CR, ASCII punctuation, some punctuation beyond ASCII and, where they are padded
with blanks, CJK ideographs:

- Cleaning maps or removes characters one by one, and none of these is removed. (Form feed, NUL
  and zero-width characters are: they are no word ends here but part of a word.)
- Decomposition (NFD) maps characters one by one and then sorts runs of combining marks. All of
  these are starters (combining class 0), so that no run reaches across one.
- Lower-casing in `tokenizers` maps characters one by one; final sigma is not treated apart.
- Composition (NFC) joins a mark to the starter before it. Of these only `<`, `=` and `>` have
  composed forms (with U+0338), and are part of a word when a text is composed first.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tokenizers import models

from clozemill.pipeline import wordcuts
from clozemill.pipeline.tokenizer import PretrainingTokenizer, backend_steps
from clozemill.pipeline.wordcuts import Splitting
from clozemill.pipeline.wordtable import WordTable, find_words

MAX_WORDS = 1 << 20
"""A word table holds at most so many words, of 16 bytes on average. Real text brings new words
for ever, so that it starts afresh when it is full. It takes up memory as it fills: about
50 MB for the 140,000 words of 50 MB of English, 130 MB when full of such words."""

_BYTES_PER_WORD = 16

# Inner punctuation (category P*) and, as far as `tokenizers` takes them for assigned, ideographs.
_ALONE_RANGES = ((0x2010, 0x2027), (0x3001, 0x3002), (0x3008, 0x3011))
_IDEOGRAPH_RANGES = ((0x3400, 0x4DB5), (0x4E00, 0x9FCC))
_ASCII_PUNCTUATION = (*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127))
_COMPOSED = b"<=>"


def is_word_local(tokenizer: PretrainingTokenizer) -> bool:
    """Whether words can be encoded one by one: see the top of this module."""
    backend = tokenizer.backend
    steps = [step["type"] for step in backend_steps(backend, "normalizer")]
    return (
        steps in ([], ["Lowercase"], ["BertNormalizer"], ["NFC", "BertNormalizer"])
        and backend_steps(backend, "pre_tokenizer") == [{"type": "BertPreTokenizer"}]
        and isinstance(backend.model, models.WordPiece)
        and backend.model.continuing_subword_prefix == "##"
        and not backend.get_added_tokens_decoder()
    )


class WordRules(NamedTuple):
    """What a tokenizer for which `is_word_local` holds does to words."""

    is_lower_case: bool
    """Whether it lower-cases."""

    has_padded_ideographs: bool
    """Whether CJK ideographs get blanks on both sides."""

    is_composed: bool
    """Whether text is brought into form NFC first."""

    max_word_characters: int
    """A longer word is one unk."""


def word_rules(tokenizer: PretrainingTokenizer) -> WordRules:
    """Return the rules of a tokenizer for which `is_word_local` holds."""
    steps = backend_steps(tokenizer.backend, "normalizer")
    return WordRules(
        is_lower_case=tokenizer.is_lower_case,
        has_padded_ideographs=any(step.get("handle_chinese_chars") for step in steps),
        is_composed=any(step["type"] == "NFC" for step in steps),
        max_word_characters=tokenizer.backend.model.max_input_chars_per_word,
    )


def make_splitting(rules: WordRules) -> Splitting:
    """Return where words end under some rules."""
    byte_kinds = np.full(256, wordcuts.INSIDE, np.uint8)
    byte_kinds[list(b" \t\n\r")] = wordcuts.BLANK
    byte_kinds[list(_ASCII_PUNCTUATION)] = wordcuts.ALONE
    if rules.is_composed:
        byte_kinds[list(_COMPOSED)] = wordcuts.INSIDE
    stands_alone = np.zeros(1 << 16, np.bool_)
    for first, last in _ALONE_RANGES + _IDEOGRAPH_RANGES * rules.has_padded_ideographs:
        stands_alone[first : last + 1] = True
        byte_kinds[0xE0 | first >> 12 : (0xE0 | last >> 12) + 1] = wordcuts.WIDE
    return Splitting(byte_kinds, stands_alone)


def empty_table(max_words: int = MAX_WORDS) -> WordTable:
    """Return a word table without words, with room for a power of two of them."""
    return WordTable(
        slots=np.zeros((2 * max_words, 3), np.uint64),
        word_starts=np.zeros(max_words + 1, np.int64),
        word_bytes=np.empty(_BYTES_PER_WORD * max_words, np.uint8),
        piece_spans=np.zeros((max_words, 2), np.int64),
        pieces=np.empty(_BYTES_PER_WORD * max_words, np.uint32),
        sizes=np.zeros(2, np.int64),
    )


def look_up_words(
    text: NDArray[np.uint8], offsets: NDArray[np.int64], splitting: Splitting, table: WordTable
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Return the words of the first sentences, as many as the table has room for, and their ends.

    Args:
        text: UTF-8 bytes that hold all sentences.
        offsets: (S + 1,): where each sentence starts in `text`, and where the last one ends.
        splitting: Where words end.
        table: Changed in place: unseen words are added, still without pieces.

    Returns:
        The words' places in the table, end to end; and where those of each sentence end.
    """
    cuts = wordcuts.cut_words(text, offsets, splitting)
    word_ids = np.empty(len(cuts.starts), np.int32)
    num_found = find_words(text, cuts, table, word_ids)
    num_done = int(np.searchsorted(cuts.sentence_ends, num_found, "right"))
    word_ends = cuts.sentence_ends[:num_done]
    return word_ids[: word_ends[-1] if num_done else 0], word_ends


def utf8(sentences: Sequence[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of sentences end to end, and where each starts."""
    array = pa.array(sentences, pa.large_string())
    _, offsets, text = array.buffers()
    return np.frombuffer(text or b"", np.uint8), np.frombuffer(offsets, np.int64, len(array) + 1)
