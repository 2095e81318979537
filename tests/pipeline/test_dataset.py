import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.small_datasets import SOURCES, make_dataset

from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.errors import DatasetError


@pytest.fixture(params=["arrow", "webdataset"])
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    make_dataset(tmp_path, format=request.param)
    return open_dataset(tmp_path)


def rows(dataset: Dataset, split: str) -> pa.Table:
    return pa.Table.from_batches(list(dataset.batches(split)))


def test_both_formats_hold_the_same_instances(tmp_path: Path):
    for name in ("arrow", "webdataset"):
        make_dataset(tmp_path / name, format=name)
    one, two = (open_dataset(tmp_path / name) for name in ("arrow", "webdataset"))
    assert one.splits == two.splits == ("train", "validation")
    assert one.manifest.splits == two.manifest.splits
    for split in one.splits:
        assert rows(one, split).equals(rows(two, split))


def test_every_instance_is_read_once(dataset: Dataset):
    assert dataset.num_instances("train") == 100
    assert dataset.num_variants("train") == 3
    ids = rows(dataset, "train")["instance_id"].to_pylist()
    assert len(ids) == len(set(ids)) == 100


def test_take_returns_rows_in_the_order_asked_for(dataset: Dataset):
    table = rows(dataset, "train")
    wanted = [99, 0, 50, 47, 48, 0, 17]
    batch = dataset.take("train", wanted)
    assert batch.schema.equals(dataset.schema)
    assert pa.Table.from_batches([batch]).to_pylist() == table.take(pa.array(wanted)).to_pylist()
    everything = dataset.take("train", np.arange(100)[::-1])
    assert everything["instance_id"].to_pylist() == table["instance_id"].to_pylist()[::-1]


def test_take_of_nothing_is_an_empty_batch(dataset: Dataset):
    assert dataset.take("train", []).num_rows == 0


@pytest.mark.parametrize("index", [-1, 100])
def test_take_outside_the_split_is_refused(dataset: Dataset, index: int):
    with pytest.raises(IndexError, match="numbered 0 to 99"):
        dataset.take("train", [3, index])


def test_pickled_dataset_reads_the_same(dataset: Dataset):
    dataset.take("train", [1])
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.take("train", [5, 70]).equals(dataset.take("train", [5, 70]))


def test_unknown_split_is_refused(dataset: Dataset):
    with pytest.raises(DatasetError, match="no split 'test'; it has train and validation"):
        dataset.num_instances("test")


def test_documents_are_read(dataset: Dataset):
    batches = list(dataset.documents())
    assert sum(batch.num_rows for batch in batches) == 120


def test_files_that_the_manifest_does_not_list_are_not_read(dataset: Dataset):
    first = dataset.folder / dataset.manifest.shards[0].path
    first.with_name("train-999999" + first.suffix).write_bytes(first.read_bytes())
    assert len(rows(open_dataset(dataset.folder), "train")) == 100


@pytest.mark.parametrize("place", [0, -1])
def test_missing_and_short_files_are_named_on_opening(dataset: Dataset, place: int):
    path = dataset.folder / dataset.manifest.files[place].path
    data = path.read_bytes()
    path.write_bytes(data[:-8])
    with pytest.raises(DatasetError, match=path.name):
        open_dataset(dataset.folder)
    path.unlink()
    with pytest.raises(DatasetError, match=f"{path.name} is missing"):
        open_dataset(dataset.folder)


def test_shard_of_another_dataset_is_refused(tmp_path: Path):
    make_dataset(tmp_path / "one")
    manifest = (tmp_path / "one" / "manifest.json").read_text()
    assert '"vocab_size": 30000' in manifest
    wide = manifest.replace('"vocab_size": 30000', '"vocab_size": 70000')
    (tmp_path / "one" / "manifest.json").write_text(wide)
    with pytest.raises(DatasetError, match=r"train-000000.arrow does not have the columns"):
        open_dataset(tmp_path / "one")


def test_other_dictionary_of_sources_is_refused(tmp_path: Path):
    make_dataset(tmp_path)
    text = (tmp_path / "manifest.json").read_text()
    assert SOURCES[1].as_py() in text
    (tmp_path / "manifest.json").write_text(text.replace('"books"', '"boots"'))
    with pytest.raises(DatasetError, match="dictionary of sources"):
        list(open_dataset(tmp_path).batches("train"))


def test_unfinished_build_is_refused(tmp_path: Path):
    make_dataset(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(DatasetError, match="not a finished dataset"):
        open_dataset(tmp_path)


@pytest.mark.parametrize("format", ["arrow", "webdataset"])
@pytest.mark.parametrize("compression", ["none", pytest.param("zstd", marks=pytest.mark.slow)])
def test_flipped_bytes_never_crash(tmp_path: Path, format: str, compression: str):
    manifest = make_dataset(tmp_path, format=format, compression=compression)
    path = tmp_path / manifest.shards[1].path
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    messages = []
    for _ in range(50):
        bad = bytearray(data)
        for place in rng.integers(0, len(data), size=3):
            bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        try:
            for batch in open_dataset(tmp_path).batches("train"):
                read_columns(batch)
                batch.to_pylist()
        except DatasetError as error:
            messages.append(str(error))
    assert messages
    assert all(path.name in text or "mask variants" in text for text in messages)
