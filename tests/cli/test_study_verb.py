"""The verb of studies as a person types it."""

import json
from pathlib import Path

import pytest
from tests.analysis.small_studies import build_pairs
from tests.cli.conftest import Run

from clozemill.analysis.study_findings import Findings
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.json_records import from_json, read_object
from clozemill.study_tables import study_printout

FLAGS = (
    *("--variants", "1,9", "--steps", "4", "--warmup-steps", "1", "--global-batch-size", "256"),
    *("--threads", "1", "--precision", "fp32", "--eval-instances", "8"),
)


@pytest.mark.slow
def test_compare_prints_what_is_seen_what_is_lost_and_what_may_be_said(
    run: Run, tmp_path: Path
) -> None:
    data, out = build_pairs(tmp_path), tmp_path / "study"
    command = ("compare", data.folder, "--out", out, "--seeds", "1", *FLAGS)
    done = run(*command)
    assert done.code == 0
    lines = done.err.splitlines()
    assert lines[0].startswith("2 trainings (static-1, dynamic; 1 seed each) of 4 steps, ")
    assert "training 2 of 2: static-1, seed 0" in lines
    for text in (
        "MLM loss minus that of dynamic, 1 seed",
        "one seed: no interval",
        "One seed has no interval: what is seen may be chance.",
        "Left out: static-9, of whose masks none would return",
    ):
        assert text in done.out, text
    table = read_object(out / "study.json", format_version=1, error=RunError)
    findings = from_json(Findings, table, "study.json", error=RunError)
    assert study_printout(findings, out).text == done.out
    refused = run(*command, "--seeds", "2", "--learning-rate", "0.002")
    assert (refused.code, refused.out) == (2, "")
    (line,) = refused.err.splitlines()
    assert line.startswith(f"clozemill: {out} holds another study, with learning_rate 0.001 ")
    assert "(now 0.002), seeds 1 (now 2); give what it has, --overwrite" in line
    page = tmp_path / "study.html"
    again = run(*command, "--json", "--quiet", "--html", page)
    assert (again.code, json.loads(again.out), again.err) == (0, table, "")
    assert "<strong>one seed: no interval</strong>" in page.read_text("utf-8")


def test_a_page_that_would_replace_something_is_refused_before_any_training(
    run: Run, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    done = run("compare", tmp_path, "--out", out, "--html", out / "study.json", *FLAGS)
    assert done.code == 2
    assert f"{out}/study.json lies among the files of the study" in done.err
    assert not out.exists()


def test_variants_that_are_no_numbers_are_refused(run: Run) -> None:
    done = run("compare", "data", "--out", "study", "--variants", "1,many")
    assert done.code == 2
    assert "'1,many' is no list of numbers such as 1,4,10." in done.err
