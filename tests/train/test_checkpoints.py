import os
import shutil
from pathlib import Path

import pytest
import torch
from tests.train.small_runs import SmallTraining, save_steps, small_checkpoint

from clozemill.pipeline.errors import RunError
from clozemill.train.checkpoints import (
    find_latest,
    load_checkpoint,
    rotate,
    save_checkpoint,
)
from clozemill.train.optimizers import load_optimizer_tensors
from clozemill.train.tensors import put_model_tensors


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def resumed(path: Path) -> SmallTraining:
    """Return a new training with what a checkpoint holds."""
    training = SmallTraining()
    training.step(999)
    saved = load_checkpoint(path)
    put_model_tensors(training.model, saved.model, where="m")
    load_optimizer_tensors(training.optimizer, training.model, saved.optimizer)
    return training


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    saved = small_checkpoint(1000)
    path = save_checkpoint(tmp_path, saved)
    assert path == tmp_path / "step-00001000"
    assert names(path) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    loaded = load_checkpoint(path)
    assert loaded.state == saved.state
    for before, after in ((saved.model, loaded.model), (saved.optimizer, loaded.optimizer)):
        assert before.keys() == after.keys()
        assert len(before) > 3
        for name, tensor in before.items():
            assert tensor.dtype == after[name].dtype
            assert torch.equal(tensor, after[name])


def test_a_state_saved_again_has_the_same_bytes(tmp_path: Path) -> None:
    (first,) = save_steps(tmp_path / "a", 7)
    second = save_checkpoint(tmp_path / "b", load_checkpoint(first))
    for name in names(first):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_training_goes_on_from_a_checkpoint_to_the_same_weights(tmp_path: Path) -> None:
    whole = SmallTraining()
    for step in range(1, 4):
        whole.step(step)
    path = save_checkpoint(tmp_path, small_checkpoint(3, whole))
    again = resumed(path)
    assert [whole.step(step) for step in range(4, 9)] == [again.step(step) for step in range(4, 9)]
    for before, after in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(before, after)


def test_a_tied_decoder_is_saved_once_and_stays_tied(tmp_path: Path) -> None:
    training = SmallTraining(hidden_size=64)
    training.step(1)
    path = save_checkpoint(tmp_path, small_checkpoint(1, training))
    assert "decoder.weight" not in load_checkpoint(path).model
    num_bytes = sum(p.numel() * 4 for p in training.model.parameters())
    assert num_bytes < (path / "model.safetensors").stat().st_size < num_bytes + 1_000


def test_rotation_goes_by_the_number_of_the_step(tmp_path: Path) -> None:
    save_steps(tmp_path, 9000, 9900, 10000)
    for step in (9000, 9900, 10000):
        (tmp_path / f"step-{step:08d}").rename(tmp_path / f"step-{step}")
    assert [path.name for path in rotate(tmp_path, keep=2)] == ["step-9000"]
    assert names(tmp_path) == ["step-10000", "step-9900"]


def test_the_newest_complete_checkpoint_is_found_and_the_skipped_are_named(tmp_path: Path) -> None:
    _, cut, stateless = save_steps(tmp_path, 9000, 9900, 10000)
    os.truncate(cut / "model.safetensors", 200)
    (stateless / "state.json").unlink()
    found, skipped = find_latest(tmp_path)
    assert found == tmp_path / "step-00009000"
    assert len(skipped) == 2
    assert "cannot read" in skipped[0]
    assert "step-00010000" in skipped[0]
    assert "has 200 bytes" in skipped[1]


def test_no_complete_checkpoint_is_an_error_and_none_at_all_is_not(tmp_path: Path) -> None:
    assert find_latest(tmp_path / "absent") == (None, [])
    (path,) = save_steps(tmp_path, 5)
    (path / "optimizer.safetensors").unlink()
    with pytest.raises(RunError, match=r"1 checkpoint.*none is complete.*optimizer.safetensors"):
        find_latest(tmp_path)


def test_incomplete_checkpoints_do_not_count_as_kept(tmp_path: Path) -> None:
    paths = save_steps(tmp_path, 1, 2, 3, 4)
    shutil.rmtree(paths[3] / "state.json", ignore_errors=True)
    (paths[3] / "state.json").unlink()
    assert rotate(tmp_path, keep=1) == [paths[1], paths[0]]
    assert find_latest(tmp_path)[0] == paths[2]
