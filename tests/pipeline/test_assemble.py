import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.reference import Lengths, corpus_of

from clozemill.pipeline.assemble import assemble, span_tokens
from clozemill.pipeline.instances import Corpus, Instances
from clozemill.pipeline.packing import PackRule, pack_sentences
from clozemill.pipeline.pairs import PairRule, draw_pairs

CLS, SEP = 1, 2


def numbered(documents: Lengths) -> Corpus:
    """Tokens 100, 101, 102, ... in order, so that each row shows where it came from."""
    corpus = corpus_of(documents)
    return corpus._replace(tokens=np.arange(100, 100 + len(corpus.tokens)).astype(np.uint16))


def rows_of(ids: np.ndarray, starts: np.ndarray) -> list[list[int]]:
    return [ids[a:b].tolist() for a, b in zip(starts, starts[1:], strict=False)]


def two_instances() -> Instances:
    """Document 0 has sentences of 2, 3 and 4 tokens (100-108), document 1 of 5 (109-113)."""
    return Instances(
        pass_number=np.zeros(2, np.int64),
        next_sentence_label=np.array([0, 1], np.int8),
        num_chunk_sentences=np.array([3, 1], np.int64),
        span_starts=np.array([0, 2, 4], np.int64),
        span_document=np.array([0, 0, 0, 1], np.int64),
        span_first_sentence=np.array([0, 1, 2, 0], np.int64),
        span_num_sentences=np.array([1, 2, 1, 1], np.int64),
        span_cut_front=np.array([0, 4, 0, 2], np.int64),
        span_cut_back=np.array([0, 1, 0, 1], np.int64),
    )


def test_rows_hold_specials_and_the_tokens_that_are_not_cut() -> None:
    corpus = numbered([[2, 3, 4], [5]])
    batch = assemble(
        corpus, two_instances(), np.array([1, 0]), cls_id=CLS, sep_id=SEP, has_pairs=True
    )
    assert rows_of(batch.input_ids, batch.starts) == [
        [CLS, 105, 106, 107, 108, SEP, 111, 112, SEP],
        [CLS, 100, 101, SEP, 106, 107, SEP],
    ]
    assert batch.segment_b_start.tolist() == [6, 4]
    assert batch.input_ids.dtype == np.uint16
    assert span_tokens(corpus, two_instances()).tolist() == [2, 2, 4, 2]


def test_without_pairs_there_is_no_b() -> None:
    corpus = numbered([[2, 3, 4], [5]])
    batch = assemble(
        corpus, two_instances(), np.array([0, 1]), cls_id=CLS, sep_id=SEP, has_pairs=False
    )
    assert batch.segment_b_start.tolist() == np.diff(batch.starts).tolist() == [7, 9]


def test_an_empty_order_makes_an_empty_batch() -> None:
    batch = assemble(
        numbered([[2, 3, 4], [5]]),
        two_instances(),
        np.array([], np.int64),
        cls_id=CLS,
        sep_id=SEP,
        has_pairs=True,
    )
    assert len(batch.input_ids) == len(batch.segment_b_start) == 0
    assert batch.starts.tolist() == [0]


def test_wide_token_ids_are_kept() -> None:
    corpus = numbered([[2, 3, 4], [5]])
    wide = corpus._replace(tokens=corpus.tokens.astype(np.uint32) + 100_000)
    batch = assemble(wide, two_instances(), np.arange(2), cls_id=CLS, sep_id=SEP, has_pairs=True)
    assert batch.input_ids.dtype == np.uint32
    assert batch.input_ids[1] == 100_100


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=8), min_size=2, max_size=5),
    st.integers(5, 60),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_rows_are_plain_slices_of_the_corpus(
    documents: Lengths, length: int, has_pairs: bool, rng: object
) -> None:
    corpus = numbered(documents)
    if has_pairs:
        instances, _ = draw_pairs(corpus, PairRule(length, 0.1, False, np.uint64(0)))
    else:
        instances, _ = pack_sentences(corpus, PackRule(length, False, 0))
    order = np.random.default_rng(rng.randrange(99)).permutation(len(instances.pass_number))  # type: ignore[attr-defined]
    batch = assemble(corpus, instances, order, cls_id=CLS, sep_id=SEP, has_pairs=has_pairs)
    expected = []
    for instance in order:
        row = [CLS]
        for span in range(instances.span_starts[instance], instances.span_starts[instance + 1]):
            document = instances.span_document[span]
            first = corpus.document_starts[document] + instances.span_first_sentence[span]
            end = first + instances.span_num_sentences[span]
            tokens = corpus.tokens[corpus.sentence_starts[first] : corpus.sentence_starts[end]]
            front, back = instances.span_cut_front[span], instances.span_cut_back[span]
            row += [*tokens[front : len(tokens) - back].tolist(), SEP]
        expected.append(row)
    assert rows_of(batch.input_ids, batch.starts) == expected
    assert max(np.diff(batch.starts)) <= length
    if has_pairs:
        for row, b_start in zip(expected, batch.segment_b_start, strict=True):
            assert row[b_start - 1] == SEP
            assert row.count(SEP) == 2
            assert b_start < len(row)
