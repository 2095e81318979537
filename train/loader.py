"""The micro-batches of one rank, step after step, read here or ahead by loader workers.

    instances = PretrainingInstances(open_dataset("data/wiki"), "train", masking="dynamic")
    order = BatchOrder(instances, global_batch_size=256, seed=0)
    settings = LoaderSettings(micro_batch_size=32)
    for batch in micro_batches(instances, order, settings, steps=range(1_000)):
        ...                             # `settings.turns(256)` of them make a step

Do not hand it to `accelerator.prepare`: each rank already gets its own share.
"""

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.engine import start_worker
from clozemill.pipeline.errors import ClozemillError, ConfigError, RunError
from clozemill.train.collate import PretrainingCollator
from clozemill.train.instances import MaskedInstances, PretrainingInstances
from clozemill.train.order import BatchOrder, micro_batches_of, turns_per_step

Indices: TypeAlias = list[int] | ClozemillError
"""Virtual indices of a micro-batch, or why there are none.

Errors travel as values, from here and from workers: raised inside a loader's iterator they would
arrive wrapped in a traceback, and leave its workers to the garbage collector, which takes away
their locks first.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSettings:
    """How a rank takes its share, and who reads it. None of it changes what a step holds."""

    micro_batch_size: int
    """Instances of one forward pass on one rank."""

    rank: int = 0
    """Number of this process, from 0."""

    world_size: int = 1
    """Number of processes that train together."""

    num_workers: int = 0
    """Processes that read and mask ahead; 0: this one does it between two passes."""

    prefetch_factor: int = 4
    """Micro-batches that each worker makes ahead."""

    pad_to_multiple_of: int = 1
    """Length of a micro-batch is a multiple of this."""

    is_pinned: bool = False
    """Whether tensors lie in page-locked memory, from which a GPU copies while it computes."""

    start_method: str = "forkserver"
    """How workers start: `forkserver`, `spawn`, or `fork`, which does not survive threads."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what cannot be."""
        least = {"micro_batch_size": 1, "world_size": 1, "num_workers": 0, "prefetch_factor": 1}
        for name, smallest in least.items():
            value = getattr(self, name)
            if value < smallest:
                raise ConfigError(f"{name} is {value}; it must be at least {smallest}.")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(
                f"rank is {self.rank}; with world_size {self.world_size} it must be at least 0 and "
                f"at most {self.world_size - 1}."
            )
        if self.start_method not in multiprocessing.get_all_start_methods():
            raise ConfigError(
                f"start_method is {self.start_method!r}; here it must be one of "
                f"{', '.join(multiprocessing.get_all_start_methods())}."
            )

    def turns(self, global_batch_size: int) -> int:
        """Return how many micro-batches make a step, on every rank."""
        return turns_per_step(
            global_batch_size,
            micro_batch_size=self.micro_batch_size,
            world_size=self.world_size,
        )


class MicroBatches:
    """Collated micro-batches; iterating starts at the first again."""

    def __init__(
        self,
        instances: PretrainingInstances,
        indices: "_StepSampler | _PlainSampler",
        settings: LoaderSettings,
    ) -> None:
        """Use `micro_batches` or `evaluation_batches`."""
        workers: dict[str, Any] = {}
        if settings.num_workers:
            context = multiprocessing.get_context(settings.start_method)
            if settings.start_method == "forkserver":
                context.set_forkserver_preload([__name__])
            workers = {
                "multiprocessing_context": context,
                "prefetch_factor": settings.prefetch_factor,
                "worker_init_fn": _start_worker,
            }
        self._collate = PretrainingCollator(
            instances.pad_id, pad_to_multiple_of=settings.pad_to_multiple_of
        )
        batch_sampler: Any = indices
        self._is_pinned = settings.is_pinned
        self._num_batches = len(indices)
        self._loader: DataLoader[Any] = DataLoader(
            _Reporting(instances),
            batch_sampler=batch_sampler,
            collate_fn=_unchanged,
            num_workers=settings.num_workers,
            # By default a loader draws from the global generator, and so would change dropout.
            generator=torch.Generator(),
            **workers,
        )

    def __len__(self) -> int:
        """Return how many there are."""
        return self._num_batches

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yield them.

        Raises:
            DatasetError: A shard is damaged; the text names it.
            RunError: A worker died.
        """
        error: ClozemillError | None = None
        try:
            for found in self._loader:
                if isinstance(found, ClozemillError):
                    error = found
                    break
                # Here and not in the workers: flat arrays of 16 bits cross a pipe in a fraction
                # of the time that five tensors take through shared memory.
                yield self._tensors(found)
        except RuntimeError as failure:
            if not str(failure).startswith("DataLoader worker"):
                raise
            error = _worker_died(str(failure).splitlines()[0])
        if error is not None:
            # Only here, where the loader's iterator is gone and its workers have ended.
            raise error

    def _tensors(self, found: MaskedInstances) -> dict[str, torch.Tensor]:
        batch = self._collate(found)
        if self._is_pinned:
            return {name: tensor.pin_memory() for name, tensor in batch.items()}
        return batch


def _worker_died(said: str) -> RunError:
    return RunError(
        f"a process that reads instances died: {said.rstrip('.')}; look for a lack of memory or a "
        "file that changed, or use loader_workers 0 to see where."
    )


def micro_batches(
    instances: PretrainingInstances, order: BatchOrder, settings: LoaderSettings, *, steps: range
) -> MicroBatches:
    """Return the micro-batches of one rank for some steps, `settings.turns(...)` for each step.

    All ranks get equally many; one without rows gets a micro-batch of none.

    Args:
        instances: What the order is of.
        order: Which instances a step holds.
        settings: Whose share, in what portions.
        steps: Such as `range(first, end)`; starting late costs nothing.
    """
    # Workers may be one block ahead of the consumer.
    instances.reader.reserve(2 * order.block_rows)
    return MicroBatches(instances, _StepSampler(order, settings, steps), settings)


def evaluation_batches(
    dataset: Dataset,
    settings: LoaderSettings,
    *,
    split: str = "validation",
    variant: int = 0,
    num_instances: int | None = None,
) -> MicroBatches:
    """Return one rank's share of a split in plain order, under one fixed masking.

    The same masks every time, whatever the training masks are. All ranks get equally many
    micro-batches; the last may be empty.

    Args:
        dataset: From `open_dataset`.
        settings: Whose share, in what portions.
        split: What to evaluate on.
        variant: Which masking.
        num_instances: The first so many; by default all.

    Raises:
        DatasetError: There is no such split.
    """
    instances = PretrainingInstances(
        dataset, split, masking="static", num_static_variants=1, mask_offset=variant
    )
    size = min(len(instances), num_instances or len(instances))
    return MicroBatches(instances, _PlainSampler(size, settings), settings)


class _StepSampler(Sampler[Indices]):
    """One rank's virtual indices, a list for each micro-batch."""

    def __init__(self, order: BatchOrder, settings: LoaderSettings, steps: range) -> None:
        self._order = order
        self._settings = settings
        self._steps = steps
        self._turns = settings.turns(order.global_batch_size)

    def __len__(self) -> int:
        return len(self._steps) * self._turns

    def __iter__(self) -> Iterator[Indices]:
        settings = self._settings
        for step in self._steps:
            try:
                global_batch = self._order.global_batch(step)
            except ClozemillError as error:
                yield error
                return
            parts = micro_batches_of(
                global_batch,
                micro_batch_size=settings.micro_batch_size,
                rank=settings.rank,
                world_size=settings.world_size,
            )
            yield from (part.tolist() for part in parts)
            yield from ([] for _ in range(self._turns - len(parts)))


class _PlainSampler(Sampler[Indices]):
    """Every `world_size`-th run of instances in plain order."""

    def __init__(self, num_instances: int, settings: LoaderSettings) -> None:
        self._num_instances = num_instances
        self._settings = settings

    def __len__(self) -> int:
        return self._settings.turns(self._num_instances)

    def __iter__(self) -> Iterator[Indices]:
        size, world_size = self._settings.micro_batch_size, self._settings.world_size
        for turn in range(len(self)):
            begin = (turn * world_size + self._settings.rank) * size
            yield list(range(begin, min(begin + size, self._num_instances)))


class _Reporting(TorchDataset[Any]):
    """Instances, or the error that reading them gave."""

    def __init__(self, instances: PretrainingInstances) -> None:
        self._instances = instances

    def __getitems__(self, indices: Indices) -> MaskedInstances | ClozemillError:
        if isinstance(indices, ClozemillError):
            return indices
        try:
            return self._instances.__getitems__(indices)
        except ClozemillError as error:
            return error


def _unchanged(found: Any) -> Any:
    return found


def _start_worker(number: int) -> None:
    """Leave the cores to the other workers, and leave with the process that started this one.

    Torch's own watch is on the process that forked it, which with a fork server is another.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    start_worker()
