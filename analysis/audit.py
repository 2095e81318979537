"""The audit: every question asked, its answers judged, and one false-alarm rate for them all."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.analysis.defaults import FALSE_ALARM_RATE
from clozemill.analysis.group_labels import group_label
from clozemill.analysis.query import told_in_a_line
from clozemill.analysis.questions import Kind, Question, all_questions, unmet_need
from clozemill.analysis.verdicts import (
    binomial_p_values,
    excess_p_values,
    passing_counts,
    sum_p_values,
)
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.progress import OnProgress, Progress

_SHOWN_ROWS = 1_000
"""Rows of an answer that are kept; all are judged."""

_SHOWN_GROUPS = 5
"""Groups of an answer that are kept, the least probable ones; all are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A tested row of an answer."""

    label: str
    """Which one, in words, token ids without their pieces; empty where there is only one."""

    observed: float
    """The count."""

    expected: float
    """Its expectation."""

    p_value: float
    """Of a deviation as large, at most, if all is as it should be."""

    low: float | None
    """Least count that passes; None where none does."""

    high: float | None
    """Largest count that passes; None where none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question, answered."""

    question: Question
    verdict: str
    """`passed`, `failed`, `accepted` (it failed, as it may), `figures` (no verdict) or `not asked`:
    nothing was tested."""

    reason: str
    """Why nothing was tested, else empty."""

    groups: tuple[Group, ...]
    """What was tested, the least probable first, some of many; empty for rules and figures."""

    num_groups: int
    """Groups that were tested."""

    threshold: float
    """A smaller p-value of a group fails."""

    num_rows: int
    """Rows of the answer: for rules, offences."""

    rows: pa.Table
    """The first rows of the answer."""

    @property
    def has_fault(self) -> bool:
        """Whether it is not as it should be, accepted or not."""
        return self.verdict in ("failed", "accepted")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """All answers."""

    answers: tuple[Answer, ...]
    false_alarm_rate: float
    """How often a sound dataset fails, at most."""

    is_sample: bool
    """Whether only a part of the instances was looked at."""

    accepted: tuple[str, ...] = ()
    """Names of questions that may fail."""

    @property
    def has_failed(self) -> bool:
        """Whether any question has that may not."""
        return any(answer.verdict == "failed" for answer in self.answers)

    def needlessly_accepted(self) -> dict[str, str]:
        """Return a sentence for each question that may fail and did not, by its name."""
        verdicts = {answer.question.name: answer.verdict for answer in self.answers}
        found = {name: verdicts.get(name, "not asked") for name in self.accepted}
        return {
            name: f"{name} is accepted but did not fail: {_NO_FAILURE[verdict]}."
            for name, verdict in found.items()
            if verdict in _NO_FAILURE
        }


_NO_FAILURE = {
    "passed": "it passed",
    "figures": "it gives figures without a verdict",
    "not asked": "it was not asked",
}


def chosen_questions(only: Collection[str]) -> tuple[Question, ...]:
    """Return the questions of these names, or all for none.

    Raises:
        ConfigError: There is no question of a name.
    """
    _check_names(only)
    return tuple(question for question in all_questions() if not only or question.name in only)


def _check_names(given: Collection[str]) -> None:
    names = [question.name for question in all_questions()]
    for name in given:
        if name not in names:
            raise ConfigError(f"there is no question {name!r}; choose among {', '.join(names)}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """What is asked, and how it is judged."""

    only: tuple[str, ...] = ()
    """Names of questions; empty: all."""

    false_alarm_rate: float = FALSE_ALARM_RATE
    """How often a sound dataset may fail, over all questions together."""

    is_sample: bool = False
    """Whether the views show a part of the instances, so that some questions make no sense."""

    accept: tuple[str, ...] = ()
    """Names of questions that may fail, such as one about a setting that was chosen on purpose."""

    def __post_init__(self) -> None:
        """Refuse names and a rate that are none.

        Raises:
            ConfigError: There is no question of a name, or the rate is not between 0 and 1.
        """
        _check_names((*self.only, *self.accept))
        if not 0.0 < self.false_alarm_rate < 1.0:
            raise ConfigError(
                f"false_alarm_rate is {self.false_alarm_rate}; it must be between 0 and 1."
            )


def run_audit(
    connection: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    settings: AuditSettings | None = None,
    *,
    on_progress: OnProgress = lambda progress: None,
) -> AuditReport:
    """Ask the questions of a dataset, all or only some.

    The false-alarm rate is shared evenly by the questions that test something, and the share of
    one by its groups (Bonferroni), so many groups of one do not blunt the others.

    Args:
        connection: Of `open_database`.
        manifest: The dataset's.
        settings: What is asked, and how it is judged.
        on_progress: Called before each question, and at the end.

    Raises:
        QueryError: The files or the memory do not allow an answer.
    """
    settings = settings or AuditSettings()
    questions = chosen_questions(settings.only)
    answers: list[_Asked] = []
    for question in questions:
        on_progress(_progress(len(answers), len(questions)))
        unmet = unmet_need(question, manifest, is_sample=settings.is_sample)
        answers.append(_unasked(question, unmet) if unmet else _ask(connection, question))
    on_progress(_progress(len(questions), len(questions)))
    rate = settings.false_alarm_rate / max(1, sum(len(asked.p_values) > 0 for asked in answers))
    return AuditReport(
        answers=tuple(_judge(asked, rate, settings.accept) for asked in answers),
        false_alarm_rate=settings.false_alarm_rate,
        is_sample=settings.is_sample,
        accepted=tuple(dict.fromkeys(settings.accept)),
    )


def _progress(done: int, total: int) -> Progress:
    return Progress(stage="asking", unit="questions", done=done, total=total)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A question with its answer, before the judgement."""

    question: Question
    reason: str
    rows: pa.Table
    num_rows: int
    p_values: NDArray[np.float64]
    """(G,) of the rows; none for rules and figures."""


def _unasked(question: Question, unmet: str) -> _Asked:
    nothing = pa.table({})
    return _Asked(
        question=question,
        reason=f"needs {unmet}",
        rows=nothing,
        num_rows=0,
        p_values=np.empty(0),
    )


def _ask(connection: duckdb.DuckDBPyConnection, question: Question) -> _Asked:
    """Run a question. Of rules and figures, the first rows are kept: there may be billions."""
    is_tested = question.kind in _TESTS
    kept: list[pa.RecordBatch] = []
    num_rows = 0
    with told_in_a_line():
        reader = connection.sql(question.sql).to_arrow_reader(100_000)
        for batch in reader:
            if is_tested or num_rows < _SHOWN_ROWS:
                kept.append(batch)
            num_rows += batch.num_rows
    rows = pa.Table.from_batches(kept, reader.schema)
    rows = _rounded(rows if is_tested else rows.slice(0, _SHOWN_ROWS))
    return _Asked(
        question=question,
        reason="",
        rows=rows,
        num_rows=num_rows,
        p_values=p_values(question.kind, rows) if is_tested else np.empty(0),
    )


def _rounded(rows: pa.Table) -> pa.Table:
    """Return an answer with 9 digits of each fraction: the last of a sum follow from threads."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_floating(field.type):
            values = [v if v is None else float(f"{v:.9g}") for v in rows.column(place).to_pylist()]
            rows = rows.set_column(place, field, pa.array(values, field.type))
    return rows


def _judge(asked: _Asked, rate: float, accept: Collection[str] = ()) -> Answer:
    question, num_groups = asked.question, len(asked.p_values)
    threshold = rate / max(1, num_groups)
    reason = asked.reason
    if question.kind in _TESTS and not num_groups:
        reason = reason or "nothing to test"
    if reason:
        verdict = "not asked"
    elif question.kind is Kind.FIGURES:
        verdict = "figures"
    elif question.kind is Kind.OFFENCES:
        verdict = "failed" if asked.num_rows else "passed"
    else:
        # A p-value that is no number, of an expectation that is none, does not pass.
        verdict = "passed" if (asked.p_values >= threshold).all() else "failed"
    if verdict == "failed" and question.name in accept:
        verdict = "accepted"
    order = np.argsort(asked.p_values, kind="stable")
    return Answer(
        question=question,
        verdict=verdict,
        reason=reason,
        groups=tuple(
            tested_group(question.kind, asked.rows.slice(row, 1), threshold)
            for row in order[:_SHOWN_GROUPS].tolist()
        ),
        num_groups=num_groups,
        threshold=threshold,
        num_rows=asked.num_rows,
        rows=(asked.rows.take(order) if num_groups else asked.rows).slice(0, _SHOWN_ROWS),
    )


def tested_group(kind: Kind, row: pa.Table, threshold: float) -> Group:
    """Return a row of an answer of a tested kind, a table of one, with the counts that pass."""
    numbers = _numbers(kind, row)
    trials = numbers["trials"]
    expected = numbers["expected"] if "expected" in numbers else trials * numbers["probability"]

    def p_value(count: float) -> float:
        return float(_tested(kind, {**numbers, "observed": np.array([count])})[0])

    low, high = passing_counts(
        p_value, threshold, expected=float(expected[0]), trials=float(trials[0])
    )
    observed = float(numbers["observed"][0])
    return Group(
        label=group_label(row.to_pylist()[0]),
        observed=observed,
        expected=float(expected[0]),
        p_value=p_value(observed),
        low=low,
        high=high,
    )


_TESTS: dict[Kind, Callable[..., NDArray[np.float64]]] = {
    Kind.SUMS: sum_p_values,
    Kind.EXCESS: excess_p_values,
    Kind.SHARES: binomial_p_values,
}

_LAWS: dict[Kind, tuple[str, ...]] = {
    Kind.SUMS: ("trials", "expected", "variance"),
    Kind.EXCESS: ("trials", "expected", "variance"),
    Kind.SHARES: ("trials", "probability"),
}


def p_values(kind: Kind, rows: pa.Table) -> NDArray[np.float64]:
    """Return the p-value of each row (G,) of an answer of a tested kind."""
    return _tested(kind, _numbers(kind, rows))


def _tested(kind: Kind, numbers: dict[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore", invalid="ignore"):
        return _TESTS[kind](**numbers)


def _numbers(kind: Kind, rows: pa.Table) -> dict[str, NDArray[np.float64]]:
    names = ("observed", *_LAWS[kind])
    return {name: rows.column(name).cast(pa.float64()).to_numpy() for name in names}
