"""An input split becomes documents."""

from collections.abc import Iterator

from clozemill.pipeline.documents import Document
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.input_splits import InputSplit
from clozemill.pipeline.inputs import format_of
from clozemill.pipeline.read_hub import is_hub_name
from clozemill.pipeline.read_records import ReadOptions, ReadTally
from clozemill.pipeline.read_tables import read_table_documents, table_part_at
from clozemill.pipeline.read_text import read_text_documents

__all__ = ["ReadOptions", "ReadTally", "read_document_at", "read_documents"]


def read_documents(split: InputSplit, options: ReadOptions, tally: ReadTally) -> Iterator[Document]:
    """Yield the documents of an input split, in the file's order.

    Every record is counted in `tally` under one fate; see `read_records.RECORD_FATES`.

    Raises:
        InputError: The file cannot be read, or a record cannot and `on_bad_input` is `error`.
    """
    if split.format in ("txt", "jsonl"):
        return read_text_documents(split, options, tally)
    return read_table_documents(split, options, tally)


def read_document_at(
    path: str, offset: int, options: ReadOptions, *, input_format: str | None = None
) -> Document:
    """Return the document with this `origin_path` and `origin_offset`.

    Args:
        path: The file, URL or hf: name.
        offset: Byte offset of its record or first line, or its row (see `read_tables`).
        options: As for `read_documents`.
        input_format: The format, where the file's ending does not tell it.

    Raises:
        InputError: No document starts there, or it cannot be read.
    """
    kind = ("hf", None) if is_hub_name(path) else format_of(path, input_format)
    if kind is None:
        raise InputError(f"the format of {path} is unknown; name it with --input-format.")
    file_format, compression = kind
    is_text = file_format in ("txt", "jsonl")
    start, stop = (offset, None) if is_text else table_part_at(path, file_format, offset)
    split = InputSplit(
        path=path,
        format=file_format,
        compression=compression,
        start=start,
        stop=stop,
        num_bytes=0,
    )
    if is_text:
        documents = read_text_documents(split, options, ReadTally(), is_at_document=True)
    else:
        documents = read_table_documents(split, options, ReadTally())
    for document in documents:
        if document.origin_offset == offset:
            return document
        if is_text:
            break
    raise InputError(f"{path} has no document at offset {offset}; it may have changed since.")
