"""Shards: one file of instances, as an Arrow IPC file or as a WebDataset tar of Arrow streams.

Both hold the same record batches. In a tar every batch is one sample, `000000017.arrow`, whose
bytes start at a multiple of 512: with the offsets from the manifest it is read in place.
"""

import contextlib
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.files import HashedFile, atomic_file, is_checksum, is_plain_name
from clozemill.pipeline.schema import document_schema

SUFFIX_OF_FORMAT = {"arrow": ".arrow", "webdataset": ".tar"}
"""How the files of each `--format` end."""

_TAR_BLOCK = 512
_TAR_END = bytes(2 * _TAR_BLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One file of instances, as the manifest lists it. Values out of bounds are refused."""

    path: str
    """File name within the dataset's folder."""

    split: str
    """`train` or `validation`."""

    num_instances: int
    """Rows."""

    num_tokens: int
    """Sum of their lengths, with special tokens."""

    num_bytes: int
    """Size of the file."""

    checksum: str
    """`xxh3-128:` and 32 hex digits, over the file's bytes."""

    batch_rows: int
    """Rows of every record batch but the last, which holds the rest."""

    members: tuple[tuple[int, int], ...] = ()
    """Tar only: where the Arrow stream of each batch starts in the file, and its bytes."""

    def __post_init__(self) -> None:
        """Raise `DatasetError` for an entry that no writer makes."""
        _check_name(self.path, tuple(SUFFIX_OF_FORMAT.values()))
        sizes = (self.num_instances, self.num_tokens, self.num_bytes, self.batch_rows)
        _check_entry(self.path, sizes, self.checksum)
        if self.is_tar and len(self.members) != self.num_batches:
            raise _bad_entry(
                self.path, f"{len(self.members)} tar members for {self.num_batches} batches"
            )
        if self.is_tar and not self._members_fit():
            raise _bad_entry(self.path, "tar members outside the file or on top of each other")

    @property
    def is_tar(self) -> bool:
        """Whether the shard is a WebDataset tar."""
        return self.path.endswith(".tar")

    @property
    def num_batches(self) -> int:
        """Record batches in the file."""
        return -(-self.num_instances // self.batch_rows)

    def rows_of(self, batch_index: int) -> int:
        """Return how many rows a record batch holds."""
        return min(self.batch_rows, self.num_instances - batch_index * self.batch_rows)

    def _members_fit(self) -> bool:
        end = 0
        for offset, size in self.members:
            if offset % _TAR_BLOCK or offset < end + _TAR_BLOCK or size <= 0:
                return False
            end = offset + size
        return end <= self.num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsFile:
    """One `documents-*.arrow`."""

    path: str
    """File name within the dataset's folder."""

    num_documents: int
    """Rows."""

    num_bytes: int
    """Size of the file."""

    checksum: str
    """`xxh3-128:` and 32 hex digits, over the file's bytes."""

    def __post_init__(self) -> None:
        """Raise `DatasetError` for an entry that no writer makes."""
        _check_name(self.path, (".arrow",))
        _check_entry(self.path, (self.num_documents, self.num_bytes), self.checksum)


def _check_name(path: str, suffixes: tuple[str, ...]) -> None:
    if not is_plain_name(path) or not path.endswith(suffixes):
        raise DatasetError(
            f"names the file {path!r}, but only {' and '.join(suffixes)} files directly in the "
            "dataset's folder are read"
        )


def _check_entry(path: str, sizes: tuple[int, ...], checksum: str) -> None:
    if not all(0 < size < 2**60 for size in sizes) or not is_checksum(checksum):
        raise _bad_entry(path, "a size or checksum that cannot be")


def _bad_entry(path: str, what: str) -> DatasetError:
    return DatasetError(f"gives {path} {what}")


def write_shard(
    path: Path,
    batches: Iterable[pa.RecordBatch],
    *,
    schema: pa.Schema,
    split: str,
    compression: str = "none",
    first_key: int = 0,
) -> Shard:
    """Write the batches as one shard, and return its entry for the manifest.

    The file appears complete or not at all. All batches but the last have equally many rows.

    Args:
        path: Ends in `.arrow` or `.tar`, which decides the format.
        batches: At least one; none is empty; all with one dictionary of sources.
        schema: Of every batch, from `instance_schema`.
        split: `train` or `validation`.
        compression: `none`, `lz4` or `zstd`, of the buffers inside.
        first_key: Tar only: number of the first sample. Give each shard its own range, so that
            keys are unique in the dataset.

    Raises:
        DatasetError: The file cannot be written.
    """
    counted = _Counter(batches)
    options = _write_options(compression)
    members: list[tuple[int, int]] = []
    with atomic_file(path) as sink:
        if path.suffix == ".tar":
            members = _write_tar(sink, counted, schema, options, first_key)
        else:
            _write_arrow(sink, counted, schema, options)
    return Shard(
        path=path.name,
        split=split,
        num_instances=counted.num_rows,
        num_tokens=counted.num_tokens,
        num_bytes=sink.num_bytes,
        checksum=sink.checksum,
        batch_rows=counted.batch_rows,
        members=tuple(members),
    )


def write_documents(
    path: Path, batches: Iterable[pa.RecordBatch], *, compression: str = "none"
) -> DocumentsFile:
    """Write batches of `document_schema` as one Arrow file, and return its manifest entry."""
    num_documents = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal num_documents
        for batch in batches:
            num_documents += batch.num_rows
            yield batch

    with atomic_file(path) as sink:
        _write_arrow(sink, counted(), document_schema(), _write_options(compression))
    return DocumentsFile(
        path=path.name,
        num_documents=num_documents,
        num_bytes=sink.num_bytes,
        checksum=sink.checksum,
    )


class _Counter:
    """Passes batches on and counts what went by."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self.num_rows = 0
        self.num_tokens = 0
        self.batch_rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.batch_rows = self.batch_rows or batch.num_rows
            # Row i is found by division: a short batch can only be the last.
            assert self.num_rows % self.batch_rows == 0
            assert 0 < batch.num_rows <= self.batch_rows
            self.num_rows += batch.num_rows
            self.num_tokens += len(batch.column("input_ids").flatten())
            yield batch
        assert self.num_rows, "a shard holds at least one instance"


def _write_options(compression: str) -> pa.ipc.IpcWriteOptions:
    """Return the options of every Arrow file of a dataset: `none`, `lz4` or `zstd`."""
    codec = None if compression == "none" else compression
    return pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)


def _write_arrow(
    sink: HashedFile,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    options: pa.ipc.IpcWriteOptions,
) -> None:
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_tar(
    sink: HashedFile,
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    options: pa.ipc.IpcWriteOptions,
    first_key: int,
) -> list[tuple[int, int]]:
    members = []
    for key, batch in enumerate(batches, first_key):
        stream = pa.BufferOutputStream()
        with pa.ipc.new_stream(stream, schema, options=options) as writer:
            writer.write_batch(batch)
        data = stream.getvalue()
        sink.write(_tar_header(sample_name(key), data.size))
        members.append((sink.tell(), data.size))
        sink.write(data)
        sink.write(bytes(-data.size % _TAR_BLOCK))
    sink.write(_TAR_END)
    return members


def sample_name(key: int) -> str:
    """Return the member name of the sample with this number: digits only, so none can merge.

    >>> sample_name(17)
    '000000017.arrow'
    """
    return f"{key:09d}.arrow"


def _tar_header(name: str, size: int) -> bytes:
    # TarInfo's own defaults are the fixed values: mode 0644, owner 0, no owner name, time 0.
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.USTAR_FORMAT)


class ShardReader:
    """A shard mapped into memory; batches are read in place, in any order."""

    def __init__(self, folder: Path, shard: Shard) -> None:
        """Map the file and look at its size, not yet at its bytes.

        Raises:
            DatasetError: The file is absent, or shorter or longer than the manifest says.
        """
        self.shard = shard
        self.path = folder / shard.path
        check_size(self.path, shard.num_bytes)
        with _reading(self.path):
            self._bytes: pa.Buffer = pa.memory_map(str(self.path)).read_buffer()
            if not shard.is_tar:
                self._file = pa.ipc.open_file(self._bytes)
                if self._file.num_record_batches != shard.num_batches:
                    raise _damaged(self.path, "it holds another number of record batches")

    @property
    def schema(self) -> pa.Schema:
        """The columns, as the file itself states them."""
        if not self.shard.is_tar:
            return self._file.schema
        with _reading(self.path):
            return pa.ipc.open_stream(self._bytes.slice(*self.shard.members[0])).schema

    def batch(self, index: int) -> pa.RecordBatch:
        """Return one record batch, checked to be safe to use whatever the file holds."""
        if self.shard.is_tar:
            return read_sample(
                self._bytes.slice(*self.shard.members[index]), self.shard, index, str(self.path)
            )
        with _reading(self.path):
            batch = self._file.get_batch(index)
            # A flipped byte can turn an offset into an address; only the full check looks.
            batch.validate(full=True)
        if batch.num_rows != self.shard.rows_of(index):
            raise _damaged(self.path, f"batch {index} holds {batch.num_rows} rows")
        return batch

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield all batches in order."""
        for index in range(self.shard.num_batches):
            yield self.batch(index)


def read_sample(data: pa.Buffer, shard: Shard, index: int, where: str) -> pa.RecordBatch:
    """Return the record batch in a tar member, checked to be safe to use whatever it holds.

    Args:
        data: The member's bytes.
        shard: The tar it is from.
        index: Its number in the shard.
        where: What to call the tar in errors.
    """
    with _reading(where):
        with pa.ipc.open_stream(data) as stream:
            batch = stream.read_next_batch()
        batch.validate(full=True)
    if batch.num_rows != shard.rows_of(index):
        raise _damaged(where, f"batch {index} holds {batch.num_rows} rows")
    return batch


def read_arrow_file(path: Path, num_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the checked record batches of an Arrow file of a known size.

    Raises:
        DatasetError: The file is absent or damaged; the text names it.
    """
    check_size(path, num_bytes)
    with _reading(path):
        file = pa.ipc.open_file(pa.memory_map(str(path)).read_buffer())
    for index in range(file.num_record_batches):
        with _reading(path):
            batch = file.get_batch(index)
            batch.validate(full=True)
        yield batch


def check_size(path: Path, num_bytes: int) -> None:
    """Raise `DatasetError` unless the file is there with the size the manifest gives."""
    try:
        found = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise _damaged(path, str(error.strerror)) from error
    if found is None:
        raise DatasetError(
            f"{path} is missing, but the manifest lists it; copy it again or rebuild the dataset."
        )
    if found != num_bytes:
        raise DatasetError(
            f"{path} has {found:,} bytes, but the manifest says {num_bytes:,}; copy it again or "
            "rebuild the dataset."
        )


@contextlib.contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    """Turn whatever Arrow says about a damaged file into a `DatasetError` that names it."""
    try:
        yield
    except (pa.ArrowException, OSError, MemoryError, StopIteration) as error:
        said = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise _damaged(path, said) from error


def _damaged(path: Path | str, what: str) -> DatasetError:
    return DatasetError(
        f"{path} cannot be read: {what.rstrip('.')}; copy it again or rebuild the dataset "
        "(clozemill verify lists every damaged file)."
    )
