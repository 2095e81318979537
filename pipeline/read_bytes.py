"""Bytes of input files: opened anywhere, decompressed, cut into lines and byte ranges.

A line ends at LF, CRLF or a lone CR, and nowhere else. A byte range owns the lines that start in
it, so neighbouring ranges share out a file without talking to each other.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

import fsspec
import pyarrow as pa
from fsspec.implementations.local import LocalFileSystem

from clozemill.pipeline.errors import ClozemillError, InputError

BLOCK_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_HEAD_BYTES = 4_096
_IPC_FILE_MAGIC = b"ARROW1"
_WIDE_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32LE"),
    (b"\x00\x00\xfe\xff", "UTF-32BE"),
    (b"\xff\xfe", "UTF-16LE"),
    (b"\xfe\xff", "UTF-16BE"),
)
_PACKED_MARKS = (
    (b"\x1f\x8b", "gzip", ".gz", "zcat"),
    (b"\x28\xb5\x2f\xfd", "zstd", ".zst", "zstdcat"),
)
"""First bytes of compressed files, what they are, their ending, and what unpacks them."""

_SPOOLED = re.compile(r".*/stdin-[0-9a-f]{32}\.[a-z]+")
_NUL_PATTERNS: dict[tuple[bool, ...], str] = {
    (False, True, False, True): "UTF-16LE",
    (True, False, True, False): "UTF-16BE",
    (False, True, True, True): "UTF-32LE",
    (True, True, True, False): "UTF-32BE",
}
_WHITE_SPACE = b"|".join(chr(c).encode() for c in range(0x3001) if chr(c).isspace())
_BLANK_LINE = re.compile(b"(?:" + _WHITE_SPACE + rb")*+\Z")


class NotTextError(InputError):
    """A whole file is in UTF-16 or UTF-32, or compressed though its name does not say so."""


def shown(path: str) -> str:
    """Return how an error names a file: standard input is kept in one with a name of ours."""
    return "standard input" if _SPOOLED.fullmatch(path) else path


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Turn whatever goes wrong while reading into one `InputError` that names the file.

    `Exception`, because every remote file system brings error classes of its own.
    """
    try:
        yield
    except (ClozemillError, MemoryError):
        raise
    except ImportError as error:
        raise InputError(
            f"cannot read {shown(path)}: {one_line(error)}; "
            "for s3:// install the extra with pip install 'clozemill[s3]'."
        ) from error
    except Exception as error:
        raise InputError(
            f"cannot read {shown(path)}: {one_line(error)}; mend that, or leave it out."
        ) from error


def one_line(error: BaseException) -> str:
    """Return an error's text on one line, without its last full stop."""
    reason = error.strerror if isinstance(error, OSError) else None
    text = " ".join((reason or str(error) or type(error).__name__).split())
    return text.rstrip(".")


def is_url(name: str) -> bool:
    """Return whether fsspec takes a name for a URL, or a chain of them, and not for a path."""
    return "://" in name or ("::" in name and not os.path.lexists(name))


def file_system_of(name: str) -> tuple[Any, str]:
    """Return the fsspec file system that a path or URL is on, and what it is called there."""
    if "::" in name and not is_url(name):
        return LocalFileSystem(), os.path.abspath(name)
    found: tuple[Any, str] = fsspec.core.url_to_fs(name)
    return found


def open_binary(path: str) -> BinaryIO:
    """Open a path or URL for reading bytes; the file can be seeked."""
    file_system, place = file_system_of(path)
    handle: Any = file_system.open(place, "rb")
    return handle  # type: ignore[no-any-return]


@contextmanager
def open_arrow(path: str) -> Iterator[tuple[Any, bool]]:
    """Open an Arrow file; gives it, and whether it is an IPC file and no IPC stream.

    A local IPC file is mapped into memory, so that skipping batches costs nothing. A stream is
    not, because its pages would stay resident until all of it is read.
    """
    with ExitStack() as stack:
        handle = stack.enter_context(open_binary(path))
        is_file = handle.read(len(_IPC_FILE_MAGIC)) == _IPC_FILE_MAGIC
        handle.seek(0)
        if is_file and "://" not in path:
            yield stack.enter_context(pa.memory_map(path)), is_file
        else:
            yield pa.PythonFile(handle, mode="r"), is_file


@contextmanager
def _open_stream(path: str, compression: str | None) -> Iterator[Any]:
    with reading(path), open_binary(path) as handle:
        if compression is None:
            yield handle
        else:
            if not handle.read(1):
                raise InputError(
                    f"{shown(path)} is empty, which no {compression} file is: it was cut off; copy "
                    "it again, or leave it out."
                )
            handle.seek(0)
            source = pa.PythonFile(handle, mode="r")
            with pa.CompressedInputStream(source, compression) as stream:
                yield stream


def read_head(path: str, compression: str | None) -> bytes:
    """Return the first (decompressed) bytes of a file."""
    with _open_stream(path, compression) as stream:
        return bytes(stream.read(_HEAD_BYTES))


def read_blocks(path: str, compression: str | None, *, start: int = 0) -> Iterator[bytes]:
    """Yield the (decompressed) bytes of a file from `start` on, a block at a time."""
    with _open_stream(path, compression) as stream:
        if compression is None:
            stream.seek(start)
        else:
            while start > 0 and (num_skipped := len(stream.read(min(start, BLOCK_BYTES)))):
                start -= num_skipped
        yield from iter(lambda: stream.read(BLOCK_BYTES), b"")


def read_text_blocks(path: str, compression: str | None, *, start: int = 0) -> Iterator[bytes]:
    """Yield what `read_blocks` does, of a file that may be UTF-8.

    Raises:
        NotTextError: The file begins in UTF-16 or UTF-32, whose parts could pass for UTF-8, or
            it is compressed.
    """
    blocks = read_blocks(path, compression, start=start)
    first = next(blocks, b"")
    head = first[:_HEAD_BYTES] if start == 0 else read_head(path, compression)
    for mark, kind, ending, unpack in _PACKED_MARKS:
        if head.startswith(mark):
            raise NotTextError(
                f"{shown(path)} is {kind}; pipe it through {unpack}, or give the file's name the "
                f"ending {ending}."
            )
    if name := wide_encoding(head):
        raise NotTextError(
            f"{shown(path)} is {name}, not UTF-8; convert it with iconv -f {name} -t UTF-8."
        )
    return _chain(first, blocks)


def wide_encoding(head: bytes) -> str | None:
    """Return the name of the UTF-16 or UTF-32 form that a file's first bytes are in, if any.

    It is told by its byte order mark, or by NULs at every second or at three of four places.

    >>> wide_encoding("tea".encode("utf-16-be")), wide_encoding(b"tea")
    ('UTF-16BE', None)
    """
    for mark, name in _WIDE_MARKS:
        if head.startswith(mark):
            return name
    if len(head) < 4:
        return None
    shares = [head[i::4].count(0) / len(head[i::4]) for i in range(4)]
    if any(0.1 < share < 0.5 for share in shares):
        return None
    return _NUL_PATTERNS.get(tuple(share >= 0.5 for share in shares))


def leading_mark(path: str, compression: str | None) -> bytes:
    """Return the UTF-8 byte order mark at a file's start, or nothing."""
    head = read_head(path, compression)
    return BYTE_ORDER_MARK if head.startswith(BYTE_ORDER_MARK) else b""


def whole_lines(blocks: Iterable[bytes]) -> Iterator[bytes]:
    r"""Join and cut blocks so that each piece is made of whole lines.

    A CR at the end of a block waits for the next one, which may begin with its LF.

    >>> list(whole_lines([b"a", b"b\r", b"\nc\nd", b"e"]))
    [b'ab\r\nc\n', b'de']
    """
    pending: list[bytes] = []
    for block in blocks:
        cut = max(block.rfind(b"\n"), block.rfind(b"\r", 0, len(block) - 1)) + 1
        if cut:
            lines = b"".join([*pending, block[:cut]])
            pending = []  # before the yield, which may be followed by long work on a long line
            yield lines
        pending.append(block[cut:])
    if tail := b"".join(pending):
        yield tail


def lines_from(
    path: str, compression: str | None, *, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yield (byte offset, line with its ending) for every line from the first in the range on.

    The first is the first line that starts at or after `start`. The reading does not end at
    `stop`, since a document may: the caller ends it. A byte order mark at the file's start is
    left out of its line. `stop` only saves reading on where no line starts before it.
    """
    offset = max(start - 1, 0)
    blocks = read_text_blocks(path, compression, start=offset)
    if start > 0:
        offset, blocks = _skip_line(offset, blocks, stop)
    for piece in whole_lines(blocks):
        for line in piece.splitlines(keepends=True):
            if offset == 0:
                yield 0, line.removeprefix(BYTE_ORDER_MARK)
            else:
                yield offset, line
            offset += len(line)


def _skip_line(
    offset: int, blocks: Iterator[bytes], stop: int | None
) -> tuple[int, Iterator[bytes]]:
    """Leave out the line that lies at `offset`, without holding it in memory.

    Read from one byte before a range, it is the line that the range before owns; if that byte
    is itself a line's last one, only that byte (and the LF after a CR) goes.
    """
    is_after_return = False
    for block in blocks:
        if is_after_return:
            rest = block.removeprefix(b"\n")
            return offset + len(block) - len(rest), _chain(rest, blocks)
        first = block.splitlines(keepends=True)[0] if _has_line_end(block) else block
        offset += len(first)
        if first is not block and len(first) < len(block):
            return offset, _chain(block[len(first) :], blocks)
        if first.endswith(b"\n"):
            return offset, blocks
        is_after_return = first.endswith(b"\r")
        if stop is not None and offset >= stop:
            break
    return offset, iter(())


def _has_line_end(block: bytes) -> bool:
    return b"\n" in block or b"\r" in block


def _chain(first: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from blocks


def is_blank(line: bytes) -> bool:
    r"""Whether a line of UTF-8 holds nothing but what Python calls white space.

    >>> is_blank("\u3000\u00a0\t\n".encode()), is_blank(b" x\n")
    (True, False)
    """
    return _BLANK_LINE.match(line) is not None


def line_number(path: str, compression: str | None, offset: int) -> int:
    """Return the number of the line that holds a byte, counted from 1, by reading up to it.

    Called only when there is an error to report, so reading pays nothing for it.
    """
    num_ends, ends_in_return = 0, False
    for block in read_blocks(path, compression):
        part = block[:offset]
        offset -= len(part)
        num_ends += part.count(b"\n") + part.count(b"\r") - part.count(b"\r\n")
        num_ends -= ends_in_return and part.startswith(b"\n")
        ends_in_return = part.endswith(b"\r")
        if offset == 0:
            break
    return num_ends + 1
