import itertools
import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.small_studies import build_pairs

from clozemill.analysis.study_exposures import NUM_SAMPLED, Seen, epochs_shown, what_arms_see
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.remask import remask_dataset
from clozemill.train.instances import PretrainingInstances

ARMS: dict[str, int | None] = {"static-1": 1, "static-3": 3, "dynamic": None}


@pytest.fixture(scope="module")
def small_pairs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return build_pairs(tmp_path_factory.mktemp("pairs"))


def by_name(rows: tuple[Seen, ...]) -> dict[tuple[str, int, str], Seen]:
    assert rows
    return {(row.arm, row.epoch, row.quantity): row for row in rows}


def recount(
    dataset: Dataset, num_variants: int | None, numbers: list[int], num_epochs: int
) -> dict[str, float]:
    """Count what training shows of some instances, position by position."""
    masking = "dynamic" if num_variants is None else "static"
    instances = PretrainingInstances(dataset, masking=masking, num_static_variants=num_variants)
    special = set(dataset.manifest.tokenizer.special_ids.values())
    shown: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    reached, overlays = set(), set()
    batches = [instances[np.array(numbers) + e * len(instances)] for e in range(num_epochs)]
    for (place, number), batch in itertools.product(enumerate(numbers), batches):
        row = batch.slice(place, place + 1)
        pairs = zip(row.masks.positions.tolist(), row.masks.token_ids.tolist(), strict=True)
        overlay = dict(pairs)
        overlays.add((number, *overlay.items()))
        reached |= {(number, position) for position in overlay}
        for position, token in enumerate(row.tokens.input_ids.tolist()):
            if token not in special:
                shown[number, position][overlay.get(position, token)] += 1
    shares = [[n / num_epochs for n in counts.values()] for counts in shown.values()]
    entropies = [-sum(share * math.log(share) for share in own) for own in shares]
    return {
        "ever_selected": len(reached) / len(shown),
        "repeats": 1 - len(overlays) / (num_epochs * len(numbers)),
        "entropy": float(np.mean(entropies)),
    }


def test_counts_agree_with_a_plain_recount_of_what_training_shows(small_pairs: Dataset) -> None:
    seen = by_name(what_arms_see(small_pairs, ARMS, 4))
    num_instances = small_pairs.num_instances("train")
    size = min(NUM_SAMPLED, num_instances)
    numbers = [i * num_instances // size for i in range(size)]
    for (arm, count), epoch in itertools.product(ARMS.items(), (1, 4)):
        for quantity, value in recount(small_pairs, count, numbers, epoch).items():
            assert seen[arm, epoch, quantity].observed == pytest.approx(value), (arm, quantity)


def test_counts_follow_the_closed_forms(small_pairs: Dataset) -> None:
    rows = what_arms_see(small_pairs, {**ARMS, "static-8": 8}, 20)
    for row in rows:
        assert row.expected is not None
        # The sample has thousands of positions; a pooled share has an error of about a hundredth.
        assert row.observed == pytest.approx(row.expected, abs=0.02), row
    seen = by_name(rows)
    for epoch in range(1, 21):
        one, eight = (
            seen["static-1", epoch, "ever_selected"],
            seen["static-8", epoch, "ever_selected"],
        )
        dynamic = seen["dynamic", epoch, "ever_selected"]
        assert one.observed == seen["static-1", 1, "ever_selected"].observed
        assert (eight.observed == dynamic.observed) == (epoch <= 8)
    assert seen["dynamic", 20, "repeats"].expected == 0.0
    assert seen["static-8", 20, "repeats"].expected == pytest.approx(0.6)


def test_the_expected_share_is_that_of_each_instances_rounded_count(small_pairs: Dataset) -> None:
    seen = by_name(what_arms_see(small_pairs, {"dynamic": None}, 1))
    row = seen["dynamic", 1, "ever_selected"]
    # After one epoch, nothing is left to chance: every masking selects its rounded count.
    assert row.observed == pytest.approx(row.expected, abs=1e-12)


def test_random_counts_have_a_closed_form_and_whole_words_have_none(
    small_pairs: Dataset, tmp_path: Path
) -> None:
    for name, settings in (
        ("random", {"mask_count": "stochastic"}),
        ("words", {"mask_unit": "word"}),
    ):
        remask_dataset(small_pairs.folder, tmp_path / name, settings)
    rows = what_arms_see(open_dataset(tmp_path / "random"), ARMS, 8)
    assert rows
    for row in rows:
        assert row.observed == pytest.approx(row.expected, abs=0.02), row
    rows = what_arms_see(open_dataset(tmp_path / "words"), ARMS, 8)
    assert {row.expected for row in rows} == {None}
    assert by_name(rows)["dynamic", 8, "ever_selected"].observed > 0.5


def test_of_many_epochs_the_curves_keep_those_at_which_arms_part() -> None:
    shown = epochs_shown(400, [7, 100])
    assert shown[0] == 1
    assert shown[-1] == 400
    assert {7, 100} <= set(shown)
    assert len(shown) < 60
    assert all(a < b for a, b in itertools.pairwise(shown))
