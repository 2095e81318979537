import dataclasses
from pathlib import Path

import pytest
from tests.train.small_readings import BuiltDataset
from tests.train.test_pretrain import final_weights, small_config

from clozemill.pipeline.errors import RunError
from clozemill.train.config import PretrainConfig
from clozemill.train.forks import fork_run
from clozemill.train.metrics import exact_columns, read_metrics
from clozemill.train.pretrain import pretrain

STEPS_PER_EPOCH = 4


@pytest.fixture
def dynamic(built: BuiltDataset, tmp_path: Path) -> PretrainConfig:
    """Return a dynamic training of three epochs."""
    data = built()
    size = -(-data.num_instances("train") // STEPS_PER_EPOCH)
    return small_config(
        data.folder,
        tmp_path / "dynamic",
        masking="dynamic",
        global_batch_size=size,
        micro_batch_size=None,
        steps=3 * STEPS_PER_EPOCH,
        mask_offset=5,
    )


def static(config: PretrainConfig, name: str, num_static_variants: int) -> PretrainConfig:
    return dataclasses.replace(
        config,
        out=str(Path(config.out).with_name(name)),
        masking="static",
        num_static_variants=num_static_variants,
    )


def exact_rows(config: PretrainConfig) -> list[dict[str, object]]:
    rows = [exact_columns(row) for row in read_metrics(Path(config.out) / "metrics.jsonl")]
    assert rows
    return rows


@pytest.mark.slow
def test_a_forked_run_ends_with_the_bytes_of_one_that_was_trained_whole(
    dynamic: PretrainConfig,
) -> None:
    step = 2 * STEPS_PER_EPOCH
    whole, forked = static(dynamic, "whole", 2), static(dynamic, "forked", 2)
    assert pretrain(whole).is_finished
    part = dataclasses.replace(dynamic, stop_after=step)
    report = pretrain(part)
    assert (report.step, report.is_finished, report.is_done(part)) == (step, False, True)
    fork_run(Path(dynamic.out), forked, step)
    assert exact_rows(forked) == [row for row in exact_rows(whole) if row["step"] <= step]
    assert pretrain(forked).is_finished
    assert exact_rows(forked) == exact_rows(whole)
    assert final_weights(Path(forked.out)) == final_weights(Path(whole.out))
    assert pretrain(dynamic).is_finished
    assert final_weights(Path(dynamic.out)) != final_weights(Path(whole.out))


def test_a_run_is_not_forked_after_its_masks_differ(dynamic: PretrainConfig) -> None:
    pretrain(dataclasses.replace(dynamic, stop_after=STEPS_PER_EPOCH + 1))
    with pytest.raises(RunError, match="has seen other masks than .* from epoch 1 on"):
        fork_run(Path(dynamic.out), static(dynamic, "one", 1), STEPS_PER_EPOCH + 1)
    other = dataclasses.replace(static(dynamic, "two", 2), learning_rate=1e-3)
    with pytest.raises(RunError, match="learning_rate is 0.001"):
        fork_run(Path(dynamic.out), other, STEPS_PER_EPOCH + 1)
    assert not Path(other.out).exists()
