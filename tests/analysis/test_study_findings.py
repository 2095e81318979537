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
    nothing_learnt,
    read_findings,
    study_findings,
    study_warnings,
    verdict,
)
from clozemill.analysis.study_records import (
    PLAN_NAME,
    STUDY_NAME,
    ArmResult,
    DocumentLosses,
    PlanRecord,
)
from clozemill.analysis.study_statistics import paired_differences
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.files import write_json
from clozemill.pipeline.json_records import to_json
from clozemill.study_tables import study_printout

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
        "static-1": "higher loss than dynamic (worse)",
        "static-10": "no difference shown",
    }
    assert verdicts(found(4, planted=-0.2))["static-1"] == "lower loss than dynamic (better)"
    assert set(verdicts(found(4, planted=0.0)).values()) == {"no difference shown"}
    assert set(verdicts(found(1, planted=0.2)).values()) == {"one seed: no interval"}


@pytest.mark.parametrize(
    ("measure", "mean", "expected"),
    [
        ("mlm_loss", 0.2, "higher loss than dynamic (worse)"),
        ("nsp_loss", -0.2, "lower loss than dynamic (better)"),
        ("mlm_accuracy", 0.2, "higher accuracy than dynamic (better)"),
        ("nsp_accuracy", -0.2, "lower accuracy than dynamic (worse)"),
    ],
)
def test_a_verdict_says_of_what_and_whether_that_is_worse(
    measure: str, mean: float, expected: str
) -> None:
    (one,) = paired_differences({"arm": [mean, mean * 1.01, mean * 0.99]}, [0.0, 0.0, 0.0])
    assert verdict(one, "dynamic", measure) == expected


def test_seeds_that_agree_exactly_have_no_verdict() -> None:
    findings = found(2, planted=0.2)
    by_accuracy = {c.verdict for c in findings.comparisons if c.measure == "mlm_accuracy"}
    assert by_accuracy == {"no spread over seeds"}


@pytest.mark.parametrize(("num_seeds", "has_interval"), [(2, False), (3, True)])
def test_two_seeds_give_intervals_of_differences_alone(num_seeds: int, has_interval: bool) -> None:
    findings = found(num_seeds, planted=0.2)
    losses = [row.spread for row in findings.summaries if row.measure == PRIMARY]
    assert len(losses) == 3
    assert {one.low is not None for one in losses} == {has_interval}
    assert {one.high is not None for one in losses} == {has_interval}
    assert all(one.difference.spread.low is not None for one in findings.verdicts)


def test_models_that_do_not_read_are_told_before_anything_else() -> None:
    told = (
        "No arm beats 5.000, what is known without context: this study says nothing of masks for a "
        "model that reads."
    )
    losses = {arm: result(arm, 0, 5.0 + place) for place, arm in enumerate(ARMS)}
    findings = study_findings(plan_of(1), tuple(losses.values()), found(1, planted=0.0).seen)
    assert nothing_learnt(findings) == told
    assert " ".join(study_printout(findings, Path("study")).text.split()).startswith(told)
    losses["dynamic"] = result("dynamic", 0, 4.99)
    findings = study_findings(plan_of(1), tuple(losses.values()), findings.seen)
    assert nothing_learnt(findings) is None
    assert study_printout(findings, Path("study")).text.startswith("what is seen")


def test_the_line_without_context_stands_among_the_arms() -> None:
    findings = found(3, planted=0.0)
    lines = study_printout(findings, Path("study")).text.splitlines()
    (place,) = (n for n, line in enumerate(lines) if line.startswith("without context"))
    assert lines[place].split() == ["without", "context", "5.000"]
    assert lines[place - 1].startswith("dynamic ")
    unknown = found(3, planted=0.0, start={"context_free_loss": None})
    assert nothing_learnt(unknown) is None
    assert "without context" not in study_printout(unknown, Path("study")).text


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
    assert "higher loss (worse)" in study_printout(findings, Path("study")).text


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
    judged = next(line for line in lines if line.endswith("higher loss (worse)"))
    assert judged.startswith("static-1 ")


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
    assert warned(found(2, planted=0.0)) == ["Two seeds have"]


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
