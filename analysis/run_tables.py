"""Training runs as the rows that DuckDB reads: their logs, and what each of their steps saw.

The order of instances and the number of each masking are pure functions of a run's settings, so
`steps` and `exposures` are computed while they are read, a portion at a time.

Legend: n rows of a portion.
"""

import json
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.analysis.rows import Rows
from clozemill.analysis.runs import TRAIN, VIEWS_OF_RUNS, TrainingRun
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.json_records import to_json
from clozemill.train.config import steps_per_epoch
from clozemill.train.metrics import EvaluationRow, Row, StartRow, TrainRow
from clozemill.train.order import BatchOrder, micro_batches_of
from clozemill.train.reader import InstanceReader
from clozemill.train.schedules import learning_rate, make_schedule

_PORTION_STEPS = 8_192
_PORTION_ROWS = 16_384


def run_tables(runs: Sequence[TrainingRun], dataset: Dataset) -> dict[str, pa.Table | Rows]:
    """Return the relations `VIEWS_OF_RUNS`, by name."""
    tables = {
        "runs": _runs_table(runs),
        "metrics": _log_table(runs, TrainRow),
        "evaluations": _log_table(runs, EvaluationRow),
        "starts": _log_table(runs, StartRow),
        "steps": _step_rows(runs, dataset.num_instances(TRAIN)),
        "exposures": _exposure_rows(runs, dataset),
    }
    assert tuple(tables) == VIEWS_OF_RUNS
    return tables


def _runs_table(runs: Sequence[TrainingRun]) -> pa.Table:
    return pa.Table.from_pylist([_run_row(run) for run in runs], _RUN_SCHEMA)


_RUN_SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "masking": pa.string(),
        "num_static_variants": pa.int64(),
        "mask_offset": pa.int64(),
        "seed": pa.int64(),
        "global_batch_size": pa.int64(),
        "num_processes": pa.int64(),
        "micro_batch_size": pa.int64(),
        "num_steps": pa.int64(),
        "num_steps_done": pa.int64(),
        "dataset_digest": pa.string(),
        "settings": pa.string(),
        "model": pa.string(),
        "execution": pa.string(),
    }
)


def _run_row(run: TrainingRun) -> dict[str, Any]:
    facts, config, variants = run.record.facts, run.config, run.variants
    return {
        "run": run.name,
        "masking": config.masking,
        "num_static_variants": variants.num_static_variants if run.is_static else None,
        "mask_offset": config.mask_offset,
        "seed": config.seed,
        "global_batch_size": config.global_batch_size,
        "num_processes": facts.execution.num_processes,
        "micro_batch_size": facts.execution.micro_batch_size,
        "num_steps": run.num_steps,
        "num_steps_done": run.num_steps_done,
        "dataset_digest": facts.dataset.dataset_digests[TRAIN],
        "settings": json.dumps(facts.settings),
        "model": json.dumps(facts.model),
        "execution": json.dumps(to_json(facts.execution)),
    }


def _names(record: Any) -> list[str]:
    return [item.name for item in fields(record)]


def _log_table(runs: Sequence[TrainingRun], kind: type[Row]) -> pa.Table:
    """Return the rows of one kind of all logs, with the columns of docs/runs.md."""
    hints = typing.get_type_hints(kind)
    columns = {name: _arrow_type(hints[name]) for name in _names(kind)}
    rows = [
        {"run": run.name, **{name: getattr(row, name) for name in columns}}
        for run in runs
        for row in run.rows
        if isinstance(row, kind)
    ]
    return pa.Table.from_pylist(rows, pa.schema({"run": pa.string(), **columns}))


def _arrow_type(hint: Any) -> pa.DataType:
    if typing.get_origin(hint) is dict:
        return pa.map_(pa.string(), pa.string())
    if isinstance(hint, types.UnionType):
        (hint,) = (member for member in typing.get_args(hint) if member is not type(None))
    return {int: pa.int64(), float: pa.float64(), str: pa.string()}[hint]


def _step_rows(runs: Sequence[TrainingRun], num_instances: int) -> Rows:
    """Return a row per run and step that is done."""
    schema = pa.schema(
        {
            "run": pa.string(),
            "step": pa.int64(),
            "epoch": pa.int64(),
            "variant": pa.int64(),
            "num_instances": pa.int64(),
            "learning_rate": pa.float64(),
        }
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for run in runs:
            for begin in range(0, run.num_steps_done, _PORTION_STEPS):
                steps = range(begin, min(begin + _PORTION_STEPS, run.num_steps_done))
                columns = _step_columns(run, np.array(steps), num_instances)
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return Rows(schema, batches)


def _step_columns(run: TrainingRun, steps: NDArray[np.int64], num_instances: int) -> list[pa.Array]:
    """Return the columns of some steps (n,), counted from 0."""
    schedule = make_schedule(run.config, run.num_steps)
    size = run.config.global_batch_size
    epochs, places = np.divmod(steps, steps_per_epoch(num_instances, global_batch_size=size))
    return [
        pa.repeat(run.name, len(steps)),
        pa.array(steps + 1),
        pa.array(epochs),
        pa.array(run.variants.variants_of(epochs)),
        pa.array(np.minimum(size, num_instances - places * size)),
        pa.array([learning_rate(schedule, step) for step in steps.tolist()]),
    ]


def _exposure_rows(runs: Sequence[TrainingRun], dataset: Dataset) -> Rows:
    """Return a row per run, step that is done, and instance of the step."""
    schema = pa.schema(
        {
            "run": pa.string(),
            "step": pa.int64(),
            "rank": pa.int64(),
            "micro_batch": pa.int64(),
            "split": pa.string(),
            "instance": pa.int64(),
            "epoch": pa.int64(),
            "variant": pa.int64(),
        }
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for run in runs:
            for steps, indices in _portions(run, dataset):
                columns = _exposure_columns(run, steps, indices, dataset.num_instances(TRAIN))
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return Rows(schema, batches)


def _portions(
    run: TrainingRun, dataset: Dataset
) -> Iterator[tuple[list[int], list[NDArray[np.int64]]]]:
    """Yield some steps, counted from 0, and the virtual indices of each one's global batch."""
    reader = InstanceReader(dataset, TRAIN)
    reader.skip_checksums()
    config = run.config
    order = BatchOrder(
        reader,
        global_batch_size=config.global_batch_size,
        seed=config.seed,
        length_window=config.length_window,
    )
    reader.reserve(2 * order.block_rows)
    count = max(1, _PORTION_ROWS // config.global_batch_size)
    for begin in range(0, run.num_steps_done, count):
        steps = list(range(begin, min(begin + count, run.num_steps_done)))
        yield steps, [order.global_batch(step) for step in steps]


def _exposure_columns(
    run: TrainingRun,
    steps: Sequence[int],
    global_batches: Sequence[NDArray[np.int64]],
    num_instances: int,
) -> list[pa.Array]:
    """Return the columns of some steps."""
    sizes = list(map(len, global_batches))
    epochs, instances = np.divmod(np.concatenate(global_batches), num_instances)
    shares = {size: _shares(run, size) for size in set(sizes)}
    ranks, turns = np.concatenate([shares[size] for size in sizes], axis=1)
    is_unknown = None if run.has_same_ranks else np.ones(len(instances), np.bool_)
    return [
        pa.repeat(run.name, len(instances)),
        pa.array(np.repeat(np.array(steps) + 1, sizes)),
        pa.array(ranks, mask=is_unknown),
        pa.array(turns, mask=is_unknown),
        pa.repeat(TRAIN, len(instances)),
        pa.array(instances),
        pa.array(epochs),
        pa.array(run.variants.variants_of(epochs)),
    ]


def _shares(run: TrainingRun, size: int) -> NDArray[np.int64]:
    """Return (2, size): each place of a global batch has a rank, and one of its micro-batches."""
    execution = run.record.facts.execution
    shares = np.empty((2, size), np.int64)
    for rank in range(execution.num_processes):
        parts = micro_batches_of(
            np.arange(size),
            micro_batch_size=execution.micro_batch_size,
            rank=rank,
            world_size=execution.num_processes,
        )
        for turn, places in enumerate(parts):
            shares[:, places] = [[rank], [turn]]
    return shares
