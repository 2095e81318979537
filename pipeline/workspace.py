"""The output folder: who may write it, and what an earlier run left there.

A build works in `OUT/.build/`, which holds a lock, what is being built (`build.json`) and the
tasks' receipts. It goes when the manifest is there. So a folder is one of: empty, unfinished
(has `.build/`), finished (has `manifest.json`), or somebody else's.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from clozemill import __version__
from clozemill.pipeline.build_identity import as_json, check_same, rewriting_verb, share_an_input
from clozemill.pipeline.dataset_names import (
    LOG_NAME,
    MANIFEST_NAME,
    OWN_FILES,
    TOKENIZER_FOLDER,
    WORK_NAME,
    is_output_name,
)
from clozemill.pipeline.errors import ConfigError, DatasetError, InputError
from clozemill.pipeline.files import is_temporary, write_json
from clozemill.pipeline.lock import lock_file
from clozemill.pipeline.manifest import read_manifest
from clozemill.pipeline.out_folder import check_out


class Workspace:
    """An output folder that this process alone may write."""

    def __init__(self, out: Path) -> None:
        """Name the folders; nothing is made yet."""
        self.out = out
        self.is_new = not out.exists()
        self.work = out / WORK_NAME
        self.map_dir = self.work / "map"
        self.reduce_dir = self.work / "reduce"
        self.spool_dir = self.work / "spool"
        self.tokenizer_dir = self.work / TOKENIZER_FOLDER
        """What the tasks load; the dataset's own is written when it is finished."""

    @property
    def is_finished(self) -> bool:
        """Whether the folder holds a dataset."""
        return (self.out / MANIFEST_NAME).exists()

    @property
    def is_unfinished(self) -> bool:
        """Whether a build was begun here and did not end."""
        return self._record.exists()

    @property
    def _replaced(self) -> Path:
        return self.work / "replaced.json"

    @property
    def _record(self) -> Path:
        return self.work / "build.json"

    def begin(self, identity: dict[str, Any], *, overwrite: bool = False) -> None:
        """Take up an unfinished build of the same settings, or start one.

        Args:
            identity: What tells this build from others, ready for JSON.
            overwrite: Undo an unfinished build with other settings. A dataset stays until
                `make_room`, so that it is not lost to a build that comes to nothing.

        Raises:
            ConfigError: The folder holds an unfinished build with other settings, or other files.
        """
        identity = as_json({**identity, "package_version": __version__})
        found = self._found()
        asked = {**identity, "inputs": found.get("inputs")}
        if found.get("inputs") and not share_an_input(found, identity):
            asked = identity
        if found.get("on_bad_input") == "error":
            # What was read so far is good, so it is what any tolerance reads there: the way out
            # that the error names needs no --overwrite.
            found["on_bad_input"] = asked["on_bad_input"]
        if self.is_unfinished and overwrite and found != asked:
            self._undo()
        elif self.is_unfinished:
            check_same(found, asked, self.out, "an unfinished build")
            self._remove_temporaries()
            self._forget_changed(found.get("inputs", {}), identity.get("inputs", {}))
        elif not self.is_finished:
            self._check_empty()
        for folder in (self.map_dir, self.reduce_dir, self.spool_dir):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(self._record, identity)

    def _found(self) -> dict[str, Any]:
        """Return what an unfinished build is of; nothing if that cannot be read."""
        try:
            found = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def check_finished(self, identity: dict[str, Any]) -> None:
        """Raise `ConfigError` unless the finished dataset is what the identity asks for."""
        with contextlib.suppress(
            OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError
        ):
            log = (self.out / LOG_NAME).read_text().splitlines()
            found = json.loads(log[0])["identity"]
            asked = as_json(identity)
            way_out = rewriting_verb(found, asked, self.out)
            return check_same(found, asked, self.out, "a dataset", way_out)
        raise ConfigError(
            f"{self.out} holds a dataset without a readable {LOG_NAME}, so nobody can say if it is "
            "the one asked for; use --overwrite or another --out."
        )

    def make_room(self) -> None:
        """Delete the dataset that this build replaces: only the disk can fail it from now on.

        Its manifest goes first, but for a list of its files, by which a clearing that was killed
        goes on.
        """
        if self.is_finished:
            write_json(self._replaced, self._dataset_names())
            (self.out / MANIFEST_NAME).unlink()
        if self._replaced.exists():
            self._delete(json.loads(self._replaced.read_text()))
            self._replaced.unlink()

    def end(self) -> None:
        """Delete what only the build needed, and what a worker that was lost left half-written."""
        self._remove_temporaries()
        shutil.rmtree(self.work, ignore_errors=True)

    def discard(self) -> None:
        """Delete a build that cannot be finished as it was asked for; datasets stay."""
        if self.is_unfinished:
            self._undo()
            for folder in (self.spool_dir, self.tokenizer_dir):
                shutil.rmtree(folder, ignore_errors=True)
            self._record.unlink()

    @contextlib.contextmanager
    def discarding_hopeless(self, *, has_read_all: bool = False) -> Iterator[None]:
        """Leave nothing behind after an input that this very command can never be built from.

        What was read is kept while another try may read the rest: a network may come back.
        """
        try:
            yield
        except InputError:
            if has_read_all or not any(self.map_dir.glob("*.json")):
                self.discard()
            raise

    def leave(self) -> None:
        """Delete folders that were made for a build and hold nothing."""
        folders = [self.map_dir, self.reduce_dir, self.spool_dir, self.work]
        for folder in folders + [self.out] * self.is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()

    def _forget_changed(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        """Undo what rests on inputs that were mended, added or taken away since.

        What was read of the other files stays.
        """
        if before == now:
            return
        for receipt in self.map_dir.glob("*.json"):
            with contextlib.suppress(ValueError, LookupError):
                paths = {split["path"] for split in json.loads(receipt.read_text())["splits"]}
                if all(path in before and before[path] == now.get(path) for path in paths):
                    continue
            receipt.unlink()
        shutil.rmtree(self.reduce_dir, ignore_errors=True)
        self._delete(self._output_names())

    def _check_empty(self) -> None:
        foreign = sorted(path.name for path in self.out.iterdir() if path != self.work)
        if foreign:
            raise ConfigError(
                f"{self.out} holds {foreign[0]!r} and is not a dataset of ours; "
                "choose an empty or new folder for --out."
            )

    def _undo(self) -> None:
        """Delete what an unfinished build wrote, and nothing else."""
        self._delete(self._output_names())
        self._remove_temporaries()
        for folder in (self.map_dir, self.reduce_dir):
            shutil.rmtree(folder, ignore_errors=True)

    def _output_names(self) -> list[str]:
        """Return what an unfinished build has written beside its own folder.

        A task that was killed has left no receipt, so its files are known by name alone. Where
        there is a dataset, such files are the dataset's.
        """
        return [] if self.is_finished else self._names_that_look_ours()

    def _dataset_names(self) -> list[str]:
        """Return the files of the dataset but its manifest, which may be damaged."""
        try:
            manifest = read_manifest(self.out)
        except DatasetError:
            return self._names_that_look_ours()
        return [*(entry.path for entry in manifest.files), *OWN_FILES]

    def _names_that_look_ours(self) -> list[str]:
        names = [path.name for path in self.out.iterdir() if is_output_name(path.name)]
        return [*names, *OWN_FILES]

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            (self.out / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            (self.out / TOKENIZER_FOLDER).rmdir()

    def _remove_temporaries(self) -> None:
        for folder in (self.out, self.work, self.map_dir, self.reduce_dir, self.tokenizer_dir):
            if folder.is_dir():
                for path in folder.iterdir():
                    if is_temporary(path.name):
                        path.unlink(missing_ok=True)


@contextlib.contextmanager
def open_workspace(out: Path) -> Iterator[Workspace]:
    """Give the folder to this process alone, making it if need be.

    Raises:
        ConfigError: Another build is writing the folder, it cannot be made, or it lies inside a
            dataset.
    """
    check_out(out)
    workspace = Workspace(out)
    try:
        workspace.work.mkdir(parents=True, exist_ok=True)
        lock = lock_file(workspace.work / "lock")
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
    except OSError as error:
        cause = "is ulimit -n too low" if error.errno == errno.EMFILE else "is the disk full"
        raise DatasetError(
            f"{error.filename or out}: {error.strerror or error}; mend that ({cause}?), then run "
            "the same command again."
        ) from error
    finally:
        with contextlib.suppress(OSError):
            (workspace.work / "lock").unlink()
        workspace.leave()
        os.close(lock)
