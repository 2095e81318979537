"""The report of an audit: one page that needs nothing else, neither a network nor a script."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from html import escape
from pathlib import Path
from typing import Any

import duckdb

from clozemill import __version__
from clozemill.analysis.audit import Answer, AuditReport
from clozemill.analysis.charts import draw, read_page_file, require_libraries
from clozemill.analysis.dataset_charts import dataset_charts
from clozemill.analysis.ledger_flow import document_flow, token_flow
from clozemill.analysis.questions import all_questions, unasked
from clozemill.analysis.report_examples import choose_examples
from clozemill.analysis.report_file import MARK
from clozemill.analysis.study_charts import difference_chart, study_charts
from clozemill.analysis.study_findings import (
    LINE_NAME,
    PRIMARY,
    Findings,
    arms_text,
    noise_floor,
    nothing_learnt,
    study_warnings,
)
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.files import atomic_file
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.visible import visible

_MOST_ROWS = 10
"""Of an answer, on the page."""

_STUDY_SECTIONS = [
    ("study", "Static or dynamic"),
    ("study-pictures", "What the arms see and learn"),
]
"""Sections of a study: their ids and titles."""

_ORDER = ("failed", "accepted", "passed", "figures", "not asked")
"""Verdicts, as the table has them."""


def write_report(
    path: Path,
    dataset: Dataset,
    connection: duckdb.DuckDBPyConnection,
    audit: AuditReport,
    study: Findings | None = None,
) -> None:
    """Write the page of an audit.

    Args:
        path: The HTML file.
        dataset: What was audited.
        connection: Of `open_database` on it, to choose instances to show.
        audit: Its answers.
        study: A study of the dataset, to stand on the same page.

    Raises:
        ReportError: A library that makes pages or pictures is not installed.
    """
    require_libraries()
    charts = dataset_charts(audit, dataset.manifest)
    counts = Counter(answer.verdict for answer in audit.answers)
    text = _render(
        "audit.html",
        name=dataset.folder.resolve().name,
        manifest=dataset.manifest,
        facts=_facts(dataset.manifest),
        audit=audit,
        num_questions=len(all_questions()),
        counts=counts,
        sections=_sections(counts, bool(charts)) + (_STUDY_SECTIONS if study else []),
        answers=sorted(audit.answers, key=lambda answer: _ORDER.index(answer.verdict)),
        charts=charts,
        flows=[document_flow(dataset.manifest), token_flow(dataset.manifest)],
        examples=choose_examples(dataset, connection, audit),
        study=study,
    )
    _write(path, text)


def write_study_report(path: Path, name: str, study: Findings) -> None:
    """Write the page of a study, under a name for its heading.

    Raises:
        ReportError: A library that makes pages or pictures is not installed.
    """
    require_libraries()
    sections = [*_STUDY_SECTIONS, ("settings", "How it was computed")]
    _write(path, _render("study.html", name=name, sections=sections, study=study))


def _write(path: Path, text: str) -> None:
    with atomic_file(path) as sink:
        sink.write(text.encode("utf-8", "backslashreplace"))


def _render(template: str, **values: Any) -> str:
    """Return a page of `analysis/page`: every value is escaped but pictures of our own."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # of the extra `report`

    environment = Environment(
        loader=FunctionLoader(read_page_file),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = cell
    environment.filters["visible"] = visible
    environment.globals.update(
        draw=draw,
        mark=MARK,
        most_rows=_MOST_ROWS,
        version=__version__,
        answer_cells=answer_cells,
        answer_groups=_answer_groups,
        answer_rows=_answer_rows,
        groups_text=_groups_text,
        number_columns=_number_columns,
        setting_rows=_setting_rows,
        difference_chart=difference_chart,
        noise_floor=noise_floor,
        nothing_learnt=nothing_learnt,
        arms_text=arms_text,
        study_charts=study_charts,
        study_summaries=_study_summaries,
        study_warnings=study_warnings,
        with_flags=_with_flags,
    )
    return environment.get_template(template).render(**values)


def cell(value: Any) -> str:
    """Return a value of a table for people.

    >>> cell(1234567), cell(0.123456), cell(2e-9), cell(None), cell("a")
    ('1,234,567', '0.1235', '2e-09', '', 'a')
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | Decimal):
        return f"{value:,}"
    return _float_text(value) if isinstance(value, float) else visible(str(value))


def _float_text(value: float) -> str:
    """Return a number whose decimals stand below those of its neighbours in a column."""
    size = abs(value)
    if size >= 1000 or value.is_integer():
        return f"{value:,.0f}"
    if size < 1e-4:
        return f"{value:.2g}"
    return f"{value:.2f}" if size >= 10 else f"{value:.4f}"


def _with_flags(text: str) -> str:
    """Return a text as HTML, in which flags of a command line are not broken over lines."""
    return re.sub("--[a-z-]+", r'<code class="name">\g<0></code>', escape(visible(text)))


def _setting_rows(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return settings as they would be written on a command line."""
    return [(name, "" if value is None else str(value)) for name, value in settings.items()]


def _sections(counts: Counter[str], has_charts: bool) -> list[tuple[str, str]]:
    """Return the sections of the page that there are: their ids and titles."""
    sections = [
        ("failed", "What failed", counts["failed"] + counts["accepted"] > 0),
        ("dataset", "The dataset", True),
        ("questions", "All questions", True),
        ("charts", "Pictures", has_charts),
        ("ledger", "From documents to instances", True),
        ("examples", "Instances", True),
    ]
    return [(name, title) for name, title, is_there in sections if is_there]


def _facts(manifest: Manifest) -> list[tuple[str, Any]]:
    """Return how the dataset was built, as a person would ask."""
    settings = manifest.configuration
    return [
        ("recipe", settings["recipe"]),
        ("longest instance", f"{manifest.max_seq_length} tokens"),
        ("masked_lm_prob", str(settings["masked_lm_prob"])),
        ("masked together", settings["mask_unit"]),
        ("passes over the text", settings["dupe_factor"]),
        ("short_seq_prob", str(settings["short_seq_prob"])),
        ("seed", settings["seed"]),
        ("vocabulary", f"{manifest.tokenizer.vocab_size:,} tokens"),
        ("sources", len(manifest.sources)),
        ("format", settings["format"]),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """What the table of questions has of one, in words."""

    observed: str
    """What was counted; empty where nothing is judged."""

    expected: str
    """What it should be, likewise."""

    passes: str
    """From which count to which, or why there is no verdict."""

    label: str = ""
    """Which group it is, where there are several."""


def answer_cells(answer: Answer) -> Cells:
    """Return what was observed, what was expected and what would pass."""
    if answer.verdict in ("figures", "not asked"):
        reason = unasked(answer.reason) or f"{answer.num_rows:,} rows of figures"
        return Cells(observed="", expected="", passes=reason)
    if not answer.groups:
        return Cells(observed=cell(answer.num_rows), expected="0", passes="no row")
    group = answer.groups[0]
    return Cells(
        observed=cell(group.observed),
        expected=cell(group.expected),
        passes=f"{cell(group.low)} to {cell(group.high)}",
        label=visible(group.label),
    )


def _groups_text(answer: Answer) -> str:
    """Return how many of the groups that were tested are shown."""
    shown = len(answer.groups)
    if shown == answer.num_groups:
        return f"all {shown}, the least probable first" if shown > 1 else "the only one"
    return f"{shown} of {answer.num_groups:,}, the least probable"


def _number_columns(rows: Iterable[Sequence[Any]]) -> set[int]:
    """Return the places of columns that hold numbers and nothing else, where they hold anything."""
    found = [
        (place, isinstance(value, int | float | Decimal))
        for row in rows
        for place, value in enumerate(row)
        if value is not None
    ]
    return {place for place, _ in found} - {place for place, is_number in found if not is_number}


def _answer_groups(answer: Answer) -> list[tuple[Any, ...]]:
    return [
        (group.label, group.observed, group.expected, group.low, group.high, group.p_value)
        for group in answer.groups
    ]


def _answer_rows(answer: Answer) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in answer.rows.slice(0, _MOST_ROWS).to_pylist()]


def _study_summaries(study: Findings) -> list[tuple[Any, ...]]:
    """Return the measures of all arms, and the line without context after those it is one with."""
    rows: list[tuple[Any, ...]] = [
        (row.arm, row.measure, row.spread.mean, row.spread.sd, row.spread.low, row.spread.high)
        for row in study.summaries
    ]
    if study.context_free_loss is not None:
        line = (LINE_NAME, PRIMARY, study.context_free_loss, None, None, None)
        rows.insert(sum(row.measure == PRIMARY for row in study.summaries), line)
    return rows
