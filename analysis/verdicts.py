"""From counts and their expectation to a p-value that holds in the far tail, and its interval.

A family of tests shares one false-alarm rate: each p-value is compared with that rate over the
number of tests (Bonferroni), so one of 1e-9 must mean what it says. Where an exact law is at hand
it is used; where only mean and variance are, a bound that holds for every law with them.
"""

import math

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats


def binomial_p_value(observed: float, *, trials: float, probability: float) -> float:
    """Return twice the smaller tail of a binomial law, at most 1 (exact).

    >>> round(binomial_p_value(0, trials=10, probability=0.5), 6)
    0.001953
    """
    law = stats.binom(trials, probability)
    return float(min(1.0, 2.0 * min(law.cdf(observed), law.sf(observed - 1))))


def sum_p_value(observed: float, *, trials: float, expected: float, variance: float) -> float:
    """Bound the two-sided p-value of a sum of independent counts by its mean and variance.

    Each count is binomial, hypergeometric or another whose generating function has real roots only
    (Vatutin and Mikhailov 1982), so that the sum is one of `trials` independent coins, not all of
    one probability. Two bounds hold for such sums, and the smaller is taken:

    - beyond a distance of 1 from the mean its tails are below those of the binomial law of the same
      mean (Hoeffding 1956, theorem 5),
    - Bennett 1962: P(S - mean >= t) <= exp(-variance * h(t / variance)), with
      h(u) = (1 + u) log(1 + u) - u, as no coin is further than 1 from its mean.
    """
    distance = abs(observed - expected)
    if distance <= 1.0:
        return 1.0
    law = stats.binom(trials, min(1.0, expected / trials))
    tail = float(law.cdf(observed) if observed < expected else law.sf(observed - 1))
    return min(1.0, 2.0 * min(tail, _bennett_tail(distance, variance)))


def _bennett_tail(distance: float, variance: float) -> float:
    if variance <= 0.0:
        return 0.0
    u = distance / variance
    return math.exp(-variance * ((1.0 + u) * math.log1p(u) - u))


def sum_interval(
    rate: float, *, trials: float, expected: float, variance: float
) -> tuple[float, float]:
    """Return the least and the largest count whose p-value by `sum_p_value` is not below `rate`."""

    def excess(observed: float) -> float:
        found = sum_p_value(round(observed), trials=trials, expected=expected, variance=variance)
        return 1.0 if found >= rate else -1.0

    low = 0.0 if excess(0.0) > 0 else optimize.bisect(excess, 0.0, expected, xtol=0.25)
    high = trials if excess(trials) > 0 else optimize.bisect(excess, expected, trials, xtol=0.25)
    return math.ceil(low), math.floor(high)


def binomial_interval(rate: float, *, trials: float, probability: float) -> tuple[float, float]:
    """Return the interval outside which each tail of a binomial law has at most half of `rate`."""
    law = stats.binom(trials, probability)
    return float(law.ppf(rate / 2)), float(law.isf(rate / 2))


def chi_square_p_value(observed: NDArray[np.float64], expected: NDArray[np.float64]) -> float:
    """Return the upper tail of Pearson's chi-square over the categories (n,) of draws.

    Args:
        observed: Counts by category.
        expected: Their expectations, of the same sum and none below about 5.
    """
    statistic = float(((observed - expected) ** 2 / expected).sum())
    return float(stats.chi2.sf(statistic, len(observed) - 1))
