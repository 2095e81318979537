import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.pipeline.small_corpora import write_tokenizer
from tests.train.small_readings import LAYOUTS, BuiltDataset

from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.instances import MaskBatch
from clozemill.pipeline.manifest import write_manifest
from clozemill.pipeline.remask import remask_dataset
from clozemill.train.config import PretrainConfig
from clozemill.train.instances import PretrainingInstances
from clozemill.train.reader import InstanceReader
from clozemill.train.variants import (
    VariantSchedule,
    checked_mask_rule,
    checked_tokenizer,
    drawn_overlays,
)


def same(one: MaskBatch, two: MaskBatch) -> bool:
    assert len(one.positions) > 0
    return all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(one, two, strict=True))


def copied(dataset: Dataset, folder: Path) -> Path:
    shutil.copytree(dataset.folder, folder)
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stored_variants_are_those_that_are_drawn(
    built: BuiltDataset, layout: tuple[str, str]
) -> None:
    """The law that makes static and dynamic masking comparable, for both splits."""
    dataset = built(*layout)
    rule = checked_mask_rule(
        dataset.folder, dataset.manifest, checked_tokenizer(dataset.folder, dataset.manifest)
    )
    for split in dataset.splits:
        reader = InstanceReader(dataset, split)
        wanted = np.random.default_rng(0).permutation(len(reader))
        rows = reader.read(wanted)
        assert dataset.num_variants(split) == 3
        for variant in range(3):
            variants = np.full(len(wanted), variant)
            assert same(reader.overlays(wanted, variants), drawn_overlays(rows, variants, rule))
        mixed = wanted % 3
        assert same(reader.overlays(wanted, mixed), drawn_overlays(rows, mixed, rule))


def test_static_variants_go_round_and_dynamic_ones_go_on() -> None:
    epochs = np.arange(6)
    static = VariantSchedule(masking="static", num_static_variants=4, mask_offset=10)
    assert static.variants_of(epochs).tolist() == [10, 11, 12, 13, 10, 11]
    dynamic = VariantSchedule(masking="dynamic", num_static_variants=4, mask_offset=10)
    assert dynamic.variants_of(epochs).tolist() == [10, 11, 12, 13, 14, 15]


def test_static_variants_are_all_that_are_stored_unless_told_otherwise() -> None:
    found = [VariantSchedule.of(7, masking="static", num_static_variants=n) for n in (None, 3)]
    assert [schedule.num_static_variants for schedule in found] == [7, 3]
    with pytest.raises(ConfigError, match="num_static_variants is 0; static masking needs at"):
        VariantSchedule.of(0, masking="static")
    settings = PretrainConfig(steps=1, masking="dynamic", mask_offset=5).masking_settings
    assert VariantSchedule.of(0, **settings).variants_of(np.arange(2)).tolist() == [5, 6]


def test_more_static_variants_than_are_stored_are_drawn(
    built: BuiltDataset, tmp_path: Path
) -> None:
    """Of variants 1 to 5 the dataset stores two; another one that stores all is the measure."""
    dataset = built()
    remask_dataset(dataset.folder, tmp_path / "more", {"mask_variants": 6})
    more = open_dataset(tmp_path / "more")
    assert more.num_variants("train") == 6
    settings = {"masking": "static", "num_static_variants": 5, "mask_offset": 1}
    few, all_stored = (PretrainingInstances(d, **settings) for d in (dataset, more))
    indices = np.random.default_rng(0).permutation(12 * len(few))[:800]
    assert same(few.__getitems__(indices).masks, all_stored.__getitems__(indices).masks)


def test_masks_of_another_tokenizer_are_refused(built: BuiltDataset, tmp_path: Path) -> None:
    folder = copied(built(), tmp_path / "data")
    shutil.rmtree(folder / "tokenizer")
    pieces = [*["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], *map(str, range(500))]
    write_tokenizer(folder / "tokenizer", pieces)
    hashes = r"holds the tokenizer [0-9a-f]{32}, but the instances are made with [0-9a-f]{32}; copy"
    for masking in ("static", "dynamic"):
        with pytest.raises(DatasetError, match=hashes):
            PretrainingInstances(open_dataset(folder), masking=masking)


def test_masks_of_another_generator_are_read_but_not_drawn(
    built: BuiltDataset, tmp_path: Path
) -> None:
    dataset = open_dataset(copied(built(), tmp_path / "data"))
    write_manifest(dataset.folder, dataclasses.replace(dataset.manifest, generator_version=99))
    dataset = open_dataset(dataset.folder)
    static = PretrainingInstances(dataset, masking="static")
    assert same(
        static.__getitems__(range(50)).masks,
        PretrainingInstances(built(), masking="static").__getitems__(range(50)).masks,
    )
    said = r"was drawn by version 99 of the random generator and this clozemill has 1; use static"
    for settings in ({"masking": "dynamic"}, {"masking": "static", "num_static_variants": 4}):
        with pytest.raises(DatasetError, match=said):
            PretrainingInstances(dataset, **settings)


def test_a_dataset_without_stored_variants_is_masked_dynamically_alone(
    built: BuiltDataset,
) -> None:
    dataset = built(mask_variants=0)
    assert dataset.num_variants("train") == 0
    dynamic = PretrainingInstances(dataset, masking="dynamic")
    stored = PretrainingInstances(built(), masking="static")
    indices = range(len(stored))
    assert same(dynamic.__getitems__(indices).masks, stored.__getitems__(indices).masks)
    with pytest.raises(ConfigError, match=r"^num_static_variants is 0; static masking needs .* 1:"):
        PretrainingInstances(dataset, masking="static")


def test_unknown_maskings_and_offsets_are_refused(built: BuiltDataset) -> None:
    with pytest.raises(ConfigError, match=r"^masking is 'none'; it must be static or dynamic\.$"):
        PretrainingInstances(built(), masking="none")
    with pytest.raises(ConfigError, match=r"^mask_offset is -1; it must be at least 0\.$"):
        PretrainingInstances(built(), masking="dynamic", mask_offset=-1)
