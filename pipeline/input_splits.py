"""Input files, and the splits of them that can be read apart: byte ranges, row groups or rows."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from clozemill.pipeline.read_bytes import open_arrow, open_binary, reading
from clozemill.pipeline.read_hub import load_hub_dataset

Format = Literal["txt", "jsonl", "parquet", "arrow", "hf"]
Compression = Literal["gzip", "zstd"]

TEXT_FORMATS = ("txt", "jsonl")
"""Those that can be compressed as a whole, and split at any byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """A file that will be read, for the build's inventory."""

    path: str
    """Absolute path, URL, `hf:` name, or `-` for standard input."""

    num_bytes: int
    """Its size as it is stored."""

    version: str
    """Changes when the content does: modification time in ns, entity tag, or a content hash."""

    format: Format
    """What it holds."""

    compression: Compression | None
    """How it is compressed as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSplit:
    """A part of a file that is read by itself: the unit of the build's first stage."""

    path: str
    """Absolute path, URL or `hf:` name: what is opened."""

    format: Format
    """What the file holds."""

    compression: Compression | None
    """How the file is compressed as a whole; such a file is one split."""

    start: int
    """First byte (txt, jsonl), row group (parquet), record batch (arrow) or row (hf)."""

    stop: int | None
    """The first one after the split; nothing for the file's end."""

    num_bytes: int
    """About how many stored bytes it spans, for progress."""


def splits_of(file: InputFile, place: str, layout: str, split_bytes: int) -> Iterator[InputSplit]:
    """Yield the splits of a file, of about equal size.

    Args:
        file: What will be read.
        place: Where it is opened: its path, or that of the copy of standard input.
        layout: What a document is in text; a prose file is one, and one split.
        split_bytes: A larger file is split, where its format allows it.
    """
    bounds = [0]
    is_whole = file.compression is not None or (file.format == "txt" and layout == "prose")
    if file.num_bytes > split_bytes and not is_whole:
        bounds = _bounds(file, place, math.ceil(file.num_bytes / split_bytes))
    stops = [*bounds[1:], None]
    share, rest = divmod(file.num_bytes, len(bounds))
    for number, (start, stop) in enumerate(zip(bounds, stops, strict=True)):
        yield InputSplit(
            path=place,
            format=file.format,
            compression=file.compression,
            start=start,
            stop=stop,
            num_bytes=share + (number < rest),
        )


def _bounds(file: InputFile, place: str, num_splits: int) -> list[int]:
    """Return where each of at most so many splits starts."""
    if file.format in TEXT_FORMATS:
        return _even_bounds(file.num_bytes, num_splits)
    if file.format == "hf":
        return _even_bounds(len(load_hub_dataset(place)), num_splits)
    bounds_of = _group_bounds if file.format == "parquet" else _batch_bounds
    with reading(place):
        return bounds_of(place, num_splits)


def _even_bounds(size: int, num_splits: int) -> list[int]:
    return sorted({size * i // num_splits for i in range(num_splits)}) or [0]


def _group_bounds(place: str, num_splits: int) -> list[int]:
    """Return the row groups that start a split, which get about equal bytes."""
    with open_binary(place) as handle:
        metadata = pq.read_metadata(handle)
    sizes = [metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups)]
    room, bounds, filled = sum(sizes) / num_splits, [0], 0
    for group, size in enumerate(sizes):
        if filled >= room:
            bounds.append(group)
            filled = 0
        filled += size
    return bounds


def _batch_bounds(place: str, num_splits: int) -> list[int]:
    with open_arrow(place) as (source, is_file):
        if not is_file:
            return [0]
        return _even_bounds(pa.ipc.open_file(source).num_record_batches, num_splits)
