import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.train.small_runs import small_execution

from clozemill.analysis.study_data import Seen
from clozemill.analysis.study_findings import MEASURES, PRIMARY, Findings, study_findings
from clozemill.analysis.study_plan import PlanRecord
from clozemill.analysis.study_run import ArmResult
from clozemill.pipeline.errors import RunError
from clozemill.study_tables import study_view
from clozemill.train.document_losses import DocumentLosses
from clozemill.train.json_records import from_json, to_json

ARMS: dict[str, int | None] = {"static-1": 1, "static-10": 10, "dynamic": None}
SELECTED = (40, 60, 100)


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
    assert "higher than dynamic" in study_view(findings, Path("study")).text


def test_a_dataset_without_pairs_is_shown_without_them() -> None:
    last = {**result("dynamic", 0, 4.0).evaluations[-1], "nsp_accuracy": None}
    findings = found(2, planted=0.0, evaluations=(last,))
    assert "NSP" not in study_view(findings, Path("study")).text


def test_findings_are_read_as_they_were_written_and_fit_the_page() -> None:
    findings = found(3, planted=0.2)
    assert from_json(Findings, to_json(findings), "study.json") == findings
    lines = study_view(findings, Path("study")).text.splitlines()
    assert lines[-1] == "study holds study.json, with the curves of all trainings."
    verdict = next(line for line in lines if line.endswith("higher than dynamic"))
    assert verdict.startswith("static-1 ")
    assert any(line.startswith("Noise floor: from seed to seed") for line in lines)


def test_trainings_that_were_computed_otherwise_are_told() -> None:
    findings = found(3, planted=0.0)
    other = dataclasses.replace(findings.trainings[0], execution=small_execution(num_threads=7))
    mixed = dataclasses.replace(findings, trainings=(other, *findings.trainings[1:]))
    texts = [study_view(one, Path("study")).text for one in (findings, mixed)]
    assert ["Not all trainings were computed alike" in text for text in texts] == [False, True]


def test_a_training_that_lost_its_way_is_nothing_to_compare() -> None:
    results = tuple(result(arm, 0, 4.0) for arm in ARMS)
    last = {**results[0].evaluations[-1], PRIMARY: None}
    broken = dataclasses.replace(results[0], evaluations=(last,))
    with pytest.raises(RunError, match="the last validation loss of a training is no number"):
        study_findings(plan_of(1), (broken, *results[1:]), ())
