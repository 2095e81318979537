"""A document: one text with an id that depends on its text alone."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLANK_FOR_PAGE_BREAK = str.maketrans({"\f": " ", "\v": " "})


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One text on its way into the build, and where it was found."""

    id: bytes
    """Its `document_id`."""

    text: str
    """The normalised text: see `normalise_text`."""

    source: str = ""
    """The corpus it belongs to, from the record or from `--source`; never the path."""

    external_id: str | None = None
    """The user's own id (`--id-field`), if there is one."""

    origin_path: str = ""
    """The input file, as the user would name it."""

    origin_offset: int = 0
    """Byte offset of its record or first line in the (decompressed) file, or its row in a
    table (see `read_tables`)."""


def normalise_text(text: str) -> str:
    r"""Return the text a document's id is made from.

    Exactly four steps: a leading byte order mark goes; CRLF and CR become LF; form feed and
    vertical tab become a blank (BERT's normalizer would delete them and join their
    neighbours); outer white space is stripped.

    >>> normalise_text("\ufeffPage one.\fPage two.\r\n")
    'Page one. Page two.'
    """
    text = text.removeprefix("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\f" in text or "\v" in text:
        text = text.translate(_BLANK_FOR_PAGE_BREAK)
    return text.strip()


def document_id(text: str) -> bytes:
    """Return the 16-byte id of a normalised text: BLAKE2b-128 of its UTF-8 bytes.

    Equal texts get one id, which is how duplicates meet.

    >>> document_id("the tea is cold").hex()
    'dd321fea358c98782a05045a597fdf44'
    """
    return id_of_bytes(text.encode())


def id_of_bytes(data: bytes) -> bytes:
    """Return the 16-byte id of a normalised text in UTF-8."""
    return hashlib.blake2b(data, digest_size=16).digest()


def copy_id(original_id: bytes, occurrence: int) -> bytes:
    """Return the id of the n-th kept copy of a document (`--duplicates keep`).

    Copies differ in nothing but their number, so the number is what is hashed beside the id.
    Occurrence 0 is the document itself.
    """
    if occurrence == 0:
        return original_id
    salt = occurrence.to_bytes(8, "little")
    return hashlib.blake2b(original_id, digest_size=16, salt=salt).digest()


def ids_of_copies(ids: NDArray[np.uint64], copies: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return ids (D, 2) with each copy's own in place of its original's.

    Args:
        ids: (D, 2), those of the texts.
        copies: (D,), the number of each copy; 0 for the original.
    """
    own = ids.copy()
    for row in np.flatnonzero(copies):
        own[row] = np.frombuffer(copy_id(ids[row].tobytes(), int(copies[row])), np.uint64)
    return own
