"""What tests of reading say about rows: as plain Python values, wherever they come from."""

import dataclasses
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.manifest import write_manifest
from clozemill.pipeline.shards import SUFFIX_OF_FORMAT, write_shard
from clozemill.train.instances import MaskedInstances, PretrainingInstances
from clozemill.train.loader import LoaderSettings, micro_batches
from clozemill.train.order import BatchOrder

LAYOUTS = [
    ("arrow", "none"),
    ("arrow", "zstd"),
    ("webdataset", "none"),
    ("webdataset", "lz4"),
]
"""Format and compression: what may not matter to what is read."""

BuiltDataset = Callable[..., Dataset]
"""The fixture `built`: format, compression and settings become a dataset."""

Batch = dict[str, torch.Tensor]


@dataclasses.dataclass(frozen=True, slots=True)
class ReadRow:
    """What a model gets of one instance, without padding."""

    input_ids: tuple[int, ...]
    token_type_ids: tuple[int, ...]
    labels: tuple[int, ...]
    next_sentence_label: int | None


def rows_of(batch: Batch) -> list[ReadRow]:
    """Return the rows of a collated micro-batch."""
    lengths = batch["attention_mask"].sum(dim=1).tolist()
    next_labels = batch.get("next_sentence_label")
    return [
        ReadRow(
            *(tuple(batch[key][row, :length].tolist()) for key in READ_KEYS),
            None if next_labels is None else int(next_labels[row]),
        )
        for row, length in enumerate(lengths)
    ]


READ_KEYS = ("input_ids", "token_type_ids", "labels")


def rows_expected(found: MaskedInstances) -> list[ReadRow]:
    """Return the same rows, put together here from the flat arrays."""
    rows = []
    for row in range(len(found)):
        ids = found.tokens.input_ids[slice(*found.tokens.starts[row : row + 2])].tolist()
        labels = [-100] * len(ids)
        selected = slice(*found.masks.starts[row : row + 2])
        for position, shown in zip(
            found.masks.positions[selected].tolist(),
            found.masks.token_ids[selected].tolist(),
            strict=True,
        ):
            labels[position], ids[position] = ids[position], shown
        border = int(found.tokens.segment_b_start[row])
        kinds = [int(place >= border) for place in range(len(ids))]
        next_labels = found.next_sentence_label
        label = None if next_labels is None else int(next_labels[row])
        rows.append(ReadRow(tuple(ids), tuple(kinds), tuple(labels), label))
    return rows


def rows_trained_on(
    instances: PretrainingInstances,
    order: BatchOrder,
    steps: range,
    *,
    micro_batch_size: int = 4,
    world_size: int = 1,
    num_workers: int = 0,
) -> list[list[ReadRow]]:
    """Return the rows of each step as all ranks together see them, in the order of the batch."""
    by_rank: list[list[Batch]] = []
    for rank in range(world_size):
        settings = LoaderSettings(
            micro_batch_size=micro_batch_size,
            rank=rank,
            world_size=world_size,
            num_workers=num_workers,
        )
        by_rank.append(list(micro_batches(instances, order, settings, steps=steps)))
    turns = settings.turns(order.global_batch_size)
    assert [len(batches) for batches in by_rank] == [len(steps) * turns] * world_size
    return [
        [
            row
            for turn in range(step * turns, (step + 1) * turns)
            for batches in by_rank
            for row in rows_of(batches[turn])
        ]
        for step in range(len(steps))
    ]


def with_shards(dataset: Dataset, folder: Path, sizes: Iterable[int]) -> Dataset:
    """Write the first training instances of a dataset as shards of these sizes."""
    manifest = dataset.manifest
    rows = pa.Table.from_batches(list(dataset.batches("train"))).combine_chunks()
    format: Any = manifest.configuration["format"]
    folder.mkdir()
    shutil.copytree(dataset.tokenizer_dir, folder / "tokenizer")
    shards, done = [], 0
    for number, size in enumerate(sizes):
        shards.append(
            write_shard(
                folder / f"train-{number:06d}{SUFFIX_OF_FORMAT[format]}",
                rows.slice(done, size).to_batches(),
                schema=dataset.schema,
                split="train",
                first_key=number,
            )
        )
        done += size
    entry = dataclasses.replace(
        manifest.splits["train"],
        num_instances=done,
        num_tokens=sum(shard.num_tokens for shard in shards),
    )
    changes: dict[str, Any] = {"splits": {"train": entry}, "shards": tuple(shards), "documents": ()}
    write_manifest(folder, dataclasses.replace(manifest, **changes))
    return open_dataset(folder)
