import dataclasses
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from tests.analysis.faults import only_mask_tokens, plant
from tests.analysis.small_findings import small_findings, write_findings
from tests.full_disk import files_end_at
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.audit import (
    FALSE_ALARM_RATE,
    Answer,
    AuditReport,
    AuditSettings,
    run_audit,
)
from clozemill.analysis.db import MEMORY_LIMIT, open_database
from clozemill.analysis.questions import all_questions
from clozemill.audit_tables import audit_printout, rows_printout
from clozemill.cli import cli
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import ConfigError, DatasetError, RunError


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    tokenizer = write_tokenizer(folder / "tokenizer")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(60))
    small_build(corpus, tokenizer, folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def wrong(data: Path) -> Path:
    return plant(data, data.parent / "wrong", only_mask_tokens)


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, ["audit", *map(str, arguments)], standalone_mode=False)


def only(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--only", name)]


def test_a_sound_dataset_passes_with_a_line_for_each_question(data: Path) -> None:
    result = run(data, *only("actions", "cap_on_selected", "mask_rates", "words_whole"))
    assert result.return_value == 0
    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[2:6]] == [
        "actions",
        "cap_on_selected",
        "mask_rates",
        "words_whole",
    ]
    assert [line.split()[-1] for line in lines[2:6]] == ["passed", "passed", "figures", "asked"]
    assert "single tokens are masked, not words" in lines[5]
    assert lines[-1] == (
        "2 passed, 1 figures, 1 not asked; a sound dataset fails at most 1e-06 of the time."
    )
    assert result.stderr.splitlines()[-1].startswith("asking 100 %")


def test_a_failure_is_said_with_the_command_that_shows_its_rows(wrong: Path) -> None:
    result = run(wrong, *only("actions", "cap_on_selected"), "--quiet")
    assert result.return_value == 1
    assert result.stderr == ""
    [line] = [line for line in result.stdout.splitlines() if "See:" in line]
    command = f"clozemill audit {wrong} --only actions --show-rows"
    assert line.startswith("Do selected positions show [MASK], a random token and the original")
    assert line.endswith(f"See: {command}")
    rows = run(*command.split()[2:], "--quiet")
    assert rows.return_value == 1
    assert "mask" in rows.stdout
    assert "6 rows: one row per split and what is shown." in rows.stdout


def test_the_command_that_shows_rows_is_one_that_a_shell_takes_and_asks_the_same(
    wrong: Path,
) -> None:
    report = report_of(asked(wrong, "actions"))
    text = audit_printout("my data", report, sample=40).text
    assert text.splitlines()[-2].endswith(
        " See: clozemill audit 'my data' --sample 40 --only actions --show-rows"
    )


def report_of(answer: Answer) -> AuditReport:
    return AuditReport(answers=(answer,), false_alarm_rate=FALSE_ALARM_RATE, is_sample=False)


def asked(data: Path, name: str) -> Answer:
    dataset = open_dataset(data)
    with open_database(dataset, threads=1) as connection:
        return run_audit(connection, dataset.manifest, AuditSettings(only=(name,))).answers[0]


def test_rows_of_any_kind_are_json_without_nan(data: Path) -> None:
    rows = pa.table({"share": [float("nan")], "id": [b"\x01"], "count": [Decimal(3)]})
    answer = dataclasses.replace(asked(data, "mask_rates"), rows=rows, num_rows=1)
    report = report_of(answer)
    printout = rows_printout("data", report)
    assert printout.data["rows"]["mask_rates"] == [{"share": None, "id": "01", "count": 3}]
    assert "1 rows: " in printout.text


def test_help_shows_the_default_that_the_audit_has() -> None:
    help_text = run("--help").stdout
    assert f"[default: {FALSE_ALARM_RATE}]" in help_text
    assert f"[default: {MEMORY_LIMIT}]" in help_text


def test_json_has_all_questions_and_what_passes(data: Path) -> None:
    result = run(data, "--json", "--quiet", "--threads", 1, "--memory-limit", "1GB")
    found = json.loads(result.stdout)
    assert [answer["name"] for answer in found["answers"]] == [q.name for q in all_questions()]
    assert not found["has_failed"]
    [actions] = [answer for answer in found["answers"] if answer["name"] == "actions"]
    worst = actions["groups"][0]
    assert worst["low"] <= worst["observed"] <= worst["high"]
    assert worst["p_value"] >= actions["threshold"]


def test_a_rate_of_one_half_fails_what_a_small_rate_passes(data: Path) -> None:
    intervals = []
    for rate in (0.5, 1e-6):
        result = run(data, *only("actions"), "--json", "--quiet", "--false-alarm-rate", rate)
        worst = json.loads(result.stdout)["answers"][0]["groups"][0]
        intervals.append(worst["high"] - worst["low"])
    assert intervals[0] < intervals[1]


def test_the_sql_of_a_question_is_its_file(data: Path) -> None:
    [question] = [q for q in all_questions() if q.name == "actions"]
    assert run(data, *only("actions"), "--sql").stdout == question.sql


def test_a_sample_leaves_questions_about_the_whole_unasked(data: Path) -> None:
    whole = [q.name for q in all_questions() if "whole" in q.needs]
    names = [*whole, "mask_rates"]
    counts = []
    for flags in ([], ["--sample", 1]):
        result = run(data, *only(*names), "--show-rows", "--json", "--quiet", *flags)
        rows = json.loads(result.stdout)["rows"]
        counts.append(sum(row["num_maskable"] for row in rows["mask_rates"]))
    assert 0 < counts[1] <= counts[0]
    answers = json.loads(run(data, *only(*names), "--json", "--quiet", "--sample", 1).stdout)
    verdicts = {answer["name"]: answer["verdict"] for answer in answers["answers"]}
    assert verdicts == {**dict.fromkeys(whole, "not asked"), "mask_rates": "figures"}


def test_an_unknown_question_is_refused_with_the_names_there_are(data: Path) -> None:
    error = run(data, "--only", "action").exception
    assert isinstance(error, ConfigError)
    assert str(error).startswith("there is no question 'action'; choose among actions, cap_on_")


def test_a_rate_that_is_none_is_refused(data: Path) -> None:
    error = run(data, "--false-alarm-rate", 1.5).exception
    assert str(error) == "false_alarm_rate is 1.5; it must be between 0 and 1."


def test_one_page_shows_the_audit_and_a_study(data: Path, tmp_path: Path) -> None:
    digests = {n: s.dataset_digest for n, s in open_dataset(data).manifest.splits.items()}
    findings = small_findings(3, dataset_digests=digests)
    start = {"context_free_loss": 1.0}
    trainings = tuple(dataclasses.replace(one, start=start) for one in findings.trainings)
    unread = dataclasses.replace(findings, trainings=trainings)
    study = write_findings(tmp_path / "study", unread)
    page = tmp_path / "page.html"
    result = run(data, *only("actions"), "--quiet", "--html", page, "--study", study)
    assert result.return_value == 0
    text = page.read_text("utf-8")
    assert "1 of 1 questions passed" in text
    assert "Static against dynamic masking" in text
    assert text.count("No arm beats 1.000") == 1
    assert "<h3>Validation MLM loss over steps</h3>" in text
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)


def test_a_study_without_a_page_or_of_another_dataset_is_refused(
    data: Path, tmp_path: Path
) -> None:
    error = run(data, "--study", tmp_path).exception
    assert isinstance(error, ConfigError)
    assert str(error) == f"--study {tmp_path} is for the page of --html; give --html FILE too."
    study = write_findings(tmp_path / "study", small_findings(2, dataset_digests={"train": "0"}))
    page = tmp_path / "page.html"
    error = run(data, "--html", page, "--study", study).exception
    assert isinstance(error, RunError)
    assert str(error).startswith(
        f"the study in {study} is of another dataset: its train digest is 0, that of {data} "
    )
    assert not page.exists()


def test_a_page_of_some_questions_says_so(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    run(data, *only("actions", "mask_rates"), "--quiet", "--html", page)
    told = f"Only 2 of {len(all_questions())} questions were asked: actions, mask_rates."
    assert told in page.read_text("utf-8")


def test_a_page_of_a_sample_says_so_whatever_was_asked(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    told = []
    for flags in ([], ["--sample", 1]):
        run(data, *only("actions"), *flags, "--quiet", "--html", page)
        told.append("Only a sample of the instances was asked about." in page.read_text("utf-8"))
    assert told == [False, True]


def test_a_page_never_replaces_the_dataset_and_nothing_is_asked_before(data: Path) -> None:
    manifest = (data / "manifest.json").read_bytes()
    result = run(data, *only("actions"), "--html", data / "manifest.json")
    assert isinstance(result.exception, ConfigError)
    assert str(result.exception).startswith(f"{data}/manifest.json lies inside the dataset {data},")
    assert (data / "manifest.json").read_bytes() == manifest
    assert (result.stdout, result.stderr) == ("", "")


def test_answers_are_printed_even_if_the_page_cannot_be_written(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with files_end_at(20_000):
        result = run(data, *only("actions"), "--quiet", "--html", page)
    assert isinstance(result.exception, DatasetError)
    assert not page.exists()
    assert "actions" in result.stdout
    assert "1 passed" in result.stdout
