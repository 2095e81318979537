"""Documents of text files and JSON lines."""

import functools
import json
import math
from collections.abc import Iterator

from clozemill.pipeline.documents import Document
from clozemill.pipeline.input_splits import InputSplit
from clozemill.pipeline.other_formats import conversion, whole_json
from clozemill.pipeline.read_bytes import (
    BYTE_ORDER_MARK,
    NotTextError,
    is_blank,
    leading_mark,
    line_number,
    lines_from,
    read_text_blocks,
    shown,
)
from clozemill.pipeline.read_records import (
    BAD_JSON,
    BAD_RECORD,
    BAD_UTF8,
    RECORDS_READ,
    ReadOptions,
    ReadTally,
    RecordReader,
    kind_of,
)

_JSON_SPACE = " \t\r\n"
_decode_json = json.JSONDecoder().raw_decode


def read_text_documents(
    part: InputSplit, options: ReadOptions, tally: ReadTally, *, is_at_document: bool = False
) -> Iterator[Document]:
    """Yield the documents that a byte range of a text or JSON lines file owns.

    Args:
        part: The range.
        options: How to read it.
        tally: Where records are counted.
        is_at_document: A document is known to start at the range's first byte.
    """
    reader = RecordReader(
        path=part.path,
        options=options,
        tally=tally,
        locate=functools.partial(_place, part),
    )
    try:
        if part.format == "jsonl":
            yield from _documents_of_json_lines(part, reader)
        elif options.layout == "lines":
            yield from _documents_of_lines(part, reader)
        elif options.layout == "sentences":
            yield from _documents_of_sentences(part, reader, is_at_document=is_at_document)
        else:
            yield from _document_of_prose(part, reader)
    except NotTextError:
        if options.on_bad_input == "error":
            raise
        if part.start == 0:
            tally.counts[RECORDS_READ] += 1
            tally.counts[BAD_UTF8] += 1


def _place(part: InputSplit, offset: int, index: int | None) -> str:
    """Return `file:line` of a record, or of a byte of it together with its offset."""
    if index is not None and offset == 0:  # a mark was left out before the record
        index += len(leading_mark(part.path, part.compression))
    line = line_number(part.path, part.compression, offset + (index or 0))
    where = f"{shown(part.path)}:{line}"
    return where if index is None else f"{where}, byte offset {offset + index}"


def _owned_lines(part: InputSplit) -> Iterator[tuple[int, bytes]]:
    lines = lines_from(part.path, part.compression, start=part.start, stop=part.stop)
    if part.stop is None:
        yield from lines
        return
    for offset, line in lines:
        if offset >= part.stop:
            return
        yield offset, line


def _documents_of_json_lines(part: InputSplit, reader: RecordReader) -> Iterator[Document]:
    """Yield the document of each line; a blank line is no record."""
    counts = reader.tally.counts
    for offset, line in _owned_lines(part):
        if not line or line.isspace():
            continue
        counts[RECORDS_READ] += 1
        document = _document_of_json(line, offset, reader)
        if document is not None:
            yield document


def _document_of_json(line: bytes, offset: int, reader: RecordReader) -> Document | None:
    text = reader.decode(line, offset)
    if text is None:
        return None
    text = text.strip(_JSON_SPACE)
    try:
        record, end = _decode_json(text)
        if end != len(text):
            raise json.JSONDecodeError("something follows the object", text, end)
    except json.JSONDecodeError as error:
        what = f"not JSON ({error.msg}, column {error.colno})"
        reader.refuse(BAD_JSON, offset, what + _hint(text, offset, reader))
    except RecursionError:
        reader.refuse(BAD_JSON, offset, "the JSON is nested too deeply")
    except ValueError:  # int() refuses numbers of more than 4,300 digits
        reader.refuse(BAD_JSON, offset, "the JSON holds a number with thousands of digits")
    else:
        if isinstance(record, dict):
            return reader.document_from_fields(record, offset)
        what = f"the record is {kind_of(record)}, it must be an object"
        reader.refuse(BAD_RECORD, offset, what + _hint(text, offset, reader))
    return None


def _hint(line: str, offset: int, reader: RecordReader) -> str:
    """Return what to do with a file whose first line shows that records are no lines."""
    what = whole_json(line) if offset == 0 and shown(reader.path) == reader.path else None
    if what is None:
        return ""
    return f"; if the file is {what}, convert it with {conversion(reader.path, '.json')}"


def _documents_of_lines(part: InputSplit, reader: RecordReader) -> Iterator[Document]:
    for offset, line in _owned_lines(part):
        yield from _document_of_bytes(line, offset, reader)


def _documents_of_sentences(
    part: InputSplit, reader: RecordReader, *, is_at_document: bool
) -> Iterator[Document]:
    """Yield the documents that follow a blank line which starts in the range.

    So the range that holds the last of several blank lines owns what follows, and nobody has to
    look back. The file's start counts as such a line.
    """
    stop = math.inf if part.stop is None else part.stop
    is_owned = is_at_document or part.start == 0
    first, lines = 0, list[bytes]()
    for offset, line in lines_from(part.path, part.compression, start=part.start, stop=part.stop):
        if is_blank(line):
            if lines:
                yield from _document_of_bytes(b"".join(lines), first, reader)
            lines = []
            is_owned = offset < stop
        elif is_owned:
            first = first if lines else offset
            lines.append(line)
        if not is_owned and offset >= stop:
            return
    if lines:
        yield from _document_of_bytes(b"".join(lines), first, reader)


def _document_of_prose(part: InputSplit, reader: RecordReader) -> Iterator[Document]:
    data = b"".join(read_text_blocks(part.path, part.compression))
    yield from _document_of_bytes(data.removeprefix(BYTE_ORDER_MARK), 0, reader)


def _document_of_bytes(data: bytes, offset: int, reader: RecordReader) -> Iterator[Document]:
    """Yield the document that some bytes are, if it is one, and count the record."""
    reader.tally.counts[RECORDS_READ] += 1
    text = reader.decode(data, offset)
    document = None if text is None else reader.document_from_text(text, offset)
    if document is not None:
        yield document
