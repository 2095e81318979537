"""Datasets with a fault in their pairs or documents, made from sound ones.

All but what a fault touches stays as it was: the manifest lists the new files, with their sizes.
"""

import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.pipeline.small_datasets import vouch

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.dataset_names import MANIFEST_NAME
from clozemill.pipeline.shards import SUFFIX_OF_FORMAT, Shard, write_documents, write_shard

Rows = dict[str, pa.Table]
"""All instances, by split."""

_BATCH_ROWS = 64
_BATCHES_PER_SHARD = 4


def spoil(
    dataset: Dataset,
    out: Path,
    *,
    rows: Callable[[Rows], Rows] = lambda rows: rows,
    documents: Callable[[pa.Table], pa.Table] = lambda documents: documents,
    **configuration: Any,
) -> Dataset:
    """Write the dataset once more, with other rows, documents or stated settings."""
    shutil.copytree(dataset.folder, out, ignore=lambda _, names: _files_of_rows(names))
    tables = rows(
        {split: pa.Table.from_batches(dataset.batches(split)) for split in dataset.splits}
    )
    manifest = dataset.manifest
    shards: list[Shard] = []
    for split, table in tables.items():
        shards += _write_shards(out, split, table, manifest.configuration["format"], len(shards))
    chosen = documents(pa.Table.from_batches(dataset.documents()))
    file = write_documents(out / "documents-all-00000.arrow", chosen.to_batches())
    stated = {**manifest.configuration, **configuration}
    return vouch(out, manifest, shards, configuration=stated, documents=(file,))


def _files_of_rows(names: list[str]) -> Collection[str]:
    return [name for name in names if name == MANIFEST_NAME or name.endswith((".arrow", ".tar"))]


def _write_shards(
    out: Path, split: str, table: pa.Table, format: str, first_shard: int
) -> list[Shard]:
    size = _BATCH_ROWS * _BATCHES_PER_SHARD
    return [
        write_shard(
            out / f"{split}-00000-{number:03d}{SUFFIX_OF_FORMAT[format]}",
            [
                table.slice(begin + first, min(_BATCH_ROWS, size)).combine_chunks().to_batches()[0]
                for first in range(0, min(size, table.num_rows - begin), _BATCH_ROWS)
            ],
            schema=table.schema,
            split=split,
            first_key=(first_shard + number) * _BATCHES_PER_SHARD,
        )
        for number, begin in enumerate(range(0, table.num_rows, size))
    ]


def of_train(edit: Callable[[pa.Table], pa.Table]) -> Callable[[Rows], Rows]:
    """Return an edit of the training rows alone."""
    return lambda rows: {**rows, "train": edit(rows["train"])}


def with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    """Return the table with other values in a column of the same type."""
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(name), pa.array(values, table[name].type))


def shift_labels(table: pa.Table) -> pa.Table:
    """Give every row the label of the row before it."""
    label = table["next_sentence_label"].to_pylist()
    return with_column(table, "next_sentence_label", label[-1:] + label[:-1])


def draw_random_from_a(table: pa.Table) -> pa.Table:
    """Let the B of every random pair be the first sentence of A's document."""
    spans = table["spans"].to_pylist()
    for (a, b), label in zip(spans, table["next_sentence_label"].to_pylist(), strict=True):
        if label == 1:
            b |= {"document_id": a["document_id"], "first_sentence": 0, "num_sentences": 1}
    return with_column(table, "spans", spans)


def drop_tenth_of_documents(table: pa.Table) -> pa.Table:
    """Leave out the rows that begin with a document whose id ends with a byte below 26."""
    first = [spans[0]["document_id"] for spans in table["spans"].to_pylist()]
    return table.filter(pa.array([document_id[15] >= 26 for document_id in first]))


def drop_tenth_of_document_rows(documents: pa.Table) -> pa.Table:
    """Leave the same documents out of the documents files."""
    ids = documents["document_id"].to_pylist()
    return documents.filter(pa.array([document_id[15] >= 26 for document_id in ids]))


def list_a_document_twice(documents: pa.Table) -> pa.Table:
    """Give the last document a second row."""
    return pa.concat_tables([documents, documents.slice(documents.num_rows - 1)])


def halve_expected_next(documents: pa.Table) -> pa.Table:
    """Let every document expect half as many next pairs."""
    halves = [number and number / 2 for number in documents["expected_next"].to_pylist()]
    return with_column(documents, "expected_next", halves)


def _of_one_validation_document(rows: Rows) -> pa.Array:
    first = [spans[0]["document_id"] for spans in rows["validation"]["spans"].to_pylist()]
    return pa.array([document_id == first[0] for document_id in first])


def move_validation_document(rows: Rows) -> Rows:
    """Put the rows of one validation document into train, and out of validation."""
    chosen = _of_one_validation_document(rows)
    return {
        "train": pa.concat_tables([rows["train"], rows["validation"].filter(chosen)]),
        "validation": rows["validation"].filter(pc.invert(chosen)),
    }


def copy_validation_document(rows: Rows) -> Rows:
    """Put the rows of one validation document into train too."""
    return {**rows, "train": move_validation_document(rows)["train"]}


def repeat_first_shard(table: pa.Table) -> pa.Table:
    """Let every shard hold the rows of the first one."""
    size = _BATCH_ROWS * _BATCHES_PER_SHARD
    return table.take(pa.array(np.arange(table.num_rows) % size))


def lose_separators(table: pa.Table) -> pa.Table:
    """Write the second token of every tenth row where its last [SEP] was."""
    ids = table["input_ids"].to_pylist()
    for row in ids[::10]:
        row[-1] = row[1]
    return with_column(table, "input_ids", ids)


def empty_first_segments(table: pa.Table) -> pa.Table:
    """Let B begin where A does in every tenth row."""
    border = table["segment_b_start"].to_pylist()
    border[::10] = [2] * len(border[::10])
    return with_column(table, "segment_b_start", border)


def lose_variants(table: pa.Table) -> pa.Table:
    """Leave out the last variant."""
    masks = [overlays[:-1] for overlays in table["masks"].to_pylist()]
    return with_column(table, "masks", masks)


def lose_tokens(table: pa.Table) -> pa.Table:
    """Let the first row have no token at all, and the second only its [CLS]."""
    ids = table["input_ids"].to_pylist()
    ids[:2] = [], ids[1][:1]
    return with_column(table, "input_ids", ids)


def empty_borders(table: pa.Table) -> pa.Table:
    """Let B begin at the first token of every tenth row."""
    border = table["segment_b_start"].to_pylist()
    border[::10] = [0] * len(border[::10])
    return with_column(table, "segment_b_start", border)


def label_packed_rows(table: pa.Table) -> pa.Table:
    """Label rows that are no pairs."""
    return with_column(table, "next_sentence_label", [0] * table.num_rows)
