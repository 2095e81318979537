"""From spans of sentences to the token ids a model reads."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.instances import Corpus, Instances, TokenBatch
from clozemill.pipeline.jit import kernel, njit


def span_tokens(corpus: Corpus, instances: Instances) -> NDArray[np.int64]:
    """Return int64 (P,): the tokens of each span that are in its instance.

    Without specials; `span_cut_front` and `span_cut_back` are what is missing.
    """
    first = corpus.document_starts[instances.span_document] + instances.span_first_sentence
    end = first + instances.span_num_sentences
    whole: NDArray[np.int64] = corpus.sentence_starts[end] - corpus.sentence_starts[first]
    return whole - instances.span_cut_front - instances.span_cut_back


def assemble(
    corpus: Corpus,
    instances: Instances,
    order: NDArray[np.int64],
    *,
    cls_id: int,
    sep_id: int,
    has_pairs: bool,
) -> TokenBatch:
    """Return `[CLS] span [SEP] span [SEP] ...` of the instances that `order` names, in its order.

    With `has_pairs` the second span is B; otherwise there is no B and `segment_b_start` is the
    length of the instance.
    """
    order = np.ascontiguousarray(order, dtype=np.int64)
    starts = np.zeros(len(order) + 1, np.int64)
    segment_b_start = np.empty(len(order), np.int64)
    _measure(corpus, instances, order, starts, segment_b_start)
    if not has_pairs:
        segment_b_start = np.diff(starts)
    input_ids: NDArray[Any] = np.empty(int(starts[-1]), corpus.tokens.dtype)
    specials = np.array([cls_id, sep_id], corpus.tokens.dtype)
    _copy_tokens(corpus, instances, order, specials, input_ids)
    return TokenBatch(input_ids, starts, segment_b_start)


@kernel
def _measure(
    corpus: Corpus,
    instances: Instances,
    order: NDArray[np.int64],
    starts: NDArray[np.int64],
    segment_b_start: NDArray[np.int64],
) -> None:
    """Set where each row starts, and in `segment_b_start` where its second span would."""
    for row in range(order.size):
        place = 1
        first_span = instances.span_starts[order[row]]
        for span in range(first_span, instances.span_starts[order[row] + 1]):
            begin, end = _token_range(corpus, instances, span)
            place += end - begin + 1
            if span == first_span:
                segment_b_start[row] = place
        starts[row + 1] = starts[row] + place


@njit
def _token_range(corpus: Corpus, instances: Instances, span: int) -> tuple[int, int]:
    """Return where the tokens of a span begin and end in the corpus."""
    first = (
        corpus.document_starts[instances.span_document[span]] + instances.span_first_sentence[span]
    )
    end = first + instances.span_num_sentences[span]
    return (
        corpus.sentence_starts[first] + instances.span_cut_front[span],
        corpus.sentence_starts[end] - instances.span_cut_back[span],
    )


@kernel
def _copy_tokens(
    corpus: Corpus,
    instances: Instances,
    order: NDArray[np.int64],
    specials: NDArray[Any],
    out: NDArray[Any],
) -> None:
    place = 0
    for instance in order:
        out[place] = specials[0]
        place += 1
        for span in range(instances.span_starts[instance], instances.span_starts[instance + 1]):
            begin, end = _token_range(corpus, instances, span)
            for token in range(begin, end):
                out[place] = corpus.tokens[token]
                place += 1
            out[place] = specials[1]
            place += 1
