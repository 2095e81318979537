import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.small_datasets import make_dataset, spoil
from tests.train.small_readings import LAYOUTS, BuiltDataset

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.errors import DatasetError
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


def test_more_record_batches_than_are_kept_open_are_read(tmp_path: Path) -> None:
    """188 record batches: at once, and one after the other with some forgotten in between."""
    make_dataset(tmp_path, num_rows={"train": 3_000, "validation": 20})
    dataset = open_dataset(tmp_path)
    wanted = np.random.default_rng(0).permutation(3_000)
    expected = rows_taken(dataset, "train", wanted)
    assert rows_read(InstanceReader(dataset, "train"), wanted) == expected
    reader = InstanceReader(dataset, "train")
    parts = [rows_read(reader, wanted[begin : begin + 30]) for begin in range(0, 3_000, 30)]
    assert sum(parts, []) == expected
    reader = InstanceReader(dataset, "train")
    reader.reserve(3_000)
    assert rows_read(reader, wanted) == expected
    lengths = reader.lengths(0, 3_000)
    assert lengths[wanted].tolist() == [len(row[1]) for row in expected]


def test_a_copy_in_another_process_reads_the_same(built: BuiltDataset) -> None:
    reader = InstanceReader(built(), "train")
    expected = rows_read(reader, range(60))
    assert rows_read(pickle.loads(pickle.dumps(reader)), range(60)) == expected


def test_numbers_outside_the_split_do_not_exist(built: BuiltDataset) -> None:
    reader = InstanceReader(built(), "train")
    last = len(reader) - 1
    for wanted in ([-1], [0, last + 1], [2**62]):
        with pytest.raises(IndexError, match=f"train has the instances 0 to {last}"):
            reader.read(wanted)
    for begin, end in ((-1, 4), (5, 4), (0, last + 2)):
        with pytest.raises(IndexError, match=f"train has the instances 0 to {last}"):
            reader.lengths(begin, end)
    for variant in (-1, 3):
        with pytest.raises(IndexError, match="train stores the variants below 3"):
            reader.overlays([0], [variant])
    for variants in ([], [0], [0, 0, 0], [[0, 0]]):
        with pytest.raises(ValueError, match="2 instances need as many variants, one for each"):
            reader.overlays([0, 1], variants)
    assert rows_read(reader, [last]) == rows_taken(reader.dataset, "train", [last])


# Faults


@pytest.mark.parametrize("format", ["arrow", "webdataset"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_any_flipped_bit_is_an_error_that_names_the_shard(
    tmp_path: Path, format: str, compression: str
) -> None:
    manifest = make_dataset(tmp_path, format=format, compression=compression)
    path = tmp_path / manifest.shards[1].path
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(20):
        bad = bytearray(data)
        bad[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(DatasetError, match=f"{path.name} "):
            InstanceReader(open_dataset(tmp_path), "train").read(range(100))
    path.write_bytes(data)
    assert len(rows_read(InstanceReader(open_dataset(tmp_path), "train"), range(100))) == 100


@pytest.mark.parametrize("format", ["arrow", "webdataset"])
def test_bytes_that_nobody_vouches_for_are_refused_or_harmless(tmp_path: Path, format: str) -> None:
    """Without checksums: whatever the file holds, what comes out is within its bounds."""
    manifest = make_dataset(tmp_path, format=format)
    path = tmp_path / manifest.shards[1].path
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    messages, num_read = [], 0
    for _ in range(150):
        bad = bytearray(data)
        for place in rng.integers(0, len(data), size=3):
            bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        try:
            reader = InstanceReader(open_dataset(tmp_path), "train")
            reader.skip_checksums()
            rows = reader.read(range(100))
            masks = reader.overlays(range(100), np.arange(100) % 3)
        except DatasetError as error:
            messages.append(str(error))
            continue
        num_read += 1
        lengths = np.diff(rows.tokens.starts)
        assert (lengths > 0).all()
        assert lengths.max() <= 128
        assert (rows.tokens.segment_b_start <= lengths).all()
        assert max(rows.tokens.input_ids.max(), masks.token_ids.max()) < 30_000
        owners = np.repeat(np.arange(100), np.diff(masks.starts))
        assert (masks.positions < lengths[owners]).all()
    assert num_read > 10
    assert len(messages) > 10
    assert all(path.name in text for text in messages)


def test_a_shard_that_shrinks_after_opening_is_named(built: BuiltDataset, tmp_path: Path) -> None:
    make_dataset(tmp_path)
    dataset = open_dataset(tmp_path)
    reader = InstanceReader(dataset, "train")
    path = tmp_path / dataset.manifest.shards[0].path
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=f"{path.name} "):
        reader.read([0])
    path.unlink()
    with pytest.raises(DatasetError, match=f"{path.name}"):
        reader.read([0])


Edit = Callable[[InstanceColumns], InstanceColumns]


def changed(values: Any, place: int, value: int) -> Any:
    """Return a copy of an array with another value at a place."""
    copy = np.array(values)
    copy[place] = value
    return copy


def with_tokens(columns: InstanceColumns, **fields: Any) -> InstanceColumns:
    return columns._replace(tokens=columns.tokens._replace(**fields))


def with_masks(columns: InstanceColumns, **fields: Any) -> InstanceColumns:
    assert columns.masks is not None
    return columns._replace(masks=columns.masks._replace(**fields))


def second_start(columns: InstanceColumns) -> int:
    return int(columns.tokens.starts[1])


HOSTILE: dict[str, tuple[Edit, str]] = {
    "a token outside the vocabulary": (
        lambda c: with_tokens(c, input_ids=changed(c.tokens.input_ids, second_start(c) + 2, 500)),
        "row 1 has a token id that the vocabulary does not have",
    ),
    "a border outside the row": (
        lambda c: with_tokens(c, segment_b_start=changed(c.tokens.segment_b_start, 2, 60_000)),
        "row 2 has a segment_b_start outside the row",
    ),
    "an empty row": (
        lambda c: with_tokens(c, starts=changed(c.tokens.starts, 1, 0)),
        "row 0 has no tokens, or more than max_seq_length",
    ),
    "a row that is too long": (
        lambda c: with_tokens(c, starts=changed(c.tokens.starts, 1, second_start(c) + 48)),
        "row 0 has no tokens, or more than max_seq_length",
    ),
    "an unknown label": (
        lambda c: c._replace(next_sentence_label=changed(c.next_sentence_label, 3, 7)),
        "row 3 has a next_sentence_label that the recipe does not give",
    ),
    "no label": (
        lambda c: c._replace(next_sentence_label=changed(c.next_sentence_label, 3, -1)),
        "row 3 has a next_sentence_label that the recipe does not give",
    ),
    "a position outside the row": (
        lambda c: with_masks(c, positions=changed(c.masks.positions, c.masks.starts[1] - 1, 250)),
        "row 0 has masks whose positions are outside the row or not ascending",
    ),
    "positions that descend": (
        lambda c: with_masks(c, positions=changed(c.masks.positions, c.masks.starts[4] - 1, 0)),
        "row 1 has masks whose positions are outside the row or not ascending",
    ),
    "a shown token outside the vocabulary": (
        lambda c: with_masks(c, token_ids=changed(c.masks.token_ids, c.masks.starts[3], 60_000)),
        "row 1 has a shown token id that the vocabulary does not have",
    ),
    "other variants": (
        lambda c: c._replace(masks=None, num_variants=0),
        "it stores 0 mask variants, but the manifest says 3",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_rows_that_no_build_writes_are_refused(
    built: BuiltDataset, tmp_path: Path, name: str
) -> None:
    """A manifest vouches for them, so that checksums agree."""
    edit, said = HOSTILE[name]
    folder = tmp_path / "data"
    shutil.copytree(built().folder, folder)
    shard = spoil(folder, edit)
    with pytest.raises(DatasetError) as caught:
        InstanceReader(open_dataset(folder), "train").read(range(100))
    assert str(caught.value) == (
        f"record batch 0 of {folder / shard} cannot be used: {said}; copy it again or rebuild the "
        "dataset."
    )
