"""The run folder: who may write it, what is in it, and where a training starts.

RUN/run.json             the facts of the run, written once at its start
RUN/metrics.jsonl        its log, see `train/metrics.py`
RUN/train.log            lines for a person, see `train/reporting.py`; starts are added to it
RUN/checkpoints/step-*   see `train/checkpoints.py`
RUN/.lock                only while a training writes the folder
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from clozemill import __version__
from clozemill.pipeline.errors import ConfigError, DatasetError, RunError
from clozemill.pipeline.files import is_temporary, sync_folder, write_json
from clozemill.pipeline.json_records import to_json
from clozemill.pipeline.lock import lock_file
from clozemill.pipeline.out_folder import check_out
from clozemill.train.checkpoints import (
    TrainingState,
    delete_checkpoint,
    find_latest,
    list_checkpoints,
    read_complete_state,
    remove_leftovers,
)
from clozemill.train.config import PretrainConfig
from clozemill.train.facts import (
    CHECKPOINTS_NAME,
    RUN_NAME,
    RunFacts,
    RunRecord,
    check_same_run,
    find_record,
)
from clozemill.train.metrics import METRICS_NAME

_LOCK_NAME = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run folder that this process alone may write, and where training starts."""

    folder: Path
    """The folder itself."""

    checkpoint: Path | None
    """Start from this checkpoint; None at the beginning."""

    state: TrainingState | None
    """Where that checkpoint stands."""

    notices: tuple[str, ...]
    """What a person should know of this start, a sentence each."""

    @property
    def checkpoints(self) -> Path:
        """The folder of all checkpoints."""
        return self.folder / CHECKPOINTS_NAME

    @property
    def metrics(self) -> Path:
        """The log's file; open it with `MetricsLog(run.metrics, last_step=run.step)`."""
        return self.folder / METRICS_NAME

    @property
    def step(self) -> int | None:
        """The step that training goes on from; None at the beginning."""
        return None if self.state is None else self.state.step


@contextlib.contextmanager
def open_run(config: PretrainConfig, facts: RunFacts) -> Iterator[Run]:
    """Give the folder `config.out` to this process alone, and say where training starts.

    Only one process of a training may call this. `config.resume` decides:

    - `auto`: from the newest complete checkpoint in the folder, else from the beginning; with
      `config.overwrite`, from the beginning.
    - `never`: from the beginning; a folder that holds a run is refused.
    - a path: from that checkpoint, or from the newest of that run folder.

    `config.overwrite` deletes the run in the folder; if a path names one of its own checkpoints,
    only later ones. Nothing is deleted but what a run writes, and nothing before all checks.

    Args:
        config: The settings.
        facts: What the run is; must agree with those of a run that goes on.

    Raises:
        RunError: Another training is writing the folder, it holds something else, or the run in
            it or the checkpoint cannot be gone on from.
        ConfigError: No folder is named, or it cannot be made.
    """
    if not config.out:
        raise ConfigError("out is empty; name the run folder to write.")
    out = Path(config.out)
    check_out(out)
    with _locked(out):
        try:
            run = _start(out, config, facts)
        except OSError as error:
            raise RunError(f"cannot use {error.filename or out}: {error.strerror}.") from error
        yield run


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    path, is_new = out / _LOCK_NAME, not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        held = [lock_file(path)]
    except BlockingIOError:
        raise RunError(
            f"another training is writing {out}; wait for it, or choose another --out."
        ) from None
    except OSError as error:
        raise RunError(f"cannot write to {out}: {error.strerror}; choose another --out.") from error
    # A loader worker that outlives a killed training for a moment must not keep the lock.
    os.register_at_fork(after_in_child=lambda: _close_in_child(held))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        if is_new:
            with contextlib.suppress(OSError):
                out.rmdir()  # where nothing came of it
        os.close(held.pop())


def _close_in_child(held: list[int]) -> None:
    while held:
        os.close(held.pop())


def _start(out: Path, config: PretrainConfig, facts: RunFacts) -> Run:
    """Decide where training starts, check that it may, and make the folder ready for it."""
    found = find_record(out)
    if found is None:
        _check_empty(out)
    if config.resume not in ("auto", "never"):
        run = _from_path(out, config, facts)
    elif config.resume == "auto" and found is not None and not config.overwrite:
        run = _newest(out, found, config, facts)
    else:
        run = Run(folder=out, checkpoint=None, state=None, notices=())
    if found is not None and config.overwrite:
        _delete_run(run)
    elif found is not None and config.resume != "auto":
        _check_replaces_nothing(run, config)
    if not _goes_on(run):
        _write_record(run, facts)
    run.checkpoints.mkdir(exist_ok=True)
    sync_folder(out)
    remove_leftovers(run.checkpoints)
    return run


def _newest(out: Path, found: RunRecord, config: PretrainConfig, facts: RunFacts) -> Run:
    """Return the start from the newest complete checkpoint of the folder's own run."""
    check_same_run(found.facts, config, facts, str(out))
    path, skipped = find_latest(out / CHECKPOINTS_NAME)
    if path is None and found.started_from is not None:
        path = Path(found.started_from)
    if path is None:
        notice = f"{out} has no checkpoint yet, so training starts at the beginning."
        return Run(folder=out, checkpoint=None, state=None, notices=(notice,))
    return _from_checkpoint(out, path, config, facts, skipped)


def _from_path(out: Path, config: PretrainConfig, facts: RunFacts) -> Run:
    """Return the start from the checkpoint, or from the run, that the settings name."""
    path, skipped = Path(config.resume), list[str]()
    if (path / RUN_NAME).exists():
        newest, skipped = find_latest(path / CHECKPOINTS_NAME)
        if newest is None:
            raise RunError(f"{path} has no checkpoint to resume from; give another --resume.")
        path = newest
    return _from_checkpoint(out, path, config, facts, skipped)


def _from_checkpoint(
    out: Path, path: Path, config: PretrainConfig, facts: RunFacts, notices: list[str]
) -> Run:
    state = read_complete_state(path)
    notices = [*notices, *check_same_run(state.facts, config, facts, str(path))]
    return Run(folder=out, checkpoint=path, state=state, notices=tuple(notices))


def _goes_on(run: Run) -> bool:
    """Return whether the folder's own run goes on, and its log with it."""
    return run.checkpoint is not None and _is_in(run.checkpoint, run.checkpoints)


def _is_in(path: Path, folder: Path) -> bool:
    return path.absolute().parent.resolve() == folder.resolve()


def _later_checkpoints(run: Run) -> list[Path]:
    """Return the checkpoints in the folder that this start leaves behind, newest first."""
    first = run.step if _goes_on(run) else None
    found = list_checkpoints(run.checkpoints)
    return [path for step, path in found if first is None or step > first]


def _check_replaces_nothing(run: Run, config: PretrainConfig) -> None:
    later = _later_checkpoints(run)
    if _goes_on(run) and later:
        raise RunError(
            f"{run.folder} has newer checkpoints than {run.checkpoint}, such as {later[0].name}; "
            "use --overwrite to delete them, or another --out."
        )
    if not _goes_on(run):
        raise RunError(
            f"{run.folder} holds a run, and --resume is {config.resume}; give --resume auto to go "
            "on with it, --overwrite to replace it, or another --out."
        )


def _delete_run(run: Run) -> None:
    """Delete what a run wrote, but for what this start goes on from.

    Its record goes last and is written anew: killed meanwhile, the folder is still known as ours.
    """
    for path in _later_checkpoints(run):
        delete_checkpoint(path)
    if not _goes_on(run):
        run.metrics.unlink(missing_ok=True)


def _write_record(run: Run, facts: RunFacts) -> None:
    started_from = None if run.checkpoint is None else str(run.checkpoint.absolute())
    record = RunRecord(package_version=__version__, facts=facts, started_from=started_from)
    try:
        write_json(run.folder / RUN_NAME, to_json(record))
    except DatasetError as error:
        raise RunError(str(error)) from error


def _check_empty(out: Path) -> None:
    names = sorted(path.name for path in out.iterdir())
    foreign = [name for name in names if name != _LOCK_NAME and not is_temporary(name)]
    if foreign:
        raise RunError(
            f"{out} holds {foreign[0]!r} and is not a run of ours; choose an empty or new folder "
            "for --out."
        )
