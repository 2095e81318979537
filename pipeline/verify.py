"""Verify: whether a dataset is what its manifest says, and keeps every law its files can show."""

import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from clozemill.pipeline.canonical import binary_column, join_rows
from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.copychecks import pairs_of_copies
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.digest import Digest
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.errors import ClozemillError, DatasetError
from clozemill.pipeline.files import file_checksum
from clozemill.pipeline.instance_ids import instance_ids
from clozemill.pipeline.ledger import from_json, ledger_faults
from clozemill.pipeline.manifest import MANIFEST_NAME, TOKENIZER_FOLDER, Manifest, read_manifest
from clozemill.pipeline.masks import MaskRule, draw_masks
from clozemill.pipeline.origins import ORIGINS_NAME
from clozemill.pipeline.progress import OnProgress, shard_progress
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.rowchecks import broken_rules, row_rules
from clozemill.pipeline.setchecks import broken_provenance, id_ranges, repeated_ids
from clozemill.pipeline.shards import Shard, check_size
from clozemill.pipeline.tokenizer import load_tokenizer
from clozemill.pipeline.workspace import LOG_NAME

_SAMPLE_NAME = re.compile(r"[0-9]{9,}\.arrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    file: str
    """Its file's name within the folder; the manifest where only files together show it."""

    problem: str
    """What is wrong with it, in words."""


def verify_dataset(folder: str | Path, *, on_progress: OnProgress | None = None) -> list[Finding]:
    """Return everything that is wrong with a dataset; nothing if it is sound.

    Files are compared with the manifest first. Only if all are whole are their rows looked at:
    rules for each row, digests, masks drawn again, ids computed again, spans against documents,
    the ledger against what is there.

    Args:
        folder: The dataset.
        on_progress: Called after the rows of each shard.

    Raises:
        DatasetError: There is no dataset in the folder, or its manifest or its
            folder cannot be read.
    """
    path = Path(folder)
    manifest = read_manifest(path)
    try:
        findings = [*_file_findings(path, manifest), *_tokenizer_findings(path, manifest)]
    except OSError as error:
        raise DatasetError(f"cannot read {error.filename}: {error.strerror}.") from error
    if findings:
        return findings
    try:
        dataset = Dataset(path)
        on_shard = shard_progress("checking", manifest.shards, on_progress)
        return list(_row_findings(dataset, on_shard))
    except ClozemillError as error:
        return [Finding(file=MANIFEST_NAME, problem=str(error))]


def _file_findings(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    keys: Counter[str] = Counter()
    for file in manifest.files:
        path = folder / file.path
        try:
            check_size(path, file.num_bytes)
        except DatasetError as error:
            yield Finding(file=file.path, problem=str(error))
            continue
        problem = _wrong_bytes(path, file.checksum)
        if problem:
            yield Finding(file=file.path, problem=problem)
        elif isinstance(file, Shard) and file.is_tar:
            yield from _tar_findings(path, file, keys)
    repeated = sorted(key for key, count in keys.items() if count > 1)
    if repeated:
        yield Finding(
            file=MANIFEST_NAME, problem=f"the sample key {repeated[0]} is in the shards twice"
        )
    expected = {file.path for file in manifest.files}
    expected |= {MANIFEST_NAME, TOKENIZER_FOLDER, LOG_NAME, ORIGINS_NAME}
    for path in sorted(folder.iterdir()):
        if path.name not in expected:
            yield Finding(file=path.name, problem="it is no part of the dataset; delete it")


def _tar_findings(path: Path, shard: Shard, keys: Counter[str]) -> Iterator[Finding]:
    """Look at a tar as other readers do: by its own headers, one after the other."""
    try:
        with tarfile.open(path, "r:") as tar:
            members = tar.getmembers()
    except (tarfile.TarError, OSError) as error:
        yield Finding(file=shard.path, problem=f"it is not a tar file: {error}")
        return
    if tuple((member.offset_data, member.size) for member in members) != shard.members:
        yield Finding(file=shard.path, problem="its members are not where the manifest says")
    keys.update(member.name for member in members)
    odd = [member.name for member in members if not _SAMPLE_NAME.fullmatch(member.name)]
    if odd:
        yield Finding(file=shard.path, problem=f"it has a member named {odd[0]!r}")


def _tokenizer_findings(folder: Path, manifest: Manifest) -> Iterator[Finding]:
    expected = manifest.tokenizer.files
    path = folder / TOKENIZER_FOLDER
    found = {file.name for file in path.iterdir()} if path.is_dir() else set()
    for name in sorted(expected.keys() | found):
        where = f"{TOKENIZER_FOLDER}/{name}"
        if name not in expected:
            yield Finding(file=where, problem="it is no part of the dataset; delete it")
        elif name not in found:
            yield Finding(file=where, problem="it is missing")
        elif problem := _wrong_bytes(path / name, expected[name]):
            yield Finding(file=where, problem=problem)


def _wrong_bytes(path: Path, checksum: str) -> str | None:
    try:
        found = file_checksum(path)
    except DatasetError as error:
        return str(error)
    return None if found == checksum else "its bytes are not those that were written"


def _row_findings(dataset: Dataset, on_shard: Callable[[Shard], None]) -> Iterator[Finding]:
    checker = _RowChecker(dataset)
    for split in dataset.splits:
        for shard in dataset.manifest.shards_of(split):
            yield from checker.check(shard)
            on_shard(shard)
        yield from checker.close(split)
    for part in id_ranges(dataset):
        for check in (repeated_ids, broken_provenance):
            for file, problem in check(dataset, part):
                yield Finding(file=file or MANIFEST_NAME, problem=problem)
    for shard, problem in pairs_of_copies(dataset):
        yield Finding(file=shard.path, problem=problem)
    yield from _ledger_findings(dataset, checker)


class _RowChecker:
    """Looks at every instance once, and sums what the manifest states as sums."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.config: BuildConfig = dataset.manifest.build_config()
        self.digest = Digest()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.mask_rule = self._mask_rule()
        self.num_passes = max(
            (pc.max(batch.column("num_passes")).as_py() or 0 for batch in dataset.documents()),
            default=0,
        )

    def _mask_rule(self) -> MaskRule | None:
        """Return the rule that masks are drawn again with, or None where draws have changed."""
        manifest = self.dataset.manifest
        tokenizer = load_tokenizer(self.dataset.tokenizer_path)
        if tokenizer.vocab_size != manifest.tokenizer.vocab_size:
            raise DatasetError(
                f"the tokenizer in {self.dataset.tokenizer_path} has {tokenizer.vocab_size} "
                f"tokens, but the manifest says {manifest.tokenizer.vocab_size}; copy it again."
            )
        if tokenizer.hash != manifest.tokenizer.hash:
            raise DatasetError(
                f"the tokenizer in {self.dataset.tokenizer_path} has the hash {tokenizer.hash}, "
                f"but the manifest says {manifest.tokenizer.hash}; copy the folder again."
            )
        is_same_draw = manifest.generator_version == GENERATOR_VERSION
        return mask_rule(self.config, tokenizer) if is_same_draw else None

    def check(self, shard: Shard) -> Iterator[Finding]:
        """Yield what is wrong with the rows of a shard."""
        broken: dict[str, tuple[int, str]] = {}
        num_tokens = 0
        for batch in self.dataset.shard_batches(shard):
            columns = read_columns(batch)
            num_tokens += int(columns.tokens.starts[-1])
            self._count(columns, shard.split)
            self.digest.add(batch)
            for text, flags in self._broken(columns, shard.split):
                count, first = broken.get(text, (0, ""))
                place = int(np.flatnonzero(flags)[0])
                first = first or columns.instance_ids[place].tobytes().hex()
                broken[text] = (count + int(flags.sum()), first)
        for text, (count, first) in broken.items():
            yield Finding(
                file=shard.path, problem=f"{count} instances {text}, the first is {first}"
            )
        if num_tokens != shard.num_tokens:
            yield Finding(
                file=shard.path,
                problem=f"it holds {num_tokens} tokens, but the manifest says {shard.num_tokens}",
            )

    def _broken(self, columns: InstanceColumns, split: str) -> Iterator[tuple[str, Any]]:
        is_sound = True
        rules = row_rules(self.dataset.manifest, self.config, split)
        for text, flags in broken_rules(columns, rules):
            is_sound = False
            yield text, flags
        if not is_sound:
            return
        wrong_ids = self._wrong_ids(columns)
        if wrong_ids.any():
            yield "have an id that is not the hash of their spans", wrong_ids
        if self.mask_rule is not None and columns.masks is not None:
            redrawn = self._redrawn(columns, self.mask_rule)
            if redrawn.any():
                yield "have masks that the seed does not draw", redrawn

    def _wrong_ids(self, columns: InstanceColumns) -> Any:
        """Return which ids are of no pass: the pass is hashed, but not a column."""
        is_open = np.ones(len(columns.instance_ids), np.bool_)
        key = bytes.fromhex(self.dataset.manifest.fingerprints.instances)
        for number in range(self.num_passes):
            if is_open.any():
                passes = np.full(len(is_open), number)
                ids = instance_ids(key, passes, columns.spans)
                is_open &= (ids != columns.instance_ids).any(axis=1)
        return is_open

    def _redrawn(self, columns: InstanceColumns, rule: MaskRule) -> Any:
        assert columns.masks is not None
        ids = np.ascontiguousarray(columns.instance_ids).view(np.uint64)
        variants = np.arange(columns.num_variants)
        drawn = draw_masks(columns.tokens, ids, variants, rule)
        step = columns.num_variants
        sides = [
            join_rows(
                binary_column(masks.positions.astype("<u2"), masks.starts[::step]),
                binary_column(masks.token_ids.astype("<u4"), masks.starts[::step]),
                binary_column(np.diff(masks.starts).astype("<u4"), np.arange(len(ids) + 1) * step),
            )
            for masks in (columns.masks, drawn)
        ]
        return np.array([a != b for a, b in zip(*sides, strict=True)])

    def _count(self, columns: InstanceColumns, split: str) -> None:
        label, chunk = columns.next_sentence_label, columns.num_chunk_sentences
        for reason, number in (
            ("all", len(label)),
            ("next", (label == 0).sum()),
            ("random", (label == 1).sum()),
            ("forced_random", (chunk == 1).sum()),
        ):
            self.counts[split, reason] += int(number)

    def close(self, split: str) -> Iterator[Finding]:
        """Yield whether the digests of a finished split are those of the manifest."""
        entry = self.dataset.manifest.splits[split]
        for name, found, stated in (
            ("instances", self.digest.instances, entry.instances_digest),
            ("dataset", self.digest.dataset, entry.dataset_digest),
        ):
            if found.hexdigest() != stated:
                yield Finding(
                    file=MANIFEST_NAME,
                    problem=f"the {name} digest of {split} is {found.hexdigest()}, "
                    f"but the manifest says {stated}",
                )
        self.digest = Digest()


def _ledger_findings(dataset: Dataset, checker: _RowChecker) -> Iterator[Finding]:
    try:
        ledger = from_json(dataset.manifest.ledger)
        faults = ledger_faults(ledger)
    except (AttributeError, TypeError, ValueError):
        yield Finding(file=MANIFEST_NAME, problem="its ledger is not made of counts")
        return
    for fault in faults:
        yield Finding(file=MANIFEST_NAME, problem=f"its ledger does not close: {fault}")
    found: Counter[tuple[str, str, str]] = Counter()
    for (split, reason), count in checker.counts.items():
        found["instances", split, reason] = count
    for batch in dataset.documents():
        pairs = zip(*(batch.column(name).to_pylist() for name in ("split", "fate")), strict=True)
        found.update(("documents", split, fate) for split, fate in pairs)
    for key, count in sorted(found.items()):
        if ledger[key] != count:
            yield Finding(
                file=MANIFEST_NAME,
                problem=f"its ledger has {ledger[key]} for {' '.join(key)}, but there are {count}",
            )
