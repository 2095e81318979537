from typing import Any

import numpy as np
import pytest
from scipy import stats

from clozemill.analysis.verdicts import (
    binomial_p_values,
    excess_p_values,
    passing_counts,
    sum_p_values,
)


def law_of_sum(laws: list[tuple[int, int, int]]) -> Any:
    """Return the exact law of a sum of hypergeometric counts (m, s, n), by convolution."""
    total = np.ones(1)
    for m, s, n in laws:
        total = np.convolve(total, stats.hypergeom(m, s, n).pmf(np.arange(min(s, n) + 1)))
    return total


def moments(laws: list[tuple[int, int, int]]) -> dict[str, Any]:
    m, s, n = np.array(laws, float).T
    variance = n * (s / m) * (1 - s / m) * (m - n) / np.maximum(m - 1, 1)
    return {
        "trials": np.array([np.minimum(n, s).sum()]),
        "expected": np.array([(n * s / m).sum()]),
        "variance": np.array([variance.sum()]),
    }


def random_laws(count: int, seed: int = 0) -> list[tuple[int, int, int]]:
    rng = np.random.default_rng(seed)
    m = rng.integers(3, 60, size=count)
    return [(int(a), int(rng.integers(1, a)), max(1, round(0.15 * int(a)))) for a in m]


def exact_p_values(law: Any) -> Any:
    below = np.cumsum(law)
    above = np.cumsum(law[::-1])[::-1]
    return np.minimum(1.0, 2 * np.minimum(below, above))


@pytest.mark.parametrize("count", [1, 2, 5, 40, 200])
def test_no_p_value_of_a_sum_is_below_the_exact_one(count: int) -> None:
    laws = random_laws(count, seed=count)
    exact = exact_p_values(law_of_sum(laws))
    bound = sum_p_values(np.arange(len(exact), dtype=float), **moments(laws))
    assert exact.min() < 1e-9 or count < 40
    assert (bound >= exact * (1 - 1e-9)).all()


@pytest.mark.parametrize("rate", [0.05, 1e-3, 1e-6, 1e-9, 1e-12])
def test_a_sum_rejects_at_most_at_the_rate_and_by_little_more_distance(rate: float) -> None:
    laws = random_laws(200)
    law = law_of_sum(laws)
    p_values = sum_p_values(np.arange(len(law), dtype=float), **moments(laws))
    assert 0 < law[p_values < rate].sum() <= rate
    num_passing, num_exact = (p_values >= rate).sum(), (exact_p_values(law) >= rate).sum()
    assert num_exact <= num_passing < 1.35 * num_exact


def test_more_variance_than_there_is_only_makes_p_values_larger() -> None:
    laws = random_laws(50)
    law = moments(laws)
    more = {**law, "variance": 1.3 * law["variance"]}
    counts = np.arange(len(law_of_sum(laws)), dtype=float)
    assert (sum_p_values(counts, **more) >= sum_p_values(counts, **law)).all()


@pytest.mark.parametrize(("trials", "probability"), [(10, 0.5), (400, 0.1), (100_000, 0.01)])
def test_a_binomial_count_rejects_at_most_at_the_rate(trials: int, probability: float) -> None:
    counts = np.arange(trials + 1.0)
    law = stats.binom(trials, probability).pmf(counts)
    p_values = binomial_p_values(
        counts, trials=np.array([trials]), probability=np.array([probability])
    )
    np.testing.assert_allclose(p_values, exact_p_values(law), rtol=1e-6, atol=1e-200)
    for rate in (0.05, 1e-3, 1e-6, 1e-9):
        assert law[p_values < rate].sum() <= rate


def test_far_tails_keep_their_size() -> None:
    p_value = binomial_p_values(
        np.array([3e6]), trials=np.array([2e7]), probability=np.array([0.1497])
    )
    assert 1e-5 < p_value[0] < 1e-3
    p_value = binomial_p_values(
        np.array([3e6]), trials=np.array([2e7]), probability=np.array([0.149])
    )
    assert 1e-40 < p_value[0] < 1e-30


def test_a_count_that_cannot_vary_fails_by_any_deviation() -> None:
    law = {"trials": np.array([30.0]), "expected": np.array([10.0]), "variance": np.array([0.0])}
    found = [float(sum_p_values(np.array([count]), **law)[0]) for count in (9.0, 10.0, 11.0)]
    assert found == pytest.approx([0.0, 1.0, 0.0], abs=1e-200)


def test_only_an_excess_fails_where_the_mean_is_a_bound() -> None:
    law = {"trials": np.array([1e6]), "expected": np.array([100.0]), "variance": np.array([100.0])}
    few, many = excess_p_values(np.array([0.0, 200.0]), **law)
    assert few == 1.0
    exact = stats.binom(10**6, 1e-4).sf(199)
    assert exact <= many < 100 * exact


@pytest.mark.parametrize("rate", [0.05, 1e-6, 1e-12])
@pytest.mark.parametrize("count", [1, 7, 100])
def test_what_passes_is_what_has_no_smaller_p_value(count: int, rate: float) -> None:
    law = moments(random_laws(count, seed=count))
    trials = int(law["trials"][0])
    p_values = sum_p_values(np.arange(trials + 1.0), **law)
    passing = np.flatnonzero(p_values >= rate)

    def p_value(observed: float) -> float:
        return float(sum_p_values(np.array([observed]), **law)[0])

    expected = float(law["expected"][0])
    assert passing_counts(p_value, rate, expected=expected, trials=trials) == (
        passing[0],
        passing[-1],
    )
    np.testing.assert_array_equal(passing, np.arange(passing[0], passing[-1] + 1))


def test_nothing_passes_where_no_count_does() -> None:
    assert passing_counts(lambda count: 0.0, 0.5, expected=2.5, trials=9) == (None, None)


def test_a_chi_square_would_fail_sound_counts_in_the_far_tail() -> None:
    # Why no audit uses it: of an expectation of 100, more than the normal tail of 1e-8.
    largest = np.floor(100 + 10 * stats.norm.isf(1e-8))
    assert stats.poisson(100).sf(largest) > 8e-8
    law = {"trials": np.array([1e7]), "probability": np.array([1e-5])}
    assert binomial_p_values(np.array([largest + 1]), **law)[0] > 16e-8


def test_a_small_bias_of_many_draws_fails() -> None:
    trials, expected = np.array([1e9]), np.array([0.15e9])
    variance = 0.85 * expected
    law = {"trials": trials, "expected": expected, "variance": variance}
    one_in_a_thousand, one_in_a_hundred_thousand = sum_p_values(
        np.array([0.15015e9, 0.1500015e9]), **law
    )
    assert one_in_a_thousand < 1e-30
    assert one_in_a_hundred_thousand > 0.5
