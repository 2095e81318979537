"""What a session answers, as plain rows."""

from typing import Any

import duckdb


def rows(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return connection.sql(sql).fetchall()
