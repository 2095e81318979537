"""A small training killed at any moment ends with the weights and the log of an unbroken one."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.train.small_runs import environment
from tests.train.train_small import train

from clozemill.train.checkpoints import find_latest, load_checkpoint
from clozemill.train.metrics import exact_columns, read_metrics

NUM_STEPS = 120
LEAST_KILLS, MOST_KILLS = 5, 12


def last_checkpoint(folder: Path) -> Path:
    path, skipped = find_latest(folder / "checkpoints")
    assert path is not None
    assert skipped == []
    return path


def assert_same_run(broken: Path, whole: Path) -> None:
    for name in ("model.safetensors", "optimizer.safetensors"):
        first, second = (last_checkpoint(folder) / name for folder in (broken, whole))
        assert first.read_bytes() == second.read_bytes()
    rows = [
        [exact_columns(row) for row in read_metrics(folder / "metrics.jsonl")]
        for folder in (broken, whole)
    ]
    assert len(rows[1]) > 2
    assert rows[0] == rows[1]


@pytest.mark.parametrize("stop", [1, 3, 4, 5])
def test_a_training_that_goes_on_ends_as_an_unbroken_one(stop: int, tmp_path: Path) -> None:
    train(tmp_path / "whole", 10)
    train(tmp_path / "broken", stop)
    with (tmp_path / "broken" / "metrics.jsonl").open("a") as stream:
        stream.write('{"kind":"tr')
    train(tmp_path / "broken", 10)
    assert_same_run(tmp_path / "broken", tmp_path / "whole")


def test_steps_after_the_last_whole_checkpoint_are_done_again(tmp_path: Path) -> None:
    train(tmp_path / "whole", 10)
    train(tmp_path / "broken", 6)
    (tmp_path / "broken" / "checkpoints" / "step-00000006" / "state.json").unlink()
    assert len(read_metrics(tmp_path / "broken" / "metrics.jsonl")) == 2
    train(tmp_path / "broken", 10)
    assert_same_run(tmp_path / "broken", tmp_path / "whole")


@pytest.mark.slow
def test_killed_at_any_moment_of_saving_a_training_ends_as_an_unbroken_one(tmp_path: Path) -> None:
    train(tmp_path / "whole", NUM_STEPS)
    folder = tmp_path / "broken"
    moments = random.Random(7)
    command = [sys.executable, "-m", "tests.train.train_small", str(folder), str(NUM_STEPS)]
    num_torn = 0
    for num_kills in range(1, MOST_KILLS + 1):
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment()) as process:
            assert process.stdout is not None
            step = int(process.stdout.readline())
            time.sleep(moments.uniform(0.0, 0.03))
            assert process.poll() is None, "it ended before it was killed"
            process.kill()
            step = int(([str(step).encode(), *process.stdout.read().split()])[-1])
        num_torn += len(list((folder / "checkpoints").glob(".step-*.tmp")))
        assert load_checkpoint(last_checkpoint(folder)).state.step >= step
        if num_kills >= LEAST_KILLS and num_torn > 0:
            break
    assert num_torn > 0, "no kill met a save or a deletion"
    assert subprocess.run(command, env=environment(), capture_output=True).returncode == 0
    assert list((folder / "checkpoints").glob(".*")) == []
    assert_same_run(folder, tmp_path / "whole")
