import numpy as np
import pytest
from scipy import stats

from clozemill.analysis.study_statistics import (
    document_interval,
    minimum_detectable,
    paired_differences,
    paired_power,
    spread,
)

NUM_STUDIES = 2_000
FALSE_ALARM_OF_THIS_TEST = 1e-5


def bounds(share: float) -> tuple[float, float]:
    """Return between how many of the simulated studies a share of them lies, but for chance."""
    low, high = stats.binom.interval(1 - FALSE_ALARM_OF_THIS_TEST, NUM_STUDIES, share)
    assert 0 < low < high < NUM_STUDIES
    return low, high


def simulated_studies(
    seed: int, *, num_seeds: int, num_arms: int = 1, planted: float = 0.0
) -> list[tuple[dict[str, list[float]], list[float]]]:
    """Return final losses of studies: seeds are far apart, arms of a seed a little."""
    rng = np.random.default_rng(seed)
    studies = []
    for _ in range(NUM_STUDIES):
        of_seeds = rng.normal(3.0, 0.5, num_seeds)
        reference = (of_seeds + rng.normal(0.0, 0.02, num_seeds)).tolist()
        arms = {
            f"static-{i}": (of_seeds + planted + rng.normal(0.0, 0.02, num_seeds)).tolist()
            for i in range(num_arms)
        }
        studies.append((arms, reference))
    return studies


@pytest.mark.parametrize("num_seeds", [2, 3, 5])
def test_intervals_of_equal_arms_miss_zero_in_five_of_a_hundred_studies(num_seeds: int) -> None:
    num_missed = 0
    for arms, reference in simulated_studies(num_seeds, num_seeds=num_seeds):
        (found,) = paired_differences(arms, reference)
        low, high = found.spread.low, found.spread.high
        assert low is not None
        assert high is not None
        num_missed += not low <= 0.0 <= high
        assert found.is_shown == (not low <= 0.0 <= high)
    low, high = bounds(0.05)
    assert low <= num_missed <= high


def test_verdicts_over_three_equal_arms_are_wrong_in_at_most_five_of_a_hundred_studies() -> None:
    num_wrong = num_naive = 0
    for arms, reference in simulated_studies(7, num_seeds=3, num_arms=3):
        found = paired_differences(arms, reference)
        num_wrong += any(one.is_shown for one in found)
        num_naive += any((one.p_value or 1.0) < 0.05 for one in found)
    assert 0 < num_wrong <= bounds(0.05)[1] < num_naive


@pytest.mark.parametrize("num_seeds", [3, 5])
def test_a_planted_difference_is_found_with_the_predicted_power(num_seeds: int) -> None:
    sd, planted = 0.02 * 2**0.5, 0.06
    studies = simulated_studies(11, num_seeds=num_seeds, planted=planted)
    num_found = sum(paired_differences(*study)[0].is_shown for study in studies)
    power = paired_power(planted, sd, num_seeds)
    low, high = bounds(power)
    assert 0.3 < power < 0.99
    assert low <= num_found <= high


@pytest.mark.parametrize("num_seeds", [2, 3, 10])
def test_the_minimum_detectable_difference_is_found_by_four_of_five_studies(num_seeds: int) -> None:
    values = np.random.default_rng(0).normal(size=num_seeds)
    found = spread(values.tolist())
    smallest = minimum_detectable(found)
    assert smallest is not None
    assert found.sd is not None
    assert paired_power(smallest, found.sd, num_seeds) == pytest.approx(0.8, abs=1e-6)
    draws = np.random.default_rng(1).normal(smallest, found.sd, (NUM_STUDIES, num_seeds))
    low, high = bounds(0.8)
    assert low <= (stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05).sum() <= high


def test_differences_agree_with_the_paired_test_of_scipy() -> None:
    rng = np.random.default_rng(3)
    arm, reference = rng.normal(size=(2, 6))
    (found,) = paired_differences({"arm": arm.tolist()}, reference.tolist())
    expected = stats.ttest_rel(arm, reference)
    interval = expected.confidence_interval(0.95)
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.spread.low, found.spread.high) == pytest.approx((interval.low, interval.high))


def test_one_seed_has_a_difference_and_no_interval() -> None:
    (found,) = paired_differences({"arm": [2.0]}, [1.5])
    assert found.spread.mean == 0.5
    nothing = (found.spread.low, found.spread.sd, found.p_value, found.minimum_detectable)
    assert nothing == (None, None, None, None)
    assert not found.is_shown


@pytest.mark.parametrize(
    ("arm", "reference", "mean"),
    [
        ([2.0, 3.0], [2.0, 3.0], 0.0),
        ([2.5, 3.5], [2.0, 3.0], 0.5),
        # 3/7 - 2/7 and 6/7 - 5/7 are one number but for the last digit.
        ([3 / 7, 6 / 7], [2 / 7, 5 / 7], 1 / 7),
        ([0.1 + 0.2, 0.1 + 0.2, 0.3], [0.3, 0.3, 0.3], 0.0),
    ],
)
def test_seeds_that_agree_exactly_prove_nothing(
    arm: list[float], reference: list[float], mean: float
) -> None:
    (found,) = paired_differences({"arm": arm}, reference)
    assert found.spread.mean == pytest.approx(mean, abs=1e-12)
    assert found.spread.sd == 0.0
    assert (found.spread.low, found.spread.high, found.p_value) == (None, None, None)
    assert (found.adjusted_p, found.minimum_detectable) == (None, None)
    assert not found.is_shown


@pytest.mark.parametrize("num_seeds", [2, 3])
def test_equal_arms_of_rare_counts_are_told_apart_in_at_most_five_of_a_hundred_studies(
    num_seeds: int,
) -> None:
    rng = np.random.default_rng(17)
    accuracies = rng.binomial(30, 0.1, (NUM_STUDIES, 2, num_seeds)) / 30
    studies = [paired_differences({"arm": a.tolist()}, r.tolist())[0] for a, r in accuracies]
    num_agreeing = sum(one.spread.sd == 0.0 and one.spread.mean != 0.0 for one in studies)
    assert num_agreeing > 10  # each of them once had a p of 0
    _, high = bounds(0.05)
    assert sum(one.is_shown for one in studies) <= high


def test_an_arm_without_a_spread_counts_among_those_that_are_tested() -> None:
    values = {"agreeing": [1.5, 2.5, 3.5], "other": [1.2, 2.1, 3.3]}
    agreeing, other = paired_differences(values, [1.0, 2.0, 3.0])
    assert agreeing.adjusted_p is None
    assert other.p_value is not None
    assert other.adjusted_p == pytest.approx(2 * other.p_value)


def test_documents_that_agree_give_a_narrow_interval_and_few_documents_a_wide_one() -> None:
    rng = np.random.default_rng(5)
    selected = rng.integers(5, 50, size=400)
    differences = -0.1 * selected + rng.normal(0, 3, size=400)
    found = document_interval(differences, selected)
    assert found.low < differences.sum() / selected.sum() < found.high
    few = document_interval(differences[:20], selected[:20])
    assert few.high - few.low > 2 * (found.high - found.low)
    same = document_interval(-0.1 * selected, selected)
    assert (same.low, same.high) == pytest.approx((-0.1, -0.1))
