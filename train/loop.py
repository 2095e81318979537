"""The loop over steps, and when it logs, evaluates and saves."""

import dataclasses
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from clozemill.model.flops import training_flops
from clozemill.pipeline.errors import RunError
from clozemill.train.assembly import VALIDATION, Assembly
from clozemill.train.checkpoints import Checkpoint, TrainingState, rotate, save_checkpoint
from clozemill.train.launch import StopRequest, on_main
from clozemill.train.loss import Batch
from clozemill.train.optimizers import optimizer_tensors
from clozemill.train.replay import describe_nonfinite, steps_of
from clozemill.train.reporting import Reporter
from clozemill.train.runs import Run
from clozemill.train.schedules import learning_rate
from clozemill.train.steps import StepResult, evaluate
from clozemill.train.tensors import model_tensors
from clozemill.train.window import Window

Item = TypeVar("Item")


class Loop:
    """A training, standing between two steps."""

    def __init__(self, parts: Assembly, run: Run, reporter: Reporter) -> None:
        """Stand where the run's checkpoint stands, else at the beginning."""
        self.parts = parts
        self._checkpoints = run.checkpoints
        self.reporter = reporter
        self.step = run.step or 0
        """Optimizer updates done."""
        state = run.state
        self._window = state.window if state else Window()
        self._num_tokens = state.num_tokens if state else 0
        self._num_instances = state.num_instances if state else 0
        self._saved_step = run.step

    def run(self, request: StopRequest) -> None:
        """Train until the last step, the one to stop after, or until a signal asks; then save.

        Raises:
            RunError: The loss is not finite, or the disk is full.
        """
        num_steps = self.parts.schedule.num_steps
        last_step = min(num_steps, self.parts.config.stop_after or num_steps)
        steps = steps_of(self.parts, range(self.step, last_step))
        for (_, batches), wait_seconds in _timed(steps):
            begin = time.perf_counter()
            result = self._take_step(batches, request)
            seconds = time.perf_counter() - begin + wait_seconds
            self._window += dataclasses.replace(
                result.window,
                seconds=seconds,
                data_wait_seconds=wait_seconds,
                flops=self._flops(result.window),
            )
            self._after_step(result, is_last=self.step == num_steps)
            if result.should_stop:
                self.reporter.note(f"asked to stop after step {self.step}")
                break
        self._save()

    def _take_step(self, batches: list[Batch], request: StopRequest) -> StepResult:
        parts = self.parts
        result = parts.learner.step(
            batches,
            number=self.step + 1,
            learning_rate=learning_rate(parts.schedule, self.step),
            is_asked_to_stop=request.is_made,
        )
        if not result.is_finite:
            self._save()
            raise RunError(describe_nonfinite(parts, self.step, batches, result))
        self.step += 1
        self._num_tokens += result.window.tokens
        self._num_instances += result.window.instances
        return result

    def _flops(self, window: Window) -> int:
        """Return what a step's tokens need of the model, as if all rows were of the mean length."""
        return training_flops(
            self.parts.model.config,
            num_rows=window.instances,
            num_tokens=round(window.tokens / max(1, window.instances)),
            num_selected=window.selected,
        )

    def _after_step(self, result: StepResult, *, is_last: bool) -> None:
        """Log, evaluate and save where it is time to.

        In this order, so that a checkpoint's step has all its rows.
        """
        config = self.parts.config
        if _is_due(self.step, config.log_every) or is_last:
            self._log(result)
        if _is_due(self.step, config.eval_every) or is_last:
            self._evaluate()
        if _is_due(self.step, config.checkpoint_every):
            self._save()

    def _log(self, result: StepResult) -> None:
        parts = self.parts
        row = self._window.train_row(
            step=self.step,
            epoch=parts.order.epoch_of(self.step - 1),
            learning_rate=learning_rate(parts.schedule, self.step - 1),
            gradient_norm=result.gradient_norm,
            measured=self.reporter.measure(),
        )
        self._window = Window()
        self.reporter.write(row)

    def _evaluate(self) -> None:
        """Log the losses on the validation split, if there is one, with its first stored masks."""
        parts = self.parts
        if parts.evaluation is None:
            return
        begin = time.perf_counter()
        window = evaluate(
            parts.accelerator,
            parts.objective,
            map(parts.without_unused, parts.evaluation),
            mask_id=parts.learner.mask_id,
        )
        window = dataclasses.replace(window, seconds=time.perf_counter() - begin)
        self.reporter.write(window.evaluation_row(step=self.step, split=VALIDATION))

    def _save(self) -> None:
        """Save a checkpoint of this step unless there is one."""
        if self._saved_step == self.step:
            return
        on_main(self.parts.accelerator, self._write_checkpoint)
        self._saved_step = self.step

    def _write_checkpoint(self) -> None:
        # A log that a power cut shortened could not be made whole from a newer checkpoint.
        self.reporter.sync()
        learner = self.parts.learner
        save_checkpoint(
            self._checkpoints,
            Checkpoint(
                state=self._state(),
                model=model_tensors(self.parts.model),
                optimizer=optimizer_tensors(learner.optimizer, self.parts.model),
            ),
        )
        rotate(self._checkpoints, self.parts.config.keep)

    def _state(self) -> TrainingState:
        parts, order = self.parts, self.parts.order
        scaler = parts.accelerator.scaler
        return TrainingState(
            step=self.step,
            epoch=order.epoch_of(self.step),
            position=self.step % order.steps_per_epoch * order.global_batch_size,
            num_tokens=self._num_tokens,
            num_instances=self._num_instances,
            facts=parts.facts,
            window=self._window,
            scaler=scaler.state_dict() if scaler is not None else {},
        )


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def _timed(items: Iterable[Item]) -> Iterator[tuple[Item, float]]:
    """Yield each item and the seconds that it was waited for."""
    iterator = iter(items)
    while True:
        begin = time.perf_counter()
        try:
            item = next(iterator)
        except StopIteration:
            return
        yield item, time.perf_counter() - begin
