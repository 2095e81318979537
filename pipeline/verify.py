"""Verify: whether a dataset is what its manifest says, and keeps every law its files can show."""

import dataclasses
import math
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.copychecks import pairs_of_copies
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.dataset_names import LOG_NAME, MANIFEST_NAME, ORIGINS_NAME, TOKENIZER_FOLDER
from clozemill.pipeline.digest import Digest
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.errors import ClozemillError, DatasetError
from clozemill.pipeline.files import file_checksum
from clozemill.pipeline.fingerprints import make_fingerprints
from clozemill.pipeline.instance_ids import instance_ids
from clozemill.pipeline.instances import MaskBatch, starts_of, take_runs
from clozemill.pipeline.ledger import Ledger, from_json, ledger_faults
from clozemill.pipeline.manifest import Manifest, dataset_folder, read_manifest
from clozemill.pipeline.masks import draw_variants
from clozemill.pipeline.progress import OnProgress, shard_progress
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.recount import Recount
from clozemill.pipeline.rowchecks import Flags, broken_rules, row_rules
from clozemill.pipeline.setchecks import SetChecker, id_ranges
from clozemill.pipeline.shards import Shard, check_size
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer

_SUM_ERROR = 1e-9
"""Of sums of floating-point numbers that were added in another order."""

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
    rules for each row, digests, masks drawn again, ids and fingerprints computed again, spans
    against documents, the ledger and the expectations against what is there.

    Args:
        folder: The dataset.
        on_progress: Called after the rows of each shard.

    Raises:
        DatasetError: There is no dataset in the folder, or its manifest or its
            folder cannot be read.
    """
    path = dataset_folder(folder)
    manifest = read_manifest(path)
    try:
        findings = [*_file_findings(path, manifest), *_tokenizer_findings(path, manifest)]
    except OSError as error:
        raise DatasetError(f"cannot read {error.filename}: {error.strerror}.") from error
    if findings:
        return findings
    try:
        dataset = Dataset(path)
        findings = list(_fingerprint_findings(manifest))
        on_shard = shard_progress("checking", manifest.shards, on_progress)
        return findings + list(_row_findings(dataset, on_shard))
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
    rows = _RowChecker(dataset)
    first_range, *other_ranges = id_ranges(dataset)
    sets = SetChecker(dataset, first_range)
    for split in dataset.splits:
        for shard in dataset.manifest.shards_of(split):
            yield from rows.check(shard, sets)
            on_shard(shard)
        yield from rows.close(split)
    yield from _set_findings(sets)
    del sets
    for ids in other_ranges:
        sets = SetChecker(dataset, ids)
        for shard in dataset.manifest.shards:
            for batch in dataset.shard_batches(shard):
                sets.add(read_columns(batch), shard)
        yield from _set_findings(sets)
    for shard, problem in pairs_of_copies(dataset):
        yield Finding(file=shard.path, problem=problem)
    for batch in dataset.documents():
        rows.recount.add_documents(batch)
    yield from _ledger_findings(dataset.manifest, rows.recount.ledger())
    yield from _expectation_findings(dataset.manifest, rows.recount.expected)


def _set_findings(sets: SetChecker) -> Iterator[Finding]:
    for file, problem in sets.problems():
        yield Finding(file=file or MANIFEST_NAME, problem=problem)


class _RowChecker:
    """Looks at every instance once, and sums what the manifest states as sums."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.config: BuildConfig = dataset.manifest.build_config()
        self.digest = Digest()
        self.mask_rule = mask_rule(self.config, _checked_tokenizer(dataset))
        self.has_same_draws = dataset.manifest.generator_version == GENERATOR_VERSION
        self.recount = Recount(self.config, self.mask_rule)
        self.num_passes = max(
            (pc.max(batch.column("num_passes")).as_py() or 0 for batch in dataset.documents()),
            default=0,
        )

    def check(self, shard: Shard, sets: SetChecker) -> Iterator[Finding]:
        """Yield what is wrong with the rows of a shard, and show them to the other checker."""
        broken: dict[str, tuple[int, str]] = {}
        num_tokens = 0
        for batch in self.dataset.shard_batches(shard):
            columns = read_columns(batch)
            num_tokens += int(columns.tokens.starts[-1])
            self.digest.add(batch)
            sets.add(columns, shard)
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

    def _broken(self, columns: InstanceColumns, split: str) -> Iterator[tuple[str, Flags]]:
        is_sound = True
        rules = row_rules(self.dataset.manifest, self.config, split)
        for text, flags in broken_rules(columns, rules):
            is_sound = False
            yield text, flags
        if not is_sound:
            return
        self.recount.add_instances(columns, split)
        wrong_ids = self._wrong_ids(columns)
        if wrong_ids.any():
            yield "have an id that is not the hash of their spans", wrong_ids
        if self.has_same_draws and columns.masks is not None:
            redrawn = self._redrawn(columns, columns.masks)
            if redrawn.any():
                yield "have masks that the seed does not draw", redrawn

    def _wrong_ids(self, columns: InstanceColumns) -> Flags:
        """Return which ids are of no pass: the pass is hashed, but not a column."""
        is_wrong = np.ones(len(columns.instance_ids), np.bool_)
        key = bytes.fromhex(self.dataset.manifest.fingerprints.instances)
        for number in range(self.num_passes):
            rows = np.flatnonzero(is_wrong)
            if not len(rows):
                break
            spans = columns.spans if number == 0 else columns.spans.take(rows)
            ids = instance_ids(key, np.full(len(rows), number), spans)
            is_wrong[rows] = (ids != columns.instance_ids[rows]).any(axis=1)
        return is_wrong

    def _redrawn(self, columns: InstanceColumns, masks: MaskBatch) -> Flags:
        """Return which instances have other masks than the seed draws."""
        drawn = draw_variants(
            columns.tokens, columns.instance_ids, columns.num_variants, self.mask_rule
        )
        differs = np.diff(masks.starts) != np.diff(drawn.starts)
        alike = np.flatnonzero(~differs)
        (starts, ours), (_, theirs) = (take_runs(m.starts, alike) for m in (masks, drawn))
        is_other = (masks.positions[ours] != drawn.positions[theirs]) | (
            masks.token_ids[ours] != drawn.token_ids[theirs]
        )
        sums = starts_of(is_other)
        differs[alike] = sums[starts[1:]] != sums[starts[:-1]]
        return np.asarray(differs.reshape(-1, columns.num_variants).any(axis=1), np.bool_)

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


def _checked_tokenizer(dataset: Dataset) -> PretrainingTokenizer:
    """Return the dataset's tokenizer, if it is the one the manifest describes."""
    manifest, path = dataset.manifest, dataset.tokenizer_dir
    tokenizer = load_tokenizer(path)
    if tokenizer.vocab_size != manifest.tokenizer.vocab_size:
        raise DatasetError(
            f"the tokenizer in {path} has {tokenizer.vocab_size} tokens, but the manifest says "
            f"{manifest.tokenizer.vocab_size}; copy it again."
        )
    if tokenizer.hash != manifest.tokenizer.hash:
        raise DatasetError(
            f"the tokenizer in {path} has the hash {tokenizer.hash}, but the manifest says "
            f"{manifest.tokenizer.hash}; copy the folder again."
        )
    return tokenizer


def _fingerprint_findings(manifest: Manifest) -> Iterator[Finding]:
    found = make_fingerprints(
        manifest.configuration,
        tokenizer_hash=manifest.tokenizer.hash,
        generator_version=manifest.generator_version,
        libraries=manifest.libraries,
    )
    for field in dataclasses.fields(found):
        computed, stated = (getattr(f, field.name) for f in (found, manifest.fingerprints))
        if computed != stated:
            yield Finding(
                file=MANIFEST_NAME,
                problem=f"the {field.name} fingerprint of its configuration is {computed}, but it "
                f"says {stated}",
            )


def _ledger_findings(manifest: Manifest, found: Ledger) -> Iterator[Finding]:
    try:
        ledger = from_json(manifest.ledger)
        is_counts = all(type(count) is int for count in ledger.values())
    except (AttributeError, TypeError, ValueError):
        is_counts = False
    if not is_counts:
        yield Finding(file=MANIFEST_NAME, problem="its ledger is not made of counts")
        return
    for fault in ledger_faults(ledger):
        yield Finding(file=MANIFEST_NAME, problem=f"its ledger does not close: {fault}")
    # Nothing is left in the files of a record that became no document.
    for key in sorted(found.keys() | {key for key in ledger if key[0] != "records"}):
        if ledger[key] != found[key]:
            yield Finding(
                file=MANIFEST_NAME,
                problem=f"its ledger has {ledger[key]} for {' '.join(filter(None, key))}, but "
                f"there are {found[key]}",
            )


def _expectation_findings(
    manifest: Manifest, found: Mapping[tuple[str, str, str], float]
) -> Iterator[Finding]:
    try:
        stated = {
            (split, source, label): float(number)
            for split, sources in manifest.label_expectations.items()
            for source, labels in sources.items()
            for label, number in labels.items()
        }
    except (AttributeError, TypeError, ValueError):
        yield Finding(file=MANIFEST_NAME, problem="its label_expectations are not made of numbers")
        return
    for key in sorted(stated.keys() | found.keys()):
        numbers = stated.get(key, 0.0), found.get(key, 0.0)
        if not math.isclose(*numbers, rel_tol=_SUM_ERROR, abs_tol=_SUM_ERROR):
            yield Finding(
                file=MANIFEST_NAME,
                problem=f"it expects {numbers[0]} for {' '.join(filter(None, key))}, but the "
                f"documents say {numbers[1]}",
            )
