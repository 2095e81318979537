"""The order of training: which instances make up which global batch, as a pure function.

A *virtual index* is epoch * N + i: instance i of N, as that epoch masks it. The order of an
epoch follows from the seed, the number of the epoch and the lengths of the instances alone; ranks,
micro-batches, loader workers, shards and the steps before have no part in it:

1. The instances 0 .. N - 1 are rotated by a random offset and cut into blocks of
   `length_window` x `global_batch_size` consecutive ones.
2. The blocks are shuffled.
3. Within a block, instances are shuffled, then sorted by length, and cut into global batches, which
   are shuffled again. So a batch holds instances of similar lengths, and little is padding.
4. Where the global batch size does not divide N, one incomplete batch comes last.

So every epoch holds every instance exactly once, and a run starts at any step at no cost.
"""

from collections import OrderedDict
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline import draws
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.jit import kernel
from clozemill.train.config import steps_per_epoch

_DEFAULT_BLOCK_ROWS = 16_384
"""Instances of a block, about, where no length window is asked for."""

_KEPT_BLOCKS = 2
# The one that is being trained on, and one more for who looks back or ahead.


class HasLengths(Protocol):
    """Instances whose lengths can be asked for: `PretrainingInstances`, or your own."""

    def __len__(self) -> int:
        """Return N, the number of instances."""

    def lengths(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the numbers of tokens of the instances from `begin` to before `end`."""


class _Epoch(NamedTuple):
    """What is drawn once for an epoch."""

    number: int
    offset: int
    """Instance at which the first block begins."""

    blocks: NDArray[np.int64]
    """Numbers of the blocks in the order in which they are trained on."""

    tail_place: int
    """Where the last block, which may be a short one, stands in it."""


class BatchOrder:
    """The global batches of all epochs."""

    def __init__(
        self,
        instances: HasLengths,
        *,
        global_batch_size: int,
        seed: int = 0,
        length_window: int | None = None,
    ) -> None:
        """Take what decides the order.

        Args:
            instances: N instances.
            global_batch_size: Instances of a step, over all ranks and micro-batches.
            seed: Another seed is another order.
            length_window: Global batches of a block, among which lengths are sorted. By default as
                many as make a block of 16,384 instances; 1 leaves batches as they are drawn.

        Raises:
            ConfigError: There is no instance, a size is not at least 1, or the seed does not fit.
        """
        length_window = length_window or max(1, _DEFAULT_BLOCK_ROWS // max(1, global_batch_size))
        check_seed(seed)
        for name, value in (
            ("global_batch_size", global_batch_size),
            ("length_window", length_window),
            ("the number of instances", len(instances)),
        ):
            if value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1.")
        self.num_instances = len(instances)
        """N."""
        self.global_batch_size = global_batch_size
        self.block_rows = length_window * global_batch_size
        """Instances of a block."""
        self.steps_per_epoch = steps_per_epoch(
            self.num_instances, global_batch_size=global_batch_size
        )
        """Global batches of an epoch, the incomplete one included."""
        self._instances = instances
        self._seed = np.uint64(seed)
        self._length_window = length_window
        self._num_blocks = -(-self.num_instances // self.block_rows)
        self._tail_rows = self.num_instances - (self._num_blocks - 1) * self.block_rows
        self._epoch: _Epoch | None = None
        self._blocks: OrderedDict[tuple[int, int], list[NDArray[np.int64]]] = OrderedDict()

    def epoch_of(self, step: int) -> int:
        """Return the epoch of a step; both count from 0."""
        return step // self.steps_per_epoch

    def global_batch(self, step: int) -> NDArray[np.int64]:
        """Return the virtual indices of a step's instances, the shortest first.

        Returns:
            int64 (`global_batch_size`,), or fewer in the last step of an epoch.
        """
        number, position = divmod(step, self.steps_per_epoch)
        if self._epoch is None or self._epoch.number != number:
            self._epoch = self._draw_epoch(number)
        block, place = self._find(position, self._epoch)
        key = (number, block)
        if key not in self._blocks:
            self._blocks[key] = self._draw_block(block, self._epoch)
            if len(self._blocks) > _KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        return self._blocks[key][place] + number * self.num_instances

    def _draw_epoch(self, number: int) -> _Epoch:
        offset = drawn_below(self._seed, number, 0, draws.EPOCH_OFFSET, self.num_instances)
        blocks = permutation(self._seed, number, 0, draws.EPOCH_BLOCKS, self._num_blocks)
        tail_place = int(np.flatnonzero(blocks == self._num_blocks - 1)[0])
        return _Epoch(number, offset, blocks, tail_place)

    def _find(self, position: int, epoch: _Epoch) -> tuple[int, int]:
        """Return the block of an epoch's batch, and the batch's place in the block."""
        tail, window = self._num_blocks - 1, self._length_window
        tail_batches, rest = divmod(self._tail_rows, self.global_batch_size)
        if rest and position == self.steps_per_epoch - 1:
            return tail, tail_batches
        tail_begin = epoch.tail_place * window
        if position >= tail_begin + tail_batches:
            # As if the tail were as long as the others.
            position += window - tail_batches
        elif position >= tail_begin:
            return tail, position - tail_begin
        return int(epoch.blocks[position // window]), position % window

    def _draw_block(self, block: int, epoch: _Epoch) -> list[NDArray[np.int64]]:
        """Return the global batches of a block; the incomplete one, if it has one, is the last."""
        is_tail = block == self._num_blocks - 1
        num_rows = self._tail_rows if is_tail else self.block_rows
        begin = (epoch.offset + block * self.block_rows) % self.num_instances
        shuffled = permutation(self._seed, epoch.number, block, draws.BLOCK_ROWS, num_rows)
        lengths = self._lengths(begin, num_rows)[shuffled]
        rows = (begin + shuffled[np.argsort(lengths, kind="stable")]) % self.num_instances
        num_batches, num_left = divmod(num_rows, self.global_batch_size)
        # The incomplete batch is cut out at a random place: its lengths shall not be special.
        num_before = drawn_below(
            self._seed, epoch.number, block, draws.BLOCK_PARTIAL, num_batches + 1
        )
        cut = num_before * self.global_batch_size
        left = rows[cut : cut + num_left]
        full = np.concatenate([rows[:cut], rows[cut + num_left :]])
        batches = full.reshape(num_batches, self.global_batch_size)
        order = permutation(self._seed, epoch.number, block, draws.BLOCK_BATCHES, num_batches)
        return [*batches[order], *([left] if num_left else [])]

    def _lengths(self, begin: int, num_rows: int) -> NDArray[np.uint16]:
        """Return the lengths of consecutive instances; after the last comes the first."""
        end = min(begin + num_rows, self.num_instances)
        first = self._instances.lengths(begin, end)
        second = self._instances.lengths(0, num_rows - (end - begin))
        # numpy sorts 16 bits by radix, several times faster.
        return np.concatenate([first, second]).astype(np.uint16)


def check_seed(seed: int) -> None:
    """Raise `ConfigError` for a seed that is no word of 64 bits."""
    if not 0 <= seed < 2**64:
        raise ConfigError(f"seed is {seed}; it must be at least 0 and below 2^64.")


def turns_per_step(global_batch_size: int, *, micro_batch_size: int, world_size: int) -> int:
    """Return the micro-batches that every rank runs for one step.

    >>> turns_per_step(256, micro_batch_size=32, world_size=3)
    3
    """
    return -(-global_batch_size // (micro_batch_size * world_size))


def micro_batches_of(
    global_batch: NDArray[np.int64], *, micro_batch_size: int, rank: int, world_size: int
) -> list[NDArray[np.int64]]:
    """Return what one rank takes of a global batch: of its micro-batches every `world_size`-th.

    All may be fewer than `turns_per_step` of them, and the last may be short.

    >>> micro_batches_of(np.arange(7), micro_batch_size=2, rank=1, world_size=2)
    [array([2, 3]), array([6])]
    """
    starts = range(rank * micro_batch_size, len(global_batch), world_size * micro_batch_size)
    return [global_batch[start : start + micro_batch_size] for start in starts]


@kernel
def drawn_below(seed: np.uint64, epoch: int, block: int, purpose: int, bound: int) -> int:
    """Return a random whole number from 0 to before `bound`, for one block and purpose."""
    identity = draws.identity_key(seed, np.uint64(epoch), np.uint64(block))
    return draws.bounded(draws.stream_key(identity, 0, purpose), 0, bound)


@kernel
def permutation(
    seed: np.uint64, epoch: int, block: int, purpose: int, size: int
) -> NDArray[np.int64]:
    """Return 0 .. size - 1 shuffled, for one block and purpose (Durstenfeld 1964)."""
    identity = draws.identity_key(seed, np.uint64(epoch), np.uint64(block))
    key = draws.stream_key(identity, 0, purpose)
    order = np.arange(size)
    for i in range(size - 1):
        other = i + draws.bounded(key, i, size - i)
        order[i], order[other] = order[other], order[i]
    return order
