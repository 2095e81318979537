"""The instances of a WebDataset read in sequence, from wherever its tars are.

    plan = StreamPlan(batch_size=32, location="pipe:curl -sf https://host/wiki/{path}")
    stream = InstanceStream("data/wiki", plan, masking="dynamic")   # its manifest and tokenizer
    collate = PretrainingCollator(stream.pad_id)
    for batch in DataLoader(stream, batch_size=None, collate_fn=collate, num_workers=2):
        ...

Each rank and loader worker is a *consumer* and takes a range of instances, whatever the shards:
with N instances and C consumers, consumer c gets floor(N c / C) to before floor(N (c + 1) / C) of
the instances as rotated by a random offset of the epoch. It reads the record batches of its range
one after the other; the instances of each come shuffled. All of that follows from the seed, the
epoch and C, and every epoch holds each instance exactly once.

For the order of `BatchOrder`, for length grouping, and to resume in the middle of an epoch, use
`PretrainingInstances`, which reads tars on a local disk in place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, get_worker_info

from clozemill.pipeline import draws
from clozemill.pipeline.dataset import allowed_schemas
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.manifest import Manifest, read_manifest
from clozemill.pipeline.shards import Shard
from clozemill.train.gather import OpenBatches, checked_columns, layout_of
from clozemill.train.instances import MaskedInstances, joined_instances
from clozemill.train.order import check_seed, drawn_below, permutation
from clozemill.train.tar_source import read_tar
from clozemill.train.variants import VariantSchedule, VariantSource


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """What is streamed, from where, and by whom."""

    batch_size: int
    """Most instances of a micro-batch."""

    epochs: range = range(1)
    """Epochs to go through, one after the other; their numbers decide masks and order."""

    location: str | None = None
    """Where a shard is, with `{path}` for its file name: a path, a URL that fsspec knows, or
    `pipe:` and a shell command that writes it. By default in the dataset's folder."""

    rank: int = 0
    """Number of this process, from 0."""

    world_size: int = 1
    """Number of processes that train together."""

    seed: int = 0
    """Another seed is another order."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what cannot be."""
        check_seed(self.seed)
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}; it must be at least 1.")
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(
                f"rank is {self.rank}; with world_size {self.world_size} it must be at least 0 and "
                f"at most {self.world_size - 1}."
            )
        if self.location is not None and "{path}" not in self.location:
            raise ConfigError(
                f"location is {self.location!r}; put {{path}} where the shard's name belongs."
            )


class InstanceStream(IterableDataset[MaskedInstances]):
    """Micro-batches of masked instances; all consumers yield equally many in an epoch.

    Hand it to a `DataLoader` with `batch_size=None`. Where a consumer has fewer instances than
    another, its last micro-batch of the epoch is shorter, or empty.
    """

    def __init__(
        self,
        folder: str | Path,
        plan: StreamPlan,
        *,
        split: str = "train",
        masking: str,
        num_static_variants: int | None = None,
    ) -> None:
        """Read the manifest; opens no shard yet.

        Args:
            folder: Holds `manifest.json` and `tokenizer/`; the shards may be elsewhere.
            plan: What is streamed, from where, and by whom.
            split: `train` or `validation`.
            masking: See `PretrainingInstances`.
            num_static_variants: By default as many as are stored.

        Raises:
            ConfigError: A setting is out of range, or the shards are not WebDataset tars.
            DatasetError: There is no such dataset or split, or its tokenizer or random generator
                is not that of the build.
        """
        folder = Path(folder)
        self._manifest = manifest = read_manifest(folder)
        _check(folder, manifest, split)
        self._plan = plan
        self._location = plan.location or str(folder / "{path}")
        self._layout = layout_of(manifest, split)
        self._shards = manifest.shards_of(split)
        schedule = VariantSchedule.of(
            self._layout.num_variants, masking=masking, num_static_variants=num_static_variants
        )
        self._source = VariantSource(folder, manifest, split, schedule)
        self.pad_id = manifest.tokenizer.special_ids["pad"]
        """Token id that fills rows up."""
        self.num_instances = manifest.splits[split].num_instances
        """N."""

    def num_batches(self, num_workers: int = 0) -> int:
        """Return the micro-batches of an epoch on each rank, with so many loader workers."""
        workers = max(1, num_workers)
        return workers * self._batches_each(self._plan.world_size * workers)

    def _batches_each(self, num_consumers: int) -> int:
        most = -(-self.num_instances // num_consumers)
        return -(-most // self._plan.batch_size)

    def __iter__(self) -> Iterator[MaskedInstances]:
        """Yield this consumer's micro-batches of all epochs.

        Raises:
            DatasetError: A shard cannot be read or is damaged; the text names it.
        """
        plan, worker = self._plan, get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        consumer, of = plan.rank * workers + number, plan.world_size * workers
        for epoch in plan.epochs:
            num_yielded = 0
            for batch in _rebatched(self._parts(epoch, consumer, of), plan.batch_size):
                yield batch
                num_yielded += 1
            for _ in range(num_yielded, self._batches_each(of)):
                nothing = np.empty(0, np.int64)
                yield self._masked(OpenBatches(self._layout, 1), nothing, nothing, epoch)

    def _parts(self, epoch: int, consumer: int, of: int) -> Iterator[MaskedInstances]:
        """Yield a consumer's instances of an epoch, one record batch or part of it at a time."""
        seed, total = np.uint64(self._plan.seed), self.num_instances
        offset = drawn_below(seed, epoch, 0, draws.STREAM_OFFSET, total)
        begin, end = (offset + total * c // of for c in (consumer, consumer + 1))
        for run in _runs(self._shards, begin, end):
            location = self._location.replace("{path}", run.shard.path)
            batches = read_tar(run.shard, location, first=run.first_batch, last=run.last_batch)
            for index, batch in enumerate(batches, run.first_batch):
                opened = self._opened(batch, location, index)
                first = index * run.shard.batch_rows
                low = max(run.begin, first)
                num_rows = min(run.end, first + batch.num_rows) - low
                number = run.first_instance + low
                order = permutation(seed, epoch, number, draws.STREAM_ROWS, num_rows)
                yield self._masked(opened, order + low - first, order + number, epoch)

    def _opened(self, batch: pa.RecordBatch, location: str, index: int) -> OpenBatches:
        """Return a record batch with its rows checked."""
        where = f"record batch {index} of {location}"
        if not any(batch.schema.equals(schema) for schema in allowed_schemas(self._manifest)):
            raise DatasetError(
                f"{where} does not have the columns that docs/format.md describes; copy it again "
                "or rebuild the dataset."
            )
        columns = checked_columns(batch, self._layout, where)
        opened = OpenBatches(self._layout, 1)
        opened.put(0, columns)
        return opened

    def _masked(
        self,
        opened: OpenBatches,
        rows: NDArray[np.int64],
        numbers: NDArray[np.int64],
        epoch: int,
    ) -> MaskedInstances:
        places = np.stack([np.zeros_like(rows), rows], axis=1)
        found = opened.read(places)
        return MaskedInstances(
            indices=numbers + epoch * self.num_instances,
            instance_ids=found.instance_ids,
            tokens=found.tokens,
            masks=self._source.overlays(
                found,
                np.full(len(rows), epoch),
                lambda some, variants: opened.overlays(places[some], variants),
            ),
            next_sentence_label=found.next_sentence_label if self._layout.has_pairs else None,
        )


def _check(folder: Path, manifest: Manifest, split: str) -> None:
    if split not in manifest.splits:
        names = " and ".join(sorted(manifest.splits))
        raise DatasetError(f"{folder} has no split {split!r}; it has {names}.")
    if not all(shard.is_tar for shard in manifest.shards_of(split)):
        raise ConfigError(
            f"{folder} holds Arrow files, which cannot be read in sequence; use "
            "PretrainingInstances, or write tars with clozemill convert --format webdataset."
        )


class _Run(NamedTuple):
    """Consecutive instances of one shard."""

    shard: Shard
    first_instance: int
    """Number of the shard's first instance in the split."""

    begin: int
    """First row of the shard that belongs to the run."""

    end: int
    """The row after its last."""

    @property
    def first_batch(self) -> int:
        return self.begin // self.shard.batch_rows

    @property
    def last_batch(self) -> int:
        return (self.end - 1) // self.shard.batch_rows


def _runs(shards: tuple[Shard, ...], begin: int, end: int) -> Iterator[_Run]:
    """Yield where the instances from `begin` to before `end` are; after the last comes the first.

    Consecutive, each once: `end - begin` is at most the number of instances.
    """
    firsts = starts_of([shard.num_instances for shard in shards]).tolist()
    total = firsts[-1]
    for turn in (0, total):
        for shard, first in zip(shards, firsts, strict=False):
            low = max(begin - turn - first, 0)
            high = min(end - turn - first, shard.num_instances)
            if low < high:
                yield _Run(shard, first, low, high)


def _rebatched(parts: Iterator[MaskedInstances], size: int) -> Iterator[MaskedInstances]:
    """Yield the same instances in batches of `size`; the last may be smaller."""
    waiting: list[MaskedInstances] = []
    num_waiting = 0
    for part in parts:
        begin = 0
        while begin < len(part):
            piece = part.slice(begin, begin + size - num_waiting)
            begin += len(piece)
            num_waiting += len(piece)
            waiting.append(piece)
            if num_waiting == size:
                yield joined_instances(waiting)
                waiting, num_waiting = [], 0
    if waiting:
        yield joined_instances(waiting)
