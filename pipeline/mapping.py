"""The first stage: one task reads input splits and writes tokenized documents, sorted by id.

A task writes *parts*: Arrow IPC files of one record batch whose documents stand in id order, so
that the documents of any range of ids are a slice, found by binary search and read without a
copy. A part holds about `PART_BYTES` of text, which bounds memory whatever the input's size. A
receipt, written last, lists the parts; a rerun trusts it.
"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.pipeline.documents import Document, document_id
from clozemill.pipeline.encode import Encoded, Encoder, make_encoder
from clozemill.pipeline.files import atomic_file, write_json
from clozemill.pipeline.inputs import InputSplit
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.read import ReadOptions, ReadTally, read_documents
from clozemill.pipeline.sentences import find_sentences
from clozemill.pipeline.tokenizer import load_known_tokenizer

PART_BYTES = 16 << 20
"""Text held by a task before it writes a part; also bounds the sentences in memory."""

PART_DOCUMENTS = 200_000
"""The same bound for very short documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapTask:
    """Some input splits to read, and where to put their documents."""

    name: str
    """Unique among the tasks, and the same in every run over the same inputs."""

    splits: tuple[InputSplit, ...]
    is_validation: bool
    """Whether these inputs were given as the validation split."""

    options: ReadOptions
    sentence_rule: str
    limit_documents: int | None
    tokenizer_dir: str
    tokenizer_hash: str
    """Tells the process whether the tokenizer it has loaded is still the one in the folder."""

    map_dir: str

    @property
    def num_units(self) -> int:
        """Bytes of input, as stored."""
        return sum(split.num_bytes for split in self.splits)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapReceipt:
    """What a finished task left behind."""

    splits: tuple[InputSplit, ...]
    """What was read: tasks of one name differ where inputs were reordered or cut otherwise."""

    parts: tuple[str, ...]
    sizes: tuple[int, ...]
    """Bytes of each part, by which a rerun knows it is whole."""

    tally: dict[str, Any]
    num_special_in_text: int
    """Special tokens that running text would have made; each became unk."""


def run_map_task(task: MapTask) -> MapReceipt:
    """Return the receipt of a task, doing the task first unless it was done before."""
    path = Path(task.map_dir) / f"{task.name}.json"
    receipt = _trusted_receipt(path)
    if receipt is None or receipt.splits != task.splits:
        receipt = _map(task)
        write_json(path, dataclasses.asdict(receipt))
    return receipt


def _trusted_receipt(path: Path) -> MapReceipt | None:
    """Return the receipt if it is there and its parts are as long as it says."""
    try:
        record = json.loads(path.read_text())
        sizes = [(path.parent / part).stat().st_size for part in record["parts"]]
    except (OSError, ValueError):
        return None
    if sizes != record["sizes"]:
        return None
    return MapReceipt(
        splits=tuple(InputSplit(**split) for split in record["splits"]),
        parts=tuple(record["parts"]),
        sizes=tuple(sizes),
        tally=record["tally"],
        num_special_in_text=record["num_special_in_text"],
    )


def _map(task: MapTask) -> MapReceipt:
    tally = ReadTally()
    encoder = _encoder(task.tokenizer_dir, task.tokenizer_hash)
    num_special_before = encoder.num_special_in_text
    parts = tuple(
        _write_part(documents, task, encoder, f"{task.name}-{number:05d}.arrow")
        for number, documents in enumerate(_chunks(_task_documents(task, tally)))
    )
    return MapReceipt(
        splits=task.splits,
        parts=parts,
        sizes=tuple((Path(task.map_dir) / part).stat().st_size for part in parts),
        tally=tally.to_json(),
        num_special_in_text=encoder.num_special_in_text - num_special_before,
    )


@lru_cache(maxsize=1)
def _encoder(folder: str, tokenizer_hash: str) -> Encoder:
    """Return an encoder that goes from task to task, since it knows more words after each."""
    return make_encoder(load_known_tokenizer(folder, tokenizer_hash))


def _task_documents(task: MapTask, tally: ReadTally) -> Iterator[Document]:
    documents = (
        document for split in task.splits for document in read_documents(split, task.options, tally)
    )
    return islice(documents, task.limit_documents)


def _chunks(documents: Iterator[Document]) -> Iterator[list[Document]]:
    chunk: list[Document] = []
    num_characters = 0
    for document in documents:
        chunk.append(document)
        num_characters += len(document.text)
        if num_characters >= PART_BYTES or len(chunk) >= PART_DOCUMENTS:
            yield chunk
            chunk, num_characters = [], 0
    if chunk:
        yield chunk


def _write_part(documents: list[Document], task: MapTask, encoder: Encoder, name: str) -> str:
    batch = _part_batch(documents, task, encoder)
    with (
        atomic_file(Path(task.map_dir) / name) as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)
    return name


def _part_batch(documents: list[Document], task: MapTask, encoder: Encoder) -> pa.RecordBatch:
    """Return tokenized documents in id order; equal ids stay together, in any order."""
    ids = [document_id(document.text) for document in documents]
    order = sorted(range(len(ids)), key=ids.__getitem__)
    documents = [documents[i] for i in order]
    sentences: list[str] = []
    ends = np.zeros(len(documents) + 1, np.int64)
    for i, document in enumerate(documents):
        sentences += find_sentences(document.text, task.sentence_rule)
        ends[i + 1] = len(sentences)
    encoded = encoder.encode(sentences)
    lengths, kept_ends = _kept_sentences(encoded, ends)
    token_ends = encoded.starts[ends]
    return pa.record_batch(
        {
            "document_id": pa.array([ids[i] for i in order], pa.binary(16)),
            "is_validation": pa.array([task.is_validation] * len(documents), pa.bool_()),
            "source": pa.array([d.source for d in documents], pa.string()),
            "external_id": pa.array([d.external_id for d in documents], pa.string()),
            "origin_path": pa.array([d.origin_path for d in documents], pa.string()),
            "origin_offset": pa.array([d.origin_offset for d in documents], pa.int64()),
            "num_characters": pa.array([len(d.text) for d in documents], pa.int64()),
            "num_unknown": _count_per_document(
                encoded.token_ids == encoder.tokenizer.unk_id, token_ends
            ),
            "longest_sentence": _longest(lengths, kept_ends),
            "tokens": _lists(encoded.token_ids, token_ends),
            "sentence_lengths": _lists(lengths, kept_ends),
        }
    )


def _kept_sentences(
    encoded: Encoded, ends: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the lengths of sentences that have tokens, and where documents end among them."""
    lengths = np.diff(encoded.starts)
    is_kept = lengths > 0
    num_kept_before = starts_of(is_kept)
    return lengths[is_kept].astype(np.uint32), num_kept_before[ends]


def _longest(lengths: NDArray[np.uint32], ends: NDArray[np.int64]) -> pa.Array:
    """Return the tokens of each document's longest sentence; 0 where it has none."""
    longest = np.maximum.reduceat(np.append(lengths, 0), ends[:-1])
    return pa.array(np.where(np.diff(ends) > 0, longest, 0), pa.int64())


def _count_per_document(flags: NDArray[np.bool_], ends: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.diff(np.searchsorted(np.flatnonzero(flags), ends)), pa.int64())


def _lists(values: NDArray[Any], ends: NDArray[np.int64]) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), pa.array(values))
