"""Random access to the instances of a split: flat arrays of any of them, in any order.

Legend: N instances of the split, n of them asked for.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.files import file_checksum
from clozemill.pipeline.instances import MaskBatch, starts_of
from clozemill.pipeline.jit import kernel
from clozemill.pipeline.shards import Shard
from clozemill.train.gather import InstanceRows, OpenBatches, checked_columns, layout_of

_OPEN_BATCHES = 64
# Record batches open at once: three or four blocks of an order, and 60 MB if they are compressed
# (else they are parts of a mapped file).


class InstanceReader:
    """Reads instances by number from the shards of a dataset, of either format.

    Instance i of a split is the i-th row over its shards. A process that opens a shard first
    compares its checksum; a record batch is checked whenever it is opened, so that a damaged or
    hostile file is an error that names it. A copy may be pickled and sent to workers.
    """

    def __init__(self, dataset: Dataset, split: str) -> None:
        """Look up where instances are; opens nothing yet.

        Args:
            dataset: From `open_dataset`.
            split: `train` or `validation`.

        Raises:
            DatasetError: There is no such split.
        """
        self.dataset = dataset
        self.split = split
        dataset.num_instances(split)  # raises if there is no such split
        self.layout = layout_of(dataset.manifest, split)
        self._shards = dataset.manifest.shards_of(split)
        self._first_batches = starts_of([shard.num_batches for shard in self._shards])
        self._firsts = _first_rows(self._shards)
        self._is_verified = np.zeros(len(self._shards), np.bool_)
        self._forget(_OPEN_BATCHES)

    def _forget(self, num_slots: int) -> None:
        """Open nothing: neither a copy nor the end of a run should hold files."""
        self._open = OpenBatches(self.layout, num_slots)
        self._batch_in = np.full(num_slots, -1, np.int64)
        self._last_used = np.zeros(num_slots, np.int64)
        self._slot_of = np.full(self._first_batches[-1], -1, np.int32)
        self._clock = 0

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy needs."""
        state = dict(self.__dict__)
        for name in ("_open", "_batch_in", "_last_used", "_slot_of", "_clock"):
            del state[name]
        return state | {"num_slots": self._open.num_slots}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Become the copy."""
        num_slots = state.pop("num_slots")
        self.__dict__.update(state)
        self._forget(num_slots)

    def __len__(self) -> int:
        """Return N."""
        return int(self._firsts[-1])

    def reserve(self, num_rows: int) -> None:
        """Keep at least as many record batches open as so many consecutive rows lie in."""
        ends = np.searchsorted(self._firsts, self._firsts[:-1] + num_rows)
        most = int((ends - np.arange(len(ends))).max()) + 1
        self._grow(min(most, len(ends)))

    def skip_checksums(self) -> None:
        """Trust the bytes of the shards: where `clozemill verify` was run, and reading is slow."""
        self._is_verified[:] = True

    def read(self, indices: ArrayLike) -> InstanceRows:
        """Return instances without masks, in the order asked for; repeats are allowed.

        Args:
            indices: (n,) numbers from 0 to N - 1.

        Raises:
            IndexError: A number is negative or not below N.
            DatasetError: A shard is damaged; the text names it.
        """
        return self._open.read(self._locate(indices))

    def overlays(self, indices: ArrayLike, variants: ArrayLike) -> MaskBatch:
        """Return a stored masking of each instance, from the file.

        Args:
            indices: (n,) numbers from 0 to N - 1.
            variants: (n,) numbers of stored variants, one for each.

        Raises:
            IndexError: An instance or a variant is out of range.
            ValueError: There is not one variant for each instance.
            DatasetError: A shard is damaged; the text names it.
        """
        numbers = np.ascontiguousarray(variants, np.int64)
        num_variants = self.layout.num_variants
        places = self._locate(indices)
        if numbers.shape != (len(places),):
            raise ValueError(f"{len(places)} instances need as many variants, one for each")
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < num_variants:
            raise IndexError(f"{self.split} stores the variants below {num_variants}")
        return self._open.overlays(places, numbers)

    def lengths(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the numbers of tokens of the instances from `begin` to before `end`."""
        if not 0 <= begin <= end <= len(self):
            raise IndexError(f"{self.split} has the instances 0 to {len(self) - 1}")
        if begin == end:
            return np.empty(0, np.int64)
        first, last = np.searchsorted(self._firsts, [begin, end - 1], side="right") - 1
        self._clock += 1
        parts = [self._open.lengths(self._slot(batch)) for batch in range(first, last + 1)]
        skipped = begin - int(self._firsts[first])
        return np.concatenate(parts)[skipped : skipped + end - begin]

    def _locate(self, indices: ArrayLike) -> NDArray[np.int64]:
        """Return (n, 2) slots and rows of instances, whose record batches are now open."""
        wanted = np.ascontiguousarray(indices, np.int64).reshape(-1)
        places = np.empty((len(wanted), 2), np.int64)
        self._clock += 1
        done = 0
        while True:
            done = _find_places(
                wanted, self._firsts, self._slot_of, self._last_used, self._clock, done, places
            )
            if done == len(wanted):
                return places
            if not 0 <= wanted[done] < len(self):
                raise IndexError(f"{self.split} has the instances 0 to {len(self) - 1}")
            self._slot(int(np.searchsorted(self._firsts, wanted[done], side="right")) - 1)

    def _slot(self, batch: int) -> int:
        """Return the slot of a record batch, opened if need be and marked as used now."""
        slot = int(self._slot_of[batch])
        if slot < 0:
            slot = int(self._last_used.argmin())
            if self._last_used[slot] == self._clock:
                # All are needed by this one call.
                slot = self._open.num_slots
                self._grow(2 * slot)
            self._open_batch(batch, slot)
        self._last_used[slot] = self._clock
        return slot

    def _open_batch(self, batch: int, slot: int) -> None:
        number = int(np.searchsorted(self._first_batches, batch, side="right")) - 1
        shard = self._shards[number]
        self._verify(number)
        index = batch - int(self._first_batches[number])
        where = f"record batch {index} of {self.dataset.folder / shard.path}"
        columns = checked_columns(self.dataset.shard_batch(shard, index), self.layout, where)
        if self._batch_in[slot] >= 0:
            self._slot_of[self._batch_in[slot]] = -1
        self._open.put(slot, columns)
        self._batch_in[slot] = batch
        self._slot_of[batch] = slot

    def _verify(self, number: int) -> None:
        if self._is_verified[number]:
            return
        shard = self._shards[number]
        path = self.dataset.folder / shard.path
        if file_checksum(path) != shard.checksum:
            raise DatasetError(
                f"{path} does not hold the bytes that were written; copy it again or rebuild the "
                "dataset (clozemill verify lists every damaged file)."
            )
        self._is_verified[number] = True

    def _grow(self, num_slots: int) -> None:
        more = num_slots - self._open.num_slots
        if more > 0:
            self._open.grow(num_slots)
            self._batch_in = np.append(self._batch_in, np.full(more, -1))
            self._last_used = np.append(self._last_used, np.zeros(more, np.int64))


def _first_rows(shards: tuple[Shard, ...]) -> NDArray[np.int64]:
    """Return the number of the first instance of each record batch, and N."""
    firsts, num_rows = [], 0
    for shard in shards:
        firsts.append(num_rows + np.arange(shard.num_batches, dtype=np.int64) * shard.batch_rows)
        num_rows += shard.num_instances
    return np.append(np.concatenate(firsts), num_rows)


@kernel
def _find_places(
    indices: NDArray[np.int64],
    firsts: NDArray[np.int64],
    slot_of: NDArray[np.int32],
    last_used: NDArray[np.int64],
    clock: int,
    done: int,
    places: NDArray[np.int64],
) -> int:
    """Fill in slots and rows from place `done` on; return where a batch is not open."""
    for i in range(done, len(indices)):
        index = indices[i]
        if not 0 <= index < firsts[-1]:
            return i
        batch = np.searchsorted(firsts, index, side="right") - 1
        slot = slot_of[batch]
        if slot < 0:
            return i
        last_used[slot] = clock
        places[i, 0] = slot
        places[i, 1] = index - firsts[batch]
    return len(indices)
