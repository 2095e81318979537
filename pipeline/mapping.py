"""The first stage: one task reads input splits and writes tokenized documents, sorted by id.

A task writes *parts* (see `parts`). Each holds about `PART_CHARACTERS` of text, which bounds memory
whatever the input's size. A receipt, written last, lists the parts; a rerun trusts it.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.documents import Document
from clozemill.pipeline.encode import Encoded, Encoder, make_encoder
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.files import write_json
from clozemill.pipeline.input_splits import InputSplit
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.json_records import from_json, parse_object
from clozemill.pipeline.known_tokenizer import load_known_tokenizer
from clozemill.pipeline.parts import DocumentFacts, PartColumns, write_part
from clozemill.pipeline.read import ReadOptions, ReadTally, read_documents
from clozemill.pipeline.sentences import byte_starts, sentence_lengths

PART_CHARACTERS = 16 << 20
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
    """How records become documents."""

    sentence_rule: str
    """How texts become sentences: see `sentences`."""

    limit_documents: int | None
    """Documents to read at most; None: all."""

    tokenizer_dir: str
    """Folder of the dataset's tokenizer."""

    tokenizer_hash: str
    """Tells the process whether the tokenizer it has loaded is still the one in the folder."""

    map_dir: str
    """Folder of parts and receipts."""

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
    """Names of its parts in the folder."""

    sizes: tuple[int, ...]
    """Bytes of each part, by which a rerun knows it is whole."""

    tally: dict[str, Any]
    """What became of records: see `ReadTally.to_json`."""

    num_tokens: int
    """Tokens of all its documents."""

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
        table = parse_object(path.read_bytes(), str(path), error=DatasetError)
        receipt = from_json(MapReceipt, table, str(path), error=DatasetError)
        sizes = [(path.parent / part).stat().st_size for part in receipt.parts]
    except (OSError, DatasetError):
        return None
    return receipt if sizes == list(receipt.sizes) else None


def _map(task: MapTask) -> MapReceipt:
    tally = ReadTally()
    encoder = _encoder(task.tokenizer_dir, task.tokenizer_hash)
    num_special_before = encoder.num_special_in_text
    num_tokens = 0
    sizes = {}
    for number, documents in enumerate(_chunks(_task_documents(task, tally))):
        name = f"{task.name}-{number:05d}.arrow"
        columns = _tokenize(documents, task, encoder)
        num_tokens += len(columns.token_ids)
        sizes[name] = write_part(Path(task.map_dir) / name, columns)
        del columns  # before the next documents are read
    return MapReceipt(
        splits=task.splits,
        parts=tuple(sizes),
        sizes=tuple(sizes.values()),
        tally=tally.to_json(),
        num_tokens=num_tokens,
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
        if num_characters >= PART_CHARACTERS or len(chunk) >= PART_DOCUMENTS:
            yield chunk
            chunk, num_characters = [], 0
    if chunk:
        yield chunk


def _tokenize(documents: list[Document], task: MapTask, encoder: Encoder) -> PartColumns:
    """Return tokenized documents in id order, and empty the list on the way.

    A text is let go once its sentences are found, and sentences once they are encoded: both
    together are most of what a task holds.
    """
    ordered = sorted(documents, key=lambda document: document.id)
    facts = DocumentFacts(
        document_ids=[document.id for document in ordered],
        sources=[document.source for document in ordered],
        external_ids=[document.external_id for document in ordered],
        origin_paths=[document.origin_path for document in ordered],
        origin_offsets=[document.origin_offset for document in ordered],
        num_characters=[len(document.text) for document in ordered],
    )
    documents.clear()
    encoded, ends = _encode(ordered, task.sentence_rule, encoder)
    lengths = np.diff(encoded.starts)
    is_kept = lengths > 0
    return PartColumns(
        facts=facts,
        is_validation=task.is_validation,
        token_ids=encoded.token_ids,
        token_starts=encoded.starts[ends],
        sentence_lengths=lengths[is_kept].astype(np.uint32),
        sentence_starts=starts_of(is_kept)[ends],
        is_unknown=encoded.token_ids == encoder.tokenizer.unk_id,
    )


def _encode(
    documents: list[Document], sentence_rule: str, encoder: Encoder
) -> tuple[Encoded, NDArray[np.int64]]:
    """Return all sentences as ids, and where documents end among them; empties the list."""
    texts: list[bytes] = []
    lengths: list[int] = []
    counts: list[int] = []
    documents.reverse()
    while documents:
        text = documents.pop().text
        found = sentence_lengths(text, sentence_rule)
        texts.append(text.encode())
        lengths += found
        counts.append(len(found))
    data = np.frombuffer(b"".join(texts), np.uint8)
    return encoder.encode_utf8(data, byte_starts(data, lengths)), starts_of(counts)
