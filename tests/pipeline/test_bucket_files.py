from pathlib import Path

import pyarrow as pa
import pytest
from tests.pipeline.small_datasets import make_batches, make_columns, schema_for

from clozemill.pipeline.bucket_files import BucketFiles, write_bucket
from clozemill.pipeline.shards import ShardReader

WHOLE = make_batches(make_columns(11), 11)[0]


def files(folder: Path, shard_size: int, key: int = 0, format: str = "arrow") -> BucketFiles:
    return BucketFiles(
        folder=folder,
        name="train-00003",
        key=key,
        split="train",
        schema=schema_for(),
        format=format,
        compression="none",
        shard_size=shard_size,
        batch_rows=2,
    )


def batches(begin: int, end: int) -> list[pa.RecordBatch]:
    return [WHOLE.slice(first, min(2, end - first)) for first in range(begin, end, 2)]


@pytest.mark.parametrize(
    ("num_instances", "shard_size", "sizes"),
    [(10, 5, [5, 5]), (11, 5, [3, 4, 4]), (3, 8, [3]), (11, 11, [11]), (5, 1, [1] * 5), (0, 5, [])],
)
def test_shards_are_equally_long_and_none_is_empty(
    tmp_path: Path, num_instances: int, shard_size: int, sizes: list[int]
):
    shards = list(write_bucket(files(tmp_path, shard_size), num_instances, batches))
    assert [shard.num_instances for shard in shards] == sizes
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"train-00003-{number:03d}.arrow" for number in range(len(sizes))
    ]
    rows = [row for shard in shards for b in ShardReader(tmp_path, shard) for row in b.to_pylist()]
    assert rows == WHOLE.slice(0, num_instances).to_pylist()


def test_samples_of_all_buckets_have_different_names(tmp_path: Path):
    names = []
    for key in (0, 1, 999_999):
        folder = tmp_path / str(key)
        folder.mkdir()
        for shard in write_bucket(files(folder, 4, key, "webdataset"), 11, batches):
            data = (folder / shard.path).read_bytes()
            names += [data[start - 512 : start - 512 + 30] for start, _ in shard.members]
    assert len(names) == 3 * 6
    assert len(set(names)) == len(names)
    assert all(name.rstrip(b"\0").removesuffix(b".arrow").isdigit() for name in names)
