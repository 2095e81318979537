"""A query and its result, read a batch at a time; what DuckDB refuses is told in one line."""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from clozemill.pipeline.errors import QueryError
from clozemill.pipeline.files import atomic_file

_BATCH_ROWS = 8_192

Value = TypeVar("Value")


class QueryResult:
    """The rows of a query, which is run while they are read."""

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        reader: pa.RecordBatchReader,
        names: Sequence[str],
    ) -> None:
        """Take the connection that computes, the open result, and the names of its columns."""
        self._connection = connection
        self._reader = reader
        names = _unique(names)
        fields = [field.with_name(name) for field, name in zip(reader.schema, names, strict=True)]
        self.schema = pa.schema(fields)
        """The columns; of equal names the later ones end in `_1`, `_2`, ..."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; they can be read once.

        Raises:
            QueryError: The query fails on the way.
        """
        with told_in_a_line():
            batches = iter(self._reader)
            while (batch := _run(self._connection, lambda: next(batches, None))) is not None:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows, at most so many."""
        parts: list[pa.RecordBatch] = []
        num_missing = num_rows
        for batch in self.batches():
            parts.append(batch.slice(0, num_missing))
            num_missing -= parts[-1].num_rows
            if not num_missing:
                break
        return pa.Table.from_batches(parts, self.schema)


@contextlib.contextmanager
def answer(
    connection: duckdb.DuckDBPyConnection, sql: str, *, is_printed: bool = False
) -> Iterator[QueryResult]:
    """Give the rows of a query. Columns of types that Arrow lacks are text.

    Args:
        connection: Of `open_database`.
        sql: A statement, perhaps after others that give no rows, such as `set variable`.
        is_printed: Dates and times are text as well: DuckDB has years that Python has not.

    Raises:
        QueryError: There is no statement, or rows of one before the last would be lost, or DuckDB
            refuses one.
    """
    with told_in_a_line():
        _check_statements(connection.extract_statements(sql))
        relation = _run(connection, lambda: connection.sql(sql))
        if relation is None:
            raise QueryError("the query is empty; ask something, such as: from instances limit 3;")
        names = relation.columns
        shown = _with_text(relation, is_printed=is_printed)
        reader = _run(connection, lambda: shown.to_arrow_reader(_BATCH_ROWS))
    try:
        yield QueryResult(connection, reader, names)
    finally:
        # An open result would keep the connection from the next query.
        reader.close()


_FOREIGN_TO_ARROW = re.compile(
    r"\b(UHUGEINT|BIT|BIGNUM|VARINT|INTERVAL|UNION|TIME WITH TIME ZONE)\b"
)
_TIMES = re.compile(r"\b(DATE|TIME|TIMESTAMP\w*)\b")


def _with_text(relation: duckdb.DuckDBPyRelation, *, is_printed: bool) -> duckdb.DuckDBPyRelation:
    """Return the relation with columns that would be lost or changed on their way as text."""
    types = [str(kind) for kind in relation.types]
    is_text = [
        bool(_FOREIGN_TO_ARROW.search(kind) or (is_printed and _TIMES.search(kind)))
        for kind in types
    ]
    if not any(is_text):
        return relation
    columns = (f"#{n}::varchar" if cast else f"#{n}" for n, cast in enumerate(is_text, start=1))
    return relation.project(", ".join(columns))


def _check_statements(statements: Sequence[duckdb.Statement]) -> None:
    if any(map(_gives_rows, statements[:-1])):
        raise QueryError(
            f"these are {len(statements)} statements, and one before the last gives rows, which "
            "nobody would see; ask one at a time."
        )


def _gives_rows(statement: duckdb.Statement) -> bool:
    # A pivot is several statements to DuckDB, of which the last gives rows.
    return statement.type == duckdb.StatementType.MULTI or statement.expected_result_type == [
        duckdb.ExpectedResultType.QUERY_RESULT
    ]


def _run(connection: duckdb.DuckDBPyConnection, work: Callable[[], Value]) -> Value:
    """Return what a part of a query returns, which an interrupt ends.

    DuckDB looks for signals only between portions of its own; so it works in another thread, and
    this one waits for either.
    """
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(work)
        try:
            return future.result()
        except KeyboardInterrupt:
            connection.interrupt()
            raise


def write_parquet(found: QueryResult, path: Path) -> int:
    """Write a result as a Parquet file, which appears once it is whole; return its rows.

    Raises:
        QueryError: The query fails on the way, or has a column that Parquet does not know.
        DatasetError: The file cannot be written.
    """
    num_rows = 0
    with told_in_a_line(), atomic_file(path) as sink, pq.ParquetWriter(sink, found.schema) as file:
        for batch in found.batches():
            file.write_batch(batch)
            num_rows += batch.num_rows
    return num_rows


@contextlib.contextmanager
def told_in_a_line() -> Iterator[None]:
    """Raise what DuckDB and Arrow say of a query as a `QueryError` of one line."""
    try:
        yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error
    except duckdb.OutOfMemoryException as error:
        raise QueryError(
            f"{_first_paragraph(error)}; give the query more with --memory-limit, or fewer "
            "--threads."
        ) from error
    except (duckdb.Error, pa.ArrowException) as error:
        if "Python exception: " in str(error) and "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error  # it came while a shard was read
        raise QueryError(_told(error)) from error
    except RuntimeError as error:
        if "interrupted" not in str(error).lower():
            raise
        raise KeyboardInterrupt from error


def _told(error: Exception) -> str:
    from clozemill.analysis.runs import VIEWS_OF_RUNS  # here, as it needs code of training

    missing = _NO_TABLE.search(str(error))
    if missing and missing[1] in VIEWS_OF_RUNS:
        return f"{missing[1]} is a view of training runs; name a run folder before the query."
    told = _first_paragraph(error).rstrip(".!")
    if "disabled by configuration" in told:
        told += "; a session opens no file, and --csv or --parquet keeps an answer"
    return told if told.endswith("?") else f"{told}."


_NO_TABLE = re.compile(r"Table with name (\w+) does not exist")


def _first_paragraph(error: Exception) -> str:
    """Return what is wrong, without the picture of the query and general advice below it."""
    told_by_us = _FROM_READING.search(str(error))
    if told_by_us:
        return told_by_us[1]
    return " ".join(str(error).partition("\n\n")[0].split())


_FROM_READING = re.compile(r"failed: Unknown error: ([^\n]*?)\.*\. Detail: Python exception: ")
"""How DuckDB hands on an error of the code that reads shards."""


def _unique(names: Sequence[str]) -> list[str]:
    """Return names of which no two are equal.

    >>> _unique(["a", "b", "a", "a_1", "a"])
    ['a', 'b', 'a_1', 'a_1_1', 'a_2']
    """
    found: list[str] = []
    for name in names:
        candidate, number = name, 0
        while candidate in found:
            number += 1
            candidate = f"{name}_{number}"
        found.append(candidate)
    return found
