"""What the user names becomes a list of files, and of splits that can be read apart."""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from fsspec.implementations.local import LocalFileSystem

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.files import bytes_spelled_out, has_utf8_name
from clozemill.pipeline.input_folders import find_files, is_file
from clozemill.pipeline.input_splits import (
    TEXT_FORMATS,
    Compression,
    Format,
    InputFile,
    InputSplit,
    splits_of,
)
from clozemill.pipeline.other_formats import conversion
from clozemill.pipeline.read_bytes import BLOCK_BYTES, file_system_of, reading
from clozemill.pipeline.read_hub import full_hub_name, is_hub_name, load_hub_dataset

STANDARD_INPUT = "-"

_FORMATS: dict[str, Format] = {
    ".txt": "txt",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
_COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """All that a list of inputs names."""

    files: tuple[InputFile, ...]
    """Every file once, in the order named; those of a folder or pattern sorted by path."""

    splits: tuple[InputSplit, ...]
    """Their splits, in the same order."""

    ignored: tuple[str, ...]
    """What folders and patterns hold beside: files whose ending tells no format, links to
    folders (they are not followed), sockets and the like; hidden files and folders; and, ending in
    a slash, folders that hold a dataset, an unfinished build or a tokenizer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """All that a configuration names as inputs."""

    training: Listing
    validation: Listing
    """Empty unless validation has inputs of its own."""

    @property
    def files(self) -> tuple[InputFile, ...]:
        """Every file."""
        return self.training.files + self.validation.files

    @property
    def splits(self) -> tuple[InputSplit, ...]:
        """Every split."""
        return self.training.splits + self.validation.splits

    @property
    def ignored(self) -> tuple[str, ...]:
        """Every file that is not read."""
        return self.training.ignored + self.validation.ignored


def list_config_inputs(config: BuildConfig, spool_dir: Path) -> Inputs:
    """Return what the inputs of a configuration name; see `list_inputs`.

    Raises:
        InputError: An input names nothing that can be read.
    """

    def listing(names: Sequence[str]) -> Listing:
        return list_inputs(
            names,
            input_format=config.input_format,
            layout=config.layout,
            spool_dir=spool_dir,
            split_bytes=config.input_split_bytes,
        )

    return Inputs(training=listing(config.inputs), validation=listing(config.validation))


def list_inputs(
    inputs: Sequence[str],
    *,
    input_format: str | None,
    layout: str,
    spool_dir: Path,
    split_bytes: int,
) -> Listing:
    """Return the files and splits that inputs name.

    A file that is named twice (say, by itself and by its folder) is read once. Symbolic links
    are names of their own, followed to files but not to further folders. Datasets, unfinished
    builds and tokenizers below a folder are no input, so that `--out` may lie there; nor is what
    is hidden there (`.git`, `._a.jsonl`). Without `input_format`, files with unknown endings are
    an error where they are named, and ignored where a folder or pattern brings them in; with it
    they are read in that format. Known endings keep theirs.

    Args:
        inputs: Files, folders, patterns, fsspec URLs, `hf:` names, or `-`.
        input_format: Format of standard input (default txt) and of files with other endings.
        layout: What a document is in text files; `prose` files are not split.
        spool_dir: Where standard input is kept, so that it can be split and read again.
        split_bytes: About how large a split is.

    Raises:
        InputError: An input names nothing that can be read.
    """
    files: dict[str, InputFile] = {}
    splits: list[InputSplit] = []
    ignored: dict[str, None] = {}
    for name in inputs:
        for file, place in _files_of(name, input_format, spool_dir, ignored):
            if file.path not in files:
                files[file.path] = file
                splits.extend(splits_of(file, place, layout, split_bytes))
    return Listing(files=tuple(files.values()), splits=tuple(splits), ignored=tuple(ignored))


def check_unchanged(files: Sequence[InputFile]) -> None:
    """Make sure that files are still as they were when they were listed.

    Raises:
        InputError: One has another size or version, or is gone.
    """
    for file in files:
        if file.path == STANDARD_INPUT or file.format == "hf":  # kept, or mapped into memory
            continue
        with reading(file.path):
            fs, path = file_system_of(file.path)
            fs.invalidate_cache(path)
            is_same = _input_file(fs, path, fs.info(path), (file.format, file.compression)) == file
        if not is_same:
            raise InputError(
                f"{file.path} changed while it was read; run the same command again once nothing "
                "writes to it."
            )


def format_of(path: str, input_format: str | None) -> tuple[Format, Compression | None] | None:
    """Return the format and compression that a file's ending tells, or else `input_format`.

    >>> format_of("a/b.jsonl.gz", None), format_of("notes.md", None)
    (('jsonl', 'gzip'), None)
    """
    stem, ending = os.path.splitext(path.lower())
    compression = _COMPRESSIONS.get(ending)
    if compression is not None:
        ending = os.path.splitext(stem)[1]
    file_format = _FORMATS.get(ending, cast("Format | None", input_format))
    if file_format is None or (compression and file_format not in TEXT_FORMATS):
        return None
    return file_format, compression


def _files_of(
    name: str, input_format: str | None, spool_dir: Path, ignored: dict[str, None]
) -> Iterator[tuple[InputFile, str]]:
    """Yield each file that a name stands for, and where to open it."""
    if not name:
        raise InputError("an input is an empty text; name a file or folder (. is this one).")
    if name == STANDARD_INPUT:
        yield _spool(input_format or "txt", spool_dir)
    elif is_hub_name(name):
        file = _hub_file(full_hub_name(name))
        yield file, file.path
    else:
        with reading(name):
            files, others = _stored_files(name, input_format)
        ignored.update(dict.fromkeys(others))
        for file in files:
            yield file, file.path


def _stored_files(name: str, input_format: str | None) -> tuple[list[InputFile], list[str]]:
    """Return the files that a path, folder or pattern stands for, and those ignored."""
    fs, root = file_system_of(name)
    fs.invalidate_cache()
    if fs.isfile(root):
        return [_named_file(fs, root, name, input_format)], []
    found = find_files(fs, root, name)
    files, others = [], []
    for path, info in sorted(found.files.items()):
        kind = format_of(path, input_format)
        if kind is None or not is_file(info):
            others.append(bytes_spelled_out(_full_name(fs, path)))
        else:
            files.append(_input_file(fs, path, info, kind))
    hidden = [bytes_spelled_out(_full_name(fs, path)) for path in found.hidden]
    if not files and not others and hidden:
        raise InputError(f"{name} holds only hidden files, such as {hidden[0]}; name it by itself.")
    if not files and others and (command := conversion(others[0])):
        raise InputError(f"{name} has no file that is read as it is; convert each with {command}.")
    if not files and others:
        raise InputError(
            f"{name} has no .txt, .jsonl, .parquet or .arrow file but others, such as "
            f"{others[0]}; name their format with --input-format."
        )
    own_folders = [_full_name(fs, folder) + "/" for folder in found.own_folders]
    if not files:
        raise InputError(
            f"{name} holds nothing but what clozemill wrote, such as {own_folders[0]}; name the "
            "folder of the texts."
        )
    return files, [*others, *hidden, *own_folders]


def _named_file(fs: Any, path: str, name: str, input_format: str | None) -> InputFile:
    kind = format_of(path, input_format)
    if kind is None and (command := conversion(path)):
        is_json = path.lower().endswith(".json")
        raise InputError(
            f"{name} is not read as it is; convert it with {command}"
            + (", or pass --input-format jsonl if each line is a record." if is_json else ".")
        )
    if kind is None:
        raise InputError(
            f"the ending of {name} tells no format (.txt, .jsonl, each also .gz or .zst; "
            ".parquet, .arrow); name it with --input-format."
        )
    return _input_file(fs, path, fs.info(path), kind)


def _input_file(
    fs: Any, path: str, info: dict[str, Any], kind: tuple[Format, Compression | None]
) -> InputFile:
    if not has_utf8_name(path):
        raise InputError(f"the name of {bytes_spelled_out(path)} is not UTF-8; rename the file.")
    num_bytes, version = info.get("size") or 0, _remote_version(info)
    if isinstance(fs, LocalFileSystem):  # follows links, and knows nanoseconds
        with reading(path):
            status = os.stat(path)
        num_bytes, version = status.st_size, str(status.st_mtime_ns)
    return InputFile(
        path=_full_name(fs, path),
        num_bytes=num_bytes,
        version=version,
        format=kind[0],
        compression=kind[1],
    )


def _full_name(fs: Any, path: str) -> str:
    """Return the one name of a file: its absolute path without `..`, or its URL."""
    if isinstance(fs, LocalFileSystem):
        return os.path.normpath(path)
    return str(fs.unstrip_protocol(path))


def _remote_version(info: dict[str, Any]) -> str:
    names = ("ETag", "etag", "LastModified", "last_modified", "updated", "mtime", "created")
    return next((str(info[name]).strip('"') for name in names if info.get(name)), "")


def _spool(file_format: str, spool_dir: Path) -> tuple[InputFile, str]:
    """Keep standard input in a file that is named by its content's hash."""
    spool_dir.mkdir(parents=True, exist_ok=True)
    aside = spool_dir / f"stdin-{os.getpid()}.tmp"
    digest = hashlib.blake2b(digest_size=16)
    try:
        with open(aside, "wb") as stream:
            for block in _blocks_of_standard_input():
                digest.update(block)
                stream.write(block)
        place = spool_dir.resolve() / f"stdin-{digest.hexdigest()}.{file_format}"
        os.replace(aside, place)
    finally:
        aside.unlink(missing_ok=True)
    file = InputFile(
        path=STANDARD_INPUT,
        num_bytes=place.stat().st_size,
        version=digest.hexdigest(),
        format=cast(Format, file_format),
        compression=None,
    )
    return file, str(place)


def _blocks_of_standard_input() -> Iterator[bytes]:
    if sys.stdin is None:
        raise InputError("standard input is closed; pipe the text in, or name a file.")
    while True:
        with reading("standard input"):
            block = sys.stdin.buffer.read(BLOCK_BYTES)
        if not block:
            return
        yield block


def _hub_file(name: str) -> InputFile:
    load_hub_dataset.cache_clear()  # the folder may have changed since another build
    dataset = load_hub_dataset(name)
    return InputFile(
        path=name,
        num_bytes=dataset.data.nbytes,
        version=str(dataset._fingerprint),
        format="hf",
        compression=None,
    )
