"""A built dataset, read: splits of instances in record batches, in order or by number.

This is the one door to the shards, for training, analysis and for programs of your own:

    dataset = open_dataset("data/wiki")
    for batch in dataset.batches("train"):          # pyarrow.RecordBatch, columns of docs/format.md
        columns = read_columns(batch)               # the same as flat NumPy arrays
    some = dataset.take("train", [7, 40_001, 3])    # any instances, in this order

Readers follow the manifest, never a glob: a file too many is not read, a file too few is an error.
"""

import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from clozemill.pipeline.columns import one_batch
from clozemill.pipeline.config import SPLITS
from clozemill.pipeline.dataset_names import TOKENIZER_FOLDER
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.instances import starts_of, token_dtype
from clozemill.pipeline.manifest import Manifest, dataset_folder, read_manifest
from clozemill.pipeline.schema import document_schema, instance_schema
from clozemill.pipeline.shards import DocumentsFile, Shard, ShardReader, check_size, read_arrow_file

_CACHED_BATCHES = 128
"""Two shards of the default size; those without compression are views, and cost next to nothing."""


def open_dataset(folder: str | os.PathLike[str]) -> "Dataset":
    """Return the dataset in a folder, after checking that every listed file has its size.

    Args:
        folder: It, or the manifest in it.

    Raises:
        DatasetError: There is no finished dataset, or a file is missing, short, long or of
            another schema; the text names it. Bytes are compared by `clozemill verify`.
    """
    return Dataset(dataset_folder(folder))


class Dataset:
    """An opened dataset. It may be pickled and sent to workers, who map the files themselves."""

    def __init__(self, folder: Path) -> None:
        """Use `open_dataset`."""
        self.folder = folder
        self.manifest: Manifest = read_manifest(folder)
        for file in self.manifest.files:
            check_size(folder / file.path, file.num_bytes)
        self._firsts = {
            split: starts_of([shard.num_instances for shard in self.manifest.shards_of(split)])
            for split in self.manifest.splits
        }
        self._forget()
        self.schema: pa.Schema = self._read_schema()
        """Schema of every record batch."""

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs; mapped files do not travel."""
        state = dict(self.__dict__)
        for name in ("_readers", "_batches"):
            del state[name]
        state["schema"] = self.schema.serialize().to_pybytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the copy."""
        self.__dict__.update(state)
        self.schema = pa.ipc.read_schema(pa.py_buffer(state["schema"]))
        self._forget()

    def _forget(self) -> None:
        self._readers: dict[str, ShardReader] = {}
        self._batches: OrderedDict[tuple[str, int], pa.RecordBatch] = OrderedDict()

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that hold instances: `train` and perhaps `validation`."""
        return tuple(split for split in SPLITS if split in self.manifest.splits)

    @property
    def source_names(self) -> pa.Array:
        """The corpora, sorted: what the `source` column's numbers mean."""
        return pa.array(self.manifest.sources, pa.string())

    @property
    def tokenizer_dir(self) -> Path:
        """Folder of the tokenizer, ready for `transformers.AutoTokenizer`."""
        return self.folder / TOKENIZER_FOLDER

    def num_instances(self, split: str) -> int:
        """Return how many instances a split has."""
        self._check_split(split)
        return self.manifest.splits[split].num_instances

    def num_variants(self, split: str) -> int:
        """Return how many static maskings a split stores per instance."""
        self._check_split(split)
        return self.manifest.splits[split].num_variants

    def batches(self, split: str) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of a split in order; one batch is in memory at a time."""
        self._check_split(split)
        for shard in self.manifest.shards_of(split):
            yield from self.shard_batches(shard)

    def shard_batches(self, shard: Shard) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of one shard in order."""
        reader = ShardReader(self.folder, shard)
        for index in range(shard.num_batches):
            yield self._checked(reader.batch(index), shard)

    def shard_batch(self, shard: Shard, index: int) -> pa.RecordBatch:
        """Return one record batch of a shard; the mapped file is kept, the batch is not."""
        if shard.path not in self._readers:
            self._readers[shard.path] = ShardReader(self.folder, shard)
        return self._checked(self._readers[shard.path].batch(index), shard)

    def take(self, split: str, indices: ArrayLike) -> pa.RecordBatch:
        """Return the instances with these numbers, in the order asked for, as one record batch.

        Instance i of a split is the i-th row over its shards. Ask for many at once: each record
        batch touched is opened once per call (and kept while recently used).

        Args:
            split: `train` or `validation`.
            indices: (n,) whole numbers; repeats are allowed.

        Raises:
            IndexError: A number is negative or not below `num_instances(split)`.
        """
        wanted = np.asarray(indices, dtype=np.int64).reshape(-1)
        total = self.num_instances(split)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < total:
            raise IndexError(f"instances of {split} are numbered 0 to {total - 1}")
        order = np.argsort(wanted, kind="stable")
        parts = list(self._sorted_parts(split, wanted[order]))
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=self.schema)
        joined = one_batch(parts)
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        # The take of a batch is several times faster than that of a table.
        return joined.take(pa.array(back))

    def documents(self) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of the documents files: one row per distinct document."""
        for file in self.manifest.documents:
            yield from read_document_rows(self.folder, file)

    def _sorted_parts(self, split: str, wanted: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ascending numbers, one part per record batch touched."""
        shards, firsts = self.manifest.shards_of(split), self._firsts[split]
        begin = 0
        while begin < len(wanted):
            place = int(np.searchsorted(firsts, wanted[begin], side="right")) - 1
            shard, first_row = shards[place], int(firsts[place])
            index = (int(wanted[begin]) - first_row) // shard.batch_rows
            first_row += index * shard.batch_rows
            end = int(np.searchsorted(wanted, first_row + shard.rows_of(index)))
            batch = self._cached(shard, index)
            yield batch.take(pa.array(wanted[begin:end] - first_row))
            begin = end

    def _cached(self, shard: Shard, index: int) -> pa.RecordBatch:
        key = (shard.path, index)
        if key not in self._batches:
            self._batches[key] = self.shard_batch(shard, index)
            if len(self._batches) > _CACHED_BATCHES:
                self._batches.popitem(last=False)
        self._batches.move_to_end(key)
        return self._batches[key]

    def _check_split(self, split: str) -> None:
        if split not in self.manifest.splits:
            raise DatasetError(
                f"{self.folder} has no split {split!r}; it has {' and '.join(self.splits)}."
            )

    def _read_schema(self) -> pa.Schema:
        """Return the schema of the first shard if it is one this manifest allows."""
        manifest = self.manifest
        if not manifest.shards:
            raise DatasetError(f"{self.folder} lists no shards; rebuild the dataset.")
        shard = manifest.shards[0]
        found = ShardReader(self.folder, shard).schema
        if any(found.equals(allowed) for allowed in allowed_schemas(manifest)):
            return found
        raise self._other_schema(shard, "the columns that docs/format.md describes")

    def _checked(self, batch: pa.RecordBatch, shard: Shard) -> pa.RecordBatch:
        if not batch.schema.equals(self.schema):
            raise self._other_schema(shard, "the columns of the other shards")
        if not batch.column("source").dictionary.equals(self.source_names):
            raise self._other_schema(shard, "the manifest's dictionary of sources")
        return batch

    def _other_schema(self, shard: Shard, expected: str) -> DatasetError:
        return DatasetError(
            f"{self.folder / shard.path} does not have {expected}; copy it again or rebuild the "
            "dataset."
        )


def allowed_schemas(manifest: Manifest) -> tuple[pa.Schema, ...]:
    """Return the schemas of which all shards of the dataset have one: narrow and wide spans."""
    return tuple(
        instance_schema(
            token_dtype=token_dtype(manifest.tokenizer.vocab_size),
            max_seq_length=manifest.max_seq_length,
            num_sources=len(manifest.sources),
            most_span_value=most_span_value,
        )
        for most_span_value in (2**16 - 1, 2**32 - 1)
    )


def read_document_rows(folder: Path, file: DocumentsFile) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of one documents file.

    Raises:
        DatasetError: The file is absent, damaged, or has other columns or rows than it should.
    """
    path = folder / file.path
    num_rows = 0
    for batch in read_arrow_file(path, file.num_bytes):
        if not batch.schema.equals(document_schema()):
            raise DatasetError(f"{path} does not have the columns of a documents file; rebuild.")
        num_rows += batch.num_rows
        yield batch
    if num_rows != file.num_documents:
        raise DatasetError(
            f"{path} has {num_rows} rows, but the manifest says {file.num_documents}; copy it "
            "again or rebuild the dataset."
        )
