"""Files of records that are not read as they are: tables in CSV, and JSON that is no JSON lines."""

import os
import shlex

_READERS = {".csv": "read_csv", ".tsv": "read_csv", ".json": "read_json"}


def conversion(path: str, ending: str | None = None) -> str | None:
    """Return the command that makes Parquet of such a file; None if it is none.

    Args:
        path: The file.
        ending: What it is like, if not what its name says.

    >>> print(conversion("a/b.csv"))
    python -c 'import duckdb; duckdb.read_csv("a/b.csv").write_parquet("a/b.parquet")'
    """
    stem, own = os.path.splitext(path)
    reader = _READERS.get(ending or own.lower())
    if reader is None:
        return None
    code = f'import duckdb; duckdb.{reader}("{path}").write_parquet("{stem}.parquet")'
    return f"python -c {shlex.quote(code)}"


def whole_json(first_line: str) -> str | None:
    """Return what a file is whose first line is no record by itself, if that line tells.

    >>> whole_json('[{"text": "Tea."},'), whole_json("{"), whole_json('{"text": Tea}')
    ('one JSON array', 'JSON over several lines', None)
    """
    if first_line.startswith("["):
        return "one JSON array"
    return "JSON over several lines" if first_line.endswith(("{", ",")) else None
