"""What the trainings of a study say together: `study.json`, and how to read it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from clozemill.analysis.study_exposures import Seen
from clozemill.analysis.study_records import (
    FORMAT_VERSION,
    PLAN_NAME,
    STUDY_NAME,
    ArmResult,
    PlanRecord,
)
from clozemill.analysis.study_statistics import (
    Difference,
    Interval,
    Spread,
    document_interval,
    paired_differences,
    spread,
)
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.json_records import from_json, read_object

PRIMARY = "mlm_loss"
"""The measure that verdicts are about; the others are shown beside it."""

MEASURES = (PRIMARY, "mask_only_loss", "mlm_accuracy", "nsp_loss", "nsp_accuracy")
"""Columns of an evaluation that are compared: losses and accuracies."""

LINE_NAME = "without context"
"""The name of the line that a model must beat, among the arms."""

_LEAST_SEEDS = 3
"""With fewer, an interval of a measure has losses below 0 and accuracies above 1."""

_FEW_DOCUMENTS, _FEW_INSTANCES = 20, 200
"""With fewer of the validation split, what is measured is mostly which ones they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSummary:
    """An arm's last evaluations: one point of the dose curve over K for each measure."""

    arm: str
    """Name of the arm."""

    num_variants: int | None
    """K; null is dynamic."""

    measure: str
    """Column of an evaluation."""

    spread: Spread
    """Over seeds, without an interval below three; the reference's is the noise floor of unpaired
    comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An arm against the reference by one measure, after the last step."""

    measure: str
    """Column of an evaluation."""

    difference: Difference
    """Paired by seed: what a verdict rests on."""

    verdict: str
    """In words."""

    evaluation_noise: Interval | None
    """95 % interval over other validation documents and these trainings; of the MLM loss, and where
    there are two documents or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Everything that a report of a study needs."""

    format_version: int = FORMAT_VERSION
    """Version of the files of a study."""

    plan: PlanRecord
    """What the study is."""

    reference: str
    """The arm that the others are compared with."""

    left_out: tuple[int, ...]
    """Numbers of variants that never return within the study."""

    trainings: tuple[ArmResult, ...]
    """With their curves over steps."""

    seen: tuple[Seen, ...]
    """What the arms see of the text over epochs, under the masks of seed 0."""

    summaries: tuple[ArmSummary, ...]
    """Of each arm and measure."""

    comparisons: tuple[Comparison, ...]
    """Of each arm but the reference and each measure."""

    @property
    def verdicts(self) -> tuple[Comparison, ...]:
        """The comparisons by MLM loss: what the study is about."""
        return tuple(one for one in self.comparisons if one.measure == PRIMARY)

    @property
    def context_free_loss(self) -> float | None:
        """The line that an arm must beat: MLM loss of what is known without context."""
        line: float | None = self.trainings[0].start["context_free_loss"]
        return line


def study_findings(
    plan: PlanRecord,
    results: tuple[ArmResult, ...],
    seen: tuple[Seen, ...],
    *,
    left_out: tuple[int, ...] = (),
) -> Findings:
    """Return what the trainings of a study say, all of which are done.

    Args:
        plan: What the study is.
        results: Of each arm and seed.
        seen: from `what_arms_see`.
        left_out: Numbers of variants that are no arm.

    Raises:
        RunError: A training has no last validation loss.
    """
    by_arm = {arm: [r for r in results if r.arm == arm] for arm in plan.arms}
    for own in by_arm.values():
        assert [result.seed for result in own] == list(range(plan.num_seeds)), "trainings missing"
        own.sort(key=lambda result: result.seed)
    measures = [name for name in MEASURES if all(_last(r)[name] is not None for r in results)]
    if PRIMARY not in measures:
        raise RunError(
            "the last validation loss of a training is no number, so there is nothing to compare; "
            "see evaluations in the files of arms/, and begin again with a lower learning rate."
        )
    return Findings(
        plan=plan,
        reference=plan.arms[-1],
        left_out=left_out,
        trainings=results,
        seen=seen,
        summaries=tuple(
            ArmSummary(
                arm=arm,
                num_variants=own[0].num_variants,
                measure=measure,
                spread=_value_spread([_last(result)[measure] for result in own]),
            )
            for measure in measures
            for arm, own in by_arm.items()
        ),
        comparisons=tuple(c for measure in measures for c in _compare(by_arm, measure, plan)),
    )


def _last(result: ArmResult) -> dict[str, Any]:
    """Return the evaluation after the last step."""
    return result.evaluations[-1]


def _value_spread(values: list[float]) -> Spread:
    """Return the spread of a measure, without the interval that so few seeds cannot give."""
    found = spread(values)
    return found if len(values) >= _LEAST_SEEDS else replace(found, low=None, high=None)


def _compare(
    by_arm: dict[str, list[ArmResult]], measure: str, plan: PlanRecord
) -> list[Comparison]:
    values = {arm: [_last(result)[measure] for result in own] for arm, own in by_arm.items()}
    reference = plan.arms[-1]
    base = values.pop(reference)
    return [
        Comparison(
            measure=measure,
            difference=found,
            verdict=verdict(found, reference, measure),
            evaluation_noise=(
                _evaluation_noise(by_arm[found.arm], by_arm[reference])
                if measure == PRIMARY
                else None
            ),
        )
        for found in paired_differences(values, base)
    ]


def verdict(found: Difference, reference: str, measure: str = PRIMARY) -> str:
    """Return what may be said of a difference by a measure, in words."""
    if found.spread.num_seeds == 1:
        return "one seed: no interval"
    if found.adjusted_p is None:
        return "no spread over seeds"
    if not found.is_shown:
        return "no difference shown"
    is_higher, is_loss = found.spread.mean > 0, measure.endswith("_loss")
    noun, worth = "loss" if is_loss else "accuracy", "worse" if is_higher == is_loss else "better"
    return f"{'higher' if is_higher else 'lower'} {noun} than {reference} ({worth})"


def _evaluation_noise(arm: list[ArmResult], reference: list[ArmResult]) -> Interval | None:
    """Return the interval of the mean difference over other validation documents.

    One document says nothing of others.
    """
    selected = np.array(reference[0].documents.selected)
    if len(selected) < 2:
        return None
    losses = [
        np.sum([result.documents.mlm_loss_sums for result in results], axis=0)
        for results in (arm, reference)
    ]
    return document_interval((losses[0] - losses[1]) / len(reference), selected)


def arms_text(findings: Findings) -> str:
    """Return what the masks of each arm are, in a sentence."""
    counts = {row.arm: row.num_variants for row in findings.summaries}
    return "; ".join(f"{arm}: {_masks(counts[arm])}" for arm in findings.plan.arms) + "."


def _masks(num_variants: int | None) -> str:
    if num_variants is None:
        return "a new masking of each instance in each epoch"
    if num_variants == 1:
        return "one masking of each instance, shown again in each epoch"
    return f"{num_variants} maskings of each instance, shown in turn"


def noise_floor(findings: Findings) -> str | None:
    """Return how much seeds alone move the MLM loss, in a sentence; None for one seed."""
    if findings.plan.num_seeds == 1:
        return None
    (alone,) = (
        row.spread.sd
        for row in findings.summaries
        if (row.arm, row.measure) == (findings.reference, PRIMARY)
    )
    paired = ", ".join(
        f"{one.difference.spread.sd:.4f} ({one.difference.arm})" for one in findings.verdicts
    )
    return (
        f"Noise floor: from seed to seed the loss of {findings.reference} has a standard deviation "
        f"of {alone:.4f}, paired differences of {paired}."
    )


def nothing_learnt(findings: Findings) -> str | None:
    """Return that no arm has learnt from context, so that masks cannot matter; None if one has."""
    line = findings.context_free_loss
    losses = [row.spread.mean for row in findings.summaries if row.measure == PRIMARY]
    if line is None or min(losses) < line:
        return None
    return (
        f"No arm beats {line:.3f}, what is known without context: this study says nothing of masks "
        "for a model that reads."
    )


def study_warnings(findings: Findings) -> Iterator[str]:
    """Yield what weakens every number of a study, a sentence or two each."""
    if findings.plan.num_seeds == 1:
        yield "One seed has no interval: what is seen may be chance. Give --seeds 3 or more."
    if findings.plan.num_seeds == 2:
        yield (
            "Two seeds have wide intervals (a t quantile of 12.7): only a difference of 16 "
            "standard errors is likely to be seen, and the minimum detectable difference is an "
            "estimate, of two numbers. Give --seeds 3 or more."
        )
    first = findings.trainings[0]
    num_documents, num_instances = len(first.documents.selected), _last(first)["instances"]
    if num_documents < _FEW_DOCUMENTS or num_instances < _FEW_INSTANCES:
        yield (
            f"Losses are measured on {num_instances:,} instances of {num_documents:,} validation "
            "documents, so few that other documents might say otherwise. Build the dataset with a "
            "larger --validation-fraction, or give a larger --eval-instances."
        )
    if any(one.execution != first.execution for one in findings.trainings):
        yield (
            f"Not all trainings were computed alike (see execution in {STUDY_NAME}): sums are "
            "rounded otherwise, which is part of the differences."
        )


def read_findings(folder: Path) -> Findings:
    """Return what the study in a folder has found.

    Raises:
        RunError: There is no study, it is not done, or its file cannot be read.
    """
    path = folder / STUDY_NAME
    if not path.exists():
        is_begun = (folder / PLAN_NAME).exists()
        remedy = "the study is not done; go on with its compare" if is_begun else "name its folder"
        raise RunError(f"{folder} has no {STUDY_NAME}: {remedy}.")
    table = read_object(path, format_version=FORMAT_VERSION, error=RunError)
    return from_json(Findings, table, str(path), error=RunError)


def read_findings_of(dataset: Dataset, folder: Path) -> Findings:
    """Return what the study in a folder has found, which must be one of the dataset.

    Raises:
        RunError: It is a study of another dataset, or cannot be read.
    """
    findings = read_findings(folder)
    for split, entry in dataset.manifest.splits.items():
        digest = findings.plan.dataset_digests.get(split)
        if digest != entry.dataset_digest:
            raise RunError(
                f"the study in {folder} is of another dataset: its {split} digest is {digest}, "
                f"that of {dataset.folder} {entry.dataset_digest}; name a study of this one."
            )
    return findings
