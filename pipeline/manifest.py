"""The manifest: the JSON file that makes a folder of shards a dataset, written last."""

import dataclasses
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozemill.pipeline.config import SPLITS, BuildConfig, Kind
from clozemill.pipeline.dataset_names import MANIFEST_NAME
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.files import atomic_file, bytes_spelled_out, has_utf8_name, open_regular
from clozemill.pipeline.fingerprints import Fingerprints
from clozemill.pipeline.json_records import from_json, parse_object
from clozemill.pipeline.other_folders import other_folder
from clozemill.pipeline.shards import DocumentsFile, Shard
from clozemill.pipeline.tokenizer import ROLES

FORMAT_VERSION = 1
"""Raised when a reader of the last version would misread the files."""

_FINGERPRINT = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerEntry:
    """The tokenizer whose ids the shards hold; its files lie in `tokenizer/`."""

    hash: str
    """Of what decides its ids."""

    vocab_size: int
    """Number of token ids; all are below it."""

    special_ids: dict[str, int]
    """Ids of `pad`, `unk`, `cls`, `sep`, `mask`."""

    files: dict[str, str]
    """Checksum of each file in `tokenizer/`, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitEntry:
    """What a split holds in all."""

    num_instances: int
    """Rows of its shards."""

    num_tokens: int
    """Sum of their lengths."""

    num_variants: int
    """Static maskings stored with every instance."""

    instances_digest: str
    """32 hex digits: see `Digest.instances`."""

    dataset_digest: str
    """32 hex digits: see `Digest.dataset`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything about a dataset but its rows. Nothing depends on time or machine."""

    format_version: int = FORMAT_VERSION
    """Version of the format in docs/format.md."""

    package_version: str
    """The clozemill that wrote the dataset."""

    configuration: dict[str, Any]
    """Settings that decide instances, masks and layout, by name."""

    fingerprints: Fingerprints
    """What a rerun compares."""

    tokenizer: TokenizerEntry
    """Whose ids these are."""

    generator_version: int
    """Version of the random draws."""

    libraries: dict[str, str]
    """Versions of the libraries that decide content."""

    sources: tuple[str, ...]
    """The corpora, sorted: the dictionary of every shard's `source` column."""

    splits: dict[str, SplitEntry]
    """By name; a split without instances is absent."""

    shards: tuple[Shard, ...]
    """In order: instance i of a split is the i-th row of its shards."""

    documents: tuple[DocumentsFile, ...]
    """The files with one row per distinct document."""

    ledger: dict[str, Any]
    """What became of every document and token read: nested counts."""

    label_expectations: dict[str, Any]
    """Expected next-sentence labels, by split and source."""

    @property
    def max_seq_length(self) -> int:
        """Longest instance, in tokens with specials."""
        return int(self.configuration["max_seq_length"])

    @property
    def has_pairs(self) -> bool:
        """Whether instances are pairs of segments with next-sentence labels."""
        return self.configuration.get("recipe") == "bert"

    def build_config(self) -> BuildConfig:
        """Return the settings the dataset was built with; inputs and the like are defaults.

        Raises:
            DatasetError: A setting has a value that no build accepts, or one of masks is missing.
        """
        self.require("masks")
        known = {item.name for item in dataclasses.fields(BuildConfig)}
        settings = {k: v for k, v in self.configuration.items() if k in known}
        try:
            return BuildConfig(**settings)
        except ConfigError as error:
            raise DatasetError(f"the configuration in {MANIFEST_NAME} is none: {error}") from error

    def require(self, *kinds: Kind) -> None:
        """Raise `DatasetError` unless every setting of these kinds is stated."""
        for name in BuildConfig().settings(*kinds):
            if name not in self.configuration:
                raise DatasetError(
                    f"the configuration in {MANIFEST_NAME} has no {name}; copy the dataset again."
                )

    @property
    def files(self) -> tuple[Shard | DocumentsFile, ...]:
        """Every listed file of rows."""
        return (*self.shards, *self.documents)

    def shards_of(self, split: str) -> tuple[Shard, ...]:
        """Return the shards of one split, in order."""
        return tuple(shard for shard in self.shards if shard.split == split)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest as canonical JSON; from this moment the folder is a dataset."""
    with atomic_file(folder / MANIFEST_NAME) as sink:
        sink.write(manifest_bytes(manifest))


def manifest_bytes(manifest: Manifest) -> bytes:
    """Return the manifest's file content, one for equal manifests: keys sorted, a shard a line."""
    table = dataclasses.asdict(manifest)
    lines = [f"{_json(key)}: {_json_value(table[key])}" for key in sorted(table)]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, indent=indent, sort_keys=True, ensure_ascii=False, allow_nan=False)


def _json_value(value: Any) -> str:
    if isinstance(value, tuple) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(f" {_json(entry)}" for entry in value) + "\n]"
    return _json(value, indent=1)


def dataset_folder(named: str | os.PathLike[str]) -> Path:
    """Return the folder of a dataset that is named by itself or by its manifest."""
    path = Path(named)
    return path.parent if path.name == MANIFEST_NAME and path.is_file() else path


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a dataset folder.

    Raises:
        DatasetError: There is none (the build did not finish), it is damaged, or a newer
            clozemill wrote it.
    """
    path = folder / MANIFEST_NAME
    if not has_utf8_name(folder):
        raise DatasetError(
            f"the name of {bytes_spelled_out(str(folder))} is not UTF-8; rename the folder."
        )
    try:
        with open_regular(path) as stream:
            data = stream.read()
    except (FileNotFoundError, NotADirectoryError):
        raise DatasetError(_no_manifest(folder)) from None
    except OSError as error:
        raise DatasetError(f"cannot read {path}: {error.strerror}.") from error
    return parse_manifest(data, str(path))


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Return the manifest in the bytes, with every key and type checked; `where` is for errors."""
    table = parse_object(data, where, error=_damaged)
    version = table.get("format_version")
    if not isinstance(version, int):
        raise DatasetError(f"{where} is not the manifest of a clozemill dataset.")
    if version != FORMAT_VERSION:
        writer = table.get("package_version")
        raise DatasetError(
            f"{where} has format version {version}, but this clozemill reads {FORMAT_VERSION}; "
            f"install the clozemill that wrote it{f' ({writer!s:.60})' if writer else ''}."
        )
    manifest = from_json(Manifest, table, where, error=_damaged)
    _check_whole(manifest, where)
    return manifest


def _damaged(what: str) -> DatasetError:
    return DatasetError(f"{what.removesuffix('.')}; copy the dataset again.")


def _no_manifest(folder: Path) -> str:
    if folder.is_file():
        return f"{folder} is a file; give the dataset's folder."
    if not folder.is_dir():
        return f"there is no dataset at {folder}: no such folder; check the path."
    if os.listdir(folder):
        return other_folder(folder) or (
            f"{folder} holds no {MANIFEST_NAME}, so it is not a finished dataset; if a build was "
            "interrupted, run the same clozemill build command again and it will finish."
        )
    return f"{folder} is empty; build a dataset into it with clozemill build."


def _check_whole(manifest: Manifest, where: str) -> None:
    """Raise `DatasetError` unless the parts of the manifest agree with each other."""
    longest = manifest.configuration.get("max_seq_length")
    if not isinstance(longest, int) or not 3 <= longest < 2**16:
        raise _damaged(
            f"{where}: configuration.max_seq_length is {longest!r:.60}; it must be a length from 3 "
            "to 65,535"
        )
    if not _FINGERPRINT.fullmatch(manifest.fingerprints.instances):
        raise _damaged(
            f"{where}: fingerprints.instances is {manifest.fingerprints.instances!r:.60}; it must "
            "be 32 hex digits"
        )
    for role in ROLES:
        if manifest.tokenizer.special_ids.get(role, -1) not in range(manifest.tokenizer.vocab_size):
            raise _damaged(f"{where} has no id for the {role} token")
    for name, entry in manifest.splits.items():
        if name not in SPLITS:
            raise _damaged(f"{where} has the unknown split {name!r:.60}")
        shards = manifest.shards_of(name)
        rows = sum(shard.num_instances for shard in shards)
        tokens = sum(shard.num_tokens for shard in shards)
        if (rows, tokens) != (entry.num_instances, entry.num_tokens):
            raise _damaged(
                f"{where} gives {name} {entry.num_instances} instances of {entry.num_tokens} "
                f"tokens, but its shards have {rows} of {tokens}"
            )
        if entry.num_variants < 0:
            raise _damaged(f"{where} gives {name} {entry.num_variants} variants")
    for shard in manifest.shards:
        if shard.split not in manifest.splits:
            raise _damaged(
                f"{where} puts {shard.path} into the split {shard.split!r:.60}, which it does not "
                "describe"
            )
    paths = [file.path for file in manifest.files]
    if len(set(paths)) < len(paths):
        raise _damaged(f"{where} names a file twice")
