import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from clozemill.pipeline.errors import ConfigError
from clozemill.train.order import BatchOrder, micro_batches_of, turns_per_step


class Lengths:
    """Instances of which only the lengths are known; counts how many were asked for."""

    def __init__(self, values: NDArray[np.int64]) -> None:
        self.values = values
        self.num_asked = 0

    def __len__(self) -> int:
        return len(self.values)

    def lengths(self, begin: int, end: int) -> NDArray[np.int64]:
        assert 0 <= begin <= end <= len(self)
        self.num_asked += end - begin
        return self.values[begin:end]


def order_of(num_instances: int, global_batch_size: int, **settings: int) -> BatchOrder:
    lengths = np.random.default_rng(0).integers(5, 129, num_instances)
    return BatchOrder(Lengths(lengths), global_batch_size=global_batch_size, **settings)


def epoch_of(order: BatchOrder, epoch: int) -> list[list[int]]:
    first = epoch * order.steps_per_epoch
    steps = range(first, first + order.steps_per_epoch)
    assert len(steps) > 0
    assert {order.epoch_of(step) for step in steps} == {epoch}
    return [order.global_batch(step).tolist() for step in steps]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 400),
    st.integers(1, 60),
    st.integers(1, 8),
    st.integers(0, 2**64 - 1),
    st.integers(0, 5),
)
def test_an_epoch_holds_each_instance_once_and_ends_with_the_incomplete_batch(
    num_instances: int, size: int, window: int, seed: int, epoch: int
) -> None:
    order = order_of(num_instances, size, length_window=window, seed=seed)
    batches = epoch_of(order, epoch)
    assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
    assert len(batches) == -(-num_instances // size)
    first = epoch * num_instances
    assert sorted(sum(batches, [])) == list(range(first, first + num_instances))


def test_any_step_is_the_same_whatever_was_asked_before() -> None:
    """Case: 12 instances, batches of 2; stop in epoch 1 after 3 batches, resume elsewhere."""
    whole = order_of(12, 2, length_window=2)
    ids = [whole.global_batch(step).tolist() for step in range(18)]
    assert ids[6:12] != ids[:6]
    for first in (0, 5, 6, 9, 12, 17):
        resumed = order_of(12, 2, length_window=2)
        assert [resumed.global_batch(step).tolist() for step in range(first, 18)] == ids[first:]
    backwards = order_of(12, 2, length_window=2)
    assert [backwards.global_batch(step).tolist() for step in range(17, -1, -1)] == ids[::-1]


def test_orders_of_epochs_and_seeds_differ() -> None:
    first = epoch_of(order_of(300, 10), 0)
    assert first == epoch_of(order_of(300, 10), 0)
    assert first != epoch_of(order_of(300, 10, seed=1), 0)
    second = epoch_of(order_of(300, 10), 1)
    assert [[index - 300 for index in batch] for batch in second] != first


def test_order_is_the_same_on_every_machine() -> None:
    """Pinned: whoever resumes a run with a newer version must find its order."""
    order = BatchOrder(Lengths(np.arange(5, 15) % 3), global_batch_size=4, length_window=2, seed=7)
    assert [order.global_batch(step).tolist() for step in range(6)] == [
        [3, 0, 9, 6],
        [1, 4, 5, 2],
        [7, 8],
        [11, 17, 12, 18],
        [15, 19, 10, 16],
        [14, 13],
    ]


def test_batches_hold_similar_lengths_shortest_first() -> None:
    order = order_of(4_000, 20, length_window=50)
    lengths = order_of(4_000, 20)._instances.lengths(0, 4_000)
    spreads = []
    for batch in epoch_of(order, 0):
        found = lengths[batch]
        assert (np.diff(found) >= 0).all()
        spreads.append(found[-1] - found[0])
    assert np.median(spreads) < 5
    means = [lengths[batch].mean() for batch in epoch_of(order, 0)[:50]]
    assert means != sorted(means)


def test_without_a_window_batches_are_drawn_without_regard_to_length() -> None:
    order = order_of(4_000, 20, length_window=1)
    lengths = order_of(4_000, 20)._instances.lengths(0, 4_000)
    spreads = [lengths[batch[-1]] - lengths[batch[0]] for batch in epoch_of(order, 0)]
    assert np.median(spreads) > 100


def test_all_instances_are_as_likely_to_come_first_or_in_the_incomplete_batch() -> None:
    """45 instances in batches of 10, 2,000 epochs; lengths 5 to 49, so that favour would show."""
    order = BatchOrder(Lengths(np.arange(5, 50)), global_batch_size=10, length_window=2)
    first, last = np.zeros(45), np.zeros(45)
    for epoch in range(2_000):
        start = epoch * order.steps_per_epoch
        first[order.global_batch(start) - epoch * 45] += 1
        last[order.global_batch(start + 4) - epoch * 45] += 1
    for counts, share in ((first, 10 / 45), (last, 5 / 45)):
        assert counts.sum() == pytest.approx(2_000 * share * 45)
        bound = 5 * np.sqrt(2_000 * share * (1 - share))
        assert np.abs(counts - 2_000 * share).max() < bound


def test_a_step_costs_lengths_of_one_block_alone() -> None:
    lengths = Lengths(np.full(1_000_000, 9))
    order = BatchOrder(lengths, global_batch_size=100, length_window=4)
    order.global_batch(7 * order.steps_per_epoch + 5_000)
    assert lengths.num_asked == 400


def test_a_block_has_about_as_many_instances_whatever_the_batch() -> None:
    blocks = [order_of(10, size).block_rows for size in (1, 256, 3_000, 16_384, 100_000)]
    assert blocks == [16_384, 16_384, 15_000, 16_384, 100_000]


def test_ranks_share_a_global_batch_in_equal_numbers_of_turns() -> None:
    batch = np.arange(103)
    for size, world_size in ((4, 1), (16, 2), (4, 3), (200, 3)):
        turns = turns_per_step(103, micro_batch_size=size, world_size=world_size)
        parts = [
            micro_batches_of(batch, micro_batch_size=size, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        assert max(map(len, parts)) == turns
        by_turn = [part for turn in range(turns) for part in [p[turn : turn + 1] for p in parts]]
        flat = [index for part in by_turn for micro in part for index in micro.tolist()]
        assert flat == batch.tolist()


def test_ten_micro_batches_at_four_a_step_are_three_steps() -> None:
    """Case: 10 micro-batches with accumulation 4 make steps of 4, 4 and 2."""
    order = order_of(20, 8)
    steps = [
        micro_batches_of(order.global_batch(step), micro_batch_size=2, rank=0, world_size=1)
        for step in range(order.steps_per_epoch)
    ]
    assert [len(micros) for micros in steps] == [4, 4, 2]
    assert turns_per_step(8, micro_batch_size=2, world_size=1) == 4


@pytest.mark.parametrize("name", ["global_batch_size", "length_window"])
def test_sizes_below_one_are_refused(name: str) -> None:
    settings = {"global_batch_size": 4, "length_window": 2, name: -1}
    with pytest.raises(ConfigError, match=f"^{name} is -1; it must be at least 1.$"):
        BatchOrder(Lengths(np.arange(9)), **settings)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_seeds_that_are_no_word_are_refused(seed: int) -> None:
    with pytest.raises(ConfigError, match=f"^seed is {seed}; it must be at least 0 and below 2"):
        order_of(9, 4, seed=seed)


def test_an_order_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"number of instances is 0; it must be at least 1\.$"):
        BatchOrder(Lengths(np.arange(0)), global_batch_size=4)
