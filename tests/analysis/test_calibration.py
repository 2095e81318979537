from pathlib import Path

import pytest
from scipy import stats
from tests.analysis.calibration import NUM_DATASETS, RATE, RECIPES, build_recipe, false_alarms

MOST = float(stats.binom.ppf(1 - 1e-6, NUM_DATASETS, RATE)) / NUM_DATASETS
"""No share of false alarms at the rate is larger, but once in a million."""


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_no_audit_of_sound_datasets_fails_more_often_than_at_the_rate(
    recipe: str, tmp_path: Path
) -> None:
    shares = false_alarms(build_recipe(tmp_path, recipe))
    assert {"actions", "random_tokens_by_id", "all"} < shares.keys()
    assert {name: share for name, share in shares.items() if share > MOST} == {}
    # Not from never failing: an exact law of many counts comes near the rate.
    assert shares["actions"] > RATE / 3
