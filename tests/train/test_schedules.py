import math
from typing import Any

import pytest

from clozemill.pipeline.errors import ConfigError
from clozemill.train.config import PretrainConfig
from clozemill.train.schedules import Schedule, learning_rate, make_schedule


def rates(config: PretrainConfig, num_steps: int, *after: int) -> list[float]:
    schedule = make_schedule(config, num_steps)
    return [learning_rate(schedule, step) for step in after]


def config(**settings: Any) -> PretrainConfig:
    return PretrainConfig(**{"steps": 100, "learning_rate": 1e-3, "warmup_steps": 10, **settings})


def test_linear_rises_for_the_warmup_and_falls_to_zero_at_the_end() -> None:
    assert rates(config(), 100, 5, 10, 55, 100) == [5e-4, 1e-3, 5e-4, 0.0]


def test_a_rate_depends_on_the_step_and_on_nothing_that_was_asked_before() -> None:
    schedule = make_schedule(config(), 100)
    forwards = [learning_rate(schedule, step) for step in range(101)]
    backwards = [learning_rate(schedule, step) for step in reversed(range(101))]
    assert forwards == backwards[::-1]


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd", "bert"])
def test_the_first_step_with_a_warmup_has_rate_zero(name: str) -> None:
    assert rates(config(schedule=name), 100, 0) == [0.0]


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd"])
def test_without_a_warmup_the_first_step_has_the_peak(name: str) -> None:
    assert rates(config(schedule=name, warmup_steps=0), 100, 0) == [1e-3]


@pytest.mark.parametrize("name", ["linear", "cosine", "wsd", "bert"])
def test_every_schedule_ends_at_its_final_share_and_stays_there(name: str) -> None:
    settings = config(schedule=name, final_share=0.1)
    assert rates(settings, 100, 100, 101, 9_999) == pytest.approx([1e-4] * 3, rel=1e-12)


def test_the_original_schedule_falls_from_step_zero_and_jumps_where_warmup_ends() -> None:
    schedule = Schedule(name="bert", peak=1e-4, num_steps=1_000_000, num_warmup_steps=10_000)
    points = {0: 0.0, 9_999: 0.9999e-4, 10_000: 0.99e-4, 500_000: 0.5e-4, 1_000_000: 0.0}
    for step, rate in points.items():
        assert learning_rate(schedule, step) == pytest.approx(rate, rel=1e-12, abs=1e-20), step


def test_cosine_is_halfway_down_in_the_middle_of_its_fall() -> None:
    assert rates(config(schedule="cosine"), 100, 10, 55, 100) == pytest.approx([1e-3, 5e-4, 0.0])
    quarter = 1e-3 * (1 + math.cos(math.pi / 4)) / 2
    assert rates(config(schedule="cosine", warmup_steps=20), 100, 40) == pytest.approx([quarter])


def test_wsd_stays_at_the_peak_until_its_last_share() -> None:
    stable = config(schedule="wsd", decay_share=0.2)
    assert rates(stable, 100, 10, 40, 80) == [1e-3, 1e-3, 1e-3]
    assert rates(stable, 100, 90, 100) == pytest.approx([5e-4, 0.0])
    root = config(schedule="wsd", decay_share=0.2, decay_shape="one-minus-sqrt")
    assert rates(root, 100, 80, 85, 100) == pytest.approx([1e-3, 5e-4, 0.0])


def test_a_wsd_fall_never_reaches_into_the_warmup() -> None:
    assert rates(config(schedule="wsd", decay_share=1.0), 100, 5, 10, 55) == pytest.approx(
        [5e-4, 1e-3, 5e-4]
    )


def test_a_share_of_warmup_counts_in_the_steps_of_the_run() -> None:
    settings = PretrainConfig(epochs=3, learning_rate=1.0, warmup_share=0.1)
    assert make_schedule(settings, 50).num_warmup_steps == 5


def test_a_run_shorter_than_its_warmup_is_refused() -> None:
    with pytest.raises(ConfigError) as error:
        make_schedule(PretrainConfig(epochs=1, warmup_steps=60), 50)
    assert str(error.value) == (
        "warmup_steps is 60, but the run has 50 steps; lower it, or give a warmup_share."
    )
