"""Faults of pairs and documents: which questions must notice each, and that no other does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis import pair_faults as faults
from tests.analysis.fault_tables import PACKED_FAULTS, PAIR_FAULTS
from tests.analysis.pair_datasets import build_small, failed_questions

from clozemill.pipeline.dataset import Dataset


@pytest.fixture(scope="module")
def sound_datasets(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Dataset]:
    """Return a function that gives a sound dataset of a recipe; each is built once."""
    built: dict[str, Dataset] = {}

    def sound_dataset(recipe: str) -> Dataset:
        if recipe not in built:
            built[recipe] = build_small(tmp_path_factory.mktemp("sound"), recipe=recipe)
            assert failed_questions(built[recipe]) == set()
        return built[recipe]

    return sound_dataset


@pytest.mark.parametrize("fault", PAIR_FAULTS)
def test_a_fault_of_pairs_fails_its_questions_and_no_others(
    fault: str, sound_datasets: Callable[[str], Dataset], tmp_path: Path
) -> None:
    edit, expected = PAIR_FAULTS[fault]
    spoiled = faults.spoil(sound_datasets("bert"), tmp_path / "spoiled", **edit)
    assert len(spoiled.manifest.shards_of("train")) >= 5
    assert failed_questions(spoiled) == expected


@pytest.mark.parametrize("recipe", ["roberta-full", "roberta-doc"])
@pytest.mark.parametrize("fault", PACKED_FAULTS)
def test_a_fault_of_packed_rows_fails_its_questions_and_no_others(
    fault: str, recipe: str, sound_datasets: Callable[[str], Dataset], tmp_path: Path
) -> None:
    edit, expected = PACKED_FAULTS[fault]
    spoiled = faults.spoil(sound_datasets(recipe), tmp_path / "spoiled", **edit)
    assert failed_questions(spoiled) == expected


def test_what_is_written_again_without_a_fault_is_sound(
    sound_datasets: Callable[[str], Dataset], tmp_path: Path
) -> None:
    for recipe in ("bert", "roberta-full"):
        dataset = sound_datasets(recipe)
        again = faults.spoil(dataset, tmp_path / recipe)
        assert failed_questions(again) == set()
        assert again.manifest.splits == dataset.manifest.splits


def test_labels_that_were_steered_are_not_those_of_a_coin(tmp_path: Path) -> None:
    """As many random as next pairs in all, forced ones among them, leave too few to the coin."""
    steered = build_small(tmp_path / "built", nsp_balance="exact")
    assert failed_questions(steered) == set()
    spoiled = faults.spoil(steered, tmp_path / "spoiled", nsp_balance="original")
    assert failed_questions(spoiled) == {"label_coin"}
