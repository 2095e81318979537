"""The output folder: who may write it, and what an earlier run left there.

A build works in `OUT/.build/`, which holds a lock, what is being built (`build.json`) and the
tasks' receipts. It goes when the manifest is there. So a folder is one of: empty, unfinished
(has `.build/`), finished (has `manifest.json`), or somebody else's.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.files import is_temporary, write_json
from clozemill.pipeline.manifest import MANIFEST_NAME, read_manifest
from clozemill.pipeline.shards import SUFFIX_OF_FORMAT

WORK_NAME = ".build"
LOG_NAME = "build.log.jsonl"
ORIGINS_NAME = "origins.jsonl"
TOKENIZER_NAME = "tokenizer"


class Workspace:
    """An output folder that this process alone may write."""

    def __init__(self, out: Path) -> None:
        """Name the folders; nothing is made yet."""
        self.out = out
        self.work = out / WORK_NAME
        self.map_dir = self.work / "map"
        self.reduce_dir = self.work / "reduce"
        self.spool_dir = self.work / "spool"
        self.tokenizer_dir = out / TOKENIZER_NAME

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds a dataset."""
        return (self.out / MANIFEST_NAME).exists()

    def begin(self, identity: dict[str, Any]) -> None:
        """Take up an unfinished build of the same identity, or start one.

        Raises:
            ConfigError: The folder holds an unfinished build of something else, or other files.
        """
        record = self.work / "build.json"
        if record.exists():
            _check_same(json.loads(record.read_text()), identity, self.out, "an unfinished build")
            self._remove_temporaries()
        else:
            foreign = sorted(path.name for path in self.out.iterdir() if path != self.work)
            if foreign:
                raise ConfigError(
                    f"{self.out} holds {foreign[0]!r} and is not a dataset of ours; "
                    "choose an empty or new folder for --out."
                )
        for folder in (self.map_dir, self.reduce_dir, self.spool_dir):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(record, identity)

    def check_finished(self, identity: dict[str, Any]) -> None:
        """Raise `ConfigError` unless the finished dataset is what the identity asks for."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            log = (self.out / LOG_NAME).read_text().splitlines()
            return _check_same(json.loads(log[0])["identity"], identity, self.out, "a dataset")
        raise ConfigError(
            f"{self.out} holds a dataset without a readable {LOG_NAME}, so nobody can say if it is "
            "the one asked for; use --overwrite or another --out."
        )

    def clear(self) -> None:
        """Delete the dataset or unfinished build: only files that we wrote, the manifest first."""
        if self.is_finished:
            manifest = read_manifest(self.out)
            (self.out / MANIFEST_NAME).unlink()
            self._delete(entry.path for entry in manifest.files)
        for receipt in self.reduce_dir.glob("*.json"):
            with contextlib.suppress(ValueError, KeyError):
                record = json.loads(receipt.read_text())
                self._delete(e["path"] for e in (*record["shards"], record["documents"]))
        self._delete((LOG_NAME, ORIGINS_NAME))
        if (self.work / "build.json").exists():
            self._remove_unreceipted()
        shutil.rmtree(self.tokenizer_dir, ignore_errors=True)
        self._remove_temporaries()
        for folder in (self.map_dir, self.reduce_dir, self.spool_dir):
            shutil.rmtree(folder, ignore_errors=True)
        (self.work / "build.json").unlink(missing_ok=True)

    def end(self) -> None:
        """Delete what only the build needed."""
        shutil.rmtree(self.work, ignore_errors=True)

    def _delete(self, names: Any) -> None:
        for name in names:
            (self.out / Path(name).name).unlink(missing_ok=True)

    def _remove_temporaries(self) -> None:
        for folder in (self.out, self.map_dir, self.reduce_dir, self.tokenizer_dir):
            if folder.is_dir():
                for path in folder.iterdir():
                    if is_temporary(path.name):
                        path.unlink(missing_ok=True)

    def _remove_unreceipted(self) -> None:
        """Delete shards of a bucket whose task had no time to leave a receipt."""
        for suffix in SUFFIX_OF_FORMAT.values():
            for split in ("train", "validation"):
                for path in self.out.glob(f"{split}-[0-9][0-9][0-9][0-9][0-9]-[0-9]*{suffix}"):
                    path.unlink(missing_ok=True)


@contextlib.contextmanager
def open_workspace(out: Path) -> Iterator[Workspace]:
    """Give the folder to this process alone, making it if need be.

    Raises:
        ConfigError: Another build is writing the folder, or it cannot be made.
    """
    workspace = Workspace(out)
    try:
        workspace.work.mkdir(parents=True, exist_ok=True)
        lock = _lock(workspace.work / "lock")
    except BlockingIOError:
        raise ConfigError(
            f"another build is writing {out}; wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise ConfigError(
            f"cannot write to {out}: {error.strerror}; choose another --out."
        ) from error
    try:
        yield workspace
    finally:
        with contextlib.suppress(OSError):
            (workspace.work / "lock").unlink()
            workspace.work.rmdir()
        os.close(lock)


def _lock(path: Path) -> int:
    """Return the descriptor of a locked file; the lock ends with the process, however it ends."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The holder before us may have deleted the file we have just locked.
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                return descriptor
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _check_same(found: dict[str, Any], asked: dict[str, Any], out: Path, what: str) -> None:
    differences = _differences(found, asked)
    if differences:
        raise ConfigError(
            f"{out} holds {what} that differs in {', '.join(differences[:5])}; "
            "use --overwrite to replace it, or another --out."
        )


def _differences(found: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Return the names of what differs, with both values where they are short."""
    lines = []
    for name in sorted({*found, *asked}):
        old, new = found.get(name), asked.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            lines += _differences(old, new)
        elif old != new:
            values = f" ({old!r} there, {new!r} now)"
            lines.append(name + values * (len(values) < 80))
    return lines
