import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from tests.train.small_readings import (
    LAYOUTS,
    BuiltDataset,
    ReadRow,
    rows_expected,
    rows_of,
    rows_trained_on,
    with_shards,
)

from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.errors import ConfigError, DatasetError, RunError
from clozemill.train.instances import PretrainingInstances
from clozemill.train.loader import LoaderSettings, evaluation_batches, micro_batches
from clozemill.train.order import BatchOrder

STEPS = range(14)
"""One epoch, whose last step is incomplete, and more than half of the next."""


def instances_and_order(
    dataset: Dataset, masking: str = "dynamic", size: int = 64
) -> tuple[PretrainingInstances, BatchOrder]:
    instances = PretrainingInstances(dataset, masking=masking)
    return instances, BatchOrder(instances, global_batch_size=size, length_window=3, seed=5)


@pytest.fixture(scope="module")
def expected(built: BuiltDataset) -> list[list[ReadRow]]:
    """Return the rows of each step, read without any loader."""
    instances, order = instances_and_order(built())
    rows = [rows_expected(instances.__getitems__(order.global_batch(step))) for step in STEPS]
    num_full, rest = divmod(len(instances), 64)
    assert [len(step) for step in rows] == ([64] * num_full + [rest] + [64] * 9)[: len(STEPS)]
    assert 5 < num_full < 12
    assert rest > 0
    return rows


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("micro_batch_size", [4, 16])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_ranks_together_see_each_step_whatever_their_number(
    built: BuiltDataset,
    expected: list[list[ReadRow]],
    layout: tuple[str, str],
    micro_batch_size: int,
    world_size: int,
) -> None:
    instances, order = instances_and_order(built(*layout))
    rows = rows_trained_on(
        instances, order, STEPS, micro_batch_size=micro_batch_size, world_size=world_size
    )
    assert rows == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes:UserWarning")
@pytest.mark.parametrize("layout", [LAYOUTS[0], LAYOUTS[3]])
@pytest.mark.parametrize(("num_workers", "world_size"), [(1, 2), (4, 1)])
def test_loader_workers_change_nothing(
    built: BuiltDataset,
    expected: list[list[ReadRow]],
    layout: tuple[str, str],
    num_workers: int,
    world_size: int,
) -> None:
    instances, order = instances_and_order(built(*layout))
    rows = rows_trained_on(
        instances,
        order,
        STEPS,
        micro_batch_size=16,
        world_size=world_size,
        num_workers=num_workers,
    )
    assert rows == expected


@pytest.mark.slow
def test_workers_can_be_spawned_or_forked(
    built: BuiltDataset, expected: list[list[ReadRow]]
) -> None:
    instances, order = instances_and_order(built())
    for method in ("spawn", "fork"):
        settings = LoaderSettings(micro_batch_size=64, num_workers=1, start_method=method)
        batches = micro_batches(instances, order, settings, steps=range(2))
        assert [rows_of(batch) for batch in batches] == expected[:2]


def test_static_and_dynamic_runs_differ_in_nothing_while_the_variants_last(
    built: BuiltDataset, expected: list[list[ReadRow]]
) -> None:
    instances, order = instances_and_order(built(), "static")
    assert rows_trained_on(instances, order, STEPS) == expected
    later = range(3 * order.steps_per_epoch, 3 * order.steps_per_epoch + 1)
    dynamic, _ = instances_and_order(built(), "dynamic")
    (one,), (two,) = (rows_trained_on(i, order, later) for i in (instances, dynamic))
    assert len(one) == len(two) == 64
    assert one != two


def test_a_run_goes_on_with_another_number_of_ranks(
    built: BuiltDataset, expected: list[list[ReadRow]]
) -> None:
    """Case: two processes stop after step 5, one resumes: the same samples in the same order."""
    for before, after in ((2, 1), (1, 2), (3, 2)):
        first = rows_trained_on(*instances_and_order(built()), range(5), world_size=before)
        second = rows_trained_on(*instances_and_order(built()), range(5, 14), world_size=after)
        assert first + second == expected


def test_each_instance_is_seen_once_an_epoch(built: BuiltDataset) -> None:
    instances, order = instances_and_order(built())
    for epoch in (0, 1):
        first = epoch * order.steps_per_epoch
        steps = range(first, first + order.steps_per_epoch)
        rows = sum(rows_trained_on(instances, order, steps, world_size=3), [])
        indices = range(epoch * len(instances), (epoch + 1) * len(instances))
        assert sorted(map(str, rows)) == sorted(
            map(str, rows_expected(instances.__getitems__(indices)))
        )


@pytest.mark.parametrize("format", ["arrow", "webdataset"])
@pytest.mark.parametrize(
    ("sizes", "world_size", "batch"), [((5, 5, 1), 2, 4), ((7, 3, 2, 8), 6, 6), ((1, 1), 5, 5)]
)
def test_few_uneven_shards_feed_any_number_of_ranks(
    built: BuiltDataset,
    tmp_path: Path,
    format: str,
    sizes: tuple[int, ...],
    world_size: int,
    batch: int,
) -> None:
    """Case: shards of 5, 5 and 1 for 2 ranks; more ranks than shards; more ranks than rows."""
    instances, order = instances_and_order(
        with_shards(built(format), tmp_path / "data", sizes), size=batch
    )
    steps = range(2 * order.steps_per_epoch)
    rows = rows_trained_on(instances, order, steps, micro_batch_size=1, world_size=world_size)
    assert [len(step) for step in rows] == [len(order.global_batch(step)) for step in steps]
    everything = rows_expected(instances.__getitems__(range(2 * len(instances))))
    assert sorted(map(str, sum(rows, []))) == sorted(map(str, everything))
    assert len(everything) == 2 * sum(sizes)


def test_a_loader_leaves_the_global_generator_alone(built: BuiltDataset) -> None:
    """Otherwise dropout after a resume, and with another number of loaders, would be another."""
    before = torch.get_rng_state()
    assert len(rows_trained_on(*instances_and_order(built()), range(2))) == 2
    assert torch.equal(torch.get_rng_state(), before)


def test_rows_are_padded_to_the_longest_or_a_multiple(built: BuiltDataset) -> None:
    instances, order = instances_and_order(built())
    for multiple in (1, 8):
        settings = LoaderSettings(micro_batch_size=16, pad_to_multiple_of=multiple)
        batches = list(micro_batches(instances, order, settings, steps=range(9)))
        widths = [batch["input_ids"].shape[1] for batch in batches]
        longest = [
            int(b["attention_mask"].sum(1).max()) if len(b["labels"]) else 1 for b in batches
        ]
        assert widths == [-(-length // multiple) * multiple for length in longest]
        assert len(set(widths)) > 2


# Evaluation


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_evaluation_reads_the_stored_masks_in_plain_order(
    built: BuiltDataset, world_size: int
) -> None:
    dataset = built()
    by_rank = [
        list(
            evaluation_batches(
                dataset, LoaderSettings(micro_batch_size=10, rank=rank, world_size=world_size)
            )
        )
        for rank in range(world_size)
    ]
    assert len({len(batches) for batches in by_rank}) == 1
    rows = [row for turn in zip(*by_rank, strict=True) for batch in turn for row in rows_of(batch)]
    instances = PretrainingInstances(dataset, "validation", masking="static")
    assert rows == rows_expected(instances.__getitems__(range(len(instances))))
    assert len(rows) > 50


def test_evaluation_is_the_same_twice_and_with_any_variant_stored(built: BuiltDataset) -> None:
    dataset, settings = built(), LoaderSettings(micro_batch_size=16)
    batches = evaluation_batches(dataset, settings)
    first, second = ([rows_of(batch) for batch in batches] for _ in range(2))
    assert first == second
    other = [rows_of(batch) for batch in evaluation_batches(dataset, settings, variant=1)]
    assert len(other) == len(first) == len(batches)
    assert other != first


def test_evaluation_needs_a_validation_split(built: BuiltDataset) -> None:
    dataset = built(validation_fraction=0.0)
    with pytest.raises(DatasetError, match="has no split 'validation'; it has train"):
        evaluation_batches(dataset, LoaderSettings(micro_batch_size=4))


# Faults


def spoiled(dataset: Dataset, folder: Path) -> tuple[Dataset, str]:
    """Return a dataset of four shards, of which the third was changed after it was opened."""
    copy = with_shards(dataset, folder, [40, 40, 40, 40])
    path = folder / copy.manifest.shards[2].path
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    return open_dataset(folder), path.name


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_damaged_shard_is_an_error_that_names_it(
    built: BuiltDataset, tmp_path: Path, num_workers: int
) -> None:
    dataset, name = spoiled(built(), tmp_path / "data")
    # The shortest blocks there can be, or the order itself would look at all shards at once.
    instances = PretrainingInstances(dataset, "train", masking="dynamic")
    order = BatchOrder(instances, global_batch_size=8, length_window=1)
    settings = LoaderSettings(micro_batch_size=8, num_workers=num_workers)
    started = time.monotonic()
    with pytest.raises(DatasetError) as caught:
        list(micro_batches(instances, order, settings, steps=range(20)))
    assert time.monotonic() - started < 30
    assert str(caught.value).startswith(f"{tmp_path / 'data' / name} does not hold the bytes")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_damaged_shard_that_only_workers_read_is_an_error_that_names_it(
    built: BuiltDataset, tmp_path: Path
) -> None:
    dataset, name = spoiled(built(), tmp_path / "data")
    settings = LoaderSettings(micro_batch_size=10, num_workers=2)
    batches = evaluation_batches(dataset, settings, split="train")
    with pytest.raises(DatasetError) as caught:
        list(batches)
    assert str(caught.value).startswith(f"{tmp_path / 'data' / name} does not hold the bytes")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_within_seconds(built: BuiltDataset) -> None:
    instances, order = instances_and_order(built())
    settings = LoaderSettings(micro_batch_size=16, num_workers=1, prefetch_factor=1)
    batches = iter(micro_batches(instances, order, settings, steps=range(10_000)))
    assert len(rows_of(next(batches))) == 16
    started = time.monotonic()
    for worker in multiprocessing.active_children():
        os.kill(int(worker.pid or 0), signal.SIGKILL)
    with pytest.raises(RunError, match=r"^a process that reads instances died: .*loader_workers 0"):
        list(batches)
    assert time.monotonic() - started < 30


# Settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"micro_batch_size": 0}, r"micro_batch_size is 0; it must be at least 1\."),
        ({"world_size": 0}, r"world_size is 0; it must be at least 1\."),
        ({"num_workers": -1}, r"num_workers is -1; it must be at least 0\."),
        ({"rank": 2, "world_size": 2}, r"rank is 2; with world_size 2 .* at most 1\."),
        ({"start_method": "thread"}, r"start_method is 'thread'; here it must be one of .*spawn"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, int], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        LoaderSettings(**{"micro_batch_size": 4, **settings})  # type: ignore[arg-type]


def test_settings_say_how_many_turns_a_step_has() -> None:
    turns = [
        LoaderSettings(micro_batch_size=m, world_size=w).turns(64) for m, w in [(4, 1), (4, 3)]
    ]
    assert turns == [16, 6]
