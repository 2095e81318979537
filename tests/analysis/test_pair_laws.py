"""The laws that questions about pairs and documents compare with, against exact computation."""

import itertools
from fractions import Fraction
from functools import cache

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats
from tests.pipeline.reference import corpus_of

from clozemill.analysis.questions import all_questions
from clozemill.analysis.verdicts import binomial_p_values
from clozemill.pipeline.labels import expected_labels
from clozemill.pipeline.pairs import PairRule, draw_pairs

LEVELS = (0.05, 1e-3, 1e-6, 1e-8)


@cache
def coins_of_chunk(num_sentences: int) -> dict[tuple[int, int], Fraction]:
    """Return the exact law of (random, next) over the coins of a document of one long chunk."""
    if num_sentences < 2:
        return {(0, 0): Fraction(1)}
    law = {(0, 1): Fraction(1, 2)}
    for a_end in range(1, num_sentences):
        for (num_random, num_next), prob in coins_of_chunk(num_sentences - a_end).items():
            key = (num_random + 1, num_next)
            law[key] = law.get(key, Fraction(0)) + prob / (2 * (num_sentences - 1))
    return law


def coins_of_documents(num_sentences: list[int]) -> NDArray[np.float64]:
    """Return the law of all documents' coins together: entry (r, n) for r random, n next."""
    total = np.ones((1, 1))
    for count in num_sentences:
        law = coins_of_chunk(count)
        one = np.zeros((max(r for r, _ in law) + 1, 2))
        for key, prob in law.items():
            one[key] = float(prob)
        total = signal.convolve2d(total, one)
    return total


@pytest.mark.parametrize(
    "num_sentences", [[2] * 50, [3] * 120, [8] * 60, [30] * 40, [2, 3, 5, 9, 17] * 12]
)
def test_coins_that_follow_from_coins_are_in_no_tail_more_often_than_binomial_ones(
    num_sentences: list[int],
) -> None:
    law = coins_of_documents(num_sentences)
    assert law.sum() == pytest.approx(1.0)
    num_random, num_next = np.indices(law.shape)
    coins = stats.binom(num_random + num_next, 0.5)
    lower, upper = coins.cdf(num_random), coins.sf(num_random - 1)
    for level, tail in itertools.product(LEVELS, (lower, upper)):
        assert 0.0 < law[tail <= level / 2].sum() <= level / 2


def test_drawn_labels_are_called_unfair_as_rarely_as_stated_and_deviate_by_their_error() -> None:
    """2,000 seeds of pairs from 60 documents; bounds that a true law crosses once in a million."""
    rng = np.random.default_rng(0)
    corpus = corpus_of([rng.integers(3, 25, rng.integers(1, 30)).tolist() for _ in range(60)])
    coins, deviations = np.empty((2_000, 2)), np.empty(2_000)
    for seed in range(2_000):
        drawn, targets = draw_pairs(corpus, PairRule(64, 0.1, False, np.uint64(seed)))
        is_random = drawn.next_sentence_label == 1
        is_coin = drawn.num_chunk_sentences >= 2
        coins[seed] = (is_random & is_coin).sum(), is_coin.sum()
        document = drawn.span_document[drawn.span_starts[:-1]]
        counts = [np.bincount(document[flags], minlength=60) for flags in (is_random, ~is_random)]
        expected = expected_labels(corpus, targets)
        deviations[seed] = share_deviation(np.stack(counts, axis=1), expected)
    half = np.full(2_000, 0.5)
    p_values = binomial_p_values(coins[:, 0], trials=coins[:, 1], probability=half)
    assert coins[:, 1].mean() > 200
    for level in (0.05, 0.01):
        assert 0 < (p_values < level).sum() <= stats.binom.isf(1e-6, 2_000, level)
    # The z of label_share is about standard normal.
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], 2_000)
    assert low < (deviations**2).sum() < high


def share_deviation(counts: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Return by how many standard errors the share of random pairs is off: of label_share.sql.

    Args:
        counts: (D, 2): random and next pairs of each document.
        expected: (D, 2): their expectations.
    """
    share = expected[:, 0].sum() / expected.sum()
    own = (counts - expected) @ [1 - share, -share]
    error = np.sqrt((own**2).sum()) / expected.sum()
    return float((counts[:, 0].sum() / counts.sum() - share) / error)


@pytest.mark.parametrize("recipe", ["bert", "roberta-full"])
def test_a_threshold_that_was_moved_raises_no_false_alarm(recipe: str) -> None:
    """The count is binomial, but no less than needed in either split; all of its law is tried."""
    needed = 2 if recipe == "bert" else 1
    (question,) = [question for question in all_questions() if question.name == "validation_share"]
    connection = duckdb.connect()
    num_judged = 0
    for trials, fraction in itertools.product((3, 5, 9, 25), (0.01, 0.3, 0.95)):
        drawn = stats.binom(trials, fraction).pmf(np.arange(trials + 1))
        false_alarms = dict.fromkeys(LEVELS, 0.0)
        for count, prob in enumerate(drawn):
            held_out = 0 if trials < 2 * needed else min(max(count, needed), trials - needed)
            set_documents(connection, recipe, fraction, trials, held_out)
            for observed, asked, probability in connection.sql(question.sql).fetchall():
                num_judged += 1
                law = {"trials": np.array([asked]), "probability": np.array([probability])}
                p_value = binomial_p_values(np.array([observed]), **law)[0]
                for level in LEVELS:
                    false_alarms[level] += float(prob) * (p_value < level)
        for level, share in false_alarms.items():
            assert share <= level
    assert num_judged > 50


def set_documents(
    connection: duckdb.DuckDBPyConnection,
    recipe: str,
    fraction: float,
    trials: int,
    held_out: int,
) -> None:
    """Let the connection hold so many documents, with the settings of a build."""
    connection.execute("set variable recipe = ?", [recipe])
    connection.execute("set variable validation_fraction = ?", [fraction])
    connection.execute(
        "create or replace table documents as select 'kept' as fate, "
        "if(range < ?, 'validation', 'train') as split from range(?)",
        [held_out, trials],
    )
