"""A dataset written again: in other files, or with other masks, but of the same instances.

Buckets are kept, so the new files are byte for byte those of a build with the new settings.
"""

import dataclasses
import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import clozemill
from clozemill.pipeline.bucket_files import BucketFiles, write_bucket
from clozemill.pipeline.columns import InstanceColumns, one_batch, read_columns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import Dataset, read_document_rows
from clozemill.pipeline.dataset_names import (
    LOG_NAME,
    ORIGINS_NAME,
    TOKENIZER_FOLDER,
    bucket_of_shard,
    documents_name,
)
from clozemill.pipeline.digest import Digest
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.files import atomic_file, file_checksum, open_regular
from clozemill.pipeline.manifest import Manifest, SplitEntry, read_manifest, write_manifest
from clozemill.pipeline.progress import OnProgress, shard_progress
from clozemill.pipeline.schema import instance_batch, rows_per_batch
from clozemill.pipeline.shards import DocumentsFile, Shard, write_documents
from clozemill.pipeline.workspace import Workspace, open_workspace

Change = Callable[[InstanceColumns, str], InstanceColumns]
"""Returns a batch's columns, of a split, as they shall be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """What a dataset is to become."""

    verb: str
    """The command, for the log."""

    config: BuildConfig
    """The settings a build would have been given."""

    change: Change = lambda columns, split: columns
    """What becomes of the instances."""

    finish: Callable[[Manifest], Manifest] = lambda manifest: manifest
    """Settles what else the manifest says: fingerprints and ledger."""

    is_same_dataset: bool = True
    """Whether masks stay too, so that the dataset digest must be equal."""


def rewrite_dataset(
    dataset: Dataset,
    out: Path,
    rewrite: Rewrite,
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Write a dataset again into another folder, and return the new manifest.

    As in a build, files appear complete or not at all and the manifest comes last. Memory holds
    a few record batches. A folder that holds what would be written is left as it is.

    Raises:
        ConfigError: The folder holds something else already, or is the dataset's own.
        DatasetError: The dataset is damaged: what was read has not its digest.
    """
    if out.resolve() == dataset.folder.resolve():
        raise ConfigError(f"{out} is the dataset itself; choose another folder for --out.")
    configuration = {
        **dataset.manifest.configuration,
        **rewrite.config.settings("masks", "layout"),
    }
    with open_workspace(out) as workspace:
        if workspace.is_finished and not overwrite:
            found = read_manifest(out)
            if found.configuration == configuration and _is_rewritten(found, dataset, rewrite):
                workspace.end()
                return found
            raise ConfigError(
                f"{out} already holds another dataset; use --overwrite to replace it, or another "
                "--out."
            )
        digests = {split: e.dataset_digest for split, e in dataset.manifest.splits.items()}
        identity = {"rewritten_dataset": digests, **configuration}
        workspace.begin(identity, overwrite=overwrite)
        workspace.make_room()
        _copy_beside(dataset, workspace, rewrite)
        on_shard = shard_progress("writing", dataset.manifest.shards, on_progress)
        shards, splits = _write_splits(dataset, out, rewrite, on_shard)
        manifest = dataclasses.replace(
            dataset.manifest,
            package_version=clozemill.__version__,
            configuration=configuration,
            splits=splits,
            shards=tuple(shards),
            documents=tuple(_write_documents(dataset, out, rewrite.config.compression)),
        )
        manifest = rewrite.finish(manifest)
        write_manifest(out, manifest)
        workspace.end()
    return manifest


def _is_rewritten(found: Manifest, dataset: Dataset, rewrite: Rewrite) -> bool:
    """Return whether a dataset of the wanted settings holds this one's instances (and masks)."""
    manifest = dataset.manifest
    digests = ["instances_digest", *["dataset_digest"] * rewrite.is_same_dataset]
    return (
        found.fingerprints.instances == manifest.fingerprints.instances
        and found.tokenizer.hash == manifest.tokenizer.hash
        and found.splits.keys() == manifest.splits.keys()
        and all(
            getattr(found.splits[split], name) == getattr(entry, name)
            for split, entry in manifest.splits.items()
            for name in digests
        )
    )


def _write_splits(
    dataset: Dataset, out: Path, rewrite: Rewrite, on_shard: Callable[[Shard], None]
) -> tuple[list[Shard], dict[str, SplitEntry]]:
    shards: list[Shard] = []
    digests: dict[str, Digest] = {}
    for place, (name, group) in enumerate(_buckets(dataset.manifest)):
        split = group[0].split
        files = _bucket_files(dataset, out, rewrite.config, name, split, place)
        rows = _Rows(dataset, group, rewrite.change, files)
        num_instances = sum(shard.num_instances for shard in group)
        for shard in write_bucket(files, num_instances, rows.batches):
            shards.append(shard)
            on_shard(shard)
        digests.setdefault(split, Digest()).merge(rows.digest)
    entries = {}
    for split, digest in digests.items():
        entry = dataset.manifest.splits[split]
        entries[split] = dataclasses.replace(
            entry,
            num_variants=_num_variants(rewrite, split, entry.num_variants),
            instances_digest=digest.instances.hexdigest(),
            dataset_digest=digest.dataset.hexdigest(),
        )
        _check_digest(dataset, split, entries[split], rewrite.is_same_dataset)
    return shards, entries


def _buckets(manifest: Manifest) -> Iterator[tuple[str, list[Shard]]]:
    """Yield the buckets by name, each with its shards in order."""
    for name, group in itertools.groupby(manifest.shards, lambda s: bucket_of_shard(s.path)):
        yield name, list(group)


def _num_variants(rewrite: Rewrite, split: str, before: int) -> int:
    return before if rewrite.is_same_dataset else rewrite.config.num_variants(split)


def _bucket_files(
    dataset: Dataset, out: Path, config: BuildConfig, name: str, split: str, place: int
) -> BucketFiles:
    documents = [file.path for file in dataset.manifest.documents]
    with suppress(ValueError):
        # A bucket without instances has documents but no shards; it still counts.
        place = documents.index(documents_name(name))
    return BucketFiles(
        folder=out,
        name=name,
        key=place,
        split=split,
        schema=dataset.schema,
        format=config.format,
        compression=config.compression,
        shard_size=config.shard_size,
        batch_rows=rows_per_batch(config.max_seq_length, config.num_variants(split)),
    )


class _Rows:
    """The rows of a bucket in order, cut into batches of any size."""

    def __init__(
        self, dataset: Dataset, shards: Iterable[Shard], change: Change, files: BucketFiles
    ) -> None:
        self.dataset = dataset
        self.change = change
        self.files = files
        self.digest = Digest()
        self.source = itertools.chain.from_iterable(map(dataset.shard_batches, shards))
        self.left: list[pa.RecordBatch] = []

    def batches(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the next `end - begin` rows as they shall be written."""
        for first in range(begin, end, self.files.batch_rows):
            rows = self._next(min(self.files.batch_rows, end - first))
            columns = self.change(read_columns(rows), self.files.split)
            batch = instance_batch(columns, self.files.schema, self.dataset.source_names)
            self.digest.add(batch)
            yield batch

    def _next(self, num_rows: int) -> pa.RecordBatch:
        parts: list[pa.RecordBatch] = []
        while num_rows:
            batch = self.left.pop() if self.left else next(self.source)
            parts.append(batch.slice(0, num_rows))
            if batch.num_rows > num_rows:
                self.left.append(batch.slice(num_rows))
            num_rows -= parts[-1].num_rows
        return parts[0] if len(parts) == 1 else one_batch(parts)


def _check_digest(dataset: Dataset, split: str, entry: SplitEntry, is_same_dataset: bool) -> None:
    before = dataset.manifest.splits[split]
    is_same = entry.instances_digest == before.instances_digest
    if is_same_dataset:
        is_same &= entry.dataset_digest == before.dataset_digest
    if not is_same:
        raise DatasetError(
            f"the {split} instances of {dataset.folder} are not those its manifest was written "
            f"for; find the damaged shard with clozemill verify {dataset.folder}."
        )


def _write_documents(dataset: Dataset, out: Path, compression: str) -> Iterator[DocumentsFile]:
    for file in dataset.manifest.documents:
        batches = read_document_rows(dataset.folder, file)
        yield write_documents(out / file.path, batches, compression=compression)


def _copy_beside(dataset: Dataset, workspace: Workspace, rewrite: Rewrite) -> None:
    """Copy the tokenizer, checked, and what says where documents came from."""
    tokenizer_dir = workspace.out / TOKENIZER_FOLDER
    tokenizer_dir.mkdir(exist_ok=True)
    for name, checksum in dataset.manifest.tokenizer.files.items():
        path = dataset.tokenizer_dir / Path(name).name
        if not path.is_file() or file_checksum(path) != checksum:
            raise DatasetError(
                f"{path} is missing or not what was written; copy the dataset again."
            )
        _copy(path, tokenizer_dir / path.name)
    if (dataset.folder / ORIGINS_NAME).is_file():
        _copy(dataset.folder / ORIGINS_NAME, workspace.out / ORIGINS_NAME)
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        _write_log(dataset, workspace.out / LOG_NAME, rewrite)


def _write_log(dataset: Dataset, path: Path, rewrite: Rewrite) -> None:
    """Copy the log with the new settings: a build asked for these is then nothing to do."""
    with open_regular(dataset.folder / LOG_NAME) as stream:
        first, *rest = stream.read().decode().splitlines()
    event: dict[str, Any] = json.loads(first)
    event["identity"].update(rewrite.config.settings("masks", "layout"))
    done = {"event": rewrite.verb, "folder": str(dataset.folder)}
    with atomic_file(path) as sink:
        for line in (json.dumps(event, ensure_ascii=False), *rest, json.dumps(done)):
            sink.write(line.encode() + b"\n")


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as stream, atomic_file(target) as sink:
        shutil.copyfileobj(stream, sink)
