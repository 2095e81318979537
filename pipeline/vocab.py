"""Training a WordPiece vocabulary that is a function of the words and their counts alone.

The trainer of `tokenizers` breaks ties between pairs by the ids of their pieces, and gives the
pieces that continue a word (`##c`) their ids in hash order. Here all of them are named to it
beforehand, sorted, as if they were special tokens; of what it makes only the set of pieces is
taken, and numbered anew. This leans on how the trainer works inside: the tests compare
vocabularies from separate processes, and the version of `tokenizers` is part of a fingerprint.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

from clozemill.pipeline.encode import make_encoder
from clozemill.pipeline.errors import TokenizerError
from clozemill.pipeline.tokenizer import PretrainingTokenizer, make_tokenizer
from clozemill.pipeline.tokenizer_files import MAX_WORD_CHARACTERS, wordpiece_state
from clozemill.pipeline.vocab_settings import VocabularySettings
from clozemill.pipeline.words import empty_table, look_up_words, make_splitting, utf8, word_rules

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
"""Ids 0 to 4 of every vocabulary trained here."""

_CHUNK_CHARACTERS = 1 << 20
_NO_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyReport:
    """What a vocabulary was trained on, and what it cannot spell."""

    vocab_size: int
    """Tokens made, with specials."""

    num_texts: int
    """Documents read."""

    num_words: int
    """Words in them, punctuation included."""

    num_distinct_words: int
    """Different words among them."""

    num_characters: int
    """Characters of all words."""

    alphabet_size: int
    """Different characters of words that are not too long."""

    left_out: tuple[tuple[str, int], ...]
    """Characters that found no room, with their counts, most frequent first."""

    num_long_words: int
    """Words of more than 100 characters: each is `[UNK]`."""

    unk_share: float
    """Share of `[UNK]` among the tokens of the training text."""

    lost_marks_share: float
    """Share of the letters of the text that lose a mark which is no accent, as a vowel sign."""


def train_vocabulary(
    texts: Iterable[str], settings: VocabularySettings
) -> tuple[PretrainingTokenizer, VocabularyReport]:
    """Return a WordPiece tokenizer for some texts, and a report.

    The order of the texts and how they are cut into documents at white space play no part, and
    neither do threads, processes or time. Ids: the five special tokens, then pieces by how often
    they stand in the training text, most frequent first, ties by code points.

    Memory grows with the number of distinct words, which are counted exactly (about 100 bytes
    each: some 0.3 million in 50 MB of English, 2.5 million in 1 GB); the texts are streamed.

    Raises:
        TokenizerError: There is no word in the texts.
    """
    counter = _WordCounter(settings)
    num_texts = counter.add(texts)
    counts = counter.words()
    if not counts:
        raise TokenizerError(f"no word in {num_texts} texts; a vocabulary needs text.")
    usable = [word for word in counts if len(word) <= MAX_WORD_CHARACTERS]
    alphabet = _count_characters({word: counts[word] for word in usable})
    kept, left_out = _choose_alphabet(alphabet, usable, settings.vocab_size)
    spellable = [word for word in usable if kept.issuperset(word)]
    pieces = _train({word: counts[word] for word in spellable}, kept, settings.vocab_size)
    pieces, unk_share = _order(pieces, counts)
    report = VocabularyReport(
        vocab_size=len(SPECIAL_TOKENS) + len(pieces),
        num_texts=num_texts,
        num_words=counts.total(),
        num_distinct_words=len(counts),
        num_characters=sum(len(word) * count for word, count in counts.items()),
        alphabet_size=len(alphabet),
        left_out=left_out,
        num_long_words=counts.total() - sum(counts[word] for word in usable),
        unk_share=unk_share,
        lost_marks_share=counter.lost_marks_share() if settings.drops_accents else 0.0,
    )
    state = wordpiece_state([*SPECIAL_TOKENS, *pieces], make_normalizer(settings))
    return make_tokenizer(state, name="the trained vocabulary"), report


def make_normalizer(settings: VocabularySettings) -> normalizers.Normalizer:
    """Return what is done to a text before it is split."""
    bert = normalizers.BertNormalizer(
        lowercase=not settings.is_cased, strip_accents=settings.drops_accents
    )
    if settings.unicode_form == "nfc":
        return normalizers.Sequence([normalizers.NFC(), bert])
    return bert


class _WordCounter:
    """Counts words exactly: raw ones in a word table, normalised ones once at the end."""

    def __init__(self, settings: VocabularySettings) -> None:
        bare = make_tokenizer(
            wordpiece_state([*SPECIAL_TOKENS], make_normalizer(settings)), name="it"
        )
        self._backend = bare.backend
        self._is_lower_case = not settings.is_cased
        self._splitting = make_splitting(word_rules(bare))
        self._table = empty_table()
        self._in_table = np.zeros(len(self._table.piece_spans), np.int64)
        self._raw: Counter[str] = Counter()

    def add(self, texts: Iterable[str]) -> int:
        """Count the words of some texts; return how many texts there were."""
        num_texts = 0
        for chunk in _chunks(texts):
            self._count(chunk)
            num_texts += len(chunk)
        return num_texts

    def words(self) -> Counter[str]:
        """Return the counts of normalised words, in code point order."""
        self._flush()
        counts: Counter[str] = Counter()
        for raw, count in self._raw.items():
            for word in self._normalised(raw):
                counts[word] += count
        return Counter(dict(sorted(counts.items())))

    def lost_marks_share(self) -> float:
        """Return the share of letters that lose a mark with their accents; after `words`."""
        num_letters = sum(sum(map(str.isalpha, raw)) * n for raw, n in self._raw.items())
        num_lost = sum(num_marked(raw) * n for raw, n in self._raw.items() if not raw.isascii())
        return num_lost / max(num_letters, 1)

    def _count(self, texts: list[str]) -> None:
        text, offsets = utf8(texts)
        while len(offsets) > 1:
            word_ids, word_ends = look_up_words(text, offsets, self._splitting, self._table)
            done = len(word_ends)
            found = np.bincount(word_ids)
            self._in_table[: len(found)] += found
            if done < len(offsets) - 1:
                if not self._in_table.any():
                    # One text with more words than the table holds.
                    whole = text[offsets[0] : offsets[1]].tobytes().decode()
                    self._raw.update(filter(None, re.split("[ \t\n\r]+", whole)))
                    done = 1
                self._flush()
            offsets = offsets[done:]

    def _flush(self) -> None:
        """Move the table's counts to the dictionary, and start the table afresh."""
        starts, text = self._table.word_starts, self._table.word_bytes
        for word in np.flatnonzero(self._in_table).tolist():
            raw = text[starts[word] : starts[word + 1]].tobytes().decode()
            self._raw[raw] += int(self._in_table[word])
        self._table = empty_table()
        self._in_table[:] = 0

    def _normalised(self, raw: str) -> list[str]:
        if raw.isascii() and raw.isalnum():
            return [raw.lower() if self._is_lower_case else raw]
        text = self._backend.normalizer.normalize_str(raw)
        return [word for word, _ in self._backend.pre_tokenizer.pre_tokenize_str(text)]


def num_marked(word: str) -> int:
    """Return how many letters carry a mark that combines and belongs to their script.

    What Latin, Greek and Cyrillic letters carry are accents, which BERT drops on purpose; a vowel
    sign of Hindi or the dots of a Japanese syllable make another word.

    >>> num_marked("caf\u00e9"), num_marked("\u304c\u304b"), num_marked("\u0e19\u0e35\u0e49")
    (0, 1, 1)
    """
    count, is_open = 0, False
    for character in unicodedata.normalize("NFD", word):
        kind = unicodedata.category(character)
        if kind == "Mn":
            count += is_open
            is_open = False
        elif kind != "Mc":  # a sign with a place of its own, which stays and may be marked too
            name = unicodedata.name(character, "")
            is_open = character.isalpha() and not name.startswith(("LATIN", "GREEK", "CYRILLIC"))
    return count


def _chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    chunk: list[str] = []
    size = 0
    for text in texts:
        chunk.append(text)
        size += len(text)
        if size >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _count_characters(counts: dict[str, int]) -> Counter[str]:
    alphabet: Counter[str] = Counter()
    for word, count in counts.items():
        for character in word:
            alphabet[character] += count
    return alphabet


def _choose_alphabet(
    alphabet: Counter[str], words: Iterable[str], vocab_size: int
) -> tuple[set[str], tuple[tuple[str, int], ...]]:
    """Return the most frequent characters that there is room for, and the others with counts.

    A character takes one token, or two if it also stands inside a word.
    """
    inside = {character for word in words for character in word[1:]}
    by_count = sorted(alphabet.items(), key=lambda item: (-item[1], item[0]))
    room = vocab_size - len(SPECIAL_TOKENS)
    num_kept = 0
    for character, _ in by_count:
        room -= 1 + (character in inside)
        if room < 0:
            break
        num_kept += 1
    return {character for character, _ in by_count[:num_kept]}, tuple(by_count[num_kept:])


def _train(counts: dict[str, int], alphabet: set[str], vocab_size: int) -> list[str]:
    """Return the pieces of a vocabulary, without the special tokens, in no order."""
    inside = sorted({f"##{character}" for word in counts for character in word[1:]})
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *inside],
        initial_alphabet=sorted(alphabet),
        limit_alphabet=_NO_LIMIT,
        show_progress=False,
    )
    tokenizer.train_from_iterator(_repeated(counts), trainer)
    return [piece for piece in tokenizer.get_vocab() if piece not in SPECIAL_TOKENS]


def _repeated(counts: dict[str, int]) -> Iterator[str]:
    """Yield texts in which every word stands as often as it was counted."""
    words: list[str] = []
    size = 0
    for word, count in counts.items():
        while count:
            most = max(1, (_CHUNK_CHARACTERS - size) // (len(word) + 1))
            words.append(" ".join([word] * min(count, most)))
            size += len(words[-1]) + 1
            count -= min(count, most)
            if size >= _CHUNK_CHARACTERS // 2:
                yield " ".join(words)
                words, size = [], 0
    yield " ".join(words)


def _order(pieces: list[str], counts: Counter[str]) -> tuple[list[str], float]:
    """Return pieces by their count in the training text, and the share of `[UNK]` there."""
    state = wordpiece_state([*SPECIAL_TOKENS, *pieces], normalizers.BertNormalizer())
    state["normalizer"] = None  # the words are normalised
    tokenizer = make_tokenizer(state, name="the trained vocabulary")
    encoded = make_encoder(tokenizer).encode(list(counts))
    times = np.repeat(np.fromiter(counts.values(), np.int64), np.diff(encoded.starts))
    found = np.zeros(tokenizer.vocab_size, np.int64)
    np.add.at(found, encoded.token_ids, times)
    frequency = dict(zip(tokenizer.pieces, found.tolist(), strict=True))
    ordered = sorted(pieces, key=lambda piece: (-frequency[piece], piece))
    return ordered, float(found[tokenizer.unk_id] / found.sum())
