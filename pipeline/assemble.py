"""From spans of sentences to the token ids a model reads."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.instances import Corpus, Instances, TokenBatch
from clozemill.pipeline.jit import kernel


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
    lengths = span_tokens(corpus, instances) + 1
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    order = np.ascontiguousarray(order, dtype=np.int64)
    span_starts = instances.span_starts
    instance_lengths = 1 + ends[span_starts[order + 1]] - ends[span_starts[order]]
    starts = np.zeros(len(order) + 1, np.int64)
    np.cumsum(instance_lengths, out=starts[1:])
    segment_b_start = 1 + lengths[span_starts[order]] if has_pairs else instance_lengths
    input_ids: NDArray[Any] = np.empty(int(starts[-1]), corpus.tokens.dtype)
    specials = np.array([cls_id, sep_id], corpus.tokens.dtype)
    _copy_tokens(corpus, instances, order, specials, input_ids)
    return TokenBatch(input_ids, starts, segment_b_start)


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
            first = (
                corpus.document_starts[instances.span_document[span]]
                + instances.span_first_sentence[span]
            )
            end = first + instances.span_num_sentences[span]
            begin_token = corpus.sentence_starts[first] + instances.span_cut_front[span]
            end_token = corpus.sentence_starts[end] - instances.span_cut_back[span]
            for token in range(begin_token, end_token):
                out[place] = corpus.tokens[token]
                place += 1
            out[place] = specials[1]
            place += 1
