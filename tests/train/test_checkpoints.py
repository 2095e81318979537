import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from tests.full_disk import files_end_at
from tests.train.small_runs import SmallTraining, save_steps, small_checkpoint, small_state

from clozemill.pipeline.errors import RunError
from clozemill.train.checkpoints import (
    Checkpoint,
    find_latest,
    load_checkpoint,
    rotate,
    save_checkpoint,
    step_folder,
    step_of,
)
from clozemill.train.optimizers import load_optimizer_tensors
from clozemill.train.tensors import put_model_tensors
from clozemill.train.window import Window


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def resumed(path: Path, *, hidden_size: int = 4) -> SmallTraining:
    """Return a new training with what a checkpoint holds."""
    training = SmallTraining(hidden_size=hidden_size)
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
    again = resumed(path, hidden_size=64)
    ids = torch.arange(11)
    for _ in range(2):
        assert again.model.decoder.weight.data_ptr() == again.model.table.weight.data_ptr()
        assert torch.equal(again.model(ids), training.model(ids))
        assert training.step(2) == again.step(2)
    assert "decoder.weight" not in load_checkpoint(path).model
    num_bytes = sum(p.numel() * 4 for p in training.model.parameters())
    assert num_bytes < (path / "model.safetensors").stat().st_size < num_bytes + 1_000


def test_the_step_of_a_checkpoint_is_that_of_its_folder(tmp_path: Path) -> None:
    steps = [1, 999, 123_456_789]
    assert [step_of(step_folder(tmp_path, step)) for step in steps] == steps
    others = ["step-", "step-1.tmp", ".step-00000001.77.tmp", "step-x", "last"]
    assert [step_of(tmp_path / name) for name in others] == [None] * 5


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
    with pytest.raises(RunError, match=r"no checkpoint in .* is complete, of 1 .*optimizer"):
        find_latest(tmp_path)


def test_incomplete_checkpoints_do_not_count_as_kept(tmp_path: Path) -> None:
    paths = save_steps(tmp_path, 1, 2, 3, 4)
    (paths[3] / "state.json").unlink()
    assert rotate(tmp_path, keep=1) == [paths[1], paths[0]]
    assert find_latest(tmp_path)[0] == paths[2]


def test_the_newest_complete_checkpoint_is_never_deleted(tmp_path: Path) -> None:
    paths = save_steps(tmp_path, 1, 2, 3)
    for path in paths[1:]:
        flip_a_byte(path / "model.safetensors")
    assert rotate(tmp_path, keep=1) == []
    assert find_latest(tmp_path)[0] == paths[0]


def test_rotation_leaves_what_is_not_ours(tmp_path: Path) -> None:
    save_steps(tmp_path, 1, 2)
    for name in ("step-x", "final-step-1", "step-1.bak", ".step-1.tmp"):
        (tmp_path / name).mkdir()
    left = tmp_path / ".step-00000001.77-0123abcd.tmp"
    left.mkdir()
    rotate(tmp_path, keep=1)
    assert names(tmp_path) == [
        ".step-1.tmp", "final-step-1", "step-00000002", "step-1.bak", "step-x",
    ]  # fmt: skip


def test_rotation_deletes_a_link_and_not_what_it_names(tmp_path: Path) -> None:
    (elsewhere,) = save_steps(tmp_path / "elsewhere", 1)
    save_steps(tmp_path / "here", 2)
    (tmp_path / "here" / "step-00000001").symlink_to(elsewhere)
    assert len(rotate(tmp_path / "here", keep=1)) == 1
    assert names(tmp_path / "here") == ["step-00000002"]
    assert find_latest(tmp_path / "elsewhere")[0] == elsewhere


def test_saving_a_step_again_keeps_it_if_complete_and_mends_it_if_not(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 3)
    inode = path.stat().st_ino
    save_steps(tmp_path, 3)
    assert path.stat().st_ino == inode
    os.truncate(path / "model.safetensors", 50)
    save_steps(tmp_path, 3)
    assert find_latest(tmp_path) == (path, [])
    assert names(tmp_path) == ["step-00000003"]


def test_a_flipped_byte_makes_a_checkpoint_incomplete(tmp_path: Path) -> None:
    old, new = save_steps(tmp_path, 1, 2)
    flip_a_byte(new / "optimizer.safetensors")
    found, skipped = find_latest(tmp_path)
    assert found == old
    assert "optimizer.safetensors has changed since it was written" in skipped[0]
    with pytest.raises(RunError, match="has changed since it was written"):
        load_checkpoint(new)


def test_a_checkpoint_under_the_name_of_another_step_is_not_trusted(tmp_path: Path) -> None:
    _, new = save_steps(tmp_path, 1, 2)
    new.rename(tmp_path / "step-00000900")
    found, skipped = find_latest(tmp_path)
    assert found == tmp_path / "step-00000001"
    assert "is of step 2" in skipped[0]


def test_the_state_of_a_loss_scaler_goes_on(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20)  # type: ignore[attr-defined]
    scaler.scale(torch.ones(()))
    state = small_state(4, scaler=scaler.state_dict())
    saved = Checkpoint(state=state, model={}, optimizer={})
    loaded = load_checkpoint(save_checkpoint(tmp_path, saved)).state.scaler
    assert loaded == scaler.state_dict()
    assert [type(loaded[name]) for name in loaded] == [
        type(v) for v in scaler.state_dict().values()
    ]
    again = torch.amp.GradScaler("cpu")  # type: ignore[attr-defined]
    again.load_state_dict(loaded)
    assert again.get_scale() == 2.0**20


def test_sums_that_are_not_finite_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    state = small_state(4, window=Window(mlm_loss_sum=float("nan")))
    with pytest.raises(RunError, match="step 4 has a sum that is not finite"):
        save_checkpoint(tmp_path, Checkpoint(state=state, model={}, optimizer={}))
    assert names(tmp_path) == []


def test_a_negative_step_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="step is -1"):
        small_state(-1)


def test_a_full_disk_is_one_line_and_harms_no_earlier_checkpoint(tmp_path: Path) -> None:
    (old,) = save_steps(tmp_path, 1)
    big = SmallTraining(hidden_size=64)
    big.step(1)
    with files_end_at(2_048), pytest.raises(RunError) as error:
        save_checkpoint(tmp_path, small_checkpoint(2, big))
    assert str(error.value) == (
        f"cannot save the checkpoint {tmp_path / 'step-00000002'}: File too large; earlier ones "
        "are unharmed. Free some space, then run the same command again."
    )
    assert names(tmp_path) == ["step-00000001"]
    assert find_latest(tmp_path) == (old, [])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with room for one checkpoint and a part of another."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system of 400 KB cannot be mounted here; it takes root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_at_any_file_keeps_the_earlier_checkpoint(small_disk: Path) -> None:
    big = SmallTraining(hidden_size=128)
    big.step(1)
    folder = small_disk / "checkpoints"
    old = save_checkpoint(folder, small_checkpoint(1, big))
    num_refused = 0
    for num_kilobytes in range(200, 0, -20):  # from a full disk to one with room
        (small_disk / "ballast").write_bytes(b"")
        with contextlib.suppress(OSError):
            (small_disk / "ballast").write_bytes(bytes(num_kilobytes << 10))
        if (refusal := refused(folder, small_checkpoint(2, big))) is not None:
            num_refused += 1
            assert "No space left on device; earlier ones are unharmed" in refusal
            assert names(folder) == ["step-00000001"]
            assert find_latest(folder) == (old, [])
    assert num_refused >= 3


def refused(folder: Path, checkpoint: Checkpoint) -> str | None:
    """Return why a checkpoint could not be saved, or None if it was."""
    try:
        save_checkpoint(folder, checkpoint)
    except RunError as error:
        return str(error)
    return None


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
