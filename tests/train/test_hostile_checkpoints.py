"""Law 10: whatever lies in the place of a checkpoint is one line, and nothing in it runs."""

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.train.small_runs import save_steps

from clozemill.pipeline.errors import RunError
from clozemill.pipeline.files import file_checksum
from clozemill.train.checkpoints import find_latest, load_checkpoint


def edit_state(path: Path, edit: Callable[[Any], object]) -> None:
    table = json.loads((path / "state.json").read_text())
    edit(table)
    (path / "state.json").write_text(json.dumps(table))


def forge(path: Path, name: str, data: bytes) -> None:
    """Put other bytes in the place of a file, as somebody would who knows of checksums."""
    (path / name).write_bytes(data)
    entry = {"num_bytes": len(data), "checksum": file_checksum(path / name)}
    edit_state(path, lambda table: table["files"].update({name: entry}))


class _Evil:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("evil",))


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps(_Evil()),
        b"",
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 10**12) + b" " * 100,
        struct.pack("<Q", 12) + b'{"a": [[[[[',
        struct.pack("<Q", 57) + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,99999]}}',
        struct.pack("<Q", 2) + b"[]",
    ],
)
@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors"])
def test_a_file_that_is_no_safetensors_is_one_line_and_runs_nothing(
    name: str, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (path,) = save_steps(tmp_path, 1)
    forge(path, name, data)
    with pytest.raises(RunError, match=rf"{name} is not a readable safetensors file") as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda t: t.update(format_version=99), "format version 99"),
        (lambda t: t.update(format_version=[1]), r"format version \[1\]"),
        (lambda t: t.pop("state"), "no key 'state'"),
        (lambda t: t.update(state=[]), r"state is \[\]; it must be an object"),
        (lambda t: t.update(more=1), "unknown key 'more'"),
        (lambda t: t["state"].update(step="1"), "step is '1'; it must be a whole number"),
        (lambda t: t["state"].update(step=1.0), "step is 1.0; it must be a whole number"),
        (lambda t: t["state"].update(epoch=True), "epoch is True; it must be a whole number"),
        (
            lambda t: t["state"].update(epoch=-1),
            "state: epoch is -1; it must be at least 0",
        ),
        (lambda t: t["state"].update(epoch=10**400), "epoch is 1000"),
        (lambda t: t["state"].update(scaler={"scale": "x"}), "scaler.scale is 'x'; it must be"),
        (lambda t: t["state"].update(scaler={"scale": None}), "scaler.scale is None; it must"),
        (lambda t: t["state"]["window"].update(selected=None), "selected is None; it must be"),
        (lambda t: t["state"]["window"].update(seconds=10**400), "seconds is 1000"),
        (lambda t: t["state"]["facts"].pop("dataset"), "no key 'dataset'"),
        (lambda t: t.update(files=[]), r"files is \[\]; it must be an object"),
        (lambda t: t["files"].pop("model.safetensors"), "lists "),
        (lambda t: t["files"].update({"../../secret": 1}), "secret' is 1; it must be an object"),
        (lambda t: t["files"].update({"a\nb" * 99: 1}), "files.'a.*is 1; it must be an object"),
        (
            lambda t: t["files"].update({"../../secret": t["files"]["model.safetensors"]}),
            r"lists \['../../secret', ",
        ),
        (lambda t: t["files"]["model.safetensors"].update(num_bytes=1), "1 were written"),
        (lambda t: t["files"]["model.safetensors"].update(checksum="x"), "checksum differs"),
    ],
)
def test_a_state_that_is_none_is_one_line(
    edit: Callable[[Any], object], message: str, tmp_path: Path
) -> None:
    (path,) = save_steps(tmp_path, 1)
    edit_state(path, edit)
    with pytest.raises(RunError, match=message) as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    with pytest.raises(RunError, match="no checkpoint in .* is complete"):
        find_latest(tmp_path)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b'{"a": NaN}', "is not JSON .it has NaN"),
        (b"[" * 100_000, "is not JSON"),
        (b"1" * 5_000, "is not JSON"),
        (b"[1]", "must be an object"),
        (b" " * (1 << 24) + b"{}", "more than 16,777,216 bytes"),
    ],
)
def test_a_state_that_is_no_object_is_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    (path / "state.json").write_bytes(data)
    with pytest.raises(RunError, match=message) as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("kind", ["device", "loop", "pipe", "folder", "dangling"])
def test_what_is_no_file_is_one_line(kind: str, name: str, tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    (path / name).unlink()
    if name != "state.json":
        empty = {"num_bytes": 0, "checksum": "xxh3-128:" + "0" * 32}
        edit_state(path, lambda table: table["files"].update({name: empty}))
    make: dict[str, Callable[[], object]] = {
        "device": lambda: (path / name).symlink_to("/dev/zero"),
        "loop": lambda: (path / name).symlink_to(name),
        "pipe": lambda: os.mkfifo(path / name),
        "folder": lambda: (path / name).mkdir(),
        "dangling": lambda: (path / name).symlink_to("absent"),
    }
    make[kind]()
    with pytest.raises(RunError, match=name) as error:
        load_checkpoint(path)
    assert "\n" not in str(error.value)


def test_a_file_in_the_place_of_a_checkpoint_is_skipped(tmp_path: Path) -> None:
    (path,) = save_steps(tmp_path, 1)
    (tmp_path / "step-00000002").write_text("")
    found, skipped = find_latest(tmp_path)
    assert found == path
    assert "step-00000002/state.json: Not a directory" in skipped[0]
