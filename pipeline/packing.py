"""Packed sentences, as RoBERTa's FULL-SENTENCES and DOC-SENTENCES make its training rows.

Legend: D documents, S sentences, N instances, P spans.

Sources: Liu et al. 2019, section 4.2; fairseq `sample_break_mode` complete and complete_doc.
Differs from fairseq: a sentence longer than an instance never makes an over-long row; a pass
packs all documents that have this pass, in id order, and its last partial block is kept.
"""

from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.config import LongSentences
from clozemill.pipeline.instances import Corpus, Instances
from clozemill.pipeline.jit import kernel, njit

LONG_SENTENCES = get_args(LongSentences)
"""What becomes of a sentence longer than an instance; a rule holds the place in this tuple."""

_TRUNCATE = 1
_DROP = 2
_NUM_OUTER_SPECIALS = 2


class PackRule(NamedTuple):
    """How sentences are packed."""

    max_seq_length: int
    """Longest instance in tokens, with its specials."""

    is_document_bound: bool
    """Whether a document's end closes the block (`roberta-doc`)."""

    long_sentences: int
    """Place in `LONG_SENTENCES`."""


class PackLoss(NamedTuple):
    """What long sentences cost, over all passes.

    Tokens of all documents, times their passes, = tokens of all spans + truncated + dropped.
    """

    num_split_sentences: int
    """Sentences that were spread over several instances; no token is lost."""
    num_truncated_sentences: int
    num_truncated_tokens: int
    num_dropped_sentences: int
    num_dropped_tokens: int


_SPLIT_SENTENCES = 0
_TRUNCATED_SENTENCES = 1
_TRUNCATED_TOKENS = 2
_DROPPED_SENTENCES = 3
_DROPPED_TOKENS = 4


class _Output(NamedTuple):
    """Where blocks are written, and the open block; each count is an array of one."""

    instances: Instances
    num_instances: NDArray[np.int64]
    """Closed blocks so far; those beyond the room in `instances` are only counted."""
    num_spans: NDArray[np.int64]
    """Spans so far, those of the open block included."""
    used: NDArray[np.int64]
    """Tokens in the open block, with the separators inside it."""
    is_span_open: NDArray[np.bool_]
    """Whether the next sentence of the document would continue the last span."""
    loss: NDArray[np.int64]
    """The fields of `PackLoss`, in its order."""


class _Piece(NamedTuple):
    """A sentence, or as much of a long one as fills an instance."""

    pass_number: int
    document: int
    sentence: int
    """Counted within the document."""
    length: int
    cut_front: int
    cut_back: int


def pack_sentences(corpus: Corpus, rule: PackRule) -> tuple[Instances, PackLoss]:
    """Return blocks of consecutive sentences, by pass, and what did not fit into any.

    Sentences are added in order while they fit. A document that begins inside a block starts a
    new span and costs one separator; so does the text after a dropped sentence.
    """
    count = _empty_output(0, 0)
    _fill_blocks(corpus, rule, count)
    output = _empty_output(int(count.num_instances[0]), int(count.num_spans[0]))
    _fill_blocks(corpus, rule, output)
    return output.instances, PackLoss(*(int(value) for value in output.loss))


def _empty_output(num_instances: int, num_spans: int) -> _Output:
    instances = Instances(
        pass_number=np.empty(num_instances, np.int64),
        next_sentence_label=np.full(num_instances, -1, np.int8),
        num_chunk_sentences=np.zeros(num_instances, np.int64),
        span_starts=np.zeros(num_instances + 1, np.int64),
        span_document=np.empty(num_spans, np.int64),
        span_first_sentence=np.empty(num_spans, np.int64),
        span_num_sentences=np.empty(num_spans, np.int64),
        span_cut_front=np.empty(num_spans, np.int64),
        span_cut_back=np.empty(num_spans, np.int64),
    )
    return _Output(
        instances=instances,
        num_instances=np.zeros(1, np.int64),
        num_spans=np.zeros(1, np.int64),
        used=np.zeros(1, np.int64),
        is_span_open=np.zeros(1, np.bool_),
        loss=np.zeros(len(PackLoss._fields), np.int64),
    )


@kernel
def _fill_blocks(corpus: Corpus, rule: PackRule, out: _Output) -> None:
    """Pack every pass; write as many blocks and spans as `out` has room for."""
    num_passes = 0
    for document in range(corpus.num_passes.size):
        num_passes = max(num_passes, corpus.num_passes[document])
    for pass_number in range(num_passes):
        for document in range(corpus.num_passes.size):
            if pass_number < corpus.num_passes[document]:
                out.is_span_open[0] = False
                _pack_document(corpus, rule, out, document, pass_number)
                if rule.is_document_bound:
                    _close_block(out, pass_number)
        _close_block(out, pass_number)


@njit
def _pack_document(
    corpus: Corpus, rule: PackRule, out: _Output, document: int, pass_number: int
) -> None:
    room = rule.max_seq_length - _NUM_OUTER_SPECIALS
    first = corpus.document_starts[document]
    for sentence in range(first, corpus.document_starts[document + 1]):
        length = corpus.sentence_starts[sentence + 1] - corpus.sentence_starts[sentence]
        kept = length
        if length > room:
            kept = _kept_tokens(rule, out, length, room)
        for front in range(0, kept, room):
            size = min(room, kept - front)
            back = length - front - size
            piece = _Piece(pass_number, document, sentence - first, size, front, back)
            _add_piece(out, piece, room)
        if kept == 0:
            out.is_span_open[0] = False


@njit
def _kept_tokens(rule: PackRule, out: _Output, length: int, room: int) -> int:
    """Return how many tokens of a long sentence are kept, and count what that costs."""
    if rule.long_sentences == _DROP:
        out.loss[_DROPPED_SENTENCES] += 1
        out.loss[_DROPPED_TOKENS] += length
        return 0
    if rule.long_sentences == _TRUNCATE:
        out.loss[_TRUNCATED_SENTENCES] += 1
        out.loss[_TRUNCATED_TOKENS] += length - room
        return room
    out.loss[_SPLIT_SENTENCES] += 1
    return length


@njit
def _add_piece(out: _Output, piece: _Piece, room: int) -> None:
    """Add to the open block if it fits, else to a new one."""
    num_separators = 1 if out.used[0] > 0 and not out.is_span_open[0] else 0
    if out.used[0] > 0 and out.used[0] + num_separators + piece.length > room:
        _close_block(out, piece.pass_number)
        num_separators = 0
    is_new_span = not out.is_span_open[0]
    out.is_span_open[0] = True
    out.used[0] += num_separators + piece.length
    out.num_spans[0] += 1 if is_new_span else 0
    span = out.num_spans[0] - 1
    if span >= out.instances.span_document.size:
        return
    if is_new_span:
        out.instances.span_document[span] = piece.document
        out.instances.span_first_sentence[span] = piece.sentence
        out.instances.span_num_sentences[span] = 0
        out.instances.span_cut_front[span] = piece.cut_front
    out.instances.span_num_sentences[span] += 1
    out.instances.span_cut_back[span] = piece.cut_back


@njit
def _close_block(out: _Output, pass_number: int) -> None:
    """End the open block, if it holds anything."""
    if out.used[0] == 0:
        return
    instance = out.num_instances[0]
    out.num_instances[0] += 1
    out.used[0] = 0
    out.is_span_open[0] = False
    if instance < out.instances.pass_number.size:
        out.instances.pass_number[instance] = pass_number
        out.instances.span_starts[instance + 1] = out.num_spans[0]
