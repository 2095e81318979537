import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.small_runs import environment, small_execution

from clozemill.analysis.study_exposures import Seen
from clozemill.analysis.study_findings import (
    MEASURES,
    PRIMARY,
    Findings,
    noise_floor,
    read_findings,
    study_findings,
    study_warnings,
)
from clozemill.analysis.study_records import (
    PLAN_NAME,
    STUDY_NAME,
    ArmResult,
    DocumentLosses,
    PlanRecord,
)
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.files import write_json
from clozemill.study_tables import study_printout
from clozemill.train.json_records import to_json

ARMS: dict[str, int | None] = {"static-1": 1, "static-10": 10, "dynamic": None}
SELECTED = (40, 60, 100) * 10


def plan_of(num_seeds: int) -> PlanRecord:
    return PlanRecord(
        package_version="0",
        data="data",
        settings={},
        dataset_digests={},
        arms=tuple(ARMS),
        num_seeds=num_seeds,
        num_steps=400,
        steps_per_epoch=10,
    )


def result(arm: str, seed: int, loss: float) -> ArmResult:
    last = {**dict.fromkeys(MEASURES, 0.5), "step": 400, PRIMARY: loss, "nsp_loss": None}
    last["instances"] = 300
    return ArmResult(
        arm=arm,
        num_variants=ARMS[arm],
        seed=seed,
        shared_steps=0,
        execution=small_execution(),
        start={"context_free_loss": 5.0},
        evaluations=({**last, "step": 200, PRIMARY: 9.0}, last),
        documents=DocumentLosses(
            mlm_loss_sums=tuple(loss * count for count in SELECTED), selected=SELECTED
        ),
    )


def found(num_seeds: int, *, planted: float, **changes: Any) -> Findings:
    """Return what a study says whose static-1 is worse by the planted difference."""
    rng = np.random.default_rng(3)
    results = []
    for seed in range(num_seeds):
        base = 4.0 + rng.normal(0, 0.3)
        shifts = {"static-1": planted, "static-10": 0.0, "dynamic": 0.0}
        results += [
            dataclasses.replace(result(arm, seed, base + shift + rng.normal(0, 0.01)), **changes)
            for arm, shift in shifts.items()
        ]
    seen = tuple(
        Seen(arm=arm, epoch=40, quantity=quantity, observed=0.5, expected=None)
        for arm in ARMS
        for quantity in ("ever_selected", "repeats", "entropy")
    )
    return study_findings(plan_of(num_seeds), tuple(results), seen)


def verdicts(findings: Findings) -> dict[str, str]:
    return {c.difference.arm: c.verdict for c in findings.comparisons if c.measure == PRIMARY}


def test_a_planted_difference_is_named_and_noise_is_not() -> None:
    assert verdicts(found(4, planted=0.2)) == {
        "static-1": "higher than dynamic",
        "static-10": "no difference shown",
    }
    assert verdicts(found(4, planted=-0.2))["static-1"] == "lower than dynamic"
    assert set(verdicts(found(4, planted=0.0)).values()) == {"no difference shown"}
    assert set(verdicts(found(1, planted=0.2)).values()) == {"one seed: no interval"}


def test_measures_that_no_evaluation_has_are_left_out() -> None:
    findings = found(3, planted=0.2)
    assert {row.measure for row in findings.summaries} == {*MEASURES} - {"nsp_loss"}
    losses = {row.arm: row for row in findings.summaries if row.measure == PRIMARY}
    assert losses["static-10"].num_variants == 10
    assert losses["dynamic"].spread.mean < losses["static-1"].spread.mean


def test_evaluation_noise_is_that_of_documents_and_not_of_seeds() -> None:
    (one, _) = (c for c in found(3, planted=0.2).comparisons if c.measure == PRIMARY)
    assert one.evaluation_noise is not None
    # Each document differs by as much, so which of them are drawn does not matter.
    interval = (one.evaluation_noise.low, one.evaluation_noise.high)
    assert interval == pytest.approx((one.difference.spread.mean,) * 2)


def test_one_validation_document_says_nothing_of_others() -> None:
    one = DocumentLosses(mlm_loss_sums=(1.0,), selected=(3,))
    findings = found(3, planted=0.2, documents=one)
    assert [c.evaluation_noise for c in findings.comparisons] == [None] * len(findings.comparisons)
    assert "higher than dynamic" in study_printout(findings, Path("study")).text


def test_a_dataset_without_pairs_is_shown_without_them() -> None:
    last = {**result("dynamic", 0, 4.0).evaluations[-1], "nsp_accuracy": None}
    findings = found(2, planted=0.0, evaluations=(last,))
    assert "NSP" not in study_printout(findings, Path("study")).text


def test_findings_are_read_as_they_were_written_and_fit_the_page(tmp_path: Path) -> None:
    findings = found(3, planted=0.2)
    write_json(tmp_path / STUDY_NAME, to_json(findings))
    assert read_findings(tmp_path) == findings
    lines = study_printout(findings, Path("study")).text.splitlines()
    assert lines[-1] == "study holds study.json, with the curves of all trainings."
    verdict = next(line for line in lines if line.endswith("higher than dynamic"))
    assert verdict.startswith("static-1 ")


def test_findings_are_read_without_torch(tmp_path: Path) -> None:
    write_json(tmp_path / STUDY_NAME, to_json(found(2, planted=0.2)))
    code = (
        "import pathlib, sys\n"
        "import clozemill.analysis.report, clozemill.analysis.study_plan, clozemill.study_tables\n"
        "from clozemill.analysis.study_findings import read_findings\n"
        f"print(read_findings(pathlib.Path({str(tmp_path)!r})).reference, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("dynamic False\n", "")


def test_a_folder_without_findings_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="has no study.json: name its folder"):
        read_findings(tmp_path)
    (tmp_path / PLAN_NAME).touch()
    with pytest.raises(RunError, match="has no study.json: the study is not done; go on with"):
        read_findings(tmp_path)


def test_the_noise_floor_is_told_of_the_reference_and_of_the_differences() -> None:
    findings = found(3, planted=0.2)
    last = {(one.arm, one.seed): one.evaluations[-1][PRIMARY] for one in findings.trainings}
    alone = [last["dynamic", seed] for seed in range(3)]
    paired = [last["static-1", seed] - last["dynamic", seed] for seed in range(3)]
    text = noise_floor(findings)
    assert text is not None
    assert f"the loss of dynamic has a standard deviation of {np.std(alone, ddof=1):.4f}," in text
    assert f"paired differences of {np.std(paired, ddof=1):.4f} (static-1), " in text
    assert noise_floor(found(1, planted=0.2)) is None


def warned(findings: Findings) -> list[str]:
    """Return the first words of each warning; what is printed has all of them."""
    told = list(study_warnings(findings))
    printed = " ".join(study_printout(findings, Path("study")).text.split())
    assert all(text in printed for text in told)
    return [" ".join(text.split()[:3]) for text in told]


def test_only_what_weakens_a_study_is_warned_of() -> None:
    assert warned(found(3, planted=0.0)) == []
    assert warned(found(1, planted=0.0)) == ["One seed has"]


def test_trainings_that_were_computed_otherwise_are_told() -> None:
    findings = found(3, planted=0.0)
    other = dataclasses.replace(findings.trainings[0], execution=small_execution(num_threads=7))
    mixed = dataclasses.replace(findings, trainings=(other, *findings.trainings[1:]))
    assert warned(mixed) == ["Not all trainings"]


@pytest.mark.parametrize(
    ("num_documents", "num_instances", "is_told"),
    [(19, 300, True), (20, 199, True), (20, 200, False)],
)
def test_a_tiny_validation_split_is_told(
    num_documents: int, num_instances: int, is_told: bool
) -> None:
    last = {**result("dynamic", 0, 4.0).evaluations[-1], "instances": num_instances}
    documents = DocumentLosses(mlm_loss_sums=(9.0,) * num_documents, selected=(3,) * num_documents)
    findings = found(3, planted=0.0, documents=documents, evaluations=(last,))
    assert warned(findings) == ["Losses are measured"] * is_told
    told = f"on {num_instances} instances of {num_documents} validation documents"
    assert (told in "".join(study_warnings(findings))) == is_told


def test_a_training_that_lost_its_way_is_nothing_to_compare() -> None:
    results = tuple(result(arm, 0, 4.0) for arm in ARMS)
    last = {**results[0].evaluations[-1], PRIMARY: None}
    broken = dataclasses.replace(results[0], evaluations=(last,))
    with pytest.raises(RunError, match="the last validation loss of a training is no number"):
        study_findings(plan_of(1), (broken, *results[1:]), ())
