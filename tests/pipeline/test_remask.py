import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.small_datasets import build_small, config_of_small, spoil, tree

from clozemill.pipeline.build import build
from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.remask import remask_dataset
from clozemill.pipeline.verify import verify_dataset


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("built"))


@pytest.mark.parametrize(
    "settings",
    [
        {"mask_variants": 5},
        {"mask_variants": 0},
        {"mask_unit": "word", "masked_lm_prob": 0.3, "max_predictions_per_seq": 6},
        {"mask_count": "stochastic", "random_tokens": "all", "mask_token_prob": 0.5},
    ],
)
def test_remasked_dataset_is_what_a_build_with_these_masks_writes(
    built: Path, tmp_path: Path, settings: dict[str, Any]
):
    before = open_dataset(built).manifest
    manifest = remask_dataset(built, tmp_path / "out", settings)
    assert tree(tmp_path / "out") == tree(build_small(tmp_path / "other", **settings))
    assert manifest.fingerprints.instances == before.fingerprints.instances
    assert manifest.fingerprints.dataset != before.fingerprints.dataset
    for split, entry in manifest.splits.items():
        assert entry.instances_digest == before.splits[split].instances_digest
    assert manifest.splits["train"].dataset_digest != before.splits["train"].dataset_digest


def test_build_with_the_new_masks_finds_nothing_to_do(built: Path, tmp_path: Path):
    settings: dict[str, Any] = {"mask_variants": 5, "mask_unit": "word"}
    remask_dataset(built, tmp_path / "out", settings)
    before = tree(tmp_path / "out")
    asked = dataclasses.replace(
        config_of_small(built.parent, **settings), out=str(tmp_path / "out")
    )
    assert build(asked).was_finished
    assert tree(tmp_path / "out") == before


def test_masks_that_are_there_already_are_nothing_to_do(built: Path, tmp_path: Path) -> None:
    manifest = remask_dataset(built, tmp_path / "out", {"mask_variants": 4})
    before = tree(tmp_path / "out")
    assert remask_dataset(built, tmp_path / "out", {"mask_variants": 4}) == manifest
    assert tree(tmp_path / "out") == before
    with pytest.raises(ConfigError, match="already holds another dataset"):
        remask_dataset(built, tmp_path / "out", {"mask_variants": 5})


def test_variants_keep_their_numbers(built: Path, tmp_path: Path):
    remask_dataset(built, tmp_path / "out", {"mask_variants": 6})
    few, many = (
        pa.Table.from_batches(list(open_dataset(folder).batches("train")))["masks"].to_pylist()
        for folder in (built, tmp_path / "out")
    )
    assert len(few) > 100
    assert [row[:3] for row in many] == few


def test_remasked_dataset_is_sound(built: Path, tmp_path: Path):
    remask_dataset(built, tmp_path / "out", {"mask_unit": "word"})
    assert verify_dataset(tmp_path / "out") == []


@pytest.mark.parametrize("name", ["seed", "max_seq_length", "format", "colour"])
def test_settings_that_are_not_of_masks_are_refused(built: Path, tmp_path: Path, name: str):
    with pytest.raises(ConfigError, match=f"{name} does not decide masks alone"):
        remask_dataset(built, tmp_path / "out", {name: 1})


def test_impossible_masks_are_refused(built: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"masked_lm_prob is 1\.5"):
        remask_dataset(built, tmp_path / "out", {"masked_lm_prob": 1.5})
    assert not (tmp_path / "out").exists()


def test_ids_outside_the_vocabulary_are_an_error_not_a_crash(tmp_path: Path):
    def edit(columns: InstanceColumns) -> InstanceColumns:
        ids = columns.tokens.input_ids.copy()
        ids[1] = 60_000
        return columns._replace(tokens=columns.tokens._replace(input_ids=ids))

    folder = build_small(tmp_path)
    spoil(folder, edit)
    with pytest.raises(DatasetError, match="token ids of 257 and above"):
        remask_dataset(folder, tmp_path / "out", {"mask_variants": 2})
    assert not (tmp_path / "out" / "manifest.json").exists()
