"""Learning rates as pure functions of the step.

`learning_rate(schedule, n)` is the rate after n optimizer steps: step n + 1 is made with it, and
step 1 is made with the rate at 0. That is how the original counts (its `global_step` is read
before it is raised) and how `transformers` does (the state of the scheduler after n calls). With
any warm-up the rate at 0 is 0, so the first step fills the optimizer's moments and moves no
weight; the rate at N, the end, is used by none.

Nothing counts calls, so ranks, accumulation and a resume cannot change a rate.

Legend: N steps of the run, W of warm-up, D of the final fall, p peak, e = p * final_share.
"""

import math
from dataclasses import dataclass

from clozemill.train.config import PretrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The learning rate of a whole run."""

    name: str
    """linear, cosine, wsd or bert."""

    peak: float
    """Highest rate; `bert` with a warm-up stays below it."""

    num_steps: int
    """N, at least 1."""

    num_warmup_steps: int
    """W, at most N."""

    final_share: float = 0.0
    """Rate at N, as share of the peak."""

    num_decay_steps: int = 0
    """D, for wsd: the last steps, in which the rate falls."""

    decay_shape: str = "linear"
    """For wsd: linear or one-minus-sqrt."""


def make_schedule(config: PretrainConfig, num_steps: int) -> Schedule:
    """Return the schedule of a run of so many steps.

    Raises:
        ConfigError: The run ends before its warm-up.
    """
    num_warmup_steps = config.num_warmup_steps(num_steps)
    num_decay_steps = round(config.decay_share * num_steps)
    return Schedule(
        name=config.schedule,
        peak=float(config.learning_rate),
        num_steps=num_steps,
        num_warmup_steps=num_warmup_steps,
        final_share=float(config.final_share),
        num_decay_steps=min(num_decay_steps, num_steps - num_warmup_steps),
        decay_shape=config.decay_shape,
    )


def learning_rate(schedule: Schedule, step: int) -> float:
    """Return the rate after so many optimizer steps; after the end, the rate at the end.

    linear: p * n / W, then a line to e at N (`transformers` get_linear_schedule_with_warmup).
    cosine: the same with half a cosine in place of the line (Loshchilov and Hutter 2017).
    wsd:    p * n / W, then p, then in the last D steps down to e (Hu et al. 2024).
    bert:   p * n / W, from W on a line from p at *0* to e at N, so the rate drops at W
            (`google-research/bert optimization.py:29-59`).

    >>> schedule = Schedule(name="linear", peak=1e-3, num_steps=100, num_warmup_steps=10)
    >>> [learning_rate(schedule, n) for n in (0, 5, 10, 55, 100)]
    [0.0, 0.0005, 0.001, 0.0005, 0.0]
    >>> bert = Schedule(name="bert", peak=1e-4, num_steps=1_000_000, num_warmup_steps=10_000)
    >>> [round(learning_rate(bert, n), 12) for n in (0, 9_999, 10_000)]
    [0.0, 9.999e-05, 9.9e-05]
    """
    step = min(step, schedule.num_steps)
    if step < schedule.num_warmup_steps:
        return schedule.peak * step / schedule.num_warmup_steps
    fallen = _FALLS[schedule.name](schedule, step)
    return schedule.peak * (1.0 - fallen * (1.0 - schedule.final_share))


def _linear(schedule: Schedule, step: int) -> float:
    return _share(step - schedule.num_warmup_steps, schedule.num_steps - schedule.num_warmup_steps)


def _cosine(schedule: Schedule, step: int) -> float:
    return (1.0 - math.cos(math.pi * _linear(schedule, step))) / 2.0


def _wsd(schedule: Schedule, step: int) -> float:
    begin = schedule.num_steps - schedule.num_decay_steps
    if step < begin:
        return 0.0
    share = _share(step - begin, schedule.num_decay_steps)
    # ModernBERT (Warner et al. 2024, appendix A) falls by one minus the root.
    return math.sqrt(share) if schedule.decay_shape == "one-minus-sqrt" else share


def _bert(schedule: Schedule, step: int) -> float:
    return _share(step, schedule.num_steps)


def _share(part: int, whole: int) -> float:
    """Return the share gone by; all of a phase without steps is."""
    return part / whole if whole else 1.0


_FALLS = {"linear": _linear, "cosine": _cosine, "wsd": _wsd, "bert": _bert}
"""How much of its fall a schedule has made after so many steps, from 0 to 1."""
