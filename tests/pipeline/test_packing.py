import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.reference import Lengths, Segment, corpus_of, segments_of

from clozemill.pipeline.instances import Corpus, Instances
from clozemill.pipeline.packing import LONG_SENTENCES, PackLoss, PackRule, pack_sentences

FULL, DOC = False, True
NO_LOSS = PackLoss(0, 0, 0, 0, 0)


def blocks_of(instances: Instances) -> list[list[Segment]]:
    spans = segments_of(instances)
    starts = instances.span_starts.tolist()
    return [spans[begin:end] for begin, end in zip(starts, starts[1:], strict=False)]


def pack(
    documents: Lengths, length: int, is_document_bound: bool = FULL, long: str = "split"
) -> tuple[list[list[Segment]], PackLoss]:
    rule = PackRule(length, is_document_bound, LONG_SENTENCES.index(long))
    instances, loss = pack_sentences(corpus_of(documents), rule)
    assert (instances.next_sentence_label == -1).all()
    assert (instances.num_chunk_sentences == 0).all()
    return blocks_of(instances), loss


def test_full_sentences_fill_a_block_across_documents() -> None:
    """Room 10. 4 + 3 fit, a border costs 1 and 2 more fill it; 5 begins the next block."""
    blocks, loss = pack([[4, 3], [2, 5], [4], [1]], 12)
    assert blocks == [
        [Segment(0, 0, 2), Segment(1, 0, 1)],
        [Segment(1, 1, 1), Segment(2, 0, 1)],
        [Segment(3, 0, 1)],
    ]
    assert loss == NO_LOSS


def test_a_separator_that_does_not_fit_closes_the_block() -> None:
    """Room 10: 7 and 3 fit within a document, but not across a border."""
    assert pack([[7, 3]], 12)[0] == [[Segment(0, 0, 2)]]
    assert pack([[7], [3]], 12)[0] == [[Segment(0, 0, 1)], [Segment(1, 0, 1)]]
    assert pack([[7], [2]], 12)[0] == [[Segment(0, 0, 1), Segment(1, 0, 1)]]


def test_doc_sentences_close_the_block_at_a_documents_end() -> None:
    blocks, _ = pack([[4, 3], [2, 5], [4, 8]], 12, DOC)
    assert blocks == [
        [Segment(0, 0, 2)],
        [Segment(1, 0, 2)],
        [Segment(2, 0, 1)],
        [Segment(2, 1, 1)],
    ]


def test_a_long_sentence_is_split_and_its_tail_goes_on() -> None:
    """Room 10: 2 | 10 of 23 | 10 of 23 | the last 3, and 6 more | 2."""
    blocks, loss = pack([[2, 23, 6, 2]], 12)
    assert blocks == [
        [Segment(0, 0, 1)],
        [Segment(0, 1, 1, 0, 13)],
        [Segment(0, 1, 1, 10, 3)],
        [Segment(0, 1, 2, 20, 0)],
        [Segment(0, 3, 1)],
    ]
    assert loss == NO_LOSS._replace(num_split_sentences=1)


def test_a_sentence_of_exactly_the_room_is_not_long() -> None:
    for long in LONG_SENTENCES:
        blocks, loss = pack([[10, 20]], 12, long=long)
        assert blocks[0] == [Segment(0, 0, 1)]
        assert sum(loss) > 0
    assert pack([[10, 20]], 12)[0][1:] == [[Segment(0, 1, 1, 0, 10)], [Segment(0, 1, 1, 10, 0)]]


def test_a_long_sentence_is_truncated_and_counted() -> None:
    blocks, loss = pack([[2, 23, 6]], 12, long="truncate")
    assert blocks == [[Segment(0, 0, 1)], [Segment(0, 1, 1, 0, 13)], [Segment(0, 2, 1)]]
    assert loss == NO_LOSS._replace(num_truncated_sentences=1, num_truncated_tokens=13)


def test_a_long_sentence_is_dropped_and_leaves_a_border() -> None:
    """What stood before and after it is not one run: a separator (1) keeps them apart."""
    blocks, loss = pack([[2, 23, 6], [1]], 12, long="drop")
    assert blocks == [[Segment(0, 0, 1), Segment(0, 2, 1)], [Segment(1, 0, 1)]]
    assert loss == NO_LOSS._replace(num_dropped_sentences=1, num_dropped_tokens=23)
    assert pack([[23]], 12, long="drop")[0] == []


def test_each_pass_packs_the_documents_that_have_it() -> None:
    corpus = corpus_of([[4], [4], [4]])._replace(num_passes=np.array([1, 3, 0], np.int64))
    instances, _ = pack_sentences(corpus, PackRule(12, FULL, 0))
    assert blocks_of(instances) == [
        [Segment(0, 0, 1), Segment(1, 0, 1)],
        [Segment(1, 0, 1)],
        [Segment(1, 0, 1)],
    ]
    assert instances.pass_number.tolist() == [0, 1, 2]


def test_no_documents_make_no_blocks() -> None:
    assert pack([], 12) == ([], NO_LOSS)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=10), min_size=1, max_size=6),
    st.integers(5, 40),
    st.booleans(),
    st.sampled_from(LONG_SENTENCES),
)
def test_every_token_is_packed_once_in_order_or_counted(
    documents: Lengths, length: int, is_document_bound: bool, long: str
) -> None:
    blocks, loss = pack(documents, length, is_document_bound, long)
    starts = [[sum(document[:i]) for i in range(len(document) + 1)] for document in documents]
    seen: list[tuple[int, int]] = []
    sizes = []
    for block in blocks:
        size = 1
        for span in block:
            begin = starts[span.document][span.first_sentence] + span.cut_front
            end_sentence = span.first_sentence + span.num_sentences
            end = starts[span.document][end_sentence] - span.cut_back
            assert begin < end
            seen += [(span.document, token) for token in range(begin, end)]
            size += end - begin + 1
        assert size <= length
        assert not is_document_bound or len({span.document for span in block}) == 1
        sizes.append(size)
    assert seen == sorted(set(seen))
    lost = loss.num_truncated_tokens + loss.num_dropped_tokens
    assert len(seen) + lost == sum(map(sum, documents))
    assert long != "split" or lost == 0
    assert_greedy(documents, blocks, sizes, length, is_document_bound)


def assert_greedy(
    documents: Lengths,
    blocks: list[list[Segment]],
    sizes: list[int],
    length: int,
    is_document_bound: bool,
) -> None:
    """No block was closed although the first sentence of the next one would have fitted."""
    for size, block, after in zip(sizes, blocks, blocks[1:], strict=False):
        head, tail = after[0], block[-1]
        if head.document != tail.document and is_document_bound:
            continue
        is_gap = head.first_sentence > tail.first_sentence + tail.num_sentences
        is_border = head.document != tail.document or is_gap
        first = documents[head.document][head.first_sentence] - head.cut_front
        piece = min(first, length - 2)
        assert size + piece + int(is_border) > length


def test_rows_of_roberta_are_nearly_full_on_a_large_sample() -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(5, 50, rng.integers(1, 80)).tolist() for _ in range(400)]
    corpus: Corpus = corpus_of(documents)
    instances, loss = pack_sentences(corpus, PackRule(512, FULL, 0))
    assert loss == NO_LOSS
    mean = corpus.sentence_starts[-1] / len(instances.pass_number)
    assert 470 < mean <= 510
