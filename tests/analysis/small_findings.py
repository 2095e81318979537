"""What a study of four arms has found, without a training: losses by a formula, with noise."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.train.small_runs import small_execution

from clozemill.analysis.study_exposures import Seen
from clozemill.analysis.study_findings import MEASURES, PRIMARY, Findings, study_findings
from clozemill.analysis.study_records import STUDY_NAME, ArmResult, DocumentLosses, PlanRecord
from clozemill.pipeline.files import write_json
from clozemill.pipeline.json_records import to_json

ARMS: dict[str, int | None] = {"static-1": 1, "static-4": 4, "static-10": 10, "dynamic": None}
NUM_EPOCHS = 40
STEPS = range(100, 1001, 100)

_SHIFTS = {"static-1": 0.12, "static-4": 0.02, "static-10": 0.0, "dynamic": 0.0}
_SELECTED = (40, 60, 25) * 10


def small_findings(num_seeds: int, **plan: Any) -> Findings:
    """Return a study whose static-1 is worse by a difference far above the noise."""
    rng = np.random.default_rng(5)
    defaults: dict[str, Any] = {
        "package_version": "0",
        "data": "data",
        "settings": {"model": "<b>tiny</b>"},
        "dataset_digests": {"train": "0" * 32},
        "arms": tuple(ARMS),
        "num_seeds": num_seeds,
        "num_steps": STEPS[-1],
        "steps_per_epoch": STEPS[-1] // NUM_EPOCHS,
    }
    results = tuple(_training(arm, seed, rng) for seed in range(num_seeds) for arm in ARMS)
    return study_findings(PlanRecord(**{**defaults, **plan}), results, tuple(_seen()))


def write_findings(folder: Path, findings: Findings) -> Path:
    """Write `study.json`, and return its folder."""
    folder.mkdir()
    write_json(folder / STUDY_NAME, to_json(findings))
    return folder


def _training(arm: str, seed: int, rng: np.random.Generator) -> ArmResult:
    rows = []
    for step in STEPS:
        loss = 5 + 3 * math.exp(-step / 300) + _SHIFTS[arm] * step / 1000 + 0.01 * rng.normal()
        rows.append({**dict.fromkeys(MEASURES, 0.5), "step": step, "instances": 300, PRIMARY: loss})
    sums = tuple(count * (rows[-1][PRIMARY] + 0.05 * rng.normal()) for count in _SELECTED)
    return ArmResult(
        arm=arm,
        num_variants=ARMS[arm],
        seed=seed,
        shared_steps=0,
        execution=small_execution(),
        start={"context_free_loss": 5.4},
        evaluations=tuple(rows),
        documents=DocumentLosses(mlm_loss_sums=sums, selected=_SELECTED),
    )


def _seen() -> Iterator[Seen]:
    for arm, count in ARMS.items():
        for epoch in range(1, NUM_EPOCHS + 1):
            shown = min(epoch, count or epoch)
            numbers = {"ever_selected": 1 - 0.85**shown, "repeats": 1 - shown / epoch}
            for quantity, number in {**numbers, "entropy": math.log1p(shown) / 8}.items():
                yield Seen(
                    arm=arm, epoch=epoch, quantity=quantity, observed=number, expected=number
                )
