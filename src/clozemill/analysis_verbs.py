"""The verbs of analysis: what a dataset and its runs say when asked."""

from pathlib import Path

import click

from clozemill.printing import EXIT_FOUND, json_option, quiet_option, show

threads_option = click.option(
    "--threads", type=click.IntRange(min=1), help="Threads of a query; by default one per core."
)
memory_option = click.option(
    "--memory-limit",
    default="4GB",
    show_default=True,
    help="Memory of a query, before it spills to a temporary folder.",
)


@click.command(
    short_help="Ask a dataset whether its masks and pairs are as they should be.",
    epilog="Example: clozemill audit data/ --only actions --only selected_by_token",
)
@click.argument("data", metavar="DATA")
@click.option("--only", multiple=True, metavar="NAME", help="Ask this question; may be repeated.")
@click.option("--rows", is_flag=True, help="Print the first rows of the answers.")
@click.option("--sql", "is_sql", is_flag=True, help="Print the SQL of the questions; ask nothing.")
@click.option(
    "--false-alarm-rate",
    default=1e-6,
    show_default=True,
    help="How often a sound dataset may fail, over all questions together.",
)
@click.option(
    "--sample", type=click.IntRange(min=1), help="Ask about so many instances, by record batches."
)
@click.option("--html", metavar="FILE", help="Also write all of it as a page with pictures.")
@threads_option
@memory_option
@json_option
@quiet_option
def audit(
    data: str,
    only: tuple[str, ...],
    rows: bool,
    is_sql: bool,
    false_alarm_rate: float,
    sample: int | None,
    html: str | None,
    threads: int | None,
    memory_limit: str,
    is_json: bool,
    quiet: bool,
) -> int:
    """Ask the dataset DATA whether masks and pairs are as they should be; exit 1 if not.

    Each question has an exact expectation; docs/audit.md lists them. The table shows of each the
    group that is least probable, and what would pass.
    """
    from clozemill import audit_tables
    from clozemill.analysis.audit import AuditSettings, chosen_questions, run_audit
    from clozemill.analysis.charts import require_libraries
    from clozemill.analysis.db import open_database
    from clozemill.analysis.report import write_report
    from clozemill.pipeline.dataset import open_dataset
    from clozemill.tables import progress_bar

    if is_sql:
        show(audit_tables.sql_view(chosen_questions(only)), is_json)
        return 0
    if html:
        require_libraries()
    settings = AuditSettings(
        only=only, false_alarm_rate=false_alarm_rate, is_sample=sample is not None
    )
    dataset = open_dataset(data)
    with (
        open_database(
            dataset, threads=threads, memory_limit=memory_limit, sample=sample
        ) as connection,
        progress_bar(is_shown=not quiet) as on_progress,
    ):
        report = run_audit(connection, dataset.manifest, settings, on_progress=on_progress)
        if html:
            write_report(Path(html), dataset, connection, report)
    view = audit_tables.rows_view if rows else audit_tables.audit_view
    show(view(data, report), is_json)
    return EXIT_FOUND if report.has_failed else 0
