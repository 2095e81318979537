"""The shards of a bucket: how its instances are spread over files, whoever writes them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from clozemill.pipeline.dataset_names import shard_name
from clozemill.pipeline.shards import SUFFIX_OF_FORMAT, Shard, write_shard

_KEYS_PER_BUCKET = 1_000_000
"""Most batches of a bucket: keeps the tar samples of different buckets apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFiles:
    """Where and how the shards of one bucket are written."""

    folder: Path
    """The dataset's folder."""

    name: str
    """Start of the file names: split and number of the bucket, as in `train-00003`."""

    key: int
    """The bucket's place among the buckets of all splits."""

    split: str
    """`train` or `validation`."""

    schema: pa.Schema
    """Of every record batch."""

    format: str
    """`arrow` or `webdataset`."""

    compression: str
    """`none`, `lz4` or `zstd`."""

    shard_size: int
    """Most instances in a shard."""

    batch_rows: int
    """Instances in a record batch; the last of a shard holds the rest."""


def write_bucket(
    files: BucketFiles,
    num_instances: int,
    batches: Callable[[int, int], Iterable[pa.RecordBatch]],
) -> Iterator[Shard]:
    """Yield each shard of a bucket once it is written; all but for one instance equally long.

    Args:
        files: Where and how.
        num_instances: Rows of the bucket; none make no shard.
        batches: Returns the rows from a begin to before an end in batches of
            `files.batch_rows`; called for neighbouring ranges in order.
    """
    num_shards = -(-num_instances // files.shard_size)
    first_key = files.key * _KEYS_PER_BUCKET
    for number in range(num_shards):
        begin = num_instances * number // num_shards
        end = num_instances * (number + 1) // num_shards
        name = shard_name(files.name, number, SUFFIX_OF_FORMAT[files.format])
        yield write_shard(
            files.folder / name,
            batches(begin, end),
            schema=files.schema,
            split=files.split,
            compression=files.compression,
            first_key=first_key,
        )
        first_key += -(-(end - begin) // files.batch_rows)
