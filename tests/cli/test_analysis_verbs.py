"""The verbs of analysis as a person types them: what is printed, where, and the exit code."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Done, Run
from tests.pipeline.small_corpora import environment
from tests.pipeline.small_datasets import build_small

from clozemill.pipeline.dataset import open_dataset


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("data"))


SPECIALS = "select token_id, piece, is_special from vocab where token_id < 3 order by token_id"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("from exposures", "exposures is a view of training runs; name a run folder before the"),
        ("from instance", 'Did you mean "instances"?\n'),
        ("masks", "'masks' is neither a run folder nor a query; a query is a text with blanks, "),
        ("", "'' is neither a run folder nor a query; a query is a text with blanks, such as: "),
    ],
)
def test_what_is_no_query_is_told(run: Run, data: Path, query: str, message: str) -> None:
    done = run("sql", data, query)
    assert (done.code, done.out) == (2, "")
    assert message in done.err


def test_a_query_may_be_longer_than_any_name_of_a_file(run: Run, data: Path) -> None:
    done = run("sql", data, SPECIALS + " -- and why" * 1_000)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("token_id")


def test_sql_prints_a_table(run: Run, data: Path) -> None:
    done = run("sql", data, SPECIALS)
    assert done == Done(
        0,
        "token_id  piece  is_special\n"
        "       0  [PAD]  true\n"
        "       1  [UNK]  false\n"
        "       2  [CLS]  true\n",
        "",
    )


@pytest.mark.parametrize(
    "query", [f"-- of specials\n{SPECIALS}", f"--rows = 2\n{SPECIALS}", f"--json of\n{SPECIALS}"]
)
@pytest.mark.parametrize("flags", [[], ["--csv", "--rows", "1"]])
def test_a_query_may_begin_with_a_comment(
    run: Run, data: Path, query: str, flags: list[str]
) -> None:
    expected = run("sql", data, SPECIALS, *flags)
    assert expected.code == 0
    assert expected.out.count("\n") == 4
    assert run("sql", data, query, *flags) == expected
    assert run("sql", *flags, data, query) == expected
    assert run("sql", *flags, "--", data, query) == expected


def test_options_of_sql_are_none_of_its_queries(run: Run, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "my masks.parquet"
    assert run("sql", data, SPECIALS, f"--parquet={file}").code == 0
    assert file.exists()
    done = run("sql", data, SPECIALS, "--jsn")
    assert done.code == 2
    assert "No such option" in done.err
    assert "--json" in done.err


def test_sql_says_that_there_are_more_rows(run: Run, data: Path) -> None:
    done = run("sql", data, SPECIALS, "--rows", "2")
    assert done.out.splitlines()[2:] == [
        "       1  [UNK]  false",
        "The first 2 rows; --rows shows more, --csv, --json and --parquet all.",
    ]
    assert run("sql", data, SPECIALS, "--rows", "3").out.count("\n") == 4


def test_sql_says_that_there_are_no_rows(run: Run, data: Path) -> None:
    done = run("sql", data, "select token_id from vocab where token_id < 0")
    assert done == Done(0, "token_id\nNo rows.\n", "")


def test_sql_prints_one_json_object(run: Run, data: Path) -> None:
    done = run(
        "sql",
        data,
        "--json",
        "select [1, 2] as list, 'nan'::double as x, null as none, 3::hugeint as x",
    )
    assert json.loads(done.out) == {
        "columns": {
            "list": "list<l: int32>",
            "x": "double",
            "none": "null",
            "x_1": "decimal128(38, 0)",
        },
        "rows": [{"list": [1, 2], "x": None, "none": None, "x_1": 3}],
    }
    empty = json.loads(run("sql", data, "--json", "from vocab where false").out)
    assert empty["rows"] == []


def test_sql_prints_csv_of_all_rows(run: Run, data: Path) -> None:
    done = run(
        "sql",
        data,
        "--csv",
        "--rows",
        "1",
        "select i, 'a,\"b' as text, [i] as list from range(3) r(i)",
    )
    rows = list(csv.reader(io.StringIO(done.out)))
    assert rows == [["i", "text", "list"], *([str(i), 'a,"b', f"[{i}]"] for i in range(3))]


def test_sql_writes_parquet_once(run: Run, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "masks.parquet"
    done = run("sql", data, "--parquet", file, "select split, instance, position from masks")
    table = pq.read_table(file)
    assert table.num_rows > 100
    assert done == Done(0, f"{file} has {table.num_rows:,} rows of 3 columns.\n", "")
    again = run("sql", data, "--parquet", file, SPECIALS)
    assert again.err == (f"clozemill: {file} exists; remove it, or name another --parquet file.\n")
    assert again.code == 2


def test_failed_query_leaves_no_parquet_file(run: Run, data: Path, tmp_path: Path) -> None:
    query = "select if(token_id = 9, error('nine'), piece) as piece from vocab"
    done = run("sql", data, "--parquet", tmp_path / "x.parquet", query)
    assert (done.code, done.err) == (2, "clozemill: Invalid Input Error: nine.\n")
    assert list(tmp_path.iterdir()) == []


def test_sql_reads_a_file_or_standard_input(run: Run, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "specials.sql"
    file.write_text(SPECIALS)
    expected = run("sql", data, SPECIALS)
    assert expected.out.count("\n") == 4
    assert run("sql", data, file) == expected
    assert run("sql", data, "-", typed=SPECIALS) == expected
    assert run("sql", data, typed=SPECIALS + ";\n") == expected


def test_a_row_of_nulls_is_an_empty_line(run: Run, data: Path) -> None:
    assert run("sql", data, "select null as none").out == "none\n\n"


def test_what_gives_no_rows_may_stand_before_a_query(run: Run, data: Path) -> None:
    done = run("sql", data, "set variable x = 7; select getvariable('x') as x;")
    assert done == Done(0, "x\n7\n", "")
    pivot = "pivot vocab on is_special using count(*); "
    assert run("sql", data, pivot).code == 0


@pytest.mark.parametrize("query", ["select 1; select 2", "pivot vocab on is_special; select 2"])
def test_rows_that_nobody_would_see_are_refused(run: Run, data: Path, query: str) -> None:
    said = (
        "these are 2 statements, and one before the last gives rows, which nobody would see; ask "
        "one at a time."
    )
    assert run("sql", data, query) == Done(2, "", f"clozemill: {said}\n")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("selec 1", 'Parser Error: syntax error at or near "selec".'),
        (
            "select pieces from vocab",
            'Binder Error: Referenced column "pieces" not found in FROM clause! '
            'Candidate bindings: "piece",',
        ),
        (" ", "the query is empty; ask something, such as: from instances limit 3;"),
        ("nothing.sql", "nothing.sql: No such file or directory; mend that"),
    ],
)
def test_bad_query_is_one_line(run: Run, data: Path, query: str, said: str) -> None:
    done = run("sql", data, query)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"clozemill: {said}")
    assert done.err.count("\n") == 1


def test_query_that_needs_too_much_memory_is_one_line(run: Run, data: Path) -> None:
    done = run(
        "sql", data, "--memory-limit", "20MB", "select len(list(i)) from range(9000000) r(i)"
    )
    assert done.code == 2
    assert done.err.startswith("clozemill: Out of Memory Error: failed to ")
    assert done.err.endswith("; give the query more with --memory-limit, or fewer --threads.\n")
    assert done.err.count("\n") == 1


def test_sql_refuses_a_memory_limit_that_is_none(run: Run, data: Path) -> None:
    done = run("sql", data, SPECIALS, "--memory-limit", "much")
    said = "clozemill: memory_limit is 'much'; write it like 500MB or 4GB.\n"
    assert done == Done(2, "", said)


def test_sql_refuses_two_forms_at_once(run: Run, data: Path) -> None:
    done = run("sql", data, SPECIALS, "--csv", "--json")
    said = "--json, --csv and --parquet exclude each other; give one of them."
    assert done == Done(2, "", f"clozemill: {said}\n")


@pytest.mark.parametrize("form", [["--parquet", "x.parquet"], ["--json"]])
def test_a_prompt_has_more_answers_than_one_file_or_object_holds(
    run: Run, data: Path, tmp_path: Path, form: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("sql", data, *form, typed=SPECIALS + ";\n", is_terminal=True)
    said = f"{form[0]} gives one answer and a prompt has many; put the query on the command line."
    assert done == Done(2, "", f"clozemill: {said}\n")
    assert list(tmp_path.iterdir()) == []
    assert run("sql", data, "--csv", typed="select 1 as x;\n", is_terminal=True).code == 0


def test_words_of_other_prompts_are_no_begin_of_a_query(run: Run, data: Path) -> None:
    typed = "help\n.tables\nHelp;\nselect 1\n.5 as x;\nselect 2 as two;\nQUIT\nselect 3 as three;\n"
    done = run("sql", data, "--csv", typed=typed, is_terminal=True)
    assert done.code == 0
    assert done.out.count("`show tables;` lists the views, and `describe masks;` the columns") == 4
    assert "two\n2\n" in done.out
    assert "three" not in done.out
    # Within a query they are what was typed.
    assert done.err.startswith("clozemill: Parser Error: syntax error at or near ")
    assert run("sql", data, typed="exit;\n", is_terminal=True).err == ""


@pytest.mark.parametrize("query", ["copy vocab to 'x.csv'", "from 'x.csv'"])
def test_a_file_is_refused_with_the_way_an_answer_is_kept(run: Run, data: Path, query: str) -> None:
    done = run("sql", data, query)
    assert done.code == 2
    assert done.err.endswith(
        "disabled by configuration; a session opens no file, and --csv or --parquet keeps an "
        "answer.\n"
    )


def test_text_in_a_table_stays_on_its_line(run: Run, data: Path) -> None:
    done = run("sql", data, "select e'a\\nb\\x1b[31m' as text, repeat('[b]', 40) as long")
    assert done.out.splitlines() == [
        "text          long",
        "a\\nb\\x1b[31m  " + "[b]" * 19 + "...",
    ]


def test_an_audit_is_as_wide_as_the_terminal_but_no_less_than_80(
    run: Run, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    tables = []
    for columns in (40, 160):
        monkeypatch.setenv("COLUMNS", str(columns))
        done = run("audit", data, "--only", "selected_by_position", "--quiet")
        assert done.code == 0
        tables.append(done.out.partition("\n\n")[0].splitlines())
    narrow, wide = tables
    assert [len(narrow), len(wide)] == [4, 3]
    assert 50 < max(map(len, narrow)) <= 80 < len(wide[2])
    assert re.fullmatch(r"    \(\w+, \d+ to \d+ % of the length; \d+ tested\)", narrow[3])


@pytest.mark.parametrize(
    ("expression", "shown"),
    [
        ("interval 3 month", "3 months"),
        ("union_value(k := 1)", "1"),
        ("'infinity'::timestamp", "infinity"),
        ("date '290000-01-01'", "290000-01-01"),
        ("340282366920938463463374607431768211455::uhugeint", str(2**128 - 1)),
        ("'101'::bit", "101"),
        ("timetz '01:02:03+01'", "01:02:03+01"),
        ("[date '2020-01-02']", "[2020-01-02]"),
    ],
)
def test_types_that_python_lacks_are_text(
    run: Run, data: Path, tmp_path: Path, expression: str, shown: str
) -> None:
    query = f"select {expression} as v, 1 as n"
    assert run("sql", data, query).out.splitlines()[1].split() == [*shown.split(), "1"]
    assert json.loads(run("sql", data, query, "--json").out)["rows"] == [{"v": shown, "n": 1}]
    assert run("sql", data, query, "--csv").out == f"v,n\n{shown},1\n"
    done = run("sql", data, query, "--parquet", tmp_path / "found.parquet")
    assert (done.code, done.err) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("form", ["--csv", "--json"])
def test_a_reader_that_leaves_ends_the_query(data: Path, form: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "clozemill", "sql", data, "from range(1000000000000)", form],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        try:
            assert process.wait(timeout=120) == 0
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_damaged_shard_is_one_line(run: Run, data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shutil.copytree(data, folder)
    shard = folder / open_dataset(data).manifest.shards[0].path
    content = shard.read_bytes()
    quarter = len(content) // 4
    shard.write_bytes(content[:quarter] + b"\xff" * quarter + content[2 * quarter :])
    done = run("sql", folder, "select count(*) from masks")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"clozemill: {shard} cannot be read: ")
    assert done.err.endswith("(clozemill verify lists every damaged file).\n")
    assert done.err.count("\n") == 1


def test_a_word_that_is_no_run_folder_is_named(run: Run, data: Path, tmp_path: Path) -> None:
    done = run("sql", data, tmp_path / "run", SPECIALS)
    said = f"{tmp_path / 'run'} holds no run.json, so it is not a run folder; check the path."
    assert done == Done(2, "", f"clozemill: {said}\n")


def seconds_of(process: subprocess.Popen[str]) -> float:
    """Return what the processor has worked for it."""
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


@pytest.mark.slow
def test_prompt_goes_on_after_a_bad_query_and_after_an_interrupt(data: Path) -> None:
    controller, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "clozemill", "sql", data, "--threads", "1"],
        env=environment(),
        stdin=terminal,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    os.write(controller, b"selec;\nselect 1\nas one;\n")
    while process.stdout.readline().strip() != "1":
        assert process.poll() is None
    before = seconds_of(process)
    os.write(controller, b"select count(*) from range(1000000000000) r(i) where i % 7 = 3;\n")
    while seconds_of(process) < before + 1.0:  # it computes
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    os.write(controller, b"select 2 as two;\n\x04")
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "two\n  2\n" in out
    assert err == 'clozemill: Parser Error: syntax error at or near "selec".\n'
    assert process.returncode == 0
