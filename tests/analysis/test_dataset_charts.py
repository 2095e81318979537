"""The numbers of the pictures against the answers of the SQL that they are drawn from."""

import dataclasses
import math
import re
from typing import Any

import pyarrow as pa
import pytest
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)

from clozemill.analysis.audit import AuditReport, AuditSettings, run_audit
from clozemill.analysis.charts import Chart, draw
from clozemill.analysis.dataset_charts import dataset_charts
from clozemill.analysis.db import open_database
from clozemill.pipeline.dataset import Dataset

QUESTIONS = {
    "Mask rate by place in the instance (train)": "selected_by_position",
    "Mask rate by length of the word (train)": "selected_by_word_length",
    "What selected positions show (train)": "actions",
    "Lengths of instances (train)": "lengths",
    "Random pairs by source (train)": "label_share",
    "Shares of sources (train)": "source_shares",
}
"""By the title of a picture, what is asked for it."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    folder = tmp_path_factory.mktemp("dataset")
    sources = [("speeches", "letters", "laws")[number % 3] for number in range(90)]
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(90), source=sources)
    tokenizer = write_tokenizer(folder / "tokenizer")
    return small_dataset(
        corpus, tokenizer, folder / "data", source_field="source", source_weight=(("laws", 2.0),)
    )


@pytest.fixture(scope="module")
def audit(dataset: Dataset) -> AuditReport:
    with open_database(dataset, threads=1) as connection:
        settings = AuditSettings(only=tuple(QUESTIONS.values()))
        return run_audit(connection, dataset.manifest, settings)


@pytest.fixture(scope="module")
def charts(dataset: Dataset, audit: AuditReport) -> dict[str, Chart]:
    found = {chart.title: chart for chart in dataset_charts(audit, dataset.manifest)}
    assert list(found) == list(QUESTIONS)
    return found


def answer_rows(audit: AuditReport, name: str) -> list[dict[str, Any]]:
    (answer,) = (answer for answer in audit.answers if answer.question.name == name)
    rows = [row for row in answer.rows.to_pylist() if row["split"] == "train"]
    assert len(rows) > 1
    for row in rows:
        if "twentieth" in row:  # drawn at its middle
            row["place"] = (row["twentieth"] + 0.5) / 20
    return rows


def table(chart: Chart) -> list[dict[str, Any]]:
    return [dict(zip(chart.columns, row, strict=True)) for row in chart.rows]


@pytest.mark.parametrize("title", QUESTIONS)
def test_columns_are_distinct_and_hold_what_the_sql_answers(
    title: str, charts: dict[str, Chart], audit: AuditReport
) -> None:
    chart = charts[title]
    assert len(set(chart.columns)) == len(chart.columns)
    answered = {row[chart.columns[0]]: row for row in answer_rows(audit, QUESTIONS[title])}
    rows = table(chart)
    assert {row[chart.columns[0]] for row in rows} == set(answered)
    common = [name for name in chart.columns if name in answered[rows[0][chart.columns[0]]]]
    assert len(common) > 2
    for row in rows:
        assert [row[n] for n in common] == [answered[row[chart.columns[0]]][n] for n in common]


@pytest.mark.parametrize("title", list(QUESTIONS)[:2])
def test_bands_are_two_standard_deviations_and_points_outside_are_counted(
    title: str, charts: dict[str, Chart], audit: AuditReport
) -> None:
    chart = charts[title]
    rows = {row[chart.columns[0]]: row for row in table(chart)}
    outside = num_shown = 0
    for answered in answer_rows(audit, QUESTIONS[title]):
        row, trials = rows[answered[chart.columns[0]]], int(answered["trials"])
        half = 2 * math.sqrt(float(answered["variance"]))
        assert row["rate"] == pytest.approx(answered["observed"] / trials)
        assert row["low"] * trials == pytest.approx(float(answered["expected"]) - half)
        assert row["high"] * trials == pytest.approx(float(answered["expected"]) + half)
        if answered["expected"] >= 30:
            num_shown += 1
            outside += abs(answered["observed"] - answered["expected"]) > half
    assert num_shown > 1
    assert f"; outside it: {outside} of {num_shown}." in chart.description
    assert len(chart.spec["data"]["values"]) == num_shown


def test_a_point_outside_the_band_is_counted_and_a_rare_one_is_not_drawn(
    dataset: Dataset, audit: AuditReport
) -> None:
    law = {"trials": 1_000, "expected": 150.0, "variance": 100.0}
    rows = [
        {"split": "train", "twentieth": 0, "observed": 171, **law},
        {"split": "train", "twentieth": 1, "observed": 169, **law},
        {"split": "train", "twentieth": 2, "observed": 9, **law, "expected": 29.0},
        {"split": "validation", "twentieth": 0, "observed": 0, **law},
    ]
    (answer,) = (a for a in audit.answers if a.question.name == "selected_by_position")
    planted = dataclasses.replace(answer, rows=pa.Table.from_pylist(rows), num_rows=len(rows))
    report = dataclasses.replace(audit, answers=(planted,))
    (chart,) = dataset_charts(report, dataset.manifest)
    assert chart.description.endswith("; outside it: 1 of 2. Not drawn, as rare: 1.")
    assert len(chart.rows) == 3


def test_shares_of_sources_tell_what_a_weight_did(charts: dict[str, Chart]) -> None:
    rows = {row["source"]: row for row in table(charts["Shares of sources (train)"])}
    assert set(rows) == {"speeches", "letters", "laws"}
    for column in ("share_before", "share_after"):
        assert sum(row[column] for row in rows.values()) == pytest.approx(1.0, abs=1e-5)
    assert rows["laws"]["mean_passes"] == pytest.approx(2.0)
    assert rows["laws"]["share_after"] > rows["laws"]["share_before"]


def test_a_question_that_was_not_asked_has_no_picture(dataset: Dataset, audit: AuditReport) -> None:
    report = dataclasses.replace(audit, answers=audit.answers[:1])
    titles = [chart.title for chart in dataset_charts(report, dataset.manifest)]
    assert titles == ["What selected positions show (train)"]


def many_sources(audit: AuditReport, name: str, rows: list[dict[str, Any]]) -> AuditReport:
    (answer,) = (a for a in audit.answers if a.question.name == name)
    table = pa.Table.from_pylist([{"split": "train", **row} for row in rows])
    planted = dataclasses.replace(answer, rows=table, num_rows=table.num_rows)
    return dataclasses.replace(audit, answers=(planted,))


def test_of_many_sources_the_largest_are_drawn_and_the_others_together(
    dataset: Dataset, audit: AuditReport
) -> None:
    rows = [
        {"source": f"s{i:04}", "mean_passes": 1.0, "num_instances": i}
        | {"share_before": 1 / 1_500, "share_after": i / 1_124_250}
        for i in range(1_500)
    ]
    (chart,) = dataset_charts(many_sources(audit, "source_shares", rows), dataset.manifest)
    drawn = table(chart)
    assert [row["source"] for row in drawn[:30]] == [f"s{1_499 - i:04}" for i in range(30)]
    assert [row["source"] for row in drawn[30:]] == ["1,470 others"]
    assert drawn[30]["share_before"] == pytest.approx(1_470 / 1_500)
    assert sum(row["share_after"] for row in drawn) == pytest.approx(1.0)
    assert float(re.findall(r'height="([0-9.]+)"', draw(chart))[0]) < 1_000
    assert chart.description.endswith("s1490 0.1%, and 21 more in the data.")


def test_pairs_of_many_sources_are_joined_as_those_of_one(
    dataset: Dataset, audit: AuditReport
) -> None:
    law = {"expected_share": 0.5, "standard_error": 0.1}
    rows = [
        {"source": f"s{i:02}", "num_random": 400 - i, "num_next": 400, "random_share": 0.5, **law}
        for i in range(34)
    ]
    (chart,) = dataset_charts(many_sources(audit, "label_share", rows), dataset.manifest)
    *_, others = table(chart)
    num_random = sum(400 - i for i in range(30, 34))
    assert (others["source"], others["num_random"], others["num_next"]) == (
        "4 others",
        num_random,
        1_600,
    )
    assert others["random_share"] == num_random / (num_random + 1_600)
    assert others["expected_share"] == pytest.approx(0.5)
    # Four alike are known twice as well as one.
    half = others["random_share"] - others["low"]
    assert half == pytest.approx(2 * 0.1 / 2, rel=1e-3)


def test_an_interval_of_a_share_ends_at_none_and_all(dataset: Dataset, audit: AuditReport) -> None:
    law = {"expected_share": 0.5, "standard_error": 0.4}
    rows = [
        {"source": name, "num_random": count, "num_next": 10 - count, "random_share": count / 10}
        | law
        for name, count in {"few": 1, "many": 9}.items()
    ]
    (chart,) = dataset_charts(many_sources(audit, "label_share", rows), dataset.manifest)
    ends = {row["source"]: (row["low"], row["high"]) for row in table(chart)}
    assert ends["few"] == pytest.approx((0.0, 0.9))
    assert ends["many"] == pytest.approx((0.1, 1.0))


def test_an_answer_of_which_only_some_rows_are_kept_says_so(
    dataset: Dataset, audit: AuditReport
) -> None:
    rows = [
        {"source": name, "mean_passes": 1.0, "num_instances": 1}
        | {"share_before": 0.5, "share_after": 0.5}
        for name in "ab"
    ]
    report = many_sources(audit, "source_shares", rows)
    cut = dataclasses.replace(report.answers[0], num_rows=3_000)
    (chart,) = dataset_charts(dataclasses.replace(report, answers=(cut,)), dataset.manifest)
    assert chart.description.endswith(" Drawn from the first 2 of 3,000 rows.")
