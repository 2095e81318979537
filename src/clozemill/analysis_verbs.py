"""The verbs of analysis: what a dataset and its runs say when asked."""

import contextlib
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from clozemill.analysis.defaults import FALSE_ALARM_RATE
from clozemill.options import (
    data_argument,
    json_option,
    query_memory_option,
    query_threads_option,
    quiet_option,
)
from clozemill.pipeline.errors import ConfigError, QueryError
from clozemill.printing import (
    EXIT_COULD_NOT_RUN,
    EXIT_FOUND,
    fail,
    output_width,
    print_text,
    show,
)

if TYPE_CHECKING:
    import duckdb

    from clozemill.analysis.audit import AuditReport, AuditSettings
    from clozemill.analysis.query import QueryResult
    from clozemill.printouts import Printout


class _Form(NamedTuple):
    """How answers are given."""

    is_json: bool
    is_csv: bool
    parquet: str | None
    rows: int


class _SqlCommand(click.Command):
    """A command with a query, which may begin with a comment, in the look of an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a query that begins with a comment goes behind a `--`."""
        options = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
        queries = [word for word in args if _begins_with_comment(word, options)]
        if queries and "--" not in args:
            args = [*(word for word in args if word not in queries), "--", *queries]
        return super().parse_args(ctx, args)


def _begins_with_comment(word: str, options: Collection[str]) -> bool:
    """Return whether a word is a text that begins with `--`, and not an option with a value."""
    is_text = any(character.isspace() for character in word)
    return is_text and word.startswith("--") and word.partition("=")[0] not in options


@click.command(
    cls=_SqlCommand,
    short_help="Ask a dataset and its runs in SQL.",
    epilog='Example: clozemill sql data/ "select split, count(*) from instances group by split"',
)
@data_argument
@click.argument("words", nargs=-1, metavar="[RUN...] [QUERY]")
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Rows of a table for a person.",
)
@json_option
@click.option("--csv", "is_csv", is_flag=True, help="Print all rows as CSV.")
@click.option("--parquet", metavar="FILE", help="Write all rows to a new Parquet file.")
@query_threads_option
@query_memory_option
def sql(
    data: str,
    words: tuple[str, ...],
    rows: int,
    is_json: bool,
    is_csv: bool,
    parquet: str | None,
    threads: int | None,
    memory_limit: str,
) -> None:
    """Ask the dataset DATA, and training runs on it, in SQL.

    QUERY is a text with blanks, a file ending in .sql, or - for standard input; without one, a
    prompt asks for it. RUN is a run folder. The views are those of docs/sql.md; `show tables` and
    `describe VIEW` list them. Queries can read the dataset and the runs, and nothing else.
    """
    form = _Form(is_json, is_csv, parquet, rows)
    _check_form(form)
    if _is_query(data) and not os.path.exists(data):
        raise QueryError(
            f"{data!r} is a query, where the dataset should stand; the order is: clozemill sql "
            "DATA [RUN...] QUERY."
        )
    runs, query = _runs_and_query(words)
    if query is None and (is_json or parquet):
        raise ConfigError(
            f"--{'json' if is_json else 'parquet'} gives one answer and a prompt has many; put the "
            "query on the command line."
        )
    from clozemill.analysis.db import open_database

    with open_database(data, runs, threads=threads, memory_limit=memory_limit) as connection:
        if query is None:
            _prompt(connection, form)
        else:
            _give(connection, query, form)


def _check_form(form: _Form) -> None:
    if form.is_json + form.is_csv + bool(form.parquet) > 1:
        raise ConfigError("--json, --csv and --parquet exclude each other; give one of them.")
    if form.parquet and Path(form.parquet).exists():
        raise ConfigError(f"{form.parquet} exists; remove it, or name another --parquet file.")


def _runs_and_query(words: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return the run folders and the query among the words; None: ask for it."""
    if words and _is_query(words[-1]):
        *runs, query = words
        return tuple(runs), _read_query(query)
    if words and not os.path.exists(words[-1]):
        raise QueryError(
            f"{words[-1]!r} is neither a run folder nor a query; a query is a text with blanks, "
            "such as: 'from instances limit 3'."
        )
    return words, None if sys.stdin.isatty() else sys.stdin.read()


def _is_query(word: str) -> bool:
    """Return whether a word is a query or names one: no folder, and a text, a file or `-`."""
    is_text = any(character.isspace() for character in word)
    # Those of os.path say no to a text that is too long for a name, where Path raises.
    return not os.path.isdir(word) and (is_text or word == "-" or word.endswith(".sql"))


def _read_query(word: str) -> str:
    if word == "-":
        return sys.stdin.read()
    if any(character.isspace() for character in word) and not os.path.isfile(word):
        return word
    try:
        return Path(word).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise QueryError(f"{word} is not UTF-8 text; give a file of SQL.") from error


def _give(connection: "duckdb.DuckDBPyConnection", query: str, form: _Form) -> None:
    from clozemill.analysis.query import answer

    with answer(connection, query, is_printed=not form.parquet) as found:
        _print(found, form)


def _print(found: "QueryResult", form: _Form) -> None:
    from clozemill import query_tables
    from clozemill.analysis.query import write_parquet

    if form.parquet:
        num_rows = write_parquet(found, Path(form.parquet))
        print_text(f"{form.parquet} has {num_rows:,} rows of {len(found.schema)} columns.\n")
    elif form.is_json:
        _print_parts(query_tables.result_json(found))
    elif form.is_csv:
        _print_parts(query_tables.result_csv(found))
    else:
        width, is_terminal = output_width()
        text = query_tables.result_text(
            found, num_rows=form.rows, width=width if is_terminal else None
        )
        print_text(text)


def _print_parts(parts: Iterable[str]) -> None:
    """Print a result as it comes, until nobody reads it."""
    for text in parts:
        if not print_text(text):
            return


_PROMPT_HELP = (
    "Queries end in ; and the prompt with exit or Ctrl-D. `show tables;` lists the views, and "
    "`describe masks;` the columns of one.\n"
)


def _prompt(connection: "duckdb.DuckDBPyConnection", form: _Form) -> None:
    """Answer queries that are typed, each ending in a semicolon, until the end of the input."""
    with contextlib.suppress(ImportError):  # of a Python without it
        import readline  # noqa: F401 - lines can be edited, and come back
    print_text(_PROMPT_HELP)
    lines: list[str] = []
    while True:
        try:
            line = input("  ... " if lines else "sql> ")
            word = "" if lines else line.strip().rstrip(";").lower()
            if word in ("quit", "exit", ".quit", ".exit"):
                return
            if word == "help" or word.startswith("."):
                print_text(_PROMPT_HELP)
                continue
            lines.append(line)
            if line.rstrip().endswith(";"):
                query, lines = "\n".join(lines), []
                _give(connection, query, form)
        except QueryError as error:
            fail(str(error), EXIT_COULD_NOT_RUN)
        except KeyboardInterrupt:
            lines = []
            print_text("\n")
        except EOFError:
            print_text("\n")
            return


@dataclass(frozen=True, slots=True, kw_only=True)
class _AuditRequest:
    """What is asked for beside what the audit is."""

    data: str
    show_rows: bool
    sample: int | None
    """About how many instances are asked about; None: all."""

    html: str | None
    """The page to write."""

    study: str | None
    """A study to show on it."""

    threads: int | None
    memory_limit: str
    is_json: bool
    quiet: bool


@click.command(
    short_help="Ask a dataset whether its masks and pairs are as they should be.",
    epilog="Example: clozemill audit data/ --only actions --only selected_by_token",
)
@data_argument
@click.option("--only", multiple=True, metavar="NAME", help="Ask this question; may be repeated.")
@click.option(
    "--accept",
    multiple=True,
    metavar="NAME",
    help="This question may fail, as for a cap set on purpose; may be repeated.",
)
@click.option(
    "--show-rows",
    is_flag=True,
    help="Print the first rows of the answers, the least probable first.",
)
@click.option("--sql", "is_sql", is_flag=True, help="Print the SQL of the questions; ask nothing.")
@click.option(
    "--false-alarm-rate",
    default=FALSE_ALARM_RATE,
    show_default=True,
    help="How often a sound dataset may fail, over all questions together.",
)
@click.option(
    "--sample", type=click.IntRange(min=1), help="Ask about so many instances, by record batches."
)
@click.option("--html", metavar="FILE", help="Also write all of it as a page with pictures.")
@click.option("--study", metavar="STUDY", help="Show on that page also a study of the dataset.")
@query_threads_option
@query_memory_option
@json_option
@quiet_option
def audit(
    only: tuple[str, ...],
    accept: tuple[str, ...],
    is_sql: bool,
    false_alarm_rate: float,
    **others: Any,
) -> int:
    """Ask the dataset DATA whether masks and pairs are as they should be; exit 1 if not.

    Each question has an exact expectation; docs/audit.md lists them. The table shows of each the
    group that is least probable, with its p-value, and which counts pass. What is accepted is
    shown as it is, and alone is no reason to exit 1.
    """
    asked = _AuditRequest(**others)
    if asked.study and not asked.html:
        raise ConfigError(f"--study {asked.study} is for the page of --html; give --html FILE too.")
    from clozemill import audit_tables
    from clozemill.analysis.audit import AuditSettings, chosen_questions

    settings = AuditSettings(
        only=only,
        false_alarm_rate=false_alarm_rate,
        is_sample=asked.sample is not None,
        accept=accept,
    )
    if is_sql:
        show(audit_tables.sql_printout(chosen_questions(only)), asked.is_json)
        return 0
    return _audit(asked, settings)


def _audit(asked: _AuditRequest, settings: "AuditSettings") -> int:
    """Ask a dataset and show the answers; return the exit code."""
    from clozemill.analysis.audit import run_audit
    from clozemill.analysis.charts import require_libraries
    from clozemill.analysis.db import open_database
    from clozemill.analysis.report import write_report
    from clozemill.analysis.report_file import check_page
    from clozemill.analysis.study_findings import read_findings_of
    from clozemill.pipeline.dataset import open_dataset
    from clozemill.pipeline.tokenizer import load_tokenizer
    from clozemill.progress_bars import progress_bar

    study = Path(asked.study) if asked.study else None
    if asked.html:
        require_libraries()
        check_page(Path(asked.html), dataset=Path(asked.data), studies=[study] if study else [])
    dataset = open_dataset(asked.data)
    findings = read_findings_of(dataset, study) if study else None
    pieces = load_tokenizer(dataset.tokenizer_dir).pieces
    with open_database(
        dataset, threads=asked.threads, memory_limit=asked.memory_limit, sample=asked.sample
    ) as connection:
        with progress_bar(is_shown=not asked.quiet) as on_progress:
            report = run_audit(connection, dataset.manifest, settings, on_progress=on_progress)
        show(_audit_printout(asked, report, pieces), asked.is_json)
        if asked.html:  # afterwards: the answers are shown even where the page fails
            write_report(Path(asked.html), dataset, connection, report, findings)
    return EXIT_FOUND if report.has_failed else 0


def _audit_printout(
    asked: _AuditRequest, report: "AuditReport", pieces: Sequence[str]
) -> "Printout":
    from clozemill import audit_rows, audit_tables

    width, is_terminal = output_width()
    if asked.show_rows:
        widest = width if is_terminal else None
        return audit_rows.rows_printout(asked.data, report, pieces=pieces, width=widest)
    return audit_tables.audit_printout(
        asked.data, report, sample=asked.sample, pieces=pieces, width=width
    )
