"""Slow, plain re-statements of the algorithms that the kernels implement.

They work on lists and Python integers, token by token as the papers tell it, and share no code
with the kernels. Decisions come from a `Choices`: by the generator of the format, for exact
equality, or by Python's own `random`, for distributions.
"""

import random
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.instances import Corpus, Instances

WORD = 2**64
GAMMA = 0x9E3779B97F4A7C15

Lengths = list[list[int]]
"""Documents as lists of sentence lengths."""


def mix(z: int) -> int:
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


def hash64(seed: int, id_low: int, id_high: int, variant: int, purpose: int) -> int:
    h = 0
    for word in (seed, id_low, id_high, variant, purpose):
        h = mix(((h ^ word) + GAMMA) % WORD)
    return h


def draw(key: int, j: int) -> int:
    return mix((key + (j + 1) * GAMMA) % WORD)


def uniform(key: int, j: int) -> float:
    return (draw(key, j) >> 11) / 2**53


def bounded(key: int, j: int, n: int) -> int:
    word = draw(key, j)
    candidates = iter(range(1_000))
    first = word
    while word * n % WORD < (WORD - n) % n:
        word = draw(first, next(candidates))
    return word * n // WORD


TARGET, SPLIT, LABEL, PARTNER, START, CUT_A, CUT_B = range(1, 8)
COUNT, POSITION, ACTION, REPLACEMENT = range(16, 20)


class Choices(Protocol):
    """The decisions of one document in one pass, or of one masking."""

    def uniform(self, purpose: int, j: int) -> float: ...

    def integer(self, purpose: int, j: int, bound: int) -> int: ...

    def is_front(self, purpose: int, ordinal: int, i: int) -> bool: ...


@dataclass
class KeyedChoices:
    """By the generator of the format."""

    seed: int
    id_words: tuple[int, int]
    variant: int

    def key(self, purpose: int) -> int:
        return hash64(self.seed, *self.id_words, self.variant, purpose)

    def uniform(self, purpose: int, j: int) -> float:
        return uniform(self.key(purpose), j)

    def integer(self, purpose: int, j: int, bound: int) -> int:
        return bounded(self.key(purpose), j, bound)

    def is_front(self, purpose: int, ordinal: int, i: int) -> bool:
        bits = draw(draw(self.key(purpose), ordinal), i // 64)
        return bits >> (i % 64) & 1 == 1


@dataclass
class RandomChoices:
    """By Python's generator, whatever the decision is about."""

    rng: random.Random

    def uniform(self, purpose: int, j: int) -> float:
        return self.rng.random()

    def integer(self, purpose: int, j: int, bound: int) -> int:
        return self.rng.randrange(bound)

    def is_front(self, purpose: int, ordinal: int, i: int) -> bool:
        return self.rng.random() < 0.5


@dataclass(frozen=True)
class Segment:
    document: int
    first_sentence: int
    num_sentences: int
    cut_front: int = 0
    cut_back: int = 0

    def without_cuts(self) -> tuple[int, int, int]:
        return self.document, self.first_sentence, self.num_sentences


@dataclass(frozen=True)
class Pair:
    a: Segment
    b: Segment
    label: int
    num_chunk_sentences: int


@dataclass(frozen=True)
class PairSettings:
    max_seq_length: int
    short_seq_prob: float = 0.1
    is_balanced: bool = False
    text_groups: tuple[int, ...] = ()
    """Of each document; equal for copies of one text. Nothing where there are no copies."""


def document_pairs(
    documents: Lengths, index: int, settings: PairSettings, choices: Choices, balance: int = 0
) -> tuple[list[Pair], int]:
    """Return the pairs of one document and the target it aimed for."""
    cap = settings.max_seq_length - 3
    target = cap
    if choices.uniform(TARGET, 0) < settings.short_seq_prob:
        target = 2 + choices.integer(TARGET, 1, cap - 1)
    sentences = documents[index]
    pairs: list[Pair] = []
    chunk: list[int] = []
    i = 0
    while i < len(sentences):
        chunk.append(i)
        tokens = sum(sentences[s] for s in chunk)
        if i == len(sentences) - 1 or tokens >= target:
            ordinal = len(pairs)
            a_end = 1
            if len(chunk) >= 2:
                a_end = 1 + choices.integer(SPLIT, ordinal, len(chunk) - 1)
            if len(chunk) == 1:
                is_random = True
            elif settings.is_balanced and balance != 0:
                is_random = balance < 0
            else:
                is_random = choices.uniform(LABEL, ordinal) < 0.5
            if is_random:
                wanted = target - sum(sentences[s] for s in chunk[:a_end])
                others = other_texts(len(documents), index, settings.text_groups)
                b = random_segment(documents, others, wanted, choices, ordinal)
                i -= len(chunk) - a_end
            else:
                b = Segment(index, chunk[a_end], len(chunk) - a_end)
            a = Segment(index, chunk[0], a_end)
            a, b = truncate(documents, a, b, cap, choices, ordinal)
            pairs.append(Pair(a, b, int(is_random), len(chunk)))
            balance += 1 if is_random else -1
            chunk = []
        i += 1
    return pairs, target


def other_texts(num_documents: int, index: int, text_groups: tuple[int, ...]) -> list[int]:
    groups = text_groups or tuple(range(num_documents))
    return [other for other in range(num_documents) if groups[other] != groups[index]]


def random_segment(
    documents: Lengths, others: list[int], wanted: int, choices: Choices, ordinal: int
) -> Segment:
    partner = others[choices.integer(PARTNER, ordinal, len(others))]
    sentences = documents[partner]
    first = choices.integer(START, ordinal, len(sentences))
    taken = 0
    tokens = 0
    for length in sentences[first:]:
        taken += 1
        tokens += length
        if tokens >= wanted:
            break
    return Segment(partner, first, taken)


def num_tokens(documents: Lengths, segment: Segment) -> int:
    end = segment.first_sentence + segment.num_sentences
    return sum(documents[segment.document][segment.first_sentence : end])


def truncate(
    documents: Lengths, a: Segment, b: Segment, cap: int, choices: Choices, ordinal: int
) -> tuple[Segment, Segment]:
    """Drop tokens one by one from the longer side, from its front or its back."""
    left = {CUT_A: num_tokens(documents, a), CUT_B: num_tokens(documents, b)}
    cuts = {CUT_A: [0, 0], CUT_B: [0, 0]}
    while sum(left.values()) > cap:
        side = CUT_A if left[CUT_A] > left[CUT_B] else CUT_B
        is_front = choices.is_front(side, ordinal, sum(cuts[side]))
        cuts[side][0 if is_front else 1] += 1
        left[side] -= 1
    return (
        Segment(*a.without_cuts(), *cuts[CUT_A]),
        Segment(*b.without_cuts(), *cuts[CUT_B]),
    )


def corpus_pairs(
    corpus: Corpus, documents: Lengths, settings: PairSettings, seed: int
) -> tuple[list[Pair], list[int]]:
    """Return the pairs and targets of all documents and passes by the format's generator."""
    pairs: list[Pair] = []
    targets: list[int] = []
    balance: dict[int, int] = {}
    for index in range(len(documents)):
        id_words = (int(corpus.document_ids[index, 0]), int(corpus.document_ids[index, 1]))
        for number in range(int(corpus.num_passes[index])):
            choices = KeyedChoices(seed, id_words, number)
            found, target = document_pairs(
                documents, index, settings, choices, balance.get(number, 0)
            )
            balance[number] = balance.get(number, 0) + sum(2 * p.label - 1 for p in found)
            pairs += found
            targets.append(target)
    return pairs, targets


def reachable_pairs(
    documents: Lengths, index: int, target: int, cap: int
) -> set[tuple[tuple[int, int, int], tuple[int, int, int], int, int, int, int]]:
    """Return every (A, B, label, chunk sentences, cut of A, cut of B) that any draws lead to."""
    sentences = documents[index]
    reached = set()
    starts, waiting = set(), [0]
    while waiting:
        start = waiting.pop()
        if start in starts or start == len(sentences):
            continue
        starts.add(start)
        end = start + 1
        while end < len(sentences) and sum(sentences[start:end]) < target:
            end += 1
        k = end - start
        waiting.append(end)
        for a_end in range(1, max(2, k)):
            a = Segment(index, start, a_end)
            followers = [(Segment(index, start + a_end, k - a_end), 0)] if k > 1 else []
            wanted = target - num_tokens(documents, a)
            followers += [(b, 1) for b in random_segments(documents, index, wanted)]
            waiting.append(start + a_end)
            for b, label in followers:
                cut_a, cut_b = truncate(documents, a, b, cap, RandomChoices(random.Random(0)), 0)
                reached.add(
                    (
                        a.without_cuts(),
                        b.without_cuts(),
                        label,
                        k,
                        cut_a.cut_front + cut_a.cut_back,
                        cut_b.cut_front + cut_b.cut_back,
                    )
                )
    return reached


def random_segments(documents: Lengths, index: int, wanted: int) -> list[Segment]:
    found = []
    for partner, sentences in enumerate(documents):
        if partner == index:
            continue
        for first in range(len(sentences)):
            end = first + 1
            while end < len(sentences) and sum(sentences[first:end]) < wanted:
                end += 1
            found.append(Segment(partner, first, end - first))
    return found


def segments_of(instances: Instances) -> list[Segment]:
    """Return every span of what a kernel drew, in the form of this module."""
    return [
        Segment(*(int(value) for value in row))
        for row in zip(
            instances.span_document,
            instances.span_first_sentence,
            instances.span_num_sentences,
            instances.span_cut_front,
            instances.span_cut_back,
            strict=True,
        )
    ]


def pairs_of(instances: Instances) -> list[Pair]:
    """Return what a kernel drew, in the form of this module."""
    spans = segments_of(instances)
    return [
        Pair(spans[2 * n], spans[2 * n + 1], int(label), int(k))
        for n, (label, k) in enumerate(
            zip(instances.next_sentence_label, instances.num_chunk_sentences, strict=True)
        )
    ]


def corpus_of(documents: Lengths, num_passes: int = 1, vocab_size: int = 30_000) -> Corpus:
    """Return documents of the given sentence lengths, with arbitrary tokens and ids."""
    rng = np.random.default_rng(len(documents))
    sentences = np.array([length for document in documents for length in document], np.int64)
    return Corpus(
        tokens=rng.integers(5, vocab_size, sentences.sum()).astype(np.uint16),
        sentence_starts=_starts(sentences),
        document_starts=_starts(np.array([len(document) for document in documents], np.int64)),
        document_ids=rng.integers(0, WORD, (len(documents), 2), dtype=np.uint64),
        num_passes=np.full(len(documents), num_passes, np.int64),
        text_groups=np.arange(len(documents)),
    )


def _starts(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


@dataclass(frozen=True)
class MaskSettings:
    count: int | None
    """None: the stochastic count."""
    probability: float
    max_predictions: int
    is_word: bool
    special: frozenset[int]
    continuation: frozenset[int]
    random_ids: list[int]
    mask_id: int


def mask(tokens: list[int], settings: MaskSettings, choices: Choices) -> list[tuple[int, int]]:
    """Return (position, shown id) of one masking."""
    maskable = [p for p, token in enumerate(tokens) if token not in settings.special]
    count = settings.count
    if count is None:
        share = settings.probability * len(maskable) + choices.uniform(COUNT, 0)
        count = int(share)
    count = min(count, len(maskable), settings.max_predictions)
    if settings.is_word:
        chosen = choose_words(tokens, maskable, count, settings, choices)
    else:
        chosen = choose_tokens(maskable, count, choices)
    overlay = []
    for i, position in enumerate(sorted(chosen)):
        action = choices.uniform(ACTION, i)
        shown = tokens[position]
        if action < 0.8:
            shown = settings.mask_id
        elif action < 0.9:
            shown = settings.random_ids[choices.integer(REPLACEMENT, i, len(settings.random_ids))]
        overlay.append((position, shown))
    return overlay


def choose_tokens(maskable: list[int], count: int, choices: Choices) -> set[int]:
    chosen: set[int] = set()
    for i in range(count):
        last = len(maskable) - count + i
        place = choices.integer(POSITION, i, last + 1)
        chosen.add(maskable[last] if maskable[place] in chosen else maskable[place])
    return chosen


def word_groups(
    tokens: list[int], special: frozenset[int], continuation: frozenset[int]
) -> Lengths:
    """Return the positions of each word."""
    groups: list[list[int]] = []
    for position, token in enumerate(tokens):
        if token in special:
            continue
        is_joined = token in continuation and position > 0 and tokens[position - 1] not in special
        if is_joined:
            groups[-1].append(position)
        else:
            groups.append([position])
    return groups


def choose_words(
    tokens: list[int], maskable: list[int], count: int, settings: MaskSettings, choices: Choices
) -> set[int]:
    groups = word_groups(tokens, settings.special, settings.continuation)
    chosen: set[int] = set()
    for i in range(len(groups)):
        if len(chosen) == count:
            break
        other = i + choices.integer(POSITION, i, len(groups) - i)
        groups[i], groups[other] = groups[other], groups[i]
        if len(chosen) + len(groups[i]) <= count:
            chosen.update(groups[i])
    return chosen
