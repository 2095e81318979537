"""Paired statistics of a study: what can be said of two maskings after a few seeds.

A difference is taken within a seed, between two trainings that differ in their masks alone, so
what the seed does to both (weights, order) drops out. The differences of S seeds are S independent
draws: their mean has Student's t interval with S - 1 degrees of freedom (Student 1908). All
functions are pure.
"""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

LEVEL = 0.05
"""Share of false alarms: of one interval, and of all verdicts of a study together."""

POWER = 0.8
"""Share of studies that find the minimum detectable difference, where that is the true one."""

_ROUNDING = 1e-12
"""Share of a measure by which rounding moves it: it is a mean over many tokens."""

_NUM_DRAWS = 2_000
_BOOTSTRAP_SEED = 20_240


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The mean of S numbers, and how far off it may be."""

    num_seeds: int
    """S."""

    mean: float
    """Of the S numbers."""

    sd: float | None
    """Standard deviation of one of them, with S - 1; None for one seed, 0 where all are one number
    but for rounding."""

    low: float | None
    """Begin of the mean's t interval at 95 %; None for one seed or without a spread."""

    high: float | None
    """Its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where a number lies in 95 of 100 cases."""

    low: float
    """Its begin."""

    high: float
    """Its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An arm against the reference, paired by seed."""

    arm: str
    """Name of the arm."""

    spread: Spread
    """Of the differences arm - reference."""

    p_value: float | None
    """Two-sided, of the paired t test against 0; None for one seed or without a spread."""

    adjusted_p: float | None
    """The same after Holm's correction for the number of arms."""

    minimum_detectable: float | None
    """Minimum detectable difference: 80 % of such studies would find a true one of this size by one
    test at 5 %; None for one seed or without a spread."""

    @property
    def is_shown(self) -> bool:
        """Whether the arms differ by more than seeds explain, at 5 % for all arms together."""
        return self.adjusted_p is not None and self.adjusted_p < LEVEL


def spread(values: Sequence[float], *, size: float | None = None) -> Spread:
    """Return the mean of at least one number with its t interval.

    Seeds that agree to the last digit have no interval: what they would differ by was not seen.

    Args:
        values: The numbers.
        size: Of what they were computed from, which was rounded; by default their own.

    >>> found = spread([1.0, 2.0, 3.0])
    >>> f"{found.mean} {found.sd} {found.low:.3f} {found.high:.3f}"  # 2 -+ 4.303 / sqrt(3)
    '2.0 1.0 -0.484 4.484'
    """
    num_seeds, mean = len(values), float(np.mean(values))
    if num_seeds == 1:
        return Spread(num_seeds=1, mean=mean, sd=None, low=None, high=None)
    rounding = _ROUNDING * (float(np.max(np.abs(values))) if size is None else size)
    if np.ptp(values) <= rounding:
        return Spread(num_seeds=num_seeds, mean=mean, sd=0.0, low=None, high=None)
    sd = float(np.std(values, ddof=1))
    half = float(stats.t.isf(LEVEL / 2, num_seeds - 1)) * sd / math.sqrt(num_seeds)
    return Spread(num_seeds=num_seeds, mean=mean, sd=sd, low=mean - half, high=mean + half)


def paired_differences(
    values: Mapping[str, Sequence[float]], reference: Sequence[float]
) -> tuple[Difference, ...]:
    """Return each arm's difference from the reference.

    Args:
        values: By arm, a number of each seed.
        reference: The numbers of the same seeds under the reference.
    """
    spreads = {
        arm: spread(
            [value - base for value, base in zip(own, reference, strict=True)],
            size=max(map(abs, [*own, *reference])),
        )
        for arm, own in values.items()
    }
    p_values = {arm: p_value(found) for arm, found in spreads.items()}
    # An arm without a test counts as one: which arms those are is chance.
    all_p = [1.0 if p is None else p for p in p_values.values()]
    adjusted = dict(zip(p_values, holm(all_p), strict=True))
    return tuple(
        Difference(
            arm=arm,
            spread=found,
            p_value=p_values[arm],
            adjusted_p=None if p_values[arm] is None else adjusted[arm],
            minimum_detectable=minimum_detectable(found),
        )
        for arm, found in spreads.items()
    )


def p_value(differences: Spread) -> float | None:
    """Return how often seeds alone give a mean as far from 0, by the t test.

    None for one seed, and where no spread was seen: accuracies are multiples of 1 / n, so two seeds
    of arms that are alike often differ by exactly as much, which proves nothing.
    """
    if not differences.sd:
        return None
    size = differences.num_seeds
    t = abs(differences.mean) / (differences.sd / math.sqrt(size))
    return float(2 * stats.t.sf(t, size - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that may be compared with 5 % all together (Holm 1979).

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    factors = len(p_values) - np.arange(len(p_values))
    raised = np.maximum.accumulate(np.asarray(p_values)[order] * factors)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(raised, 1.0)
    return [float(p) for p in adjusted]


def paired_power(difference: float, sd: float, num_seeds: int) -> float:
    """Return the share of studies of so many seeds in which the t test at 5 % finds a difference.

    Under it, t has a noncentral t distribution around difference / (sd / sqrt(S)).

    Args:
        difference: The true mean of the differences.
        sd: Their true standard deviation, above 0.
        num_seeds: S, at least 2.
    """
    degrees = num_seeds - 1
    bound = stats.t.isf(LEVEL / 2, degrees)
    center = abs(difference) * math.sqrt(num_seeds) / sd
    # Far from 0 the other tail is nothing, and scipy gives NaN for it.
    other_tail = stats.nct.cdf(-bound, degrees, center) if center < 8.0 else 0.0
    return float(stats.nct.sf(bound, degrees, center) + other_tail)


def minimum_detectable(differences: Spread) -> float | None:
    """Return the minimum detectable difference at 80 % power, if sd is the true one.

    With few seeds that is known to a factor only: at 3 seeds the true standard deviation lies
    between half and six times what is seen. None for one seed or without a spread.

    >>> f"{minimum_detectable(spread([-1.0, 0.0, 1.0])):.2f}"
    '3.26'
    """
    sd, size = differences.sd, differences.num_seeds
    if not sd:
        return None
    return _detectable_standard_errors(size) * sd / math.sqrt(size)


@functools.cache
def _detectable_standard_errors(num_seeds: int) -> float:
    """Return the minimum detectable difference in standard errors; two seeds need 16."""
    root = math.sqrt(num_seeds)
    found = optimize.brentq(lambda d: paired_power(d / root, 1.0, num_seeds) - POWER, 0.0, 50.0)
    return float(found)


def document_interval(
    loss_differences: NDArray[np.float64], selected: NDArray[np.int64]
) -> Interval:
    """Return a 95 % interval of a difference of losses over other validation documents.

    It is evaluation noise alone: the trainings are those that were made, and only the documents
    that they are measured on are drawn anew, whole, with replacement (percentile bootstrap; Efron
    and Tibshirani 1993, chapter 13). It says nothing of other seeds.

    Args:
        loss_differences: (D,) sums of nats, arm - reference, over each document's selected tokens.
        selected: (D,) how many tokens those are.
    """
    size = len(selected)
    draws = np.random.default_rng(_BOOTSTRAP_SEED)
    means = []
    for _ in range(_NUM_DRAWS):
        counts = np.bincount(draws.integers(size, size=size), minlength=size)
        num_selected = max(1, int(counts @ selected))
        means.append(float(counts @ loss_differences) / num_selected)
    low, high = np.quantile(means, [LEVEL / 2, 1 - LEVEL / 2])
    return Interval(low=float(low), high=float(high))
