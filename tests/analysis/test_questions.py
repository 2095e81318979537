from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_datasets import make_dataset

from clozemill.analysis.questions import (
    CONDITIONS,
    UNMET,
    WHOLE,
    Kind,
    Question,
    all_questions,
    parse_question,
    unmet_need,
)
from clozemill.pipeline.manifest import Manifest

SQL = """-- question: Is it so,
--   or not?
-- grain: one row
-- passes: it is
-- failure: a wrong one.
-- kind: shares
-- needs: pairs, not words
-- A law
-- of two lines.
select 1 as observed, 2 as trials, 0.5 as probability;
-- not of the law
"""


def question(**changes: str) -> Question:
    text = SQL
    for key, value in changes.items():
        [line] = [line for line in text.splitlines() if line.startswith(f"-- {key}: ")]
        text = text.replace(line, f"-- {key}: {value}")
    return parse_question("some", text)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    return make_dataset(tmp_path_factory.mktemp("data") / "data")


def test_a_file_is_its_header_its_law_and_its_sql() -> None:
    assert question() == Question(
        name="some",
        question="Is it so, or not?",
        grain="one row",
        passes="it is",
        failure="a wrong one.",
        kind=Kind.SHARES,
        needs=("pairs", "not words"),
        law="A law of two lines.",
        sql=SQL,
    )


def test_a_header_without_a_line_or_with_an_unknown_kind_is_refused() -> None:
    with pytest.raises(KeyError, match="grain"):
        parse_question("some", SQL.replace("-- grain: one row\n", ""))
    with pytest.raises(ValueError, match="guess"):
        question(kind="guess")


def test_every_file_is_a_question_with_known_needs() -> None:
    questions = all_questions()
    assert len(questions) > 40
    assert [q.name for q in questions] == sorted(q.name for q in questions)
    known = {*CONDITIONS, WHOLE}
    for asked in questions:
        assert {need.removeprefix("not ") for need in asked.needs} <= known, asked.name
        assert set(asked.needs) <= UNMET.keys(), asked.name
        assert asked.question.endswith("?"), asked.name
        assert asked.failure.endswith(".") == (asked.kind is not Kind.FIGURES), asked.name
        assert asked.law == "" or asked.law.endswith("."), asked.name


@pytest.mark.parametrize(
    ("needs", "is_sample", "unmet"),
    [
        ("pairs, not words", False, None),
        ("words", False, "words"),
        ("not pairs", True, "not pairs"),
        ("whole", False, None),
        ("pairs, whole", True, "whole"),
        ("random_rounding", False, "random_rounding"),
        ("ordinary_random_tokens", False, None),
    ],
)
def test_a_need_is_met_or_named(
    manifest: Manifest, needs: str, is_sample: bool, unmet: Any
) -> None:
    assert unmet_need(question(needs=needs), manifest, is_sample=is_sample) == unmet


def test_what_has_no_order_is_one_row_or_comes_as_the_files_have_it() -> None:
    """Threads shuffle groups and joined rows, but no others."""
    without = [q for q in all_questions() if "\norder by " not in q.sql]
    assert len(without) == 11
    shuffled = [q.name for q in without if " join " in q.sql or "group by" in q.sql]
    assert shuffled == []


def test_sql_files_stand_where_questions_are_read_from() -> None:
    folder = Path(__file__).resolve().parents[2] / "analysis" / "sql" / "audits"
    assert sorted(path.stem for path in folder.glob("*.sql")) == [q.name for q in all_questions()]
