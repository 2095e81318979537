"""Origins: where every occurrence of a document was read, as `origins.jsonl` tells it.

The file lies outside the laws of the dataset: the same documents read elsewhere give another one.
"""

import json
import shutil
from collections.abc import Iterable, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.files import atomic_file, open_regular

_ID_BEGIN = len('{"document_id": "')


class Origin(NamedTuple):
    """Where one occurrence of a document was read."""

    file: str
    """The input file, as its user named it."""

    offset: int
    """Byte offset of its record or first line, or its row in a table."""

    copy: int
    """Its number among kept copies, which is part of its id; 0 for the document itself."""


class Origins(NamedTuple):
    """Where documents were read, a row for every occurrence (Q,), dropped ones too."""

    document_ids: NDArray[np.uint64]
    """(Q, 2): the ids, as two little-endian words; a kept copy has one of its own."""

    copies: NDArray[np.int64]
    """(Q,): number among kept copies; 0 for all others."""

    files: list[str]
    """(Q,): see `Origin`."""

    offsets: list[int]
    """(Q,): see `Origin`."""


def write_origins(path: Path, origins: Origins) -> None:
    """Write a JSON line for every occurrence."""
    rows = zip(
        origins.document_ids, origins.copies.tolist(), origins.files, origins.offsets, strict=True
    )
    with atomic_file(path) as sink:
        for document_id, copy, file, offset in rows:
            # The id comes first, where `find_origins` looks for it.
            line = {"document_id": document_id.tobytes().hex(), "file": file, "offset": offset}
            if copy:
                line["copy"] = copy
            sink.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")


def join_origins(path: Path, pieces: Iterable[Path]) -> None:
    """Write the lines of several files as one."""
    with atomic_file(path) as sink:
        for piece in pieces:
            with piece.open("rb") as stream:
                shutil.copyfileobj(stream, sink)


def find_origins(path: Path, wanted: Set[bytes]) -> dict[bytes, Origin]:
    """Return where each document was read: of several occurrences, that which stands for all.

    Empty where the file is missing; what comes after damage in it is not found.
    """
    found: dict[bytes, Origin] = {}
    needles = {key.hex().encode() for key in wanted}
    try:
        with open_regular(path) as stream:
            for line in stream:
                if line[_ID_BEGIN : _ID_BEGIN + 32] in needles:
                    record = json.loads(line)
                    offset, copy = int(record["offset"]), int(record.get("copy", 0))
                    if not 0 <= copy < 2**63:
                        raise ValueError(copy)
                    origin = Origin(str(record["file"]), offset, copy)
                    found.setdefault(bytes.fromhex(record["document_id"]), origin)
    except (OSError, ValueError, LookupError, TypeError, OverflowError, RecursionError):
        pass
    return found
