"""How processes that train together end: in order, on every way out, and also when one is gone."""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.small_readings import BuiltDataset
from tests.train.small_runs import ROOT, environment
from tests.train.test_pretrain import arguments, small_config, wait_for_checkpoint, wait_for_rows

from clozemill.model.convert import save_pretrained
from clozemill.train.encoders import find_encoder
from clozemill.train.pretrain import pretrain

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are listed by Linux"),
]


@contextlib.contextmanager
def two_ranks(end: Path, *words: Any) -> Iterator[list["subprocess.Popen[str]"]]:
    """Start a training in two processes, by hand: a launcher would end one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.end_of_process", *map(str, (end, *words))],
            cwd=ROOT,
            env={**environment(), **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    try:
        yield ranks
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def assert_ended_in_order(end: Path, rank: int) -> None:
    """Check that no thread of the group of processes was left when Python ended."""
    names = end.with_name(f"{end.name}-{rank}.txt").read_text().split()
    assert len(names) >= 1
    assert [name for name in names if "gloo" in name] == []


def test_ranks_that_are_done_leave_no_thread_behind(built: BuiltDataset, tmp_path: Path) -> None:
    command = arguments(built().folder, tmp_path / "run", steps=2)
    with two_ranks(tmp_path / "end", *command) as ranks:
        for rank, process in enumerate(ranks):
            _, error = process.communicate(timeout=120)
            assert (process.returncode, error) == (0, "")
            assert_ended_in_order(tmp_path / "end", rank)


def test_ranks_that_stop_together_leave_no_thread_behind(
    built: BuiltDataset, tmp_path: Path
) -> None:
    command = arguments(built().folder, tmp_path / "run", steps=10_000, eval_every=0)
    with two_ranks(tmp_path / "end", *command) as ranks:
        wait_for_rows(tmp_path / "run", 3)
        ranks[1].send_signal(signal.SIGTERM)
        for rank, process in enumerate(ranks):
            _, error = process.communicate(timeout=120)
            assert process.returncode == 130, error
            assert_ended_in_order(tmp_path / "end", rank)


def test_ranks_that_end_in_an_error_leave_no_thread_behind(
    built: BuiltDataset, tmp_path: Path
) -> None:
    model = find_encoder(pretrain(small_config(built().folder, tmp_path / "first", steps=1)).folder)
    with torch.no_grad():
        model.model.cls.predictions.bias[7] = torch.inf
    save_pretrained(model.model, tmp_path / "spoiled")
    settings = {"steps": 9, "init_from": tmp_path / "spoiled"}
    command = arguments(built().folder, tmp_path / "run", **settings)
    with two_ranks(tmp_path / "end", *command) as ranks:
        for rank, process in enumerate(ranks):
            _, error = process.communicate(timeout=120)
            assert process.returncode == 2
            assert "the loss of step 1 is not finite" in error
            assert_ended_in_order(tmp_path / "end", rank)


def test_a_rank_does_not_wait_for_one_that_was_killed(built: BuiltDataset, tmp_path: Path) -> None:
    command = arguments(built().folder, tmp_path / "run", steps=10_000, checkpoint_every=5)
    with two_ranks(tmp_path / "end", *command) as ranks:
        wait_for_checkpoint(tmp_path / "run")
        ranks[1].kill()
        _, error = ranks[0].communicate(timeout=60)
        assert ranks[0].returncode == 2, error
        assert error.startswith("clozemill: the connection to another rank broke: it has died")
        assert_ended_in_order(tmp_path / "end", 0)
    assert not (tmp_path / "run" / ".lock").exists()
