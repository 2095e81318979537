"""The log of a run: what a row holds, and the file that keeps it; `window.py` makes the means.

A row is a JSON object on a line of its own. Its columns are *exact* or *measured*: with equal
settings, threads, instruction set and torch, exact ones are equal to the last bit, interrupted or
not; measured ones (seconds, rates, memory) never are.
"""

import dataclasses
import logging
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from clozemill.pipeline.errors import DatasetError, RunError
from clozemill.pipeline.files import atomic_file, open_regular
from clozemill.pipeline.json_records import canonical_json, from_json, parse_object

if TYPE_CHECKING:
    from clozemill.train.baselines import Baselines

METRICS_NAME = "metrics.jsonl"

_log = logging.getLogger(__name__)


def column(unit: str, text: str, *, measured: bool = False, **default: Any) -> Any:
    """Return a field of a row, with what the docs say of it."""
    return field(metadata={"unit": unit, "help": text, "measured": measured}, **default)


def _absent() -> Any:
    return column(
        "",
        "Why a column is null: column -> `nan`, `inf`, `-inf` or `none counted`.",
        default_factory=dict,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """Reference lines of the data, written once before the first step."""

    kind: ClassVar[str] = "start"

    step: int = column("steps", "Always 0.", default=0)
    split: str = column("", "What the lines are of: validation, or train without one.")
    instances: int = column("instances", "Instances of it that were looked at.")
    selected: int = column("tokens", "Their selected tokens.")
    train_instances: int = column("instances", "Training instances that were counted.")
    even_loss: float | None = column("nats", "ln V: MLM loss of a model that knows nothing.")
    unigram_entropy: float | None = column("nats", "Of the token frequencies.")
    mask_token_loss: float | None = column(
        "nats", "Loss of the frequencies at `[MASK]`: compare `mask_only_loss`."
    )
    context_free_loss: float | None = column(
        "nats", "Best MLM loss without context: what is learned from context lies below."
    )
    context_free_accuracy: float | None = column("share", "MLM accuracy of that predictor.")
    nsp_even_loss: float | None = column("nats", "ln 2: NSP loss of a model that knows nothing.")
    nsp_majority_accuracy: float | None = column("share", "NSP accuracy of the commoner label.")
    nsp_length_loss: float | None = column("nats", "NSP loss of the two lengths alone.")
    nsp_length_accuracy: float | None = column(
        "share", "NSP accuracy of the two lengths alone, or of the commoner label if that is more."
    )
    absent: dict[str, str] = _absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRow:
    """Means over all steps since the last row of this kind."""

    kind: ClassVar[str] = "train"

    step: int = column("steps", "Optimizer updates done.")
    epoch: int = column("epochs", "The epoch of this step's global batch.")
    steps: int = column("steps", "Steps that the row covers, this one included.")
    mlm_loss: float | None = column("nats", "Mean over selected tokens.")
    mask_only_loss: float | None = column("nats", "Mean over selected tokens that show `[MASK]`.")
    nsp_loss: float | None = column("nats", "Mean over pairs.")
    mlm_accuracy: float | None = column("share", "Selected tokens whose original is ranked first.")
    nsp_accuracy: float | None = column("share", "Pairs whose label is ranked first.")
    learning_rate: float | None = column("", "Of this step.")
    gradient_norm: float | None = column("", "Of this step's gradient, before it was clipped.")
    instances: int = column("instances", "Trained on.")
    pairs: int = column("instances", "Of them those with a next-sentence label.")
    tokens: int = column("tokens", "Without padding.")
    padding_share: float | None = column("share", "Padding among all positions computed.")
    selected: int = column("tokens", "Tokens predicted.")
    mask_only: int = column("tokens", "Tokens predicted that show `[MASK]`.")
    seconds: float | None = column("s", "Wall time.", measured=True)
    tokens_per_second: float | None = column("tokens/s", "Without padding.", measured=True)
    selected_per_second: float | None = column("tokens/s", "Tokens predicted.", measured=True)
    data_wait_share: float | None = column(
        "share", "Of the time: waiting for batches.", measured=True
    )
    mfu: float | None = column(
        "share", "Matrix FLOPs over what the device could do; null if unknown.", measured=True
    )
    peak_memory_bytes: int | None = column(
        "bytes", "Of the device on a GPU, else of the process.", measured=True
    )
    absent: dict[str, str] = _absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """Means over a whole split, with its stored masks."""

    kind: ClassVar[str] = "evaluation"

    step: int = column("steps", "Optimizer updates done.")
    split: str = column("", "Its name.")
    mlm_loss: float | None = column("nats", "Mean over selected tokens.")
    mask_only_loss: float | None = column("nats", "Mean over selected tokens that show `[MASK]`.")
    nsp_loss: float | None = column("nats", "Mean over pairs.")
    mlm_accuracy: float | None = column("share", "Selected tokens whose original is ranked first.")
    nsp_accuracy: float | None = column("share", "Pairs whose label is ranked first.")
    instances: int = column("instances", "Evaluated.")
    pairs: int = column("instances", "Of them those with a next-sentence label.")
    tokens: int = column("tokens", "Without padding.")
    selected: int = column("tokens", "Tokens predicted.")
    mask_only: int = column("tokens", "Tokens predicted that show `[MASK]`.")
    seconds: float | None = column("s", "Wall time.", measured=True)
    absent: dict[str, str] = _absent()


Row: TypeAlias = StartRow | TrainRow | EvaluationRow
ROW_KINDS: dict[str, type[Row]] = {row.kind: row for row in (StartRow, TrainRow, EvaluationRow)}


def start_row(baselines: "Baselines") -> StartRow:
    """Return the row of a dataset's reference lines."""
    lines = {
        item.name: getattr(baselines, item.name)
        for item in dataclasses.fields(baselines)
        if not item.name.startswith("num_")
    }
    return StartRow(
        instances=baselines.num_instances,
        selected=baselines.num_selected,
        train_instances=baselines.num_train_instances,
        **lines,
    )


def exact_columns(row: Row) -> dict[str, Any]:
    """Return the columns that must be equal in an interrupted and an uninterrupted run."""
    return {
        item.name: getattr(row, item.name)
        for item in dataclasses.fields(row)
        if not item.metadata["measured"]
    }


def row_line(row: Row) -> str:
    """Return a row as a line of the log: a number that is not finite is null, with its reason."""
    table: dict[str, Any] = {"kind": row.kind, **dataclasses.asdict(row)}
    absent = dict(row.absent)
    for name, value in table.items():
        if isinstance(value, float) and not math.isfinite(value):
            table[name], absent[name] = None, str(value)
    return canonical_json({**table, "absent": absent}) + "\n"


def parse_row(line: str | bytes, where: str) -> Row:
    """Return the row that a line of the log stands for.

    Raises:
        RunError: It is none.
    """
    table = parse_object(line, where, error=RunError)
    kind = table.pop("kind", None)
    if not isinstance(kind, str) or kind not in ROW_KINDS:
        raise RunError(f"{where} has the kind {kind!r:.60}; it must be one of {list(ROW_KINDS)}.")
    return from_json(ROW_KINDS[kind], table, where, error=RunError)


def read_metrics(path: Path) -> list[Row]:
    """Return the rows of a log; a last line that was cut off by a kill is left out and logged.

    Raises:
        RunError: The log cannot be read, or another line is damaged.
    """
    rows, torn = _read_rows(path)
    if torn:
        _log.warning("%s ends in a line that was cut off; it is left out.", path)
    return rows


class MetricsLog:
    """A log open for writing; each row is in the file before `append` returns."""

    def __init__(self, path: Path, *, last_step: int | None = None) -> None:
        """Open a log and drop what the run will write again.

        Args:
            path: The file.
            last_step: The step of the checkpoint that training goes on from: rows of later steps
                are dropped. None starts a new log.

        Raises:
            RunError: The log cannot be read or written, or is damaged.
        """
        self.num_rows, self.notices = _drop_rows_after(path, last_step)
        """How many rows were there and stay, and what was dropped and why, a text each."""
        self._path = path
        try:
            self._stream = path.open("ab", buffering=0)
        except OSError as error:
            raise cannot_write(path, error) from error

    def append(self, row: Row) -> None:
        """Add a row.

        Raises:
            RunError: The disk is full.
        """
        data = row_line(row).encode()
        try:
            num_written = self._stream.write(data)
            while num_written < len(data):  # as on a disk that is nearly full
                num_written += self._stream.write(data[num_written:])
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def sync(self) -> None:
        """Force the rows to disk, so that no checkpoint is newer than its log.

        Raises:
            RunError: The disk is full or broken.
        """
        try:
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise cannot_write(self._path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()

    def __enter__(self) -> "MetricsLog":
        """Return the log."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self.close()


def _drop_rows_after(path: Path, last_step: int | None) -> tuple[int, list[str]]:
    """Rewrite a log so that it ends at a step; return how many rows stay, and what that changed."""
    if last_step is None or not path.exists():
        _write_lines(path, [])
        gone = f"{path} is missing; the log begins after step {last_step}."
        return 0, [gone] if last_step else []
    try:
        rows, torn = _read_rows(path)
    except RunError as error:
        raise RunError(
            f"{str(error).removesuffix('.')}; repair it, or move it away: the log then begins "
            f"after step {last_step}."
        ) from error
    kept = [row for row in rows if row.step <= last_step]
    if torn or len(kept) < len(rows):
        _write_lines(path, [row_line(row) for row in kept])
    notices = []
    if len(kept) < len(rows):
        count = len(rows) - len(kept)
        notices.append(f"{path}: dropped the rows after step {last_step}: {count}.")
    if torn:
        notices.append(f"{path}: dropped a last line that was cut off.")
    return len(kept), notices


def _read_rows(path: Path) -> tuple[list[Row], bool]:
    """Return all rows, and whether there is a last line that is none."""
    try:
        with open_regular(path) as stream:
            lines = stream.read().split(b"\n")
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}.") from error
    rows: list[Row] = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            rows.append(parse_row(line, f"{path}:{number}"))
        except RunError:
            if number < len(lines) - 1 or lines[-1]:
                raise
            return rows, True
    return rows, bool(lines[-1])


def _write_lines(path: Path, lines: list[str]) -> None:
    try:
        with atomic_file(path) as sink:
            sink.write("".join(lines).encode())
    except DatasetError as error:
        raise RunError(str(error)) from error


def cannot_write(path: Path, error: OSError) -> RunError:
    """Return what to raise where a file of a run cannot be written."""
    return RunError(
        f"cannot write {path}: {error.strerror or error}; free some space, then run the same "
        "command again."
    )
