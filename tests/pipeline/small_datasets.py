"""Small datasets made from a NumPy generator, for tests of what is on disk."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from clozemill.pipeline.build import build
from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.digest import Digest
from clozemill.pipeline.files import file_checksum
from clozemill.pipeline.fingerprints import Fingerprints
from clozemill.pipeline.instance_ids import instance_ids
from clozemill.pipeline.instances import MaskBatch, Spans, TokenBatch, starts_of, token_dtype
from clozemill.pipeline.manifest import (
    Manifest,
    SplitEntry,
    TokenizerEntry,
    write_manifest,
)
from clozemill.pipeline.schema import (
    document_schema,
    instance_batch,
    instance_schema,
)
from clozemill.pipeline.shards import (
    SUFFIX_OF_FORMAT,
    Shard,
    ShardReader,
    write_documents,
    write_shard,
)

PAD, UNK, CLS, SEP, MASK = 0, 100, 101, 102, 103
SPECIAL_IDS = {"pad": PAD, "unk": UNK, "cls": CLS, "sep": SEP, "mask": MASK}
SOURCES = pa.array(["", "books", "nouvelles d'été"])
BATCH_ROWS = 16


def document_ids(numbers: Any) -> Any:
    """Return (n, 16) bytes, one id per number, spread over the whole range."""
    ids = np.zeros((len(numbers), 2), "<u8")
    ids[:, 0] = np.asarray(numbers, np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    ids[:, 1] = numbers
    return ids.view(np.uint8).reshape(-1, 16)


def make_columns(
    num_rows: int,
    *,
    length: int | None = None,
    max_seq_length: int = 128,
    num_variants: int = 3,
    seed: int = 0,
    vocab_size: int = 30_000,
) -> InstanceColumns:
    """Return pairs with sound borders, spans and masks; `length` fixes all lengths.

    Every instance has its own document of two sentences. Next pairs use both. Random pairs use
    the first as A and that of the row after as B; the other sentence is in no instance.
    """
    rng = np.random.default_rng(seed)
    lengths = (
        np.full(num_rows, length) if length else rng.integers(5, max_seq_length + 1, size=num_rows)
    )
    starts = starts_of(lengths)
    ids = rng.integers(1000, vocab_size, size=starts[-1]).astype(token_dtype(vocab_size))
    borders = rng.integers(3, lengths - 1)
    ids[starts[:-1]], ids[starts[1:] - 1], ids[starts[:-1] + borders - 1] = CLS, SEP, SEP
    label = rng.integers(0, 2, size=num_rows).astype(np.int8)
    sources = rng.integers(0, len(SOURCES), size=num_rows)
    own = np.arange(num_rows)
    numbers = np.stack([own, np.where(label == 1, (own + 1) % num_rows, own)], axis=1).reshape(-1)
    one, zero = np.ones(2 * num_rows, np.int64), np.zeros(2 * num_rows, np.int64)
    first = np.stack([np.zeros(num_rows, np.int64), 1 - label], axis=1).reshape(-1)
    spans = Spans(
        np.arange(num_rows + 1) * 2, document_ids(numbers + (seed << 32)), first, one, zero, zero
    )
    return InstanceColumns(
        instance_ids=instance_ids(bytes(16), np.zeros(num_rows, np.int64), spans),
        tokens=TokenBatch(ids, starts, borders),
        masks=make_masks(rng, ids, starts, borders, num_variants) if num_variants else None,
        num_variants=num_variants,
        next_sentence_label=label,
        num_chunk_sentences=np.where(label == 1, 1, 2),
        spans=spans,
        sources=sources,
    )


def make_masks(rng: Any, ids: Any, starts: Any, borders: Any, num_variants: int) -> MaskBatch:
    positions, counts = [], []
    for begin, end, border in zip(starts[:-1], starts[1:], borders, strict=True):
        length = int(end - begin)
        maskable = np.setdiff1d(np.arange(1, length - 1), [border - 1])
        count = min(len(maskable), max(1, round(length * 0.15)))
        for _ in range(num_variants):
            positions.append(np.sort(rng.permutation(maskable)[:count]))
            counts.append(count)
    flat = np.concatenate(positions)
    small = np.uint8 if flat.max(initial=0) < 256 else np.uint16
    shown = np.full(len(flat), MASK, ids.dtype)
    return MaskBatch(flat.astype(small), shown, starts_of(counts))


def schema_for(max_seq_length: int = 128, vocab_size: int = 30_000) -> pa.Schema:
    return instance_schema(
        token_dtype=token_dtype(vocab_size),
        max_seq_length=max_seq_length,
        num_sources=len(SOURCES),
    )


def slice_columns(columns: InstanceColumns, begin: int, end: int) -> InstanceColumns:
    """Return the instances from `begin` to before `end`; flat arrays are shared, not copied."""
    tokens, spans, masks = columns.tokens, columns.spans, columns.masks
    if masks is not None:
        first, last = begin * columns.num_variants, end * columns.num_variants
        masks = masks._replace(starts=masks.starts[first : last + 1])
    return InstanceColumns(
        instance_ids=columns.instance_ids[begin:end],
        tokens=tokens._replace(
            starts=tokens.starts[begin : end + 1], segment_b_start=tokens.segment_b_start[begin:end]
        ),
        masks=masks,
        num_variants=columns.num_variants,
        next_sentence_label=columns.next_sentence_label[begin:end],
        num_chunk_sentences=columns.num_chunk_sentences[begin:end],
        spans=spans._replace(starts=spans.starts[begin : end + 1]),
        sources=columns.sources[begin:end],
    )


def folder_checksums(folder: Path) -> dict[str, str]:
    """Return the checksum of each file directly in the folder, by name."""
    return {path.name: file_checksum(path) for path in sorted(folder.iterdir())}


def make_batches(
    columns: InstanceColumns, rows: int = BATCH_ROWS, schema: pa.Schema | None = None
) -> list[pa.RecordBatch]:
    schema = schema or schema_for()
    total = len(columns.instance_ids)
    return [
        instance_batch(slice_columns(columns, begin, min(total, begin + rows)), schema, SOURCES)
        for begin in range(0, total, rows)
    ]


def digest_of(batches: list[pa.RecordBatch]) -> Digest:
    digest = Digest()
    for batch in batches:
        digest.add(batch)
    return digest


def make_dataset(
    folder: Path,
    *,
    format: str = "arrow",
    compression: str = "none",
    num_rows: dict[str, int] | None = None,
    batches_per_shard: int = 3,
    edit: Callable[[str, InstanceColumns], InstanceColumns] = lambda split, columns: columns,
) -> Manifest:
    """Write a dataset of pairs; `edit` may spoil the columns of a split before they are written."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = folder / "tokenizer"
    tokenizer.mkdir()
    (tokenizer / "vocab.txt").write_text("".join(f"token{i}\n" for i in range(30_000)))
    shards: list[Shard] = []
    splits: dict[str, SplitEntry] = {}
    documents = []
    key = 0
    for seed, (split, rows) in enumerate((num_rows or {"train": 100, "validation": 20}).items()):
        columns = edit(split, make_columns(rows, seed=seed))
        batches = make_batches(columns)
        for begin in range(0, len(batches), batches_per_shard):
            name = f"{split}-{begin // batches_per_shard:06d}{SUFFIX_OF_FORMAT[format]}"
            part = batches[begin : begin + batches_per_shard]
            shards.append(
                write_shard(
                    folder / name,
                    part,
                    schema=schema_for(),
                    split=split,
                    compression=compression,
                    first_key=key,
                )
            )
            key += len(part)
        digest = digest_of(batches)
        splits[split] = SplitEntry(
            num_instances=rows,
            num_tokens=int(columns.tokens.starts[-1]),
            num_variants=columns.num_variants,
            instances_digest=digest.instances.hexdigest(),
            dataset_digest=digest.dataset.hexdigest(),
        )
        documents.append(document_batch(split, seed, rows))
    files = (write_documents(folder / "documents-000000.arrow", documents),)
    manifest = Manifest(
        package_version="0.1.0",
        configuration={
            "compression": compression,
            "format": format,
            "mask_count": "rounded",
            "mask_token_prob": 0.8,
            "mask_unit": "token",
            "mask_variants": 3,
            "masked_lm_prob": 0.15,
            "max_predictions_per_seq": None,
            "max_seq_length": 128,
            "random_token_prob": 0.1,
            "random_tokens": "ordinary",
            "recipe": "bert",
            "seed": 0,
            "shard_size": BATCH_ROWS * batches_per_shard,
        },
        fingerprints=Fingerprints(instances="0" * 32, dataset="1" * 32, layout="2" * 32),
        tokenizer=TokenizerEntry(
            hash="3" * 32,
            vocab_size=30_000,
            special_ids=SPECIAL_IDS,
            files=folder_checksums(tokenizer),
        ),
        generator_version=1,
        libraries={"sentencex": "1.0.32", "tokenizers": "0.23.3"},
        sources=tuple(SOURCES.to_pylist()),
        splits=splits,
        shards=tuple(shards),
        documents=files,
        ledger={"documents": {"read": sum(s.num_instances for s in splits.values())}},
        label_expectations={},
    )
    write_manifest(folder, manifest)
    return manifest


def document_batch(split: str, seed: int, rows: int) -> pa.RecordBatch:
    ids = document_ids(np.arange(rows) + (seed << 32))
    table = {
        "document_id": [bytes(row) for row in ids],
        "split": [split] * rows,
        "source": ["books"] * rows,
        "external_id": [f"doc-{number}" for number in range(rows)],
        "num_characters": [100] * rows,
        "num_sentences": [2] * rows,
        "num_tokens": [300] * rows,
        "num_unknown": [0] * rows,
        "targets": [[125]] * rows,
        "num_passes": [1] * rows,
        "num_duplicates": [0] * rows,
        "expected_random": [0.5] * rows,
        "expected_next": [0.5] * rows,
        "fate": ["kept"] * rows,
    }
    return pa.RecordBatch.from_pydict(table, schema=document_schema())


def write_corpus(path: Path, num_documents: int = 60, seed: int = 0) -> Path:
    """Write JSON lines of 1 to 12 short sentences over 150 words, from three sources."""
    rng = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(150)]
    with path.open("w", encoding="utf-8") as stream:
        for number in range(num_documents):
            sentences = [
                " ".join(rng.choice(words, rng.integers(3, 15))).capitalize() + "."
                for _ in range(rng.integers(1, 13))
            ]
            record = {
                "id": f"doc-{number}",
                "text": " ".join(sentences),
                "source": f"s{number % 3}",
            }
            stream.write(json.dumps(record) + "\n")
    return path


def write_vocab(path: Path) -> Path:
    """Write a WordPiece vocabulary of the words of `write_corpus`; some have two pieces."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", "w"]
    pieces += [f"w{number}" for number in range(100)] + [f"##{number}" for number in range(150)]
    path.write_text("\n".join(pieces) + "\n")
    return path


def config_of_small(folder: Path, name: str = "data", **settings: Any) -> BuildConfig:
    """Return the configuration by which `build_small` builds in this folder."""
    settings = {
        "max_seq_length": 48,
        "mask_variants": 3,
        "bucket_tokens": 1500,
        "shard_size": 30,
        "validation_fraction": 0.2,
        "dupe_factor": 2,
        "source_field": "source",
        "id_field": "id",
        "workers": 1,
        **settings,
    }
    return BuildConfig(
        inputs=(str(folder / "corpus.jsonl"),),
        out=str(folder / name),
        **{"tokenizer": str(folder / "vocab.txt"), **settings},
    )


def build_small(
    folder: Path, name: str = "data", *, records: Sequence[dict[str, Any]] = (), **settings: Any
) -> Path:
    """Return the folder of a dataset that clozemill builds from `write_corpus` and more records."""
    config = config_of_small(folder, name, **settings)
    folder.mkdir(parents=True, exist_ok=True)
    write_vocab(folder / "vocab.txt")
    with write_corpus(folder / "corpus.jsonl").open("a") as stream:
        stream.writelines(json.dumps(record) + "\n" for record in records)
    build(config)
    return Path(config.out)


def spoil(
    folder: Path,
    edit: Callable[[InstanceColumns], InstanceColumns],
    *,
    path: str | None = None,
) -> str:
    """Write one shard anew with edited columns, and a manifest that vouches for it."""
    dataset = open_dataset(folder)
    shards = list(dataset.manifest.shards)
    place = next(i for i, shard in enumerate(shards) if path is None or shard.path == path)
    shards[place] = write_again(folder, dataset, shards[place], edit)
    vouch(folder, dataset.manifest, shards)
    return shards[place].path


def write_again(
    out: Path,
    dataset: Dataset,
    shard: Shard,
    edit: Callable[[InstanceColumns], InstanceColumns],
) -> Shard:
    """Write a shard of a dataset with edited columns into a folder, in batches of the same size."""
    rows = pa.Table.from_batches(dataset.shard_batches(shard)).combine_chunks().to_batches()[0]
    columns = edit(read_columns(rows))
    num_rows = len(columns.instance_ids)
    batches = [
        instance_batch(
            slice_columns(columns, begin, min(begin + shard.batch_rows, num_rows)),
            dataset.schema,
            dataset.source_names,
        )
        for begin in range(0, num_rows, shard.batch_rows)
    ]
    return write_shard(out / shard.path, batches, schema=dataset.schema, split=shard.split)


def vouch(out: Path, manifest: Manifest, shards: Sequence[Shard], **changes: Any) -> Dataset:
    """Return a dataset whose manifest lists these shards, and says of splits what they hold.

    Args:
        out: The folder with its files.
        manifest: Of the dataset that it was made from.
        shards: The new ones.
        changes: Other fields of the manifest.
    """
    splits = {}
    for name, entry in manifest.splits.items():
        own = [shard for shard in shards if shard.split == name]
        digest = digest_of([batch for shard in own for batch in ShardReader(out, shard)])
        splits[name] = dataclasses.replace(
            entry,
            num_instances=digest.instances.count,
            num_tokens=sum(shard.num_tokens for shard in own),
            instances_digest=digest.instances.hexdigest(),
            dataset_digest=digest.dataset.hexdigest(),
        )
    changed = dataclasses.replace(manifest, shards=tuple(shards), splits=splits, **changes)
    write_manifest(out, changed)
    return open_dataset(out)


def tree(folder: Path) -> dict[str, bytes]:
    """Return every file by name, but for the two that tell of times and places."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("build.log.jsonl", "origins.jsonl")
    }
