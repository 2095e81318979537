"""A run that begins as a copy of another, as long as both have seen the same masks.

Masks are functions of the variant's number, and two trainings that differ in their masking alone
have the same numbers for a while: static masking with K variants and dynamic masking are one
training until epoch K. What one of them has done until then, the other need not do again.
"""

import dataclasses
import os
from pathlib import Path

import numpy as np

from clozemill import __version__
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.files import write_json
from clozemill.pipeline.json_records import to_json
from clozemill.train.checkpoints import (
    TrainingState,
    load_checkpoint,
    save_checkpoint,
    step_folder,
)
from clozemill.train.config import PretrainConfig, check_unchanged
from clozemill.train.facts import CHECKPOINTS_NAME, RUN_NAME, RunRecord
from clozemill.train.metrics import METRICS_NAME, MetricsLog, read_metrics
from clozemill.train.variants import VariantSchedule

_MASKING = ("masking", "num_static_variants")
"""The only settings of the kind training in which a copy may differ."""


def fork_run(source: Path, config: PretrainConfig, step: int) -> None:
    """Write the run folder `config.out` as it would be after a step, from one that has done it.

    The checkpoint's tensors and the rows of the log until the step are the other run's; the facts
    are the new one's. `pretrain(config)` goes on from there. The checkpoint is written last: a
    folder without one begins at step 0, with the same weights at its end.

    Args:
        source: A run folder with a checkpoint of that step.
        config: The new run; `out` is a new or empty folder, or an earlier copy. Where one of both
            is static, it says its number of variants.
        step: Optimizer updates that both have in common.

    Raises:
        RunError: The checkpoint is missing or damaged, the settings differ in more than the
            masking, or the masks until the step do.
    """
    path = step_folder(source / CHECKPOINTS_NAME, step)
    checkpoint = load_checkpoint(path)
    state = checkpoint.state
    _check_same_until(state, config, path)
    facts = dataclasses.replace(
        state.facts, settings=config.settings("training", "numerics", "execution")
    )
    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    record = RunRecord(package_version=__version__, facts=facts, started_from=os.path.abspath(path))
    write_json(out / RUN_NAME, to_json(record))
    with MetricsLog(out / METRICS_NAME) as log:
        for row in read_metrics(source / METRICS_NAME):
            if row.step <= step:
                log.append(row)
        log.sync()
    save_checkpoint(
        out / CHECKPOINTS_NAME,
        dataclasses.replace(checkpoint, state=dataclasses.replace(state, facts=facts)),
    )


def _check_same_until(state: TrainingState, config: PretrainConfig, path: Path) -> None:
    """Raise `RunError` unless a run of these settings would have come to the same weights."""
    saved, asked = state.facts.settings, config.settings("training")
    own_masking = {name: asked[name] for name in _MASKING}
    check_unchanged({**saved, **own_masking}, config, str(path))
    epochs = np.arange(state.epoch + (state.position > 0))
    theirs, ours = (
        # None are stored, as it were: of the two, the static one says how many it has.
        VariantSchedule.of(0, **{name: settings[name] for name in config.masking_settings})
        for settings in (saved, asked)
    )
    differing = np.flatnonzero(theirs.variants_of(epochs) != ours.variants_of(epochs))
    if len(differing):
        raise RunError(
            f"{path} has seen other masks than {config.out} would have from epoch {differing[0]} "
            "on; start from an earlier checkpoint, or train from the beginning."
        )
