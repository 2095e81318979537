"""The audit: every question asked, its answers judged, and one false-alarm rate for them all."""

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from clozemill.analysis.questions import Kind, Question, all_questions, unmet_need
from clozemill.analysis.verdicts import (
    binomial_interval,
    binomial_p_value,
    chi_square_p_value,
    sum_interval,
    sum_p_value,
)
from clozemill.pipeline.manifest import Manifest

FALSE_ALARM_RATE = 1e-6
"""How often a sound dataset fails, at most, over all questions together."""

_SHOWN_ROWS = 1_000
"""Rows of an answer that are kept; all are judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A tested row of an answer, or for a chi-square test the rows of one group."""

    label: str
    """Which one, as `column value, column value`; empty where there is only one."""

    observed: float
    """The count; for a chi-square test the statistic."""

    expected: float
    """Its expectation."""

    p_value: float
    """Of a deviation as large, if all is as it should be."""

    low: float | None = None
    """Least count that passes, where the test has such a bound."""

    high: float | None = None
    """Largest count that passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One question, answered."""

    question: Question
    verdict: str
    """`passed`, `failed`, `figures` (no verdict) or `not asked`."""

    reason: str
    """Why it was not asked, else empty."""

    groups: tuple[Group, ...]
    """What was tested, the least probable first; empty for rules and figures."""

    num_rows: int
    """Rows of the answer: for rules, offences."""

    rows: pa.Table
    """The first rows of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """All answers."""

    answers: tuple[Answer, ...]
    num_tests: int
    """Groups that were tested over all questions."""

    threshold: float
    """The false-alarm rate over their number: a smaller p-value fails."""

    @property
    def has_failed(self) -> bool:
        """Whether any question has."""
        return any(answer.verdict == "failed" for answer in self.answers)


def run_audit(
    connection: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    *,
    only: Collection[str] = (),
    false_alarm_rate: float = FALSE_ALARM_RATE,
) -> AuditReport:
    """Ask the questions of a dataset, all or only some.

    Args:
        connection: Of `open_database`.
        manifest: The dataset's.
        only: Names of questions; empty: all.
        false_alarm_rate: How often a sound dataset may fail, over all questions together.
    """
    asked: list[tuple[Question, str, pa.Table]] = []
    for question in all_questions():
        if not only or question.name in only:
            unmet = unmet_need(question, manifest)
            rows = pa.table({}) if unmet else connection.sql(question.sql).to_arrow_table()
            asked.append((question, f"needs {unmet}" if unmet else "", rows))
    tested = [_TESTS.get(question.kind, _no_test)(rows) for question, _, rows in asked]
    num_tests = sum(map(len, tested))
    threshold = false_alarm_rate / max(1, num_tests)
    answers = tuple(
        _judge(question, reason, rows, groups, threshold)
        for (question, reason, rows), groups in zip(asked, tested, strict=True)
    )
    return AuditReport(answers=answers, num_tests=num_tests, threshold=threshold)


def _judge(
    question: Question, reason: str, rows: pa.Table, tests: list["_Test"], threshold: float
) -> Answer:
    groups = sorted((test.group(threshold) for test in tests), key=lambda group: group.p_value)
    if reason:
        verdict = "not asked"
    elif question.kind is Kind.FIGURES:
        verdict = "figures"
    elif question.kind is Kind.OFFENCES:
        verdict = "failed" if rows.num_rows else "passed"
    else:
        verdict = "failed" if groups and groups[0].p_value < threshold else "passed"
    return Answer(
        question=question,
        verdict=verdict,
        reason=reason,
        groups=tuple(groups),
        num_rows=rows.num_rows,
        rows=rows.slice(0, _SHOWN_ROWS),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Test:
    """A test of one group."""

    label: str
    observed: float
    expected: float
    p_value: float
    interval: Callable[[float], tuple[float | None, float | None]]
    """From the p-value that fails to the counts that pass."""

    def group(self, threshold: float) -> Group:
        low, high = self.interval(threshold)
        return Group(
            label=self.label,
            observed=self.observed,
            expected=self.expected,
            p_value=self.p_value,
            low=low,
            high=high,
        )


def _no_test(rows: pa.Table) -> list[_Test]:
    return []


def _test_sums(rows: pa.Table) -> list[_Test]:
    tests = []
    for row in rows.to_pylist():
        observed = float(row.pop("observed"))
        law = {name: float(row.pop(name)) for name in ("trials", "expected", "variance")}
        tests.append(
            _Test(
                label=_label(row),
                observed=observed,
                expected=law["expected"],
                p_value=sum_p_value(observed, **law),
                interval=lambda rate, law=law: sum_interval(rate, **law),  # type: ignore[misc]
            )
        )
    return tests


def _test_shares(rows: pa.Table) -> list[_Test]:
    tests = []
    for row in rows.to_pylist():
        observed = float(row.pop("observed"))
        law = {name: float(row.pop(name)) for name in ("trials", "probability")}
        tests.append(
            _Test(
                label=_label(row),
                observed=observed,
                expected=law["trials"] * law["probability"],
                p_value=binomial_p_value(observed, **law),
                interval=lambda rate, law=law: binomial_interval(rate, **law),  # type: ignore[misc]
            )
        )
    return tests


def _test_counts(rows: pa.Table) -> list[_Test]:
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in rows.to_pylist():
        row.pop("category")
        pair = (float(row.pop("observed")), float(row.pop("expected")))
        groups[_label(row)].append(pair)
    tests = []
    for label, pairs in groups.items():
        observed, expected = np.array(pairs).T
        tests.append(
            _Test(
                label=label,
                observed=float(((observed - expected) ** 2 / expected).sum()),
                expected=float(len(pairs) - 1),
                p_value=chi_square_p_value(observed, expected),
                interval=lambda rate: (None, None),
            )
        )
    return tests


_TESTS: dict[Kind, Callable[[pa.Table], list[_Test]]] = {
    Kind.SUMS: _test_sums,
    Kind.SHARES: _test_shares,
    Kind.COUNTS: _test_counts,
}


def _label(row: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.items())
