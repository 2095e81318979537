"""Sentence pairs for next-sentence prediction, as BERT draws them.

Legend: D documents, S sentences, T tokens, N instances, P spans.

Source: google-research/bert `create_pretraining_data.py:223-335` and `418-433`.
Differs from BERT: every draw is a function of (seed, document id, pass), so the pairs of a
document do not depend on the documents before it; a random B comes from another document of
the same bucket with another text, always; tokens are cut by a closed form with the same
distribution.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline import draws
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.instances import Corpus, Instances
from clozemill.pipeline.jit import count_ones, kernel, njit

NUM_PAIR_SPECIALS = 3
"""`[CLS]` and two `[SEP]`."""

IS_NEXT = 0
IS_RANDOM = 1


class PairRule(NamedTuple):
    """How pairs are drawn."""

    max_seq_length: int
    """Longest instance in tokens, with its three specials."""

    short_seq_prob: float
    """Share of documents, per pass, that aim for a random shorter length."""

    is_balanced: bool
    """Whether labels are steered towards one half (`nsp_balance = "exact"`)."""

    seed: np.uint64
    """0 .. 2^64 - 1."""


class _Copies(NamedTuple):
    """Which documents have the text of which: copies stand side by side here, in id order."""

    first: NDArray[np.int64]
    """(D,): where the copies of each document's text start in `gaps`, itself among them."""
    stop: NDArray[np.int64]
    """(D,): where they end."""
    gaps: NDArray[np.int64]
    """(D,): how many documents of other texts stand before each copy in the corpus."""


class _Walk(NamedTuple):
    """One document in one pass, and the streams it draws from."""

    document: int
    gaps: NDArray[np.int64]
    """(copies of its text,): see `_Copies`."""
    pass_number: int
    target: int
    split_key: np.uint64
    label_key: np.uint64
    partner_key: np.uint64
    start_key: np.uint64
    cut_a_key: np.uint64
    cut_b_key: np.uint64


class _Segment(NamedTuple):
    """A run of sentences of one document; places count in the whole corpus."""

    document: int
    start: int
    end: int


class _Pair(NamedTuple):
    """The `ordinal`-th instance of a walk, before its label and cuts."""

    ordinal: int
    num_chunk_sentences: int
    is_random: bool
    a: _Segment
    b: _Segment


class _Output(NamedTuple):
    """Where pairs are written, and what carries over from one document to the next."""

    instances: Instances
    num_instances: NDArray[np.int64]
    """(1,): instances so far."""
    balance: NDArray[np.int64]
    """(passes,): random minus next instances so far."""


def draw_pairs(corpus: Corpus, rule: PairRule) -> tuple[Instances, NDArray[np.int64]]:
    """Return the pairs of all documents, by document, pass and place in the document.

    Also returns int64 (sum of num_passes,): the target length that each document aimed for in
    each pass, in document order. The partner of a random pair is uniform over the documents
    of `corpus` with another text, whatever their number of passes.

    Raises:
        ConfigError: There is one text only, so no B can come from another one.
    """
    copies = _find_copies(corpus.text_groups)
    num_documents = len(corpus.text_groups)
    if (copies.stop - copies.first == num_documents).any():
        what = "1 document" if num_documents == 1 else f"{num_documents} copies of 1 document"
        raise ConfigError(
            f"recipe bert cannot draw random pairs from {what}: B must come from another one; "
            "give at least 2 documents (is each document marked as such?), or use recipe "
            "roberta-full."
        )
    rule = rule._replace(seed=np.uint64(rule.seed))
    targets = np.empty(int(corpus.num_passes.sum()), np.int64)
    # Each instance uses up a sentence at least. Memory that is not written to is not taken.
    most = int((np.diff(corpus.document_starts) * corpus.num_passes).sum())
    output = _Output(
        _empty_instances(most),
        np.zeros(1, np.int64),
        np.zeros(int(corpus.num_passes.max(initial=0)), np.int64),
    )
    num_instances = _fill_pairs(corpus, rule, copies, output, targets)
    return _first_instances(output.instances, num_instances), targets


def _find_copies(text_groups: NDArray[np.int64]) -> _Copies:
    order = np.argsort(text_groups, kind="stable")
    groups = text_groups[order]
    num_copies_before = np.arange(len(order)) - np.searchsorted(groups, groups)
    return _Copies(
        first=np.searchsorted(groups, text_groups),
        stop=np.searchsorted(groups, text_groups, side="right"),
        gaps=order - num_copies_before,
    )


def _empty_instances(num_instances: int) -> Instances:
    return Instances(
        pass_number=np.empty(num_instances, np.int64),
        next_sentence_label=np.empty(num_instances, np.int8),
        num_chunk_sentences=np.empty(num_instances, np.int64),
        span_starts=np.arange(0, 2 * num_instances + 1, 2, dtype=np.int64),
        span_document=np.empty(2 * num_instances, np.int64),
        span_first_sentence=np.empty(2 * num_instances, np.int64),
        span_num_sentences=np.empty(2 * num_instances, np.int64),
        span_cut_front=np.empty(2 * num_instances, np.int64),
        span_cut_back=np.empty(2 * num_instances, np.int64),
    )


def _first_instances(instances: Instances, count: int) -> Instances:
    ends = {name: 2 * count for name in Instances._fields if name.startswith("span_")}
    ends["span_starts"] = count + 1
    return Instances(
        *(values[: ends.get(name, count)] for name, values in instances._asdict().items())
    )


@kernel
def _fill_pairs(
    corpus: Corpus, rule: PairRule, copies: _Copies, out: _Output, targets: NDArray[np.int64]
) -> int:
    """Draw and write all pairs; return how many there are."""
    num_targets = 0
    for document in range(corpus.document_starts.size - 1):
        for pass_number in range(corpus.num_passes[document]):
            walk = _start_walk(corpus, rule, copies, document, pass_number)
            targets[num_targets] = walk.target
            num_targets += 1
            _walk_document(corpus, rule, walk, out)
    return int(out.num_instances[0])


@njit
def _start_walk(
    corpus: Corpus, rule: PairRule, copies: _Copies, document: int, pass_number: int
) -> _Walk:
    low, high = corpus.document_ids[document]
    identity = draws.identity_key(rule.seed, low, high)
    target_key = draws.stream_key(identity, pass_number, draws.PAIR_TARGET)
    target = rule.max_seq_length - NUM_PAIR_SPECIALS
    if draws.uniform(target_key, 0) < rule.short_seq_prob:
        target = 2 + draws.bounded(target_key, 1, target - 1)
    return _Walk(
        document,
        copies.gaps[copies.first[document] : copies.stop[document]],
        pass_number,
        target,
        draws.stream_key(identity, pass_number, draws.PAIR_SPLIT),
        draws.stream_key(identity, pass_number, draws.PAIR_LABEL),
        draws.stream_key(identity, pass_number, draws.PAIR_PARTNER),
        draws.stream_key(identity, pass_number, draws.PAIR_START),
        draws.stream_key(identity, pass_number, draws.PAIR_CUT_A),
        draws.stream_key(identity, pass_number, draws.PAIR_CUT_B),
    )


@njit
def _walk_document(corpus: Corpus, rule: PairRule, walk: _Walk, out: _Output) -> None:
    """Cut one document into pairs."""
    start = corpus.document_starts[walk.document]
    document_end = corpus.document_starts[walk.document + 1]
    ordinal = 0
    while start < document_end:
        chunk_end = find_chunk_end(corpus.sentence_starts, start, document_end, walk.target)
        num_sentences = chunk_end - start
        a_end = start + 1
        if num_sentences >= 2:
            a_end += draws.bounded(walk.split_key, ordinal, num_sentences - 1)
        a = _Segment(walk.document, start, a_end)
        is_random = _draw_label(rule, walk, out, ordinal, num_sentences)
        if is_random:
            b = _draw_random_segment(corpus, walk, ordinal, a)
        else:
            b = _Segment(walk.document, a_end, chunk_end)
        _write_pair(corpus, rule, walk, out, _Pair(ordinal, num_sentences, is_random, a, b))
        # What a random B displaced is put back: the next chunk starts right after A.
        start = a_end if is_random else chunk_end
        ordinal += 1


@njit
def find_chunk_end(
    sentence_starts: NDArray[np.int64], start: int, document_end: int, target: int
) -> int:
    """Return the end of the chunk at `start`: `target` tokens reached, or the document over."""
    end = start + 1
    while end < document_end and sentence_starts[end] - sentence_starts[start] < target:
        end += 1
    return end


@njit
def _draw_label(
    rule: PairRule, walk: _Walk, out: _Output, ordinal: int, num_sentences: int
) -> bool:
    """Return whether B is random; a chunk of one sentence has no next one, so draws no coin."""
    if num_sentences == 1:
        return True
    balance = out.balance[walk.pass_number]
    if rule.is_balanced and balance != 0:
        return bool(balance < 0)
    return draws.uniform(walk.label_key, ordinal) < 0.5


@njit
def _draw_random_segment(corpus: Corpus, walk: _Walk, ordinal: int, a: _Segment) -> _Segment:
    """Return sentences of a document with another text, from a random one on: at least one."""
    starts = corpus.sentence_starts
    wanted = walk.target - (starts[a.end] - starts[a.start])
    num_others = corpus.document_starts.size - 1 - walk.gaps.size
    number = draws.bounded(walk.partner_key, ordinal, num_others)
    # From the number among the others to the place in the corpus: past the copies before it.
    partner = number + int(np.searchsorted(walk.gaps, number, side="right"))
    first = corpus.document_starts[partner]
    partner_end = corpus.document_starts[partner + 1]
    start = first + draws.bounded(walk.start_key, ordinal, partner_end - first)
    return _Segment(partner, start, find_chunk_end(starts, start, partner_end, wanted))


@njit
def _write_pair(corpus: Corpus, rule: PairRule, walk: _Walk, out: _Output, pair: _Pair) -> None:
    instance = out.num_instances[0]
    out.num_instances[0] += 1
    out.balance[walk.pass_number] += 1 if pair.is_random else -1
    out.instances.pass_number[instance] = walk.pass_number
    out.instances.next_sentence_label[instance] = IS_RANDOM if pair.is_random else IS_NEXT
    out.instances.num_chunk_sentences[instance] = pair.num_chunk_sentences
    starts = corpus.sentence_starts
    cut_a, cut_b = _cut_lengths(
        starts[pair.a.end] - starts[pair.a.start],
        starts[pair.b.end] - starts[pair.b.start],
        rule.max_seq_length - NUM_PAIR_SPECIALS,
    )
    front_a = _draw_front_cut(draws.draw(walk.cut_a_key, pair.ordinal), cut_a)
    front_b = _draw_front_cut(draws.draw(walk.cut_b_key, pair.ordinal), cut_b)
    _write_span(corpus, out, 2 * instance, pair.a, (front_a, cut_a - front_a))
    _write_span(corpus, out, 2 * instance + 1, pair.b, (front_b, cut_b - front_b))


@njit
def _write_span(
    corpus: Corpus, out: _Output, span: int, segment: _Segment, cuts: tuple[int, int]
) -> None:
    first = segment.start - corpus.document_starts[segment.document]
    out.instances.span_document[span] = segment.document
    out.instances.span_first_sentence[span] = first
    out.instances.span_num_sentences[span] = segment.end - segment.start
    out.instances.span_cut_front[span] = cuts[0]
    out.instances.span_cut_back[span] = cuts[1]


def cut_lengths(length_a: int, length_b: int, cap: int) -> tuple[int, int]:
    """Return how many tokens A and B lose so that together they fit into `cap`.

    The closed form of: while too long, the longer side loses a token, B if they are equal
    (`create_pretraining_data.py:418-433`).

    >>> cut_lengths(100, 30, 125), cut_lengths(80, 70, 125), cut_lengths(70, 70, 125)
    ((5, 0), (17, 8), (7, 8))
    """
    over = length_a + length_b - cap
    if over <= 0:
        return 0, 0
    longer_by = abs(length_a - length_b)
    # First the longer side alone, until both are equal; then B and A in turn.
    first = min(over, longer_by)
    rest = over - first
    cut_a = first if length_a > length_b else 0
    cut_b = first - cut_a
    return cut_a + rest // 2, cut_b + rest - rest // 2


_cut_lengths = njit(cut_lengths)


@njit
def _draw_front_cut(cut_key: np.uint64, cut: int) -> int:
    """Return how many of `cut` tokens go from the front: one bit, one fair coin, for each."""
    num_front = 0
    for i in range(cut // 64):
        num_front += count_ones(draws.draw(cut_key, i))
    rest = cut % 64
    if rest > 0:
        kept_bits = (np.uint64(1) << np.uint64(rest)) - np.uint64(1)
        num_front += count_ones(draws.draw(cut_key, cut // 64) & kept_bits)
    return num_front
