"""Documents of tables: Parquet, Arrow IPC and `datasets`; a document's offset is its row.

In an Arrow IPC file the rows before a record batch can only be counted by reading them, so an
offset there is the number of the batch times 2**32, plus the row in it.
"""

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from clozemill.pipeline.documents import Document
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.input_splits import InputSplit
from clozemill.pipeline.read_bytes import open_arrow, open_binary, reading, shown
from clozemill.pipeline.read_hub import load_hub_dataset
from clozemill.pipeline.read_records import (
    RECORDS_READ,
    ReadOptions,
    ReadTally,
    RecordReader,
)

_ROWS_AT_ONCE = 1_024
_BATCH_SHIFT = 32

Rows = tuple[int, list[str], Any]
"""Offset of the first row, the names of all columns, and a batch or table of the wanted ones."""


def read_table_documents(
    split: InputSplit, options: ReadOptions, tally: ReadTally
) -> Iterator[Document]:
    """Yield the documents of some row groups, record batches or rows of a table."""
    reader = RecordReader(
        path=split.path,
        options=options,
        tally=tally,
        locate=functools.partial(_place, split),
    )
    fields = (options.text_field, options.id_field, options.source_field)
    wanted = {name for name in fields if name is not None}
    row_readers = {"parquet": _parquet_rows, "arrow": _arrow_rows, "hf": _hub_rows}
    with reading(split.path):
        for first, names, rows in row_readers[split.format](split, wanted):
            if options.text_field not in names:
                tally.counts[RECORDS_READ] += rows.num_rows
                tally.note_missing_text(names, num_records=rows.num_rows)
                continue
            if not wanted.issubset(names):
                tally.note_fields(names)
            _check_text_type(split.path, options.text_field, rows.schema)
            for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
                piece = rows.slice(start, _ROWS_AT_ONCE)
                yield from _documents_of_rows(first + start, piece, reader)


def table_part_at(path: str, file_format: str, offset: int) -> tuple[int, int | None]:
    """Return the smallest part (start, stop) of a table that holds a document's offset."""
    if file_format == "hf":
        return offset, offset + 1
    if file_format == "arrow":
        batch = offset >> _BATCH_SHIFT
        return batch, batch + 1
    with reading(path), open_binary(path) as handle:
        metadata = pq.read_metadata(handle)
    row = offset
    for group in range(metadata.num_row_groups):
        row -= metadata.row_group(group).num_rows
        if row < 0:
            return group, group + 1
    return 0, 0


def _place(split: InputSplit, offset: int, index: int | None) -> str:
    """Return where a row is, and which byte of its text is meant."""
    batch, row = divmod(offset, 1 << _BATCH_SHIFT)
    where = f"batch {batch}, row {row}" if split.format == "arrow" else f"row {offset}"
    return f"{shown(split.path)}, {where}" + ("" if index is None else f", byte {index}")


def _documents_of_rows(first: int, rows: Any, reader: RecordReader) -> Iterator[Document]:
    text_field = reader.options.text_field
    names = rows.schema.names
    columns = [
        _texts(column) if name == text_field else column.to_pylist()
        for name, column in zip(names, rows.columns, strict=True)
    ]
    for row, values in enumerate(zip(*columns, strict=True), start=first):
        reader.tally.counts[RECORDS_READ] += 1
        record = dict(zip(names, values, strict=True))
        if isinstance(record[text_field], bytes):
            record[text_field] = reader.decode(record[text_field], row)
            if record[text_field] is None:
                continue
        document = reader.document_from_fields(record, row)
        if document is not None:
            yield document


def _texts(column: Any) -> list[str | bytes | None]:
    """Return a string column's values; all as bytes where one of them is not UTF-8."""
    try:
        values: list[str | bytes | None] = column.to_pylist()
    except UnicodeDecodeError:
        if pa.types.is_dictionary(column.type):
            column = pc.dictionary_decode(column)
        values = column.cast(pa.large_binary()).to_pylist()
    return values


def _check_text_type(path: str, name: str, schema: Any) -> None:
    kind = schema.field(name).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    checks = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_string_view,
        pa.types.is_null,
    )
    if not any(check(kind) for check in checks):
        raise InputError(
            f"{shown(path)}: the column {name!r} is of type {kind}, it must hold strings; "
            "name another with --text-field."
        )


def _parquet_rows(split: InputSplit, wanted: set[str]) -> Iterator[Rows]:
    with (
        open_binary(split.path) as handle,
        pq.ParquetFile(handle, buffer_size=1 << 20, pre_buffer=False) as file,
    ):
        names = file.schema_arrow.names
        stop = file.num_row_groups if split.stop is None else split.stop
        row = sum(file.metadata.row_group(i).num_rows for i in range(split.start))
        for batch in file.iter_batches(
            batch_size=_ROWS_AT_ONCE,
            row_groups=list(range(split.start, stop)),
            columns=[name for name in names if name in wanted],
            use_threads=False,
        ):
            yield row, names, batch
            row += batch.num_rows


def _arrow_rows(split: InputSplit, wanted: set[str]) -> Iterator[Rows]:
    with open_arrow(split.path) as (source, is_file):
        opener = pa.ipc.open_file if is_file else pa.ipc.open_stream
        names = opener(source).schema.names
        source.seek(0)
        places = [place for place, name in enumerate(names) if name in wanted]
        options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
        batches = opener(source, options=options)
        if is_file:
            stop = batches.num_record_batches if split.stop is None else split.stop
            numbers = range(split.start, stop)
            numbered: Iterator[tuple[int, Any]] = zip(
                numbers, map(batches.get_batch, numbers), strict=True
            )
        else:
            numbered = itertools.islice(enumerate(batches), split.start, split.stop)
        for number, batch in numbered:
            yield number << _BATCH_SHIFT, names, batch


def _hub_rows(split: InputSplit, wanted: set[str]) -> Iterator[Rows]:
    dataset = load_hub_dataset(split.path)
    names = dataset.column_names
    kept = [name for name in names if name in wanted]
    table = dataset.select_columns(kept or names[:1]).with_format("arrow")
    stop = len(dataset) if split.stop is None else min(split.stop, len(dataset))
    for start in range(split.start, stop, _ROWS_AT_ONCE):
        yield start, names, table[start : min(start + _ROWS_AT_ONCE, stop)]
