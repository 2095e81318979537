"""The trainings of a study, one after the other, each of which is done once.

STUDY/plan.json                    what the study is; written first, and compared by a later start
STUDY/runs/dynamic-seed-0/         the run folder of a training, see docs/runs.md
STUDY/arms/dynamic-seed-0.json     what a training that is done has come to
STUDY/study.json                   what they say together, see `study_findings.py`
STUDY/.lock                        only while a study writes the folder

The reference of a seed is trained first. Where the masks of an arm begin to return, its run is
written as a copy of the reference's, which has been the same training so far.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

from clozemill.analysis.document_losses import document_losses
from clozemill.analysis.study_plan import (
    StudyPlan,
    Training,
    check_same_plan,
    plan_record,
    read_plan,
    trainings_of,
)
from clozemill.analysis.study_records import (
    FORMAT_VERSION,
    PLAN_NAME,
    STUDY_NAME,
    ArmResult,
    DocumentLosses,
)
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.files import is_temporary, write_json
from clozemill.pipeline.json_records import from_json, read_object, to_json
from clozemill.pipeline.lock import lock_file
from clozemill.pipeline.out_folder import check_out
from clozemill.train.checkpoints import find_latest, step_of
from clozemill.train.config import PretrainConfig
from clozemill.train.facts import CHECKPOINTS_NAME, read_run
from clozemill.train.forks import fork_run
from clozemill.train.metrics import (
    METRICS_NAME,
    EvaluationRow,
    StartRow,
    exact_columns,
    read_metrics,
)

_RUNS_NAME, _ARMS_NAME, _LOCK_NAME = "runs", "arms", ".lock"

Train: TypeAlias = Callable[[PretrainConfig], bool]
"""Trains, or goes on training, and returns whether all steps asked for are done."""


@contextlib.contextmanager
def open_study(plan: StudyPlan, out: Path, *, overwrite: bool) -> Iterator["StudyFolder"]:
    """Give a study's folder to this process alone, with its plan in it.

    Args:
        plan: What the study is.
        out: A new or empty folder, or one with the same study.
        overwrite: Delete the study in the folder, whatever it is.

    Raises:
        RunError: The folder holds something else or another study, or is being written.
        ConfigError: It cannot be made.
    """
    check_folder(plan, out, overwrite=overwrite)
    out.mkdir(parents=True, exist_ok=True)
    try:
        lock = lock_file(out / _LOCK_NAME)
    except BlockingIOError:
        raise RunError(
            f"another study is writing {out}; wait for it, or choose another --out."
        ) from None
    try:
        _put_plan(plan, out, overwrite=overwrite)
        yield StudyFolder(plan, out)
    finally:
        (out / _LOCK_NAME).unlink(missing_ok=True)
        os.close(lock)


def check_folder(plan: StudyPlan, out: Path, *, overwrite: bool) -> None:
    """Raise unless a folder is new, empty or holds the same study, or one that is to be replaced.

    Raises:
        RunError: It holds something else or another study.
        ConfigError: It cannot be made.
    """
    check_out(out)
    if not out.exists() or (overwrite and (out / PLAN_NAME).exists()):
        return
    saved = read_plan(out)
    if saved is None:
        _check_empty(out)
    else:
        check_same_plan(saved, plan_record(plan), out)


def _put_plan(plan: StudyPlan, out: Path, *, overwrite: bool) -> None:
    check_folder(plan, out, overwrite=overwrite)  # again: another process may have written it
    if overwrite and (out / PLAN_NAME).exists():
        _delete_study(out)
    if not (out / PLAN_NAME).exists():
        write_json(out / PLAN_NAME, to_json(plan_record(plan)))


def _delete_study(out: Path) -> None:
    """Delete what a study writes; the plan last, by which a folder is known as ours."""
    (out / STUDY_NAME).unlink(missing_ok=True)
    for name in (_ARMS_NAME, _RUNS_NAME):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / PLAN_NAME).unlink()


def _check_empty(out: Path) -> None:
    names = sorted(path.name for path in out.iterdir())
    foreign = [name for name in names if name != _LOCK_NAME and not is_temporary(name)]
    if foreign:
        raise RunError(
            f"{out} holds {foreign[0]!r} and no study; choose an empty or new folder for --out."
        )


class StudyFolder:
    """A study's folder, which this process alone writes."""

    def __init__(self, plan: StudyPlan, folder: Path) -> None:
        """Use `open_study`."""
        self.plan = plan
        self.folder = folder

    def result(self, training: Training) -> ArmResult | None:
        """Return what a training has come to, or None while it is not done.

        Raises:
            RunError: The file cannot be read.
        """
        path = self._result_path(training)
        if not path.exists():
            return None
        table = read_object(path, format_version=FORMAT_VERSION, error=RunError)
        return from_json(ArmResult, table, str(path), error=RunError)

    def results(self) -> tuple[ArmResult, ...]:
        """Return the results of all trainings that are done."""
        found = [self.result(training) for training in trainings_of(self.plan)]
        return tuple(result for result in found if result is not None)

    def run(self, training: Training, train: Train) -> bool:
        """Train an arm to its end and write its result, unless that is done.

        Returns:
            Whether it is done; else the training was asked to stop, and goes on from there.

        Raises:
            ClozemillError: The training cannot start or go on.
        """
        if self.result(training) is not None:
            return True
        if training.arm == self.plan.reference and not self._train_prefixes(training.seed, train):
            return False
        config = self.config(training)
        if not train(config):
            return False
        result = self._collect(training, document_losses(config))
        self._result_path(training).parent.mkdir(exist_ok=True)
        write_json(self._result_path(training), to_json(result))
        return True

    def config(self, training: Training) -> PretrainConfig:
        """Return the settings of a training."""
        return self.plan.config_of(training.arm, training.seed, self.run_path(training))

    def run_path(self, training: Training) -> Path:
        """Return the run folder of a training."""
        return self.folder / _RUNS_NAME / training.name

    def _result_path(self, training: Training) -> Path:
        return self.folder / _ARMS_NAME / f"{training.name}.json"

    def _train_prefixes(self, seed: int, train: Train) -> bool:
        """Train the reference up to where each arm parts, and begin the arm's run there."""
        reference = Training(arm=self.plan.reference, seed=seed)
        for arm in self.plan.arms[:-1]:
            training = Training(arm=arm, seed=seed)
            step = self.plan.parting_step(arm)
            if self._has_begun(training) or self._newest_step(reference) > step:
                continue
            if not train(dataclasses.replace(self.config(reference), stop_after=step)):
                return False
            fork_run(self.run_path(reference), self.config(training), step)
        return True

    def _has_begun(self, training: Training) -> bool:
        found, _ = find_latest(self.run_path(training) / CHECKPOINTS_NAME)
        return found is not None

    def _newest_step(self, training: Training) -> int:
        found, _ = find_latest(self.run_path(training) / CHECKPOINTS_NAME)
        return 0 if found is None else step_of(found) or 0

    def _collect(self, training: Training, documents: DocumentLosses) -> ArmResult:
        folder = self.run_path(training)
        record, rows = read_run(folder), read_metrics(folder / METRICS_NAME)
        (start,) = (exact_columns(row) for row in rows if isinstance(row, StartRow))
        return ArmResult(
            arm=training.arm.name,
            num_variants=training.arm.num_variants,
            seed=training.seed,
            shared_steps=0 if record.started_from is None else self.plan.parting_step(training.arm),
            execution=record.facts.execution,
            start=start,
            evaluations=tuple(exact_columns(r) for r in rows if isinstance(r, EvaluationRow)),
            documents=documents,
        )
