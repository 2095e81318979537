from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.small_datasets import make_dataset
from tests.train.small_readings import LAYOUTS, BuiltDataset

from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.train.reader import InstanceReader

Row = tuple[bytes, list[int], int, Any]


def rows_read(reader: InstanceReader, indices: Any) -> list[Row]:
    rows = reader.read(indices)
    starts = rows.tokens.starts
    return [
        (
            rows.instance_ids[i].tobytes(),
            rows.tokens.input_ids[starts[i] : starts[i + 1]].tolist(),
            int(rows.tokens.segment_b_start[i]),
            int(rows.next_sentence_label[i]),
        )
        for i in range(len(starts) - 1)
    ]


def rows_taken(dataset: Dataset, split: str, indices: Any) -> list[Row]:
    """Return the same through Arrow's own Python objects."""
    names = ("instance_id", "input_ids", "segment_b_start", "next_sentence_label")
    return [
        tuple(-1 if row[name] is None else row[name] for name in names)
        for row in dataset.take(split, indices).to_pylist()
    ]


def overlays_read(reader: InstanceReader, indices: Any, variants: Any) -> list[Any]:
    masks = reader.overlays(indices, variants)
    return [
        list(zip(masks.positions[a:b].tolist(), masks.token_ids[a:b].tolist(), strict=True))
        for a, b in zip(masks.starts[:-1], masks.starts[1:], strict=True)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_rows_of_both_formats_are_those_of_arrow(
    built: BuiltDataset, layout: tuple[str, str]
) -> None:
    dataset = built(*layout)
    for split in dataset.splits:
        reader = InstanceReader(dataset, split)
        total = dataset.num_instances(split)
        assert len(reader) == total > 50
        shuffled = np.random.default_rng(0).permutation(total)
        for wanted in (shuffled, [5, 5, 0, total - 1], []):
            assert rows_read(reader, wanted) == rows_taken(dataset, split, wanted)
        lengths = [len(row[1]) for row in rows_taken(dataset, split, np.arange(total))]
        for begin, end in ((0, total), (3, 70), (41, 42), (9, 9)):
            assert reader.lengths(begin, end).tolist() == lengths[begin:end]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stored_overlays_are_those_of_arrow(built: BuiltDataset, layout: tuple[str, str]) -> None:
    dataset = built(*layout)
    wanted = np.random.default_rng(0).permutation(dataset.num_instances("train"))
    variants = wanted % 3
    masks = dataset.take("train", wanted)["masks"].to_pylist()
    expected = [
        [(shown["position"], shown["token_id"]) for shown in row[variant]]
        for row, variant in zip(masks, variants, strict=True)
    ]
    assert sum(map(len, expected)) > 1_000
    assert overlays_read(InstanceReader(dataset, "train"), wanted, variants) == expected


def test_record_batches_are_found_in_shards_of_several(tmp_path: Path) -> None:
    make_dataset(tmp_path)
    dataset = open_dataset(tmp_path)
    assert [shard.num_batches for shard in dataset.manifest.shards_of("train")] == [3, 3, 1]
    wanted = np.random.default_rng(0).permutation(100)
    assert rows_read(InstanceReader(dataset, "train"), wanted) == rows_taken(
        dataset, "train", wanted
    )
