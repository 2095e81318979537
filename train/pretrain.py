"""Pretraining from a dataset: the loop over steps, and what is written on the way.

    accelerate launch -m clozemill.train.pretrain data/ --out run/ --epochs 3
    clozemill pretrain data/ --out run/ --epochs 3          # the same in one process

Everything that decides the weights is a pure function of the settings, the dataset and the step:
the order (`order.py`), the masks (`variants.py`), the learning rate (`schedules.py`) and dropout
(`steps.py`). So a checkpoint holds tensors and a step's number, and a resumed run goes on as if it
had never stopped.
"""

import contextlib
import sys
from dataclasses import dataclass
from pathlib import Path

from clozemill.train.assembly import assemble, put_checkpoint
from clozemill.train.checkpoints import load_checkpoint
from clozemill.train.config import PretrainConfig
from clozemill.train.launch import (
    on_main,
    reporting_lost_ranks,
    start_accelerator,
    stopping_at_a_step,
)
from clozemill.train.loop import Loop
from clozemill.train.metrics import Row, read_metrics
from clozemill.train.reporting import OnRow, Reporter
from clozemill.train.runs import open_run


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainReport:
    """What a call of `pretrain` did."""

    folder: Path
    """The run folder."""

    step: int
    """Optimizer updates done in all."""

    num_steps: int
    """Optimizer updates that the run is to have."""

    notices: tuple[str, ...]
    """What a person should know, a sentence each."""

    rows: tuple[Row, ...]
    """The whole log; empty in all processes but the first, which is the one to print."""

    @property
    def is_finished(self) -> bool:
        """Whether the run has all its steps; else it was asked to stop."""
        return self.step == self.num_steps

    def is_done(self, config: PretrainConfig) -> bool:
        """Whether the run has all steps that were asked for; else a signal stopped it."""
        return self.step >= min(self.num_steps, config.stop_after or self.num_steps)


def pretrain(config: PretrainConfig, *, on_row: OnRow | None = None) -> PretrainReport:
    """Train, or go on training, until the last step or until a signal asks to stop.

    Under `accelerate launch` or `torchrun` every process calls it; the first one writes.

    Args:
        config: The settings.
        on_row: Called in the first process with each row of metrics.jsonl.

    Raises:
        ClozemillError: The training cannot start or go on; the text says why.
    """
    accelerator = start_accelerator(config)
    parts = assemble(config, accelerator)
    with reporting_lost_ranks(), contextlib.ExitStack() as stack:
        run = on_main(accelerator, lambda: stack.enter_context(open_run(config, parts.facts)))
        if run.checkpoint is not None:
            checkpoint = load_checkpoint(run.checkpoint)
            put_checkpoint(checkpoint, parts.model, parts.learner.optimizer, where=run.checkpoint)
            if accelerator.scaler is not None:
                accelerator.scaler.load_state_dict(checkpoint.state.scaler)
        reporter = stack.enter_context(Reporter(parts, run, on_row))
        reporter.write_start(parts.dataset, config.eval_instances)
        request = stack.enter_context(stopping_at_a_step())
        loop = Loop(parts, run, reporter)
        loop.run(request)
    return PretrainReport(
        folder=run.folder,
        step=loop.step,
        num_steps=parts.schedule.num_steps,
        notices=(*run.notices, *reporter.notices),
        rows=tuple(read_metrics(run.metrics)) if accelerator.is_main_process else (),
    )


if __name__ == "__main__":
    from clozemill.cli import main

    sys.argv[1:1] = ["pretrain"]
    main()
