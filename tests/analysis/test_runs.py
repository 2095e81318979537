"""Runs as views: what the log says of them, and what their steps really saw."""

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.analysis.readings import rows
from tests.train.processes import run_module, start_module
from tests.train.small_readings import BuiltDataset
from tests.train.small_runs import environment
from tests.train.test_pretrain import kill_tree, wait_for_checkpoint

from clozemill.analysis.db import open_database
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import RunError
from clozemill.train.config import PretrainConfig
from clozemill.train.metrics import EvaluationRow, StartRow, TrainRow, read_metrics
from clozemill.train.order import BatchOrder
from clozemill.train.pretrain import pretrain
from clozemill.train.reader import InstanceReader

STEPS = 40
SETTINGS: dict[str, Any] = {
    "model": "tiny",
    "precision": "fp32",
    "threads": 1,
    "steps": STEPS,
    "global_batch_size": 16,
    "micro_batch_size": 4,
    "eval_instances": 16,
    "log_every": 1,
    "eval_every": 10,
}


def train(data: Dataset, out: Path, **changes: Any) -> Path:
    settings = {**SETTINGS, **changes}
    pretrain(PretrainConfig(data=str(data.folder), out=str(out), **settings))
    return out


@pytest.fixture(scope="module")
def small(built: BuiltDataset) -> Dataset:
    """About 140 instances, so that 40 steps are several epochs of three variants."""
    dataset = built(limit_documents=25)
    assert 120 < dataset.num_instances("train") < 150
    return dataset


@pytest.fixture(scope="module")
def static(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(small, tmp_path_factory.mktemp("runs") / "static")


@pytest.fixture(scope="module")
def dynamic(small: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "dynamic"
    return train(small, out, steps=12, masking="dynamic", mask_offset=5, seed=3)


@pytest.fixture
def session(small: Dataset, static: Path, dynamic: Path) -> duckdb.DuckDBPyConnection:
    return open_database(small.folder, [static, dynamic], threads=1)


def test_runs_say_what_they_are(
    session: duckdb.DuckDBPyConnection, small: Dataset, static: Path, dynamic: Path
) -> None:
    found = rows(
        session,
        "select run, masking, num_static_variants, mask_offset, seed, num_steps, num_steps_done, "
        "dataset_digest, settings ->> 'model' as model from runs",
    )
    digest = small.manifest.splits["train"].dataset_digest
    assert found == [
        (str(static), "static", 3, 0, 0, STEPS, STEPS, digest, "tiny"),
        (str(dynamic), "dynamic", None, 5, 3, 12, 12, digest, "tiny"),
    ]


@pytest.mark.parametrize(
    ("view", "kind"), [("metrics", TrainRow), ("evaluations", EvaluationRow), ("starts", StartRow)]
)
def test_logs_are_views(
    session: duckdb.DuckDBPyConnection, static: Path, dynamic: Path, view: str, kind: Any
) -> None:
    expected = [
        (str(run), *(getattr(row, item.name) for item in dataclasses.fields(row)))
        for run in (static, dynamic)
        for row in read_metrics(run / "metrics.jsonl")
        if isinstance(row, kind)
    ]
    assert expected
    assert rows(session, f"from {view}") == expected


def test_steps_and_exposures_are_those_of_the_log(session: duckdb.DuckDBPyConnection) -> None:
    logged = rows(
        session,
        "select run, step, epoch, instances, tokens, learning_rate from metrics order by all",
    )
    assert len(logged) == STEPS + 12
    by_steps = """
        with sizes as (
            select run, step, sum(num_tokens) as num_tokens
            from exposures
            inner join instances using (split, instance)
            group by run, step
        )

        select run, step, epoch, num_instances, num_tokens::bigint, learning_rate
        from steps
        inner join sizes using (run, step)
        order by all
    """
    assert rows(session, by_steps) == logged
    assert max(epoch for _, _, epoch, *_ in logged) > 3


def test_selected_tokens_of_a_run_are_those_of_its_variants(
    session: duckdb.DuckDBPyConnection, static: Path
) -> None:
    query = f"""
        select step, sum(num_selected)::bigint
        from exposures
        inner join variants using (split, instance, variant)
        where run = '{static}'
        group by step
        order by step
    """
    logged = rows(session, f"select step, selected from metrics where run = '{static}'")
    assert len(logged) == STEPS
    assert rows(session, query) == logged


def test_dynamic_masking_shows_a_variant_an_epoch(
    session: duckdb.DuckDBPyConnection, dynamic: Path
) -> None:
    found = rows(
        session, f"select distinct epoch, variant from exposures where run = '{dynamic}' order by 1"
    )
    assert found == [(0, 5), (1, 6)]


def test_every_epoch_shows_every_instance_once(
    session: duckdb.DuckDBPyConnection, small: Dataset, static: Path
) -> None:
    query = f"""
        select epoch, count(*), count(distinct instance)
        from exposures
        where run = '{static}'
        group by epoch
        order by epoch
    """
    total = small.num_instances("train")
    *whole, _ = rows(session, query)
    assert len(whole) >= 3
    assert whole == [(epoch, total, total) for epoch in range(len(whole))]


def test_exposures_are_drawn_a_portion_at_a_time(
    small: Dataset, static: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clozemill.analysis.run_tables._PORTION_ROWS", 1)
    connection = open_database(small.folder, [static], threads=1)
    reader = InstanceReader(small, "train")
    order = BatchOrder(reader, global_batch_size=16)
    expected = [
        (step + 1, place // 4, index % len(reader), index // len(reader))
        for step in range(STEPS)
        for place, index in enumerate(order.global_batch(step).tolist())
    ]
    assert rows(connection, "select step, micro_batch, instance, epoch from exposures") == expected


def test_a_run_on_other_masks_is_refused(built: BuiltDataset, small: Dataset, static: Path) -> None:
    other = built(limit_documents=25, mask_variants=2)
    with pytest.raises(RunError) as caught:
        open_database(other.folder, [static])
    ours, theirs = (d.manifest.splits["train"].dataset_digest for d in (other, small))
    assert str(caught.value) == (
        f"{static} was trained on '{small.folder}' with the dataset digest '{theirs}' of train, "
        f"but {other.folder} has '{ours}'; give the run's dataset, or leave the run out."
    )


def test_a_run_of_another_version_is_refused(small: Dataset, static: Path, tmp_path: Path) -> None:
    shutil.copytree(static, tmp_path / "newer")
    path = tmp_path / "newer" / "run.json"
    record = json.loads(path.read_text())
    record["facts"]["settings"]["dreams"] = True
    path.write_text(json.dumps(record))
    with pytest.raises(RunError, match=r"has the setting 'dreams', which this clozemill does not"):
        open_database(small.folder, [tmp_path / "newer"])


def test_a_run_that_is_given_twice_is_refused(small: Dataset, static: Path) -> None:
    with pytest.raises(RunError, match="is given twice; give it once"):
        open_database(small.folder, [static, f"{static}/"])


def test_a_folder_that_is_no_run_is_refused(small: Dataset, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"holds no run.json, so it is not a run folder"):
        open_database(small.folder, [tmp_path])


def test_ranks_are_unknown_once_others_went_on(small: Dataset, tmp_path: Path) -> None:
    run = train(small, tmp_path / "run", steps=4, checkpoint_every=2)
    state = run / "checkpoints" / "step-00000004" / "state.json"
    table = json.loads(state.read_text())
    table["state"]["facts"]["execution"]["num_processes"] = 2
    state.write_text(json.dumps(table))
    connection = open_database(small.folder, [run])
    query = "select count(*), count(rank), count(micro_batch), count(instance) from exposures"
    assert rows(connection, query) == [(64, 0, 0, 64)]


def test_a_run_that_has_not_begun_has_no_steps(
    small: Dataset, static: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_bytes((static / "run.json").read_bytes())
    connection = open_database(small.folder, [tmp_path / "run"])
    assert rows(connection, "select num_steps, num_steps_done from runs") == [(STEPS, 0)]
    for view in ("metrics", "steps", "exposures"):
        assert rows(connection, f"select count(*) from {view}") == [(0,)]


def test_runs_are_read_without_torch(small: Dataset, static: Path) -> None:
    source = (
        "import sys; from clozemill.analysis.db import open_database\n"
        f"connection = open_database({str(small.folder)!r}, [{str(static)!r}])\n"
        "print(connection.sql('select count(*) from exposures').fetchall(), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", source],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
    )
    count = sum(
        row.instances for row in read_metrics(static / "metrics.jsonl") if isinstance(row, TrainRow)
    )
    assert done.stdout == f"[({count},)] False\n", done.stderr


@pytest.mark.slow
def test_exposures_are_what_two_processes_read_before_and_after_a_kill(
    small: Dataset, tmp_path: Path
) -> None:
    module, run = "tests.analysis.dump_exposures", tmp_path / "run"
    flags = {**SETTINGS, "checkpoint_every": 5, "eval_every": 0}
    words = [w for name, value in flags.items() for w in (f"--{name.replace('_', '-')}", value)]
    command = [small.folder, "--out", run, "--quiet", *words]
    process = start_module(module, tmp_path / "first", *command, ranks=2)
    wait_for_checkpoint(run)
    kill_tree(process)
    done = run_module(module, tmp_path / "second", *command, ranks=2)
    assert done.returncode == 0, done.stderr

    connection = open_database(small.folder, [run], threads=1)
    expected = exposed_micro_batches(connection)
    first, second = (
        read_dump(tmp_path / name, small.num_instances("train")) for name in ("first", "second")
    )
    assert len(first) >= 5
    assert len(second) < STEPS
    assert first == expected[: len(first)]
    assert second == expected[STEPS - len(second) :]


def read_dump(dump: Path, num_instances: int) -> list[list[list[list["ReadInstance"]]]]:
    """Return the same as two ranks wrote it down, up to the last step that both have read."""
    by_rank = []
    for rank in range(2):
        whole_lines = Path(f"{dump}-{rank}.jsonl").read_text().split("\n")[:-1]
        parts = [read_micro_batch(json.loads(line), num_instances) for line in whole_lines]
        by_rank.append([parts[turn : turn + 2] for turn in range(0, len(parts) - 1, 2)])
    return [list(ranks) for ranks in zip(*by_rank, strict=False)]


def read_micro_batch(line: Any, num_instances: int) -> list["ReadInstance"]:
    indices, overlays = line
    numbers = [divmod(index, num_instances) for index in indices]
    return sorted(
        (instance, epoch, *overlay)
        for (epoch, instance), overlay in zip(numbers, overlays, strict=True)
    )


ReadInstance = tuple[int, int, list[int], list[int]]
"""Instance, epoch, and the overlay that it was shown with."""


def exposed_micro_batches(
    connection: duckdb.DuckDBPyConnection,
) -> list[list[list[list[ReadInstance]]]]:
    """Return what each step showed each rank in each micro-batch, from the views."""
    query = """
        select
            step,
            rank,
            micro_batch,
            instance,
            epoch,
            list_transform(overlay, lambda s: s.position) as positions,
            list_transform(overlay, lambda s: s.token_id) as token_ids
        from exposures
        inner join variants using (split, instance, variant)
        order by step, rank, micro_batch, num_tokens
    """
    steps: list[list[list[list[ReadInstance]]]] = [[[[], []], [[], []]] for _ in range(STEPS)]
    for step, rank, micro_batch, *read in rows(connection, query):
        steps[step - 1][rank][micro_batch].append(tuple(read))
    return [[[sorted(part) for part in parts] for parts in ranks] for ranks in steps]
