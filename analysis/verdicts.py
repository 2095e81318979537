"""From counts and their expectation to p-values that hold in the far tail, and what passes.

A family of tests shares one false-alarm rate, so each test has a tiny one, and a p-value of 1e-9
must mean what it says. Where an exact law is at hand it is used; where only mean and variance are,
bounds that hold for every law with them. There is no chi-square: at an expectation of 100 a tail
of 1e-8 is in truth one of 8e-8. Each category of draws has an exact binomial law instead.

Legend: G groups that are tested.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Numbers: TypeAlias = NDArray[np.float64]


def binomial_p_values(observed: Numbers, *, trials: Numbers, probability: Numbers) -> Numbers:
    """Return twice the smaller tail of binomial laws, at most 1 (exact), all (G,).

    Twice: either tail, each with half the rate, rejects a true law at most that often.

    >>> ten, half = np.array([10.0]), np.array([0.5])
    >>> binomial_p_values(np.array([0.0, 5.0]), trials=ten, probability=half)
    array([0.00195312, 1.        ])
    """
    lower = stats.binom.cdf(observed, trials, probability)
    smaller = np.minimum(lower, stats.binom.sf(observed - 1, trials, probability))
    return np.asarray(np.minimum(1.0, 2.0 * smaller), np.float64)


def sum_p_values(
    observed: Numbers, *, trials: Numbers, expected: Numbers, variance: Numbers
) -> Numbers:
    """Bound the two-sided p-values of sums of independent counts by mean and variance, all (G,).

    Each count must be that of a generating function with real roots only, which binomial and
    hypergeometric counts are (Vatutin and Mikhailov 1982): it then has the law of a sum of
    independent coins, not all of one probability, and so has a sum of such counts. `trials` is at
    least the number of those coins and `variance` at least that of the sum.

    >>> law = {"trials": np.array([100.0]), "expected": np.array([15.0])}
    >>> sum_p_values(np.array([40.0]), variance=np.array([12.0]), **law).round(11)
    array([2.38e-09])
    """
    law = {"trials": trials, "expected": expected, "variance": variance}
    tail = np.where(observed < expected, _lower_tail(observed, **law), _upper_tail(observed, **law))
    return np.asarray(np.minimum(1.0, 2.0 * tail), np.float64)


def excess_p_values(
    observed: Numbers, *, trials: Numbers, expected: Numbers, variance: Numbers
) -> Numbers:
    """As `sum_p_values`, of the upper tail alone: `expected` bounds the mean from above."""
    law = {"trials": trials, "expected": expected, "variance": variance}
    return np.where(observed <= expected, 1.0, _upper_tail(observed, **law))


def _lower_tail(
    observed: Numbers, trials: Numbers, expected: Numbers, variance: Numbers
) -> Numbers:
    """Bound P(S <= observed): it is the upper tail of the coins that failed."""
    return _upper_tail(trials - observed, trials, trials - expected, variance)


def _upper_tail(
    observed: Numbers, trials: Numbers, expected: Numbers, variance: Numbers
) -> Numbers:
    """Bound P(S >= observed) for a sum S of independent coins by the smaller of two bounds.

    - From 1 above the mean on, tails are below those of the binomial law of the same mean
      (Hoeffding 1956, theorem 5).
    - Bennett 1962: P(S - mean >= t) <= exp(-variance * h(t / variance)), with
      h(u) = (1 + u) log(1 + u) - u, as no coin is further than 1 above its mean; it grows with
      the variance, so a bound of the variance will do.
    """
    distance = observed - expected
    probability = np.clip(expected / np.maximum(trials, 1.0), 0.0, 1.0)
    tail = stats.binom.sf(observed - 1, trials, probability)
    binomial = np.where(distance >= 1.0, tail, 1.0)
    return np.asarray(np.minimum(binomial, _bennett(distance, variance, trials)), np.float64)


def _bennett(distance: Numbers, variance: Numbers, trials: Numbers) -> Numbers:
    # Sums of a billion fractions are rounded; a distance within that is none.
    is_none = distance <= 1e-6 + 1e-12 * trials
    variance = np.maximum(variance, 1e-300)
    u = np.maximum(distance, 0.0) / variance
    # u - log(1 + u) * (1 + u), without the difference of large numbers.
    exponent = np.maximum(distance, 0.0) - (variance + np.maximum(distance, 0.0)) * np.log1p(u)
    return np.where(is_none, 1.0, np.exp(np.minimum(exponent, 0.0)))


def passing_counts(
    p_value: Callable[[float], float], rate: float, *, expected: float, trials: float
) -> tuple[float | None, float | None]:
    """Return the least and the largest whole count whose p-value is not below `rate`.

    Args:
        p_value: Of a count; it falls on both sides of the expectation.
        rate: What a smaller p-value fails.
        expected: The expectation.
        trials: The largest count there can be.

    Returns:
        None and None if no whole count passes.

    >>> p_value = lambda count: 1.0 if 3 <= count <= 8 else 0.0
    >>> passing_counts(p_value, 1e-6, expected=5.5, trials=100)
    (3.0, 8.0)
    """
    below, above = float(np.floor(expected)), float(np.ceil(expected))
    starts = [count for count in (below, above) if p_value(count) >= rate]
    if not starts:
        return None, None
    low = _last_passing(p_value, rate, starts[0], 0.0)
    return low, _last_passing(p_value, rate, starts[-1], max(trials, starts[-1]))


def _last_passing(
    p_value: Callable[[float], float], rate: float, passing: float, end: float
) -> float:
    """Return the passing count that is nearest to `end`, by halving."""
    if p_value(end) >= rate:
        return end
    failing = end
    while abs(passing - failing) > 1.0:
        middle = float(np.floor((passing + failing) / 2))
        if p_value(middle) >= rate:
            passing = middle
        else:
            failing = middle
    return passing
