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
from tests.pipeline.small_corpora import (
    make_texts,
    small_build,
    vocabulary,
    write_json_lines,
    write_tokenizer,
)

from clozemill.analysis.audit import (
    Answer,
    AuditReport,
    AuditSettings,
    run_audit,
)
from clozemill.analysis.db import open_database
from clozemill.analysis.defaults import FALSE_ALARM_RATE, MEMORY_LIMIT
from clozemill.analysis.questions import all_questions
from clozemill.audit_rows import rows_printout
from clozemill.audit_tables import audit_printout
from clozemill.cli import cli
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import ConfigError, DatasetError, RunError
from clozemill.pipeline.figures import p_value_text


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


@pytest.fixture(scope="module")
def capped(data: Path) -> Path:
    """A dataset with a cap that bites, as it was asked for."""
    folder = data.parent
    more = {"max_predictions_per_seq": 3}
    small_build(folder / "corpus.jsonl", folder / "tokenizer", folder / "capped", **more)
    return folder / "capped"


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(cli, ["audit", *map(str, arguments)], standalone_mode=False)


def only(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--only", name)]


def test_a_sound_dataset_passes_with_a_line_for_each_question(data: Path) -> None:
    result = run(data, *only("actions", "cap_on_selected", "mask_rates", "words_whole"))
    assert result.return_value == 0
    title, header, *lines = result.stdout.splitlines()
    assert title == "audit"
    assert header.split() == ["question", "verdict", "observed", "expected", "p", "passes"]
    actions, cap, rates, words = lines[:4]
    group = r"\((train|validation), action \w+; 6 tested\)"
    numbers = r"[\d,]+ +[\d,.]+ +0\.\d{3}  \d+ to [\d,]+"
    assert re.fullmatch(rf"actions +passed +{numbers} {group}", actions)
    assert cap.split(maxsplit=4) == ["cap_on_selected", "passed", "0", "0", "no row"]
    share = r"\d+\.\d\d%"
    said = rf"train {share}, validation {share} of the maskable tokens"
    assert re.fullmatch(rf"mask_rates +figures +{said}", rates)
    assert words.endswith("not asked  single tokens are masked, not words")
    assert lines[-1] == (
        "2 passed, 1 figures, 1 not asked; a sound dataset fails at most 1 time in 1,000,000."
    )
    assert lines[-2].startswith("p is that of the group shown, the least probable one: ")
    assert result.stderr.splitlines()[-1].startswith("asking 100 %")
    rules = run(data, *only("cap_on_selected"), "--quiet").stdout
    assert rules.splitlines()[3:] == [
        "",
        lines[-1].replace("2 passed, 1 figures, 1 not asked", "1 passed"),
    ]


def test_a_wide_terminal_has_the_group_on_the_line_and_a_narrow_one_below(data: Path) -> None:
    answer = asked(data, "selected_by_word_length")
    wide = audit_printout("data", report_of(answer), width=150).text.splitlines()
    narrow = audit_printout("data", report_of(answer), width=80).text.splitlines()
    least = audit_printout("data", report_of(answer), width=50).text.splitlines()
    group = r"\(\w+, words of \d pieces?; \d tested\)"
    assert re.fullmatch(rf"selected_by_word_length  passed .* to [\d,]+ {group}", wide[2])
    assert re.fullmatch(rf"    {group}", narrow[3])
    assert re.fullmatch(rf"    [\d,]+ to [\d,]+ {group}", least[4])
    assert " ".join(wide[2].split()) == " ".join(" ".join(narrow[2:4]).split())
    assert max(map(len, narrow[1:4])) <= 80


def test_a_token_is_shown_with_its_piece(data: Path) -> None:
    lines = run(data, *only("selected_by_token"), "--quiet").stdout.splitlines()
    [label] = re.findall(r"token (\d+) '(.+)'; ", lines[3])
    assert vocabulary()[int(label[0])] == label[1]


def test_a_failure_says_what_it_points_to_and_the_command_that_shows_its_rows(wrong: Path) -> None:
    result = run(wrong, *only("actions", "cap_on_selected"), "--quiet")
    assert result.return_value == 1
    assert result.stderr == ""
    command = f"clozemill audit {wrong} --only actions --show-rows"
    failed, points, see, _ = result.stdout.splitlines()[-4:]
    assert failed == (
        "actions failed (p < 1e-300): Do selected positions show [MASK], a random token and the "
        "original as often as asked?"
    )
    assert points == (
        "  A failure points to other probabilities than the settings', or one draw for several "
        "tokens."
    )
    assert see == f"  See: {command}"
    rows = run(*command.split()[2:], "--quiet")
    assert rows.return_value == 1
    title, header, *lines, last = rows.stdout.splitlines()
    assert title.startswith("actions: Do selected positions show ")
    assert header.split() == [
        *("group", "observed", "trials", "expected", "passes", "p", "verdict"),
    ]
    assert len(lines) == 6
    assert [line.endswith("  fails") for line in lines] == [True] * 6
    assert re.match(r"train, action \w+ +[\d,]+ +[\d,]+ +[\d,.]+  \d[\d,]* to [\d,]+ +", lines[0])
    assert last == "6 rows, the least probable first. One row per split and what is shown."
    [answer, _] = json.loads(run(wrong, *only("actions", "cap_on_selected"), "--json").stdout)[
        "answers"
    ]
    [question] = [q for q in all_questions() if q.name == "actions"]
    for name in ("failure", "grain", "passes", "sql"):
        assert answer[name] == getattr(question, name)


def test_rows_of_a_tested_kind_have_the_bounds_of_the_table_and_say_how_many_there_are(
    data: Path,
) -> None:
    answer = asked(data, "selected_by_token")
    assert answer.num_groups > 20
    lines = rows_printout("data", report_of(answer)).text.splitlines()
    assert lines[22] == (
        f"20 of {answer.num_groups} rows, the least probable first; --json has up to 1,000. "
        "One row per split and token that occurs."
    )
    for group, line in zip(answer.groups, lines[2:7], strict=True):
        assert f" {group.low:,.0f} to {group.high:,.0f} " in line
        assert line.endswith(f" {p_value_text(group.p_value)}")
    rows = rows_printout("data", report_of(answer)).data["rows"]["selected_by_token"]
    values = [row["p_value"] for row in rows]
    assert values == sorted(values)
    assert values[:5] == pytest.approx([group.p_value for group in answer.groups])
    assert not any(row["has_failed"] for row in rows)


def test_rows_that_are_too_wide_are_records_with_whole_ids(data: Path) -> None:
    name = "0123456789abcdef" * 2
    rows = pa.table({"instance_id": [name], "other_id": [name], "num_tokens": [1_234]})
    answer = dataclasses.replace(asked(data, "cap_on_selected"), rows=rows, num_rows=1)
    text = rows_printout("data", report_of(answer), width=60).text
    assert text.splitlines()[1:5] == [
        "row 1",
        f"instance_id  {name}",
        f"other_id     {name}",
        "num_tokens   1,234",
    ]


def test_rows_say_none_of_a_source_without_a_name_and_why_nothing_was_asked(data: Path) -> None:
    lines = run(data, *only("mask_rates", "words_whole"), "--show-rows", "--quiet").stdout
    assert re.search(r"^train +source +\(none\) +[\d,]+ +[\d,]+ +0\.\d{3,4}$", lines, re.MULTILINE)
    assert lines.endswith("\nNot asked: single tokens are masked, not words.\n")


def test_the_command_that_shows_rows_is_one_that_a_shell_takes_and_asks_the_same(
    wrong: Path,
) -> None:
    report = report_of(asked(wrong, "actions"), is_sample=True)
    lines = audit_printout("my data", report, sample=40).text.splitlines()
    command = "clozemill audit 'my data' --sample 40 --only actions --show-rows"
    assert lines[-2] == f"  See: {command}"
    assert lines[-1].startswith("1 failed of a sample of the instances; a sound dataset fails ")


def report_of(*answers: Answer, is_sample: bool = False) -> AuditReport:
    return AuditReport(answers=answers, false_alarm_rate=FALSE_ALARM_RATE, is_sample=is_sample)


def asked(data: Path, name: str) -> Answer:
    dataset = open_dataset(data)
    with open_database(dataset, threads=1) as connection:
        return run_audit(connection, dataset.manifest, AuditSettings(only=(name,))).answers[0]


def test_rows_of_any_kind_are_json_without_nan(data: Path) -> None:
    rows = pa.table({"share": [float("nan")], "id": [b"\x01"], "count": [Decimal(3)]})
    answer = dataclasses.replace(asked(data, "mask_rates"), rows=rows, num_rows=1)
    printout = rows_printout("data", report_of(answer))
    assert printout.data["rows"]["mask_rates"] == [{"share": None, "id": "01", "count": 3}]
    assert "1 row. One row per split and " in printout.text


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
    assert answers["is_sample"]
    verdicts = {answer["name"]: answer["verdict"] for answer in answers["answers"]}
    assert verdicts == {**dict.fromkeys(whole, "not asked"), "mask_rates": "figures"}


@pytest.mark.parametrize("flag", ["--only", "--accept"])
@pytest.mark.parametrize("more", [[], ["--sql"]])
def test_an_unknown_question_is_refused_with_the_names_there_are(
    data: Path, flag: str, more: list[str]
) -> None:
    result = run(data, flag, "action", *more)
    error = result.exception
    assert isinstance(error, ConfigError)
    assert str(error).startswith("there is no question 'action'; choose among actions, cap_on_")
    assert (result.stdout, result.stderr) == ("", "")


def test_a_failure_that_is_accepted_is_shown_and_no_reason_to_exit_1(
    capped: Path, tmp_path: Path
) -> None:
    names = only("actions", "cap_on_selected")
    page = tmp_path / "page.html"
    refused = run(capped, *names, "--quiet")
    result = run(capped, *names, "--accept", "cap_on_selected", "--quiet", "--html", page)
    assert (refused.return_value, result.return_value) == (1, 0)
    lines = result.stdout.splitlines()
    assert lines[3].split()[:2] == ["cap_on_selected", "accepted"]
    failed, points, see, last = lines[-4:]
    assert failed.startswith("cap_on_selected failed, which is accepted: Does the cap ")
    assert [points, see] == refused.stdout.splitlines()[-3:-1]
    assert last.startswith("1 passed, 1 accepted; a sound dataset fails at most ")
    text = " ".join(page.read_text("utf-8").split())
    assert "1 of 2 questions passed, 1 failed and is accepted </p>" in text
    assert '<p class="banner passed">' in text
    assert '<section id="failed"' in text
    assert text.count("</span> accepted</span>") == 2


def test_a_failure_that_is_accepted_leaves_the_others_to_exit_1(
    capped: Path, tmp_path: Path
) -> None:
    wrong = plant(capped, tmp_path / "wrong", only_mask_tokens)
    page = tmp_path / "page.html"
    flags = [*only("actions", "cap_on_selected"), "--accept", "cap_on_selected", "--quiet"]
    result = run(wrong, *flags, "--html", page)
    assert result.return_value == 1
    assert result.stdout.splitlines()[-1].startswith("1 failed, 1 accepted; ")
    text = " ".join(page.read_text("utf-8").split())
    assert "1 of 2 questions failed, 1 more failed and is accepted </p>" in text
    assert run(wrong, *flags, "--accept", "actions").return_value == 0


def test_json_and_rows_say_what_is_accepted(capped: Path) -> None:
    flags = (*only("cap_on_selected"), "--accept", "cap_on_selected", "--quiet")
    found = json.loads(run(capped, *flags, "--json").stdout)
    assert not found["has_failed"]
    assert found["needlessly_accepted"] == {}
    [answer] = found["answers"]
    assert answer["verdict"] == "accepted"
    assert answer["num_rows"] > 0
    assert answer["failure"].startswith("a max_predictions_per_seq that is too small")
    shown = run(capped, *flags, "--show-rows")
    assert shown.return_value == 0
    assert shown.stdout.endswith(" for which it does. The failure is accepted.\n")
    rows = json.loads(run(capped, *flags, "--show-rows", "--json").stdout)
    assert rows["accepted"] == ["cap_on_selected"]
    assert len(rows["rows"]["cap_on_selected"]) > 0


def test_what_is_accepted_and_did_not_fail_is_said_once(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    accept = ["cap_on_selected", "mask_rates", "words_whole", "actions", "cap_on_selected"]
    flags = [*only(*accept[:3]), "--quiet", *(f"--accept={name}" for name in accept)]
    said = {
        "cap_on_selected": "cap_on_selected is accepted but did not fail: it passed.",
        "mask_rates": (
            "mask_rates is accepted but did not fail: it gives figures without a verdict."
        ),
        "words_whole": "words_whole is accepted but did not fail: it was not asked.",
        "actions": "actions is accepted but did not fail: it was not asked.",
    }
    result = run(data, *flags, "--html", page)
    assert result.return_value == 0
    assert result.stdout.splitlines()[-5:-1] == list(said.values())
    assert json.loads(run(data, *flags, "--json").stdout)["needlessly_accepted"] == said
    assert run(data, *flags, "--show-rows").stdout.splitlines()[-4:] == list(said.values())
    text = page.read_text("utf-8")
    assert [line for line in said.values() if f'<p class="warning">{line}</p>' in text] == list(
        said.values()
    )


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
