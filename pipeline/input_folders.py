"""The files that a folder or pattern brings in, without what clozemill itself wrote there."""

import os
import posixpath
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from clozemill.pipeline.dataset_names import WORK_NAME, is_dataset
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.read_bytes import one_line

_HIDDEN = re.compile(r"/\.[^/]*")
_WORK_FILES = {"lock", "build.json"}
_VOCABULARIES = {"tokenizer.json", "vocab.txt"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFiles:
    """What lies below a folder or matches a pattern."""

    files: dict[str, Any]
    """What the file system says of each file, by path."""

    own_folders: tuple[str, ...]
    """Datasets, unfinished builds and tokenizers, whose files are left out."""

    hidden: tuple[str, ...]
    """Files and folders whose names begin with a dot, which are left out too."""


def find_files(fs: Any, root: str, name: str) -> FoundFiles:
    """Return every file below a folder or matching a pattern.

    Args:
        fs: The fsspec file system.
        root: The folder or pattern, as the file system writes it.
        name: The same, as the user wrote it.

    Raises:
        InputError: There is none, a folder cannot be read, or it is a dataset or tokenizer.
    """
    if fs.isdir(root):
        names = set(map(posixpath.basename, fs.ls(root, detail=False)))
        if is_dataset(names) or _is_tokenizer(names):
            what = "dataset" if is_dataset(names) else "tokenizer"
            raise InputError(f"{name} is a {what} and no text; name the folder of the texts.")
        found = _files_below(fs, root)
        if not any((found.files, found.own_folders, found.hidden)):
            raise InputError(f"the folder {name} holds no files; name another.")
        return found
    if fs.exists(root):
        raise InputError(f"{name} is neither file nor folder; pipe it in and name - as the input.")
    if not any(character in root for character in "*?["):
        raise InputError(f"{name} does not exist; check the path.")
    found = _files_matching(fs, root)
    if not any((found.files, found.own_folders, found.hidden)):
        raise InputError(f"no file matches the pattern {name}; check it, and quote it.")
    return found


def is_file(info: dict[str, Any]) -> bool:
    """Return whether a file system's entry can be read as a file; a link is what it leads to."""
    if not info.get("islink"):
        return bool(info["type"] == "file")
    try:
        return stat.S_ISREG(os.stat(info["name"]).st_mode)
    except OSError:
        return True  # it leads nowhere, which reading it will say


def _files_below(fs: Any, root: str) -> FoundFiles:
    found = _find(fs, root)
    return _without_own(found, root, _names_by_folder(found))


def _files_matching(fs: Any, pattern: str) -> FoundFiles:
    """Return the files that match a pattern, and those below folders that do."""
    found: dict[str, Any] = {}
    for path, info in fs.glob(pattern, detail=True).items():
        is_folder = _is_linked_folder(info) or info["type"] == "directory"
        found |= _find(fs, path) if is_folder else {path: info}
    first_magic = min(pattern.find(character) for character in "*?[" if character in pattern)
    root = posixpath.dirname(pattern[:first_magic])
    names = _names_by_folder(found)
    # The files that tell what a folder is need not match.
    for folder in {folder for path in found for folder in _folders_of(path, root)}:
        for inner in (folder, f"{folder}/.build"):
            if fs.isdir(inner):
                names[inner].update(map(posixpath.basename, fs.ls(inner, detail=False)))
    reads_hidden = "/." in pattern[len(root) :]  # the pattern asks for them
    return _without_own(found, root, names, reads_hidden=reads_hidden)


def _is_linked_folder(info: dict[str, Any]) -> bool:
    """Return whether a file system's entry is a symbolic link to a folder."""
    return bool(info.get("islink")) and posixpath.isdir(info["name"])


def _find(fs: Any, root: str) -> dict[str, Any]:
    """Return every file below a folder, by path."""
    if isinstance(fs, LocalFileSystem):
        return _walk(fs, root)
    found: dict[str, Any] = fs.find(root, detail=True)
    return found


def _walk(fs: Any, root: str) -> dict[str, Any]:
    """Do what `fs.find` does, which however passes over folders that it cannot read."""
    found: dict[str, Any] = {}
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            entries = fs.ls(folder, detail=True)
        except OSError as error:
            raise InputError(
                f"cannot read the folder {folder}: {one_line(error)}; mend that, or name the "
                "files beside it."
            ) from error
        for info in entries:
            if info["type"] == "directory" and info["name"] != folder:
                pending.append(info["name"])
            else:
                found[info["name"]] = info
    return found


def _names_by_folder(paths: Iterable[str]) -> defaultdict[str, set[str]]:
    names: defaultdict[str, set[str]] = defaultdict(set)
    for path in paths:
        names[posixpath.dirname(path)].add(posixpath.basename(path))
    return names


def _folders_of(path: str, root: str) -> Iterator[str]:
    """Yield the folders of a file that lie below the root, innermost first."""
    folder = posixpath.dirname(path)
    while folder not in (root, "/", ""):
        yield folder
        folder = posixpath.dirname(folder)


def _without_own(
    found: dict[str, Any], root: str, names: dict[str, set[str]], *, reads_hidden: bool = False
) -> FoundFiles:
    files: dict[str, Any] = {}
    own: set[str] = set()
    hidden: set[str] = set()
    for path, info in found.items():
        if folder := _own_folder(path, root, names):
            own.add(folder)
        elif not reads_hidden and (place := _hidden_place(path, root)):
            hidden.add(place)
        else:
            files[path] = info
    return FoundFiles(files=files, own_folders=tuple(sorted(own)), hidden=tuple(sorted(hidden)))


def _hidden_place(path: str, root: str) -> str | None:
    """Return the file or the outermost folder below the root whose name hides a file, if any.

    >>> _hidden_place("/texts/.git/refs/a.txt", "/texts")
    '/texts/.git'
    """
    match = _HIDDEN.search(path, len(root.rstrip("/")))
    return path[: match.end()] if match else None


def _own_folder(path: str, root: str, names: dict[str, set[str]]) -> str | None:
    """Return the dataset, build or tokenizer that a file belongs to, if any."""
    own = None
    for folder in _folders_of(path, root):
        is_tokenizer = folder == posixpath.dirname(path) and _is_tokenizer(names[folder])
        if (
            is_tokenizer
            or is_dataset(names[folder])
            or names[f"{folder}/{WORK_NAME}"] & _WORK_FILES
        ):
            own = folder
    return own


def _is_tokenizer(names: set[str]) -> bool:
    return "tokenizer_config.json" in names and not names.isdisjoint(_VOCABULARIES)
