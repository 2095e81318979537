"""Record batches of a WebDataset tar, read in sequence from a path, a URL or a command's output.

Where each record batch lies in the tar stands in the manifest, so nothing has to be searched for:
what comes before is skipped, by seeking where the source can.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa

from clozemill.pipeline.errors import ClozemillError, DatasetError
from clozemill.pipeline.read_bytes import one_line, open_binary
from clozemill.pipeline.shards import Shard, read_sample

PIPE = "pipe:"
"""Begins a location that is a shell command, which writes the tar to its standard output."""

_SKIPPED_BYTES = 1 << 20


def read_tar(shard: Shard, location: str, *, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of a tar from number `first` to `last`.

    Args:
        shard: The tar, as the manifest describes it.
        location: A path, a URL that fsspec knows, or `pipe:` and a command.
        first: The first record batch wanted.
        last: The last one; what follows it is not read.

    Raises:
        DatasetError: The tar cannot be read, ends too early or is damaged; the text names it.
    """
    with _named_errors(location), _opened(location) as source:
        done = 0
        for index in range(first, last + 1):
            offset, size = shard.members[index]
            _skip(source, done, offset)
            data = _read(source, size)
            done = offset + size
            yield read_sample(pa.py_buffer(data), shard, index, location)


@contextmanager
def _opened(location: str) -> Iterator[IO[bytes]]:
    if not location.startswith(PIPE):
        with open_binary(location) as handle:
            yield handle
        return
    command = location.removeprefix(PIPE)
    with subprocess.Popen(
        command, shell=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout
        except EOFError as error:
            code = process.wait()
            raise EOFError(f"{error}, and the command ended with {code}") from error
        finally:
            process.terminate()


@contextmanager
def _named_errors(location: str) -> Iterator[None]:
    """Turn whatever goes wrong into a `DatasetError`: every file system has its own errors."""
    try:
        yield
    except (ClozemillError, MemoryError):
        raise
    except Exception as error:
        raise DatasetError(
            f"{location} cannot be read: {one_line(error)}; check the location, or copy the shard "
            "there again."
        ) from error


def _skip(source: IO[bytes], done: int, offset: int) -> None:
    if source.seekable():
        source.seek(offset)
        return
    while done < offset:
        done += len(_read(source, min(_SKIPPED_BYTES, offset - done)))


def _read(source: IO[bytes], size: int) -> bytes:
    """Return exactly so many bytes; a pipe or a socket may give fewer at a time."""
    parts: list[Any] = []
    missing = size
    while missing:
        part = source.read(missing)
        if not part:
            raise EOFError("it ends too early")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
