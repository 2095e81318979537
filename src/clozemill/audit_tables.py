"""What a person sees of an audit: a line for each question, and the way to the rows that failed."""

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any, NamedTuple

from clozemill.analysis.audit import Answer, AuditReport
from clozemill.analysis.group_labels import group_label
from clozemill.analysis.headlines import headline
from clozemill.analysis.questions import Question, unasked
from clozemill.pipeline.figures import count, figure, frequency, p_value_text
from clozemill.printing import PLAIN_WIDTH
from clozemill.printouts import Printout
from clozemill.values import printable


def audit_printout(
    data: str,
    report: AuditReport,
    *,
    sample: int | None = None,
    pieces: Sequence[str] = (),
    width: int = PLAIN_WIDTH,
) -> Printout:
    """Return all answers: a table, and for each failure how to see what is wrong.

    Args:
        data: The dataset, as it was given.
        report: The answers.
        sample: About how many of its instances were asked about; None: all.
        pieces: The vocabulary, by token id.
        width: Characters of a line; what does not fit goes to a second one.
    """
    found = {
        "data": data,
        "has_failed": report.has_failed,
        "needlessly_accepted": report.needlessly_accepted(),
        "false_alarm_rate": report.false_alarm_rate,
        "is_sample": report.is_sample,
        "answers": [_answer_data(answer) for answer in report.answers],
    }
    command = shlex.join(["clozemill", "audit", data, *_sample_flag(sample)])
    failures = [_failure(command, answer) for answer in report.answers if answer.has_fault]
    legend = [_LEGEND] * any(answer.num_groups > 1 for answer in report.answers)
    table, needless = _table(report, pieces, width), report.needlessly_accepted().values()
    lines = ["audit", *table, "", *legend, *failures, *needless, _last_line(report)]
    return Printout(data=found, text="\n".join(lines) + "\n")


def sql_printout(questions: Sequence[Question]) -> Printout:
    """Return the SQL of questions."""
    found = {question.name: question.sql for question in questions}
    return Printout(data={"sql": found}, text="\n".join(found.values()))


def interval_text(low: float | None, high: float | None) -> str:
    """Return which counts pass."""
    return "no count" if low is None or high is None else f"{figure(low)} to {figure(high)}"


def _answer_data(answer: Answer) -> dict[str, Any]:
    question = answer.question
    data = {
        "name": question.name,
        "question": question.question,
        "kind": question.kind.value,
        "verdict": answer.verdict,
        "reason": answer.reason,
        "num_groups": answer.num_groups,
        "threshold": answer.threshold,
        "num_rows": answer.num_rows,
        "groups": [dataclasses.asdict(group) for group in answer.groups],
    }
    if answer.has_fault:
        data |= {name: getattr(question, name) for name in ("failure", "grain", "passes", "sql")}
    return data


class _Line(NamedTuple):
    """An answer in the table."""

    name: str
    verdict: str
    numbers: tuple[str, ...]
    """Observed, expected and p; none where nothing was counted."""

    says: str
    """What passes; without numbers, what there is to say."""

    group: str = ""
    """Which group is shown, and of how many."""


_LEGEND = "p is that of the group shown, the least probable one: of 1,000 groups it is often 0.001."
_HEADER = _Line("question", "verdict", ("observed", "expected", "p"), "passes")


def _table(report: AuditReport, pieces: Sequence[str], width: int) -> list[str]:
    """Return a line for each answer, or two where it is long."""
    lines = [_HEADER, *(_line(answer, pieces) for answer in report.answers)]
    name_width, verdict_width = (max(len(line[place]) for line in lines) for place in (0, 1))
    numbers = [line.numbers for line in lines if line.numbers]
    widths = [max(map(len, column)) for column in zip(*numbers, strict=True)]
    found = []
    for line in lines:
        cells = [f"{line.name:<{name_width}}", f"{line.verdict:<{verdict_width}}"]
        cells += [f"{text:>{size}}" for text, size in zip(line.numbers, widths, strict=False)]
        found += _fitted(cells, line, width)
    return found


def _fitted(cells: Sequence[str], line: _Line, width: int) -> list[str]:
    """Return the line, cut before the group or before what it says where it is too wide."""
    begin = "  ".join([*cells, line.says]).rstrip()
    if not line.group or len(begin) + 1 + len(line.group) <= width:
        whole = f"{begin} {line.group}".rstrip()
        if len(whole) <= width:
            return [whole]
    if len(begin) <= width:
        return [begin, f"    {line.group}"]
    return ["  ".join(cells).rstrip(), f"    {line.says} {line.group}".rstrip()]


def _line(answer: Answer, pieces: Sequence[str]) -> _Line:
    name, verdict = answer.question.name, answer.verdict
    if verdict == "not asked":
        return _Line(name, verdict, (), unasked(answer.reason))
    if verdict == "figures":
        return _Line(name, verdict, (), printable(_headline(answer)))
    if not answer.groups:
        return _Line(name, verdict, (f"{answer.num_rows:,}", "0", ""), "no row")
    worst = answer.groups[0]
    numbers = (figure(worst.observed), figure(worst.expected), p_value_text(worst.p_value))
    group = ""
    if answer.num_groups > 1:
        label = printable(group_label(answer.rows.slice(0, 1).to_pylist()[0], pieces))
        group = f"({label}; {answer.num_groups:,} tested)"
    return _Line(name, verdict, numbers, interval_text(worst.low, worst.high), group)


def _headline(answer: Answer) -> str:
    """Return the first figure that a person wants, or how many there are."""
    is_whole = answer.num_rows == answer.rows.num_rows
    said = headline(answer.question.name, answer.rows.to_pylist()) if is_whole else ""
    return said or count(answer.num_rows, "row")


def _sample_flag(sample: int | None) -> tuple[str, ...]:
    return () if sample is None else ("--sample", str(sample))


def _failure(command: str, answer: Answer) -> str:
    question = answer.question
    p_value = f" (p {p_value_text(answer.groups[0].p_value)})" if answer.groups else ""
    points = f"  A failure points to {question.failure}\n" if question.failure else ""
    accepted = ", which is accepted" if answer.verdict == "accepted" else ""
    return (
        f"{question.name} failed{accepted}{p_value}: {question.question}\n{points}"
        f"  See: {command} --only {question.name} --show-rows"
    )


def _last_line(report: AuditReport) -> str:
    counts = {
        verdict: sum(answer.verdict == verdict for answer in report.answers)
        for verdict in ("passed", "failed", "accepted", "figures", "not asked")
    }
    asked = ", ".join(f"{number} {verdict}" for verdict, number in counts.items() if number)
    part = " of a sample of the instances" if report.is_sample else ""
    return f"{asked}{part}; a sound dataset fails at most {frequency(report.false_alarm_rate)}."
