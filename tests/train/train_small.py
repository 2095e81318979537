"""A training in a process of its own: `python -m tests.train.train_small RUN STEPS`.

Each step is a line of the log's sums and a checkpoint; every third writes a row. What is printed
is the step of each checkpoint as soon as it is saved.
"""

import sys
import time
from pathlib import Path

import torch
from tests.train.small_runs import SmallTraining, small_checkpoint, small_facts, small_state

from clozemill.train.checkpoints import Checkpoint, load_checkpoint, rotate, save_checkpoint
from clozemill.train.config import PretrainConfig
from clozemill.train.metrics import MetricsLog
from clozemill.train.optimizers import load_optimizer_tensors
from clozemill.train.runs import Run, open_run
from clozemill.train.tensors import put_model_tensors
from clozemill.train.window import Measured, Window


def train(folder: Path, num_steps: int) -> SmallTraining:
    """Train up to a step, from wherever the folder stands."""
    torch.set_num_threads(1)
    training = SmallTraining(hidden_size=256)
    config = PretrainConfig(out=str(folder), steps=10)
    with (
        open_run(config, small_facts()) as run,
        MetricsLog(run.metrics, last_step=run.step) as log,
    ):
        window = _begin(training, run)
        for step in range((run.step or 0) + 1, num_steps + 1):
            window = _step(training, step, window, log)
            _save(training, step, window, run, log)
            print(step, flush=True)
    return training


def _begin(training: SmallTraining, run: Run) -> Window:
    if run.checkpoint is None:
        return Window()
    saved = load_checkpoint(run.checkpoint)
    put_model_tensors(training.model, saved.model, where=str(run.checkpoint))
    load_optimizer_tensors(training.optimizer, training.model, saved.optimizer)
    return saved.state.window


def _step(training: SmallTraining, step: int, window: Window, log: MetricsLog) -> Window:
    started = time.monotonic()
    loss = training.step(step)
    seconds = time.monotonic() - started
    window += Window(steps=1, mlm_loss_sum=8 * loss, selected=8, seconds=seconds)
    if step % 3:
        return window
    log.append(
        window.train_row(
            step=step, epoch=0, learning_rate=0.01, gradient_norm=loss, measured=Measured()
        )
    )
    return Window()


def _save(training: SmallTraining, step: int, window: Window, run: Run, log: MetricsLog) -> None:
    tensors = small_checkpoint(step, training)
    log.sync()
    save_checkpoint(
        run.checkpoints,
        Checkpoint(
            state=small_state(step, window=window), model=tensors.model, optimizer=tensors.optimizer
        ),
    )
    rotate(run.checkpoints, keep=2)


if __name__ == "__main__":
    train(Path(sys.argv[1]), int(sys.argv[2]))
