"""What a person sees of an audit: a line for each question, and the way to the rows that failed."""

import dataclasses
import math
import shlex
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from clozemill.analysis.audit import Answer, AuditReport, Group
from clozemill.analysis.questions import UNMET, Question
from clozemill.printouts import Printout, new_table, render
from clozemill.values import cell, plain

_SHOWN_ROWS = 20


def audit_printout(data: str, report: AuditReport, *, sample: int | None = None) -> Printout:
    """Return all answers: a table, and for each failure how to see what is wrong.

    Args:
        data: The dataset, as it was given.
        report: The answers.
        sample: About how many of its instances were asked about; None: all.
    """
    failed = [answer for answer in report.answers if answer.verdict == "failed"]
    found = {
        "data": data,
        "has_failed": report.has_failed,
        "false_alarm_rate": report.false_alarm_rate,
        "answers": [_answer_data(answer) for answer in report.answers],
    }
    table = new_table(
        "audit", ["question", "observed", "expected", "passes", "verdict"], right=(1, 2)
    )
    for answer in report.answers:
        table.add_row(answer.question.name, *_cells(answer), answer.verdict)
    command = shlex.join(["clozemill", "audit", data, *_sample_flag(sample)])
    lines = [_failure(command, answer) for answer in failed]
    return Printout(data=found, text=render(table) + "".join(lines) + _last_line(report))


def rows_printout(data: str, report: AuditReport) -> Printout:
    """Return the first rows of each answer."""
    parts: list[Any] = []
    for answer in report.answers:
        parts += [_rows_table(answer), f"{answer.num_rows:,} rows: {answer.question.grain}.\n"]
    found = {
        "data": data,
        "rows": {answer.question.name: plain(answer.rows.to_pylist()) for answer in report.answers},
    }
    return Printout(data=found, text=render(*parts))


def sql_printout(questions: Sequence[Question]) -> Printout:
    """Return the SQL of questions."""
    found = {question.name: question.sql for question in questions}
    return Printout(data={"sql": found}, text="\n".join(found.values()))


def _answer_data(answer: Answer) -> dict[str, Any]:
    return {
        "name": answer.question.name,
        "question": answer.question.question,
        "kind": answer.question.kind.value,
        "verdict": answer.verdict,
        "reason": answer.reason,
        "num_groups": answer.num_groups,
        "threshold": answer.threshold,
        "num_rows": answer.num_rows,
        "groups": [_group_data(group) for group in answer.groups],
    }


def _group_data(group: Group) -> dict[str, Any]:
    """Return a group; sums of fractions are rounded, as their last digits follow from threads."""
    data = dataclasses.asdict(group)
    return {name: _rounded(v) if isinstance(v, float) else v for name, v in data.items()}


def _rounded(number: float) -> float:
    return float(f"{number:.9g}")


def _cells(answer: Answer) -> tuple[str, str, str]:
    if answer.verdict in ("not asked", "figures"):
        return "", "", _unasked(answer.reason) or f"{answer.num_rows:,} rows"
    if not answer.groups:
        return f"{answer.num_rows:,}", "0", "none"
    group = answer.groups[0]
    of_all = f" ({group.label}; {answer.num_groups:,} tested)" if answer.num_groups > 1 else ""
    return _number(group.observed), _number(group.expected), _interval(group) + of_all


def _unasked(reason: str) -> str:
    """Return in words why a question was not asked, of a reason such as `needs pairs`."""
    need = reason.removeprefix("needs ")
    return UNMET.get(need, reason)


def _interval(group: Group) -> str:
    if group.low is None or group.high is None:
        return "none"
    return f"{_number(group.low)} to {_number(group.high)}"


def _number(number: float) -> str:
    if 0 < abs(number) < 0.01:
        return f"{number:.0e}"
    is_whole = number == math.floor(number)
    return f"{number:,.0f}" if is_whole or abs(number) >= 1000 else f"{number:,.2f}"


def _sample_flag(sample: int | None) -> tuple[str, ...]:
    return () if sample is None else ("--sample", str(sample))


def _failure(command: str, answer: Answer) -> str:
    name, group = answer.question.name, answer.groups[0] if answer.groups else None
    p_value = f" (p {group.p_value:.1e})" if group else ""
    return f"{answer.question.question}{p_value} See: {command} --only {name} --show-rows\n"


def _last_line(report: AuditReport) -> str:
    counts = {
        verdict: sum(answer.verdict == verdict for answer in report.answers)
        for verdict in ("passed", "failed", "figures", "not asked")
    }
    asked = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
    return f"{asked}; a sound dataset fails at most {report.false_alarm_rate:.0e} of the time.\n"


def _rows_table(answer: Answer) -> Table:
    table = new_table(answer.question.name, answer.rows.column_names, right=())
    for row in answer.rows.slice(0, _SHOWN_ROWS).to_pylist():
        table.add_row(*map(Text, map(cell, row.values())))
    return table
