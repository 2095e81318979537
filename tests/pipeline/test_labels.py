import random
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from tests.pipeline.reference import corpus_of

from clozemill.pipeline.labels import expected_labels
from clozemill.pipeline.pairs import PairRule, draw_pairs


def expect(sentences: list[int], target: int) -> tuple[Fraction, Fraction]:
    """Return expected random and next instances, from the start of a document, in fractions."""

    @cache
    def from_sentence(i: int) -> tuple[Fraction, Fraction]:
        if i == len(sentences):
            return Fraction(0), Fraction(0)
        end = i + 1
        while end < len(sentences) and sum(sentences[i:end]) < target:
            end += 1
        k = end - i
        if k == 1:
            later = from_sentence(i + 1)
            return later[0] + 1, later[1]
        outcomes = [(Fraction(1, 2), (0, 1), end)]
        outcomes += [(Fraction(1, 2 * (k - 1)), (1, 0), i + a) for a in range(1, k)]
        return (
            sum((p * (now[0] + from_sentence(j)[0]) for p, now, j in outcomes), Fraction(0)),
            sum((p * (now[1] + from_sentence(j)[1]) for p, now, j in outcomes), Fraction(0)),
        )

    return from_sentence(0)


@pytest.mark.parametrize(
    ("num_sentences", "share"),
    [
        (1, 1.000),
        (2, 0.667),
        (3, 0.615),
        (4, 0.593),
        (5, 0.579),
        (10, 0.551),
        (20, 0.534),
        (50, 0.521),
        (100, 0.515),
    ],
)
def test_share_of_random_pairs_of_one_chunk(num_sentences: int, share: float) -> None:
    corpus = corpus_of([[1] * num_sentences])
    expected = expected_labels(corpus, np.array([125], np.int64))
    assert round(expected[0, 0] / expected[0].sum(), 3) == share


def test_expectation_equals_exact_fractions() -> None:
    rng = random.Random(1)
    documents = [[rng.randrange(1, 30) for _ in range(rng.randrange(1, 40))] for _ in range(30)]
    targets = np.array([rng.choice([2, 17, 60, 125]) for _ in documents], np.int64)
    expected = expected_labels(corpus_of(documents), targets)
    for document, target, row in zip(documents, targets, expected, strict=True):
        assert row == pytest.approx([float(value) for value in expect(document, int(target))])


def test_passes_add_up_at_their_own_targets() -> None:
    documents = [[10] * 20, [3], [7] * 9]
    corpus = corpus_of(documents)._replace(num_passes=np.array([2, 0, 1], np.int64))
    expected = expected_labels(corpus, np.array([125, 30, 50], np.int64))
    by_hand = [expect(documents[0], 125), expect(documents[0], 30), expect(documents[2], 50)]
    assert expected[0] == pytest.approx([float(by_hand[0][i] + by_hand[1][i]) for i in (0, 1)])
    assert expected[1].tolist() == [0.0, 0.0]
    assert expected[2] == pytest.approx([float(value) for value in by_hand[2]])


def test_no_documents_have_no_expectation() -> None:
    assert expected_labels(corpus_of([]), np.array([], np.int64)).shape == (0, 2)


def test_drawn_labels_agree_with_the_expectation() -> None:
    """Each document 4,000 times, targets as drawn: mean of drawn - expected within 5 sigma."""
    documents = [[1], [60, 60], [20] * 9, [5] * 80, [200, 3, 90, 7]]
    corpus = corpus_of(documents, num_passes=4_000)
    instances, targets = draw_pairs(corpus, PairRule(128, 0.1, False, np.uint64(9)))
    document = instances.span_document[instances.span_starts[:-1]]
    index = document * 4_000 + instances.pass_number
    expected = expected_labels(corpus._replace(num_passes=np.full(5, 4_000, np.int64)), targets)
    for label, column in ((1, 0), (0, 1)):
        drawn = np.bincount(index[instances.next_sentence_label == label], minlength=20_000)
        by_document = drawn.reshape(5, 4_000)
        sigma = by_document.std(axis=1) * np.sqrt(4_000)
        assert (np.abs(by_document.sum(axis=1) - expected[:, column]) <= 5 * sigma + 1e-6).all()
