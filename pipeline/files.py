"""Files that are complete or absent: written aside, forced to disk, renamed, and hashed."""

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import xxhash

from clozemill.pipeline.errors import DatasetError

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_TEMPORARY_NAME = re.compile(r"\..+\.[0-9]+-[0-9a-f]{8}\.tmp")
_CHECKSUM = re.compile(r"xxh3-128:[0-9a-f]{32}")
_CHUNK_BYTES = 1 << 20
_SEND_BYTES = 8 << 20


class HashedFile:
    """A binary file open for writing that counts and hashes what goes into it."""

    def __init__(self, raw: BinaryIO, path: Path) -> None:
        """Wrap an open file, to which nothing may have been written; the path is for errors."""
        self._raw = raw
        self._path = path
        self._hash = xxhash.xxh3_128()
        self._num_sent_bytes = 0
        self.num_bytes = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append the bytes."""
        try:
            self._raw.write(data)
        except OSError as error:
            raise _cannot_write(self._path, error) from error
        self._hash.update(data)
        self.num_bytes += len(data)
        if self.num_bytes - self._num_sent_bytes >= _SEND_BYTES:
            self._send()
        return len(data)

    def _send(self) -> None:
        """Let the system begin to bring to disk what was written, so that the end waits less."""
        if hasattr(os, "posix_fadvise"):
            # Linux begins to write out what it is told will not be needed.
            size = self.num_bytes - self._num_sent_bytes
            os.posix_fadvise(self._raw.fileno(), self._num_sent_bytes, size, os.POSIX_FADV_DONTNEED)
        self._num_sent_bytes = self.num_bytes

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self.num_bytes

    def flush(self) -> None:
        """Do nothing: what is buffered goes to disk when the block ends."""

    def close(self) -> None:
        """Do nothing: Arrow's writers close their sink, but the file ends when it is renamed."""

    @property
    def checksum(self) -> str:
        """The checksum so far, as the manifest writes it."""
        return f"xxh3-128:{self._hash.hexdigest()}"


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[HashedFile]:
    """Open a file that appears under `path` when the block ends well, and leaves no trace if not.

    It is written under a name of this process alone, so two writers of one path cannot mix. What
    the block itself raises stays as it is, such as an error of a file that it reads.

    Raises:
        DatasetError: The disk is full, or the folder cannot be written.
    """
    aside = aside_path(path)
    with _writing(path):
        raw = aside.open("xb", buffering=_CHUNK_BYTES)
    try:
        yield HashedFile(raw, path)
        with _writing(path):
            raw.flush()
            os.fsync(raw.fileno())
            raw.close()
            aside.replace(path)
            sync_folder(path.parent)
    finally:
        # Closing flushes, which fails once more on a full disk; then nothing is to be kept.
        with contextlib.suppress(OSError):
            raw.close()
        aside.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Give a new folder to fill with files, which appears under `path` when the block ends well.

    The files are forced to disk before. If the block fails, no trace is left; a process that is
    killed leaves a folder for whose name `is_temporary` holds.

    Raises:
        DatasetError: The disk is full, the folder cannot be written, or `path` is not free.
    """
    aside = aside_path(path)
    try:
        with _writing(path):
            aside.mkdir(parents=True)
        yield aside
        with _writing(path):
            for file in aside.iterdir():
                with file.open("rb") as stream:
                    os.fsync(stream.fileno())
            sync_folder(aside)
            aside.rename(path)
            sync_folder(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def aside_path(path: Path) -> Path:
    """Return a name beside `path` of this process alone, for which `is_temporary` holds."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError) -> DatasetError:
    return DatasetError(
        f"cannot write {path}: {error.strerror or error}; free some space or choose another "
        "output folder, then run the same command again."
    )


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON with sorted keys, complete or not at all."""
    with atomic_file(path) as sink:
        sink.write(json.dumps(value, sort_keys=True, ensure_ascii=False).encode() + b"\n")


def sync_folder(folder: Path) -> None:
    """Force the folder's list of names to disk, so that a rename outlives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_temporary(name: str) -> bool:
    """Return whether `atomic_file` could have left a file of this name when it was killed."""
    return _TEMPORARY_NAME.fullmatch(name) is not None


def has_utf8_name(path: str | Path) -> bool:
    r"""Return whether a path can be written into a file, which bytes that are no text cannot.

    >>> has_utf8_name("d'\u00e9t\u00e9"), has_utf8_name("\udcff.txt")
    (True, False)
    """
    return not any("\ud800" <= character <= "\udfff" for character in str(path))


def bytes_spelled_out(text: str) -> str:
    r"""Return a text in which bytes that are not UTF-8 are spelled out.

    >>> print(bytes_spelled_out("a\udcff.txt"))
    a\xff.txt
    """
    data = text.encode("utf-8", "surrogateescape" if _is_from_bytes(text) else "backslashreplace")
    return data.decode("utf-8", "backslashreplace")


def _is_from_bytes(text: str) -> bool:
    """Return whether every surrogate of a text stands for a byte of a name that is not UTF-8."""
    return all("\udc80" <= c <= "\udcff" for c in text if "\ud800" <= c <= "\udfff")


def is_plain_name(name: str) -> bool:
    """Return whether a name from a manifest is a file directly in the dataset's folder.

    >>> is_plain_name("train-000003.arrow"), is_plain_name("../secret"), is_plain_name(".hidden")
    (True, False, False)
    """
    return _FILE_NAME.fullmatch(name) is not None


def is_checksum(text: str) -> bool:
    """Return whether the text is a checksum as the manifest writes it."""
    return _CHECKSUM.fullmatch(text) is not None


def open_regular(path: Path) -> BinaryIO:
    """Open a file of a dataset for reading; a stranger's may hold pipes and links to devices.

    Raises:
        OSError: It is missing, cannot be read, or is no regular file, which could be endless.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # or a pipe waits for a writer
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return open(descriptor, "rb")


def file_checksum(path: Path) -> str:
    """Return the XXH3-128 of a file's bytes, as the manifest writes it.

    Raises:
        DatasetError: The file cannot be read.
    """
    state = xxhash.xxh3_128()
    try:
        with open_regular(path) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                state.update(chunk)
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror or error}.") from error
    return f"xxh3-128:{state.hexdigest()}"
