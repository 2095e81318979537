"""The second stage: one task turns a bucket of documents into shards.

Instances exist as spans until they are written; tokens are gathered and masks drawn for one
record batch at a time. So memory follows the bucket, not the number of variants; nor that of passes
and kept copies, since the plan counts a bucket's tokens as often as they are drawn.
"""

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clozemill.pipeline.assemble import assemble
from clozemill.pipeline.bucket import DOCUMENT_FATES, BucketDocuments, load_bucket
from clozemill.pipeline.bucket_files import BucketFiles, write_bucket
from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset_names import bucket_name, documents_name
from clozemill.pipeline.digest import Digest, RowSum
from clozemill.pipeline.files import write_json
from clozemill.pipeline.instance_ids import instance_ids
from clozemill.pipeline.instances import Corpus, Instances, Spans, starts_of, take_runs
from clozemill.pipeline.known_tokenizer import load_known_tokenizer
from clozemill.pipeline.labels import expected_labels
from clozemill.pipeline.ledger import Ledger, bucket_ledger, from_json, to_json
from clozemill.pipeline.masks import draw_variants, mask_counts
from clozemill.pipeline.origins import write_origins
from clozemill.pipeline.parts import Parts
from clozemill.pipeline.plan import Bucket
from clozemill.pipeline.recipes import Drawn, draw_instances, mask_rule
from clozemill.pipeline.schema import (
    document_schema,
    instance_batch,
    instance_schema,
    rows_per_batch,
)
from clozemill.pipeline.shards import DocumentsFile, Shard, write_documents
from clozemill.pipeline.splits import SplitRule

_DOCUMENTS_PER_BATCH = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceTask:
    """One bucket, and all that its shards depend on."""

    bucket: Bucket
    """Which documents."""

    key: int
    """The bucket's place among the buckets of both splits."""

    run: str
    """Different for every run of a build: tells the process whether its open parts are these."""

    parts: tuple[str, ...]
    """Names of all parts of the first stage."""

    sources: tuple[str, ...]
    """All sources, sorted: the one dictionary of every shard."""

    most_span_value: int
    """No number of a span is larger in any bucket: it decides how wide they are stored."""

    split_rule: SplitRule
    """Which documents of the cells are of the bucket's split."""

    config: BuildConfig
    """The settings."""

    instance_fingerprint: str
    """32 hex digits that enter every instance's id."""

    map_dir: str
    """Folder of the parts."""

    reduce_dir: str
    """Folder of the receipts."""

    tokenizer_dir: str
    """Folder of the dataset's tokenizer."""

    tokenizer_hash: str
    """Tells the process whether the tokenizer it has loaded is still the one in the folder."""

    @property
    def name(self) -> str:
        """The start of the names of the files it writes."""
        return bucket_name(self.bucket.split, self.bucket.number)

    @property
    def num_units(self) -> int:
        """Tokens of the bucket's documents, as often as they are drawn."""
        return self.bucket.num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ReduceReceipt:
    """What a finished task left behind."""

    bucket: Bucket
    """Which documents: another plan has other buckets of the same name."""

    shards: tuple[Shard, ...]
    """Its shards, in order; none if its documents made no instance."""

    documents: DocumentsFile
    """The rows of its documents."""

    digest: Digest
    """Of all its instances."""

    ledger: Ledger
    """What became of its documents and their tokens."""

    expected: dict[str, list[float]]
    """By source: the exact expectation of random and of next instances; empty without pairs."""

    origins: str
    """The file in the reduce folder that says where the documents were found."""

    @property
    def split(self) -> str:
        """`train` or `validation`."""
        return self.bucket.split


def run_reduce_task(task: ReduceTask) -> ReduceReceipt:
    """Return the receipt of a task, doing the task first unless it was done before."""
    path = Path(task.reduce_dir) / f"{task.name}.json"
    receipt = _trusted_receipt(path, task)
    if receipt is None:
        receipt = _reduce(task)
        write_json(path, {**dataclasses.asdict(receipt), "ledger": to_json(receipt.ledger)})
    return receipt


def _trusted_receipt(path: Path, task: ReduceTask) -> ReduceReceipt | None:
    """Return the receipt if it is of this bucket and its files are as long as it says."""
    try:
        record = json.loads(path.read_text())
        if record["bucket"] != dataclasses.asdict(task.bucket):
            return None
        for entry in (*record["shards"], record["documents"]):
            if (Path(task.config.out) / entry["path"]).stat().st_size != entry["num_bytes"]:
                return None
    except (OSError, ValueError, LookupError):
        return None
    return ReduceReceipt(
        bucket=task.bucket,
        shards=tuple(_shard_from_json(entry) for entry in record["shards"]),
        documents=DocumentsFile(**record["documents"]),
        digest=Digest(**{name: RowSum(**value) for name, value in record["digest"].items()}),
        ledger=from_json(record["ledger"]),
        expected=record["expected"],
        origins=record["origins"],
    )


def _shard_from_json(entry: dict[str, Any]) -> Shard:
    return Shard(**{**entry, "members": tuple(map(tuple, entry["members"]))})


def _reduce(task: ReduceTask) -> ReduceReceipt:
    parts = _parts(task.run, task.map_dir, task.parts)
    documents = load_bucket(task.bucket, parts, task.split_rule, task.config)
    corpus = documents.corpus(parts)
    drawn = draw_instances(corpus, task.config)
    writer = _BucketWriter(task, documents, corpus, drawn.instances)
    shards = tuple(writer.write_shards())
    origins = f"{task.name}.origins.jsonl"
    write_origins(Path(task.reduce_dir) / origins, documents.origins)
    ledger = bucket_ledger(task.bucket.split, documents, corpus, drawn)
    ledger.update(writer.ledger)
    expected = _expected(documents, corpus, drawn, task.config)
    return ReduceReceipt(
        bucket=task.bucket,
        shards=shards,
        documents=_write_documents(documents, drawn, expected, task),
        digest=writer.digest,
        ledger=ledger,
        expected=_expected_by_source(documents, expected),
        origins=origins,
    )


def close_parts() -> None:
    """Let go of the parts that this process holds open."""
    _parts.cache_clear()


@lru_cache(maxsize=1)
def _parts(run: str, folder: str, names: tuple[str, ...]) -> Parts:
    """Return the parts of a run, kept open from task to task; `run` only tells runs apart."""
    return Parts([Path(folder) / name for name in names])


class _BucketWriter:
    """Writes the instances of a bucket in the order of their ids, and sums what it wrote."""

    def __init__(
        self, task: ReduceTask, documents: BucketDocuments, corpus: Corpus, instances: Instances
    ) -> None:
        self.task = task
        self.num_variants = task.config.num_variants(task.bucket.split)
        self.batch_rows = rows_per_batch(task.config.max_seq_length, self.num_variants)
        self.corpus = corpus
        self.instances = instances
        self.tokenizer = load_known_tokenizer(task.tokenizer_dir, task.tokenizer_hash)
        self.rule = mask_rule(task.config, self.tokenizer)
        self.schema = instance_schema(
            token_dtype=self.tokenizer.token_dtype,
            max_seq_length=task.config.max_seq_length,
            num_sources=len(task.sources),
            most_span_value=task.most_span_value,
        )
        self.source_names = pa.array(task.sources, pa.string())
        kept_sources = documents.table["source"].take(documents.kept)
        self.sources = pc.index_in(kept_sources.combine_chunks(), self.source_names).to_numpy()
        self.document_ids = corpus.document_ids.view(np.uint8).reshape(-1, 16)
        everything = np.arange(len(instances.pass_number))
        self.ids = instance_ids(
            bytes.fromhex(task.instance_fingerprint),
            instances.pass_number,
            self._spans(everything),
        )
        # Ids are hashes, so their order is a shuffle.
        words = self.ids.view(">u8")
        self.order = np.lexsort((words[:, 1], words[:, 0]))
        self.digest = Digest()
        self.ledger: Ledger = Ledger()

    def write_shards(self) -> Iterator[Shard]:
        """Yield each shard once it is written."""
        config = self.task.config
        files = BucketFiles(
            folder=Path(config.out),
            name=self.task.name,
            key=self.task.key,
            split=self.task.bucket.split,
            schema=self.schema,
            format=config.format,
            compression=config.compression,
            shard_size=config.shard_size,
            batch_rows=self.batch_rows,
        )
        return write_bucket(files, len(self.order), self._batches)

    def _batches(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        for first in range(begin, end, self.batch_rows):
            columns = self._columns(self.order[first : min(first + self.batch_rows, end)])
            batch = instance_batch(columns, self.schema, self.source_names)
            self.digest.add(batch)
            yield batch

    def _columns(self, chosen: NDArray[np.int64]) -> InstanceColumns:
        tokens = assemble(
            self.corpus,
            self.instances,
            chosen,
            cls_id=self.tokenizer.cls_id,
            sep_id=self.tokenizer.sep_id,
            has_pairs=self.task.config.has_pairs,
        )
        ids = np.ascontiguousarray(self.ids[chosen])
        masks = draw_variants(tokens, ids, self.num_variants, self.rule)
        counts = mask_counts(tokens, masks, self.num_variants, self.rule)
        split = self.task.bucket.split
        self.ledger.update({("masks", split, reason): n for reason, n in counts.items()})
        first_spans = self.instances.span_starts[chosen]
        return InstanceColumns(
            instance_ids=ids,
            tokens=tokens,
            masks=masks,
            num_variants=self.num_variants,
            next_sentence_label=self.instances.next_sentence_label[chosen],
            num_chunk_sentences=self.instances.num_chunk_sentences[chosen],
            spans=self._spans(chosen),
            sources=self.sources[self.instances.span_document[first_spans]],
        )

    def _spans(self, chosen: NDArray[np.int64]) -> Spans:
        starts, places = take_runs(self.instances.span_starts, chosen)
        return Spans(
            starts=starts,
            document_ids=self.document_ids[self.instances.span_document[places]],
            first_sentence=self.instances.span_first_sentence[places],
            num_sentences=self.instances.span_num_sentences[places],
            cut_front=self.instances.span_cut_front[places],
            cut_back=self.instances.span_cut_back[places],
        )


def _expected(
    documents: BucketDocuments, corpus: Corpus, drawn: Drawn, config: BuildConfig
) -> NDArray[np.float64] | None:
    """Return the expected random and next instances of every document, (D, 2), if there are any."""
    # Steered labels follow from each other, so no document has an expectation of its own.
    if not config.has_pairs or config.nsp_balance == "exact":
        return None
    expected = np.zeros((len(documents.ids), 2))
    expected[documents.kept] = expected_labels(corpus, drawn.targets)
    return expected


def _expected_by_source(
    documents: BucketDocuments, expected: NDArray[np.float64] | None
) -> dict[str, list[float]]:
    if expected is None:
        return {}
    kept = documents.kept
    encoded = documents.table["source"].take(kept).combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()
    return {
        name: [float(expected[kept][codes == code, label].sum()) for label in (0, 1)]
        for code, name in enumerate(encoded.dictionary.to_pylist())
    }


def _write_documents(
    documents: BucketDocuments,
    drawn: Drawn,
    expected: NDArray[np.float64] | None,
    task: ReduceTask,
) -> DocumentsFile:
    table, count = documents.table, len(documents.ids)
    expected = np.zeros((count, 2)) if expected is None else expected
    # Targets stand in the order of documents and passes; other documents have no pass.
    ends = starts_of(documents.num_passes)
    targets = drawn.targets if len(drawn.targets) else np.empty(0, np.int64)
    if drawn.loss is not None:
        ends = np.zeros(count + 1, np.int64)
    columns = {
        "document_id": pa.array(documents.ids.view("V16").reshape(-1).tolist(), pa.binary(16)),
        "split": pa.array([task.bucket.split] * count, pa.string()),
        "source": table["source"],
        "external_id": table["external_id"],
        "num_characters": table["num_characters"],
        "num_sentences": pa.array(documents.numbers("num_sentences")),
        "num_tokens": pa.array(documents.numbers("num_tokens")),
        "num_unknown": table["num_unknown"],
        "targets": pa.ListArray.from_arrays(
            pa.array(ends, pa.int32()), pa.array(targets, pa.uint16())
        ),
        "num_passes": pa.array(documents.num_passes),
        "num_duplicates": pa.array(documents.num_duplicates),
        "expected_random": pa.array(expected[:, 0]),
        "expected_next": pa.array(expected[:, 1]),
        "fate": pa.array([DOCUMENT_FATES[fate] for fate in documents.fates], pa.string()),
    }
    schema = document_schema()
    rows = pa.table({name: columns[name] for name in schema.names}).cast(schema)
    return write_documents(
        Path(task.config.out) / documents_name(task.name),
        rows.to_batches(max_chunksize=_DOCUMENTS_PER_BATCH),
        compression=task.config.compression,
    )
