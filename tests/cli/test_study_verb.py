"""The verb of studies as a person types it."""

import json
import sys
from pathlib import Path

import pytest
from tests.analysis.small_studies import build_pairs

from clozemill import cli
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = build_pairs(tmp_path), tmp_path / "study"
    command = ["compare", data.folder, "--out", out, "--seeds", "1", *FLAGS]
    monkeypatch.setattr(sys, "argv", ["clozemill", *map(str, command)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    printed = capsys.readouterr()
    assert left.value.code == 0
    lines = printed.err.splitlines()
    assert lines[0].startswith("2 trainings (static-1, dynamic; 1 seed each) of 4 steps, ")
    assert "training 2 of 2: static-1, seed 0" in lines
    for text in (
        "MLM loss minus that of dynamic, 1 seed",
        "one seed: no interval",
        "One seed has no interval: what is seen may be chance.",
        "Left out: static-9, of whose masks none would return",
    ):
        assert text in printed.out, text
    table = read_object(out / "study.json", format_version=1, error=RunError)
    findings = from_json(Findings, table, "study.json", error=RunError)
    assert study_printout(findings, out).text == printed.out
    other = [*command, "--seeds", "2", "--learning-rate", "0.002"]
    monkeypatch.setattr(sys, "argv", ["clozemill", *map(str, other)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    refused = capsys.readouterr()
    assert (left.value.code, refused.out) == (2, "")
    (line,) = refused.err.splitlines()
    assert line.startswith(f"clozemill: {out} holds another study, with learning_rate 0.001 ")
    assert "(now 0.002), seeds 1 (now 2); give what it has, --overwrite" in line
    page = tmp_path / "study.html"
    command += ["--json", "--quiet", "--html", page]
    monkeypatch.setattr(sys, "argv", ["clozemill", *map(str, command)])
    with pytest.raises(SystemExit):
        cli.main()
    again = capsys.readouterr()
    assert (json.loads(again.out), again.err) == (table, "")
    assert "<strong>one seed: no interval</strong>" in page.read_text("utf-8")


def test_a_page_that_would_replace_something_is_refused_before_any_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "study"
    command = ["compare", tmp_path, "--out", out, "--html", out / "study.json", *FLAGS]
    monkeypatch.setattr(sys, "argv", ["clozemill", *map(str, command)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert f"{out}/study.json lies among the files of the study" in capsys.readouterr().err
    assert not out.exists()


def test_variants_that_are_no_numbers_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["clozemill", "compare", "data", "--out", "study", "--variants", "1,many"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 2
    assert "'1,many' is no list of numbers such as 1,4,10." in capsys.readouterr().err
