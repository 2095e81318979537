"""Checkpoints: whole or absent, found and rotated by step, read without running anything.

`RUN/checkpoints/step-00001000/` holds `model.safetensors`, `optimizer.safetensors` and
`state.json`, which has the size and checksum of the other two. It is filled under another name
and appears by one rename. A checkpoint is *complete* when its state can be read and its files are
those that the state names.
"""

import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from clozemill import __version__
from clozemill.pipeline.errors import DatasetError, RunError
from clozemill.pipeline.files import (
    aside_path,
    atomic_folder,
    file_checksum,
    is_temporary,
)
from clozemill.pipeline.json_records import canonical_json, from_json, read_object, to_json
from clozemill.train.facts import RunFacts
from clozemill.train.tensors import Tensors, read_tensors, write_tensors
from clozemill.train.window import Window

FORMAT_VERSION = 1
"""Raised when a reader of the last version would misread a checkpoint."""

MODEL_NAME, OPTIMIZER_NAME, STATE_NAME = "model.safetensors", "optimizer.safetensors", "state.json"
_TENSOR_FILES = (MODEL_NAME, OPTIMIZER_NAME)
_STEP_FOLDER = re.compile(r"step-(\d{1,18})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """Where a training stands after a step, but for its tensors."""

    step: int
    """Optimizer updates done."""

    epoch: int
    """The epoch of the next global batch."""

    position: int
    """Instances of that epoch that were consumed."""

    num_tokens: int
    """Tokens seen so far without padding, over all epochs."""

    num_instances: int
    """Instances seen so far, over all epochs."""

    facts: RunFacts
    """What the run is, and what computed this."""

    window: Window = field(default_factory=Window)
    """Sums since the last logged row."""

    scaler: dict[str, int | float] = field(default_factory=dict)
    """State of the loss scaler of fp16; empty without one."""

    def __post_init__(self) -> None:
        """Raise `RunError` for a count below 0."""
        for name in ("step", "epoch", "position", "num_tokens", "num_instances"):
            if getattr(self, name) < 0:
                raise RunError(f"{name} is {getattr(self, name)}; it must be at least 0.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """All that a training needs to go on."""

    state: TrainingState
    """Where it stands."""

    model: Tensors
    """Parameters by name, as `model_tensors` returns them."""

    optimizer: Tensors
    """State of the optimizer by name, as `optimizer_tensors` returns it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileEntry:
    """A file of a checkpoint, as its state lists it."""

    num_bytes: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _StateFile:
    """What `state.json` holds."""

    format_version: int
    package_version: str
    state: TrainingState
    files: dict[str, _FileEntry]


def step_folder(folder: Path, step: int) -> Path:
    """Return where the checkpoint of a step lies.

    >>> step_folder(Path("RUN/checkpoints"), 1000).name
    'step-00001000'
    """
    return folder / f"step-{step:08d}"


def step_of(path: Path) -> int | None:
    """Return the step that a checkpoint's folder is named for; None for any other name.

    >>> step_of(Path("RUN/checkpoints/step-00001000")), step_of(Path("notes"))
    (1000, None)
    """
    match = _STEP_FOLDER.fullmatch(path.name)
    return int(match[1]) if match else None


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint into the folder of all, and return its own folder.

    Only one process may call this; others wait at a barrier. A complete checkpoint of the same
    step stays as it is, an incomplete one is replaced.

    Raises:
        RunError: The disk is full, or the folder cannot be written. Other checkpoints are as
            they were, and nothing half-written is left.
    """
    path = step_folder(folder, checkpoint.state.step)
    if os.path.lexists(path):
        if defect(path) is None:
            return path
        delete_checkpoint(path)
    try:
        with atomic_folder(path) as aside:
            write_tensors(aside / MODEL_NAME, checkpoint.model)
            write_tensors(aside / OPTIMIZER_NAME, checkpoint.optimizer)
            _write_state(aside, checkpoint.state)
    except (DatasetError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        reason = cause.strerror if isinstance(cause, OSError) else None
        raise RunError(
            f"cannot save the checkpoint {path}: {reason or error}; earlier ones are unharmed. "
            "Free some space, then run the same command again."
        ) from error
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Return a checkpoint, after comparing its files with their checksums.

    Raises:
        RunError: It is incomplete, damaged, or not one of ours.
    """
    return Checkpoint(
        state=read_complete_state(path),
        model=read_tensors(path / MODEL_NAME),
        optimizer=read_tensors(path / OPTIMIZER_NAME),
    )


def read_complete_state(path: Path) -> TrainingState:
    """Return where a checkpoint stands, after comparing its files with their checksums.

    Raises:
        RunError: It is incomplete, damaged, or not one of ours.
    """
    table = _read_state_file(path)
    _check_files(path, table.files)
    return table.state


def defect(path: Path) -> str | None:
    """Return why a checkpoint is not complete, or None if it is; reads all its bytes."""
    try:
        read_complete_state(path)
    except RunError as error:
        return str(error)
    return None


def find_latest(folder: Path) -> tuple[Path | None, list[str]]:
    """Return the newest complete checkpoint of a folder, and why newer ones were skipped.

    Returns:
        The checkpoint's folder, or None where there is no checkpoint at all, and a text for each
        one that was skipped, newest first.

    Raises:
        RunError: There are checkpoints, but none is complete.
    """
    skipped: list[str] = []
    for _, path in list_checkpoints(folder):
        reason = defect(path)
        if reason is None:
            return path, skipped
        skipped.append(f"skipped {path}: {reason}")
    if skipped:
        raise RunError(
            f"no checkpoint in {folder} is complete, of {len(skipped)} ({skipped[0]}); copy one "
            "from elsewhere, or start again with --resume never --overwrite."
        )
    return None, skipped


def rotate(folder: Path, keep: int) -> list[Path]:
    """Delete all but the newest complete checkpoints, and what killed saves left.

    Incomplete ones do not count; they go once they are older than all that are kept.

    Args:
        folder: The folder of all checkpoints of a run.
        keep: How many stay; at least 1.

    Returns:
        The folders that were deleted.
    """
    assert keep >= 1, keep
    remove_leftovers(folder)
    kept: list[Path] = []
    deleted: list[Path] = []
    found = list_checkpoints(folder)
    for _, path in found if len(found) > keep else ():
        if len(kept) < keep:
            if defect(path) is None:
                kept.append(path)
        else:
            deleted.append(path)
    for path in deleted:
        delete_checkpoint(path)
    return deleted


def remove_leftovers(folder: Path) -> None:
    """Delete what saves and deletions left in a folder of checkpoints when they were killed."""
    for path in folder.glob(".step-*.tmp"):
        if is_temporary(path.name):
            shutil.rmtree(path, ignore_errors=True)


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Return step and path of what is named like a checkpoint, whole or not, newest first.

    Raises:
        RunError: The folder cannot be read.
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        names = []
    except OSError as error:
        raise RunError(f"cannot read {folder}: {error.strerror}.") from error
    paths = [folder / name for name in names]
    found = [(step, path) for path in paths if (step := step_of(path)) is not None]
    return sorted(found, reverse=True)


def delete_checkpoint(path: Path) -> None:
    """Delete a checkpoint; killed meanwhile, no half of one is left under its name.

    Raises:
        RunError: The folder cannot be written.
    """
    aside = aside_path(path)
    try:
        path.rename(aside)
    except OSError as error:
        raise RunError(f"cannot delete {path}: {error.strerror}.") from error
    if aside.is_symlink() or not aside.is_dir():
        aside.unlink()
    else:
        shutil.rmtree(aside, ignore_errors=True)


def _write_state(folder: Path, state: TrainingState) -> None:
    files = {
        name: _FileEntry(
            num_bytes=(folder / name).stat().st_size, checksum=file_checksum(folder / name)
        )
        for name in _TENSOR_FILES
    }
    table = _StateFile(
        format_version=FORMAT_VERSION, package_version=__version__, state=state, files=files
    )
    try:
        text = canonical_json(to_json(table)) + "\n"
    except ValueError as error:
        raise RunError(f"the state of step {state.step} has a sum that is not finite.") from error
    (folder / STATE_NAME).write_text(text, encoding="utf-8")


def _read_state_file(path: Path) -> _StateFile:
    where = path / STATE_NAME
    table = read_object(where, format_version=FORMAT_VERSION, error=RunError)
    record = from_json(_StateFile, table, str(where), error=RunError)
    if sorted(record.files) != sorted(_TENSOR_FILES):
        raise RunError(f"{where} lists {sorted(record.files)!r:.100}, not {list(_TENSOR_FILES)}.")
    if step_of(path) not in (None, record.state.step):
        raise RunError(f"{where} is of step {record.state.step}, which its folder is not.")
    return record


def _check_files(path: Path, files: dict[str, _FileEntry]) -> None:
    """Raise `RunError` unless each file has the size and checksum that the state gives it."""
    for name, entry in files.items():
        try:
            num_bytes = (path / name).stat().st_size
        except OSError as error:
            raise RunError(f"cannot read {path / name}: {error.strerror}.") from error
        if num_bytes != entry.num_bytes:
            raise RunError(f"{path / name} has {num_bytes} bytes, {entry.num_bytes} were written.")
        try:
            checksum = file_checksum(path / name)
        except DatasetError as error:
            raise RunError(str(error)) from error
        if checksum != entry.checksum:
            raise RunError(f"{path / name} has changed since it was written: its checksum differs.")
