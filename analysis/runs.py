"""A training run, read from its folder: what it is, its log, and how far it came."""

import dataclasses
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.json_records import from_json, parse_object
from clozemill.train.config import PretrainConfig
from clozemill.train.facts import CHECKPOINTS_NAME, RunFacts, RunRecord, dataset_facts, read_run
from clozemill.train.metrics import METRICS_NAME, Row, read_metrics
from clozemill.train.variants import VariantSchedule

TRAIN = "train"
"""The split that runs are trained on."""

VIEWS_OF_RUNS = ("runs", "metrics", "evaluations", "starts", "steps", "exposures")
"""The relations of docs/sql.md that runs add to a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A run on the dataset."""

    name: str
    """Its folder, as it was given."""

    record: RunRecord
    """What `run.json` holds."""

    config: PretrainConfig
    """Its settings."""

    rows: tuple[Row, ...]
    """Its log."""

    num_steps: int
    """Steps that it is to have."""

    num_steps_done: int
    """Steps up to the newest row of its log or checkpoint."""

    has_same_ranks: bool
    """Whether all checkpoints that are left were written by as many ranks, with micro-batches of
    the same size, as the run began with."""

    variants: VariantSchedule
    """The variant of each epoch."""

    @property
    def is_static(self) -> bool:
        """Whether variants return."""
        return self.config.masking == "static"


def read_training_run(folder: str | os.PathLike[str], dataset: Dataset) -> TrainingRun:
    """Return a run, from what its folder holds.

    Raises:
        RunError: It is no run folder, damaged, of another version, or on another dataset.
        ConfigError: It has settings that this clozemill does not accept.
    """
    path = Path(folder)
    record = read_run(path)
    _check_dataset(str(path), record.facts, dataset)
    config = _config(str(path), record.facts.settings)
    log = path / METRICS_NAME
    rows = tuple(read_metrics(log)) if log.exists() else ()
    saved = list(_saved(path / CHECKPOINTS_NAME))
    begun = record.facts.execution
    return TrainingRun(
        name=str(path),
        record=record,
        config=config,
        rows=rows,
        num_steps=config.num_steps(dataset.num_instances(TRAIN)),
        num_steps_done=max([0, *(row.step for row in rows), *(step for step, _ in saved)]),
        has_same_ranks=all(
            facts.execution.num_processes == begun.num_processes
            and facts.execution.micro_batch_size == begun.micro_batch_size
            for _, facts in saved
        ),
        variants=VariantSchedule.of(dataset.num_variants(TRAIN), **config.masking_settings),
    )


def _config(name: str, settings: dict[str, Any]) -> PretrainConfig:
    known = {field.name for field in dataclasses.fields(PretrainConfig)}
    if unknown := sorted(settings.keys() - known):
        raise RunError(
            f"{name} has the setting {unknown[0]!r:.80}, which this clozemill does not know; use "
            "the version that trained it, or leave the run out."
        )
    return PretrainConfig(**settings)


def _check_dataset(name: str, facts: RunFacts, dataset: Dataset) -> None:
    theirs, ours = facts.dataset.dataset_digests, dataset_facts(dataset).dataset_digests
    if theirs != ours:
        split = next(s for s in (*ours, *theirs) if theirs.get(s) != ours.get(s))
        raise RunError(
            f"{name} was trained on {facts.dataset.path!r:.200} with the dataset digest "
            f"{theirs.get(split)!r:.80} of {split}, but {dataset.folder} has "
            f"{ours.get(split)!r:.80}; give the run's dataset, or leave the run out."
        )


def _saved(checkpoints: Path) -> Iterator[tuple[int, RunFacts]]:
    """Yield step and facts of each checkpoint that is left."""
    for path in sorted(checkpoints.glob("step-*/state.json")):
        state = parse_object(path.read_bytes(), str(path), error=RunError).get("state")
        if not isinstance(state, dict) or not isinstance(state.get("step"), int):
            raise RunError(f"{path} does not say its step; delete the checkpoint.")
        yield state["step"], from_json(RunFacts, state.get("facts"), str(path), error=RunError)
