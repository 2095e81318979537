"""The paired study of static against dynamic masking: from a plan to what it has found."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from clozemill.analysis.study_exposures import what_arms_see
from clozemill.analysis.study_findings import Findings, study_findings
from clozemill.analysis.study_plan import StudyPlan, Training, plan_record, trainings_of
from clozemill.analysis.study_records import STUDY_NAME
from clozemill.analysis.study_run import Train, open_study
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.files import write_json
from clozemill.pipeline.json_records import to_json

OnTraining: TypeAlias = Callable[[Training, int, int], None]
"""Told each training that is due, its number from 1, and how many there are."""


def run_study(
    plan: StudyPlan,
    out: Path,
    *,
    train: Train,
    overwrite: bool = False,
    on_training: OnTraining | None = None,
) -> Findings | None:
    """Make, or go on making, the trainings of a study; write `study.json` and return it.

    Args:
        plan: What the study is.
        out: Its folder: new, empty, or with the same study.
        train: Makes one training.
        overwrite: Replace a study in the folder.
        on_training: Called before each training that is not done.

    Returns:
        What the study has found, or None where a training was asked to stop; the same call goes on.

    Raises:
        ClozemillError: The folder holds another study, or a training cannot go on.
    """
    with open_study(plan, out, overwrite=overwrite) as study:
        trainings = trainings_of(plan)
        for number, training in enumerate(trainings, start=1):
            if on_training is not None and study.result(training) is None:
                on_training(training, number, len(trainings))
            if not study.run(training, train):
                return None
        findings = study_findings(
            plan_record(plan),
            study.results(),
            what_arms_see(
                open_dataset(plan.config.data),
                {arm.name: arm.num_variants for arm in plan.arms},
                plan.num_epochs,
            ),
            left_out=plan.left_out,
        )
        write_json(out / STUDY_NAME, to_json(findings))
    return findings
