"""The page of SQL: its tables are those of the views, and what it shows runs."""

import dataclasses
import re
import shlex
from pathlib import Path
from typing import Any, get_args

import duckdb
import pytest
from tests.pipeline.small_datasets import build_small
from tests.train.trained_runs import train_briefly

from clozemill.analysis.db import open_database, read_sql
from clozemill.analysis.questions import all_questions
from clozemill.cli import cli
from clozemill.pipeline import read_records
from clozemill.pipeline.bucket import DOCUMENT_FATES
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.schema import document_schema
from clozemill.train.metrics import EvaluationRow, Row, StartRow, TrainRow

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")
LOGS: dict[str, Any] = {"metrics": TrainRow, "evaluations": EvaluationRow, "starts": StartRow}
FILES = ("instance_rows", "document_rows")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the dataset and the run that the page names."""
    folder = tmp_path_factory.mktemp("page")
    build_small(folder)
    train_briefly(folder / "data", folder / "run")
    return folder


@pytest.fixture
def session(folder: Path, monkeypatch: pytest.MonkeyPatch) -> duckdb.DuckDBPyConnection:
    monkeypatch.chdir(folder)
    return open_database("data", ["run"], threads=1)


def described(session: duckdb.DuckDBPyConnection, view: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind, *_ in session.sql(f"describe {view}").fetchall()]


def sections() -> dict[str, str]:
    """Return the text below the heading of each view."""
    parts = re.split(r"^##+ (.*)\n", PAGE, flags=re.MULTILINE)
    texts = zip(parts[1::2], parts[2::2], strict=True)
    return {name: text for title, text in texts for name in re.findall(r"`(\w+)`", title)}


def test_every_view_has_a_section_with_its_grain(session: duckdb.DuckDBPyConnection) -> None:
    views = {name for (name,) in session.sql("show tables").fetchall()}
    assert set(sections()) == views
    assert all("\nGrain: one row per " in text for text in sections().values())


def test_tables_name_every_column_with_its_type(session: duckdb.DuckDBPyConnection) -> None:
    tables = {name: text for name, text in sections().items() if name not in (*LOGS, *FILES)}
    assert len(tables) >= 10
    for view, text in tables.items():
        found = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", text, re.MULTILINE)
        assert found == described(session, view), view


def test_the_files_have_the_columns_of_the_format_and_those_of_the_page(
    session: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    schema = open_dataset(folder / "data").schema
    found = described(session, "instance_rows")
    added = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", sections()["instance_rows"], re.MULTILINE)
    assert found[:4] == added
    assert [name for name, _ in found[4:]] == schema.names
    assert [name for name, _ in described(session, "document_rows")] == document_schema().names


def test_the_ledger_has_the_sections_and_reasons_of_the_page_and_their_sums(
    session: duckdb.DuckDBPyConnection,
) -> None:
    text = PAGE.partition("\n#### Sections of the ledger\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", text, re.MULTILINE)
    named = {section: set(re.findall(r"`(\w+)`", text)) for section, text in rows}
    fates = named["documents"] - {"documents_read"}
    named["document_tokens"] |= fates
    named["unknown_tokens"] |= fates
    ledger = session.sql("select section, reason, count from ledger").fetchall()
    assert len(named) == 9
    assert {section for section, _, _ in ledger} == named.keys() - {"long_sentences"}
    assert [row for row in ledger if row[1] not in named[row[0]]] == []
    assert named["records"] == {
        *read_records.RECORD_FATES,
        *(read_records.RECORDS_READ, read_records.REPLACED_UTF8, read_records.TEXT_BYTES),
        *(read_records.MISSING_ID, read_records.MISSING_SOURCE),
    }
    assert fates == {*DOCUMENT_FATES, "duplicate"}

    def total(section: str, *reasons: str) -> int:
        return sum(n for name, reason, n in ledger if name == section and reason in reasons)

    assert total("instances", "all") == total("instances", "next", "random") > 0
    assert total("instances", "random") >= total("instances", "forced_random") > 0
    assert total("pass_tokens", "own") == total("pass_tokens", "in_instances", "cut") > 0
    assert total("documents", *fates) == total("records", "documents_read") > 0
    assert total("document_tokens", *fates) == total("tokens", "read") > 0


@pytest.mark.parametrize("view", LOGS)
def test_logs_have_the_columns_of_their_records(
    session: duckdb.DuckDBPyConnection, view: str
) -> None:
    assert set(LOGS.values()) == set(get_args(Row))
    names = [item.name for item in dataclasses.fields(LOGS[view])]
    assert [name for name, _ in described(session, view)] == ["run", *names]


def test_variables_on_the_page_have_values(
    session: duckdb.DuckDBPyConnection, folder: Path
) -> None:
    (text,) = re.findall(r"^## Variables\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?`(?:, `.*?`)*)", text, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    settings = open_dataset(folder / "data").manifest.configuration
    plain = {name for name, value in settings.items() if not isinstance(value, list)}
    held = {name for (name,) in session.sql("select name from duckdb_variables()").fetchall()}
    assert len(named) > 8
    assert held == named | plain


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_query_on_the_page_has_an_answer(session: duckdb.DuckDBPyConnection, number: int) -> None:
    assert len(QUERIES) >= 12
    assert session.sql(QUERIES[number]).fetchall()


def test_the_sql_of_a_question_runs_in_a_session_and_not_in_a_bare_one(
    session: duckdb.DuckDBPyConnection,
) -> None:
    [file] = re.findall(r"^clozemill sql data/ analysis/sql/(\S+)\.sql$", PAGE, re.MULTILINE)
    [name] = re.findall(r"^clozemill audit data/ --only (\w+) --sql \| cl", PAGE, re.MULTILINE)
    for sql in (read_sql(file), next(q.sql for q in all_questions() if q.name == name)):
        relation = session.sql(sql)
        assert "p_value" not in relation.columns
        assert relation.fetchall()
        with duckdb.connect() as bare, pytest.raises(duckdb.Error):
            bare.sql(sql)


def test_commands_on_the_page_parse() -> None:
    lines = re.findall(r"^clozemill sql (.+)$", PAGE, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        cli.commands["sql"].make_context("sql", shlex.split(line, comments=True))


def test_python_on_the_page_runs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (script,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(script, names)
    assert names["table"].num_rows == 1000
    assert "validation" in capsys.readouterr().out
