from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from tests.full_disk import files_end_at

from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.files import (
    atomic_file,
    atomic_folder,
    file_checksum,
    is_plain_name,
    is_temporary,
)


def test_file_appears_when_the_block_ends(tmp_path: Path):
    path = tmp_path / "a.arrow"
    with atomic_file(path) as sink:
        sink.write(b"tea")
        (aside,) = tmp_path.iterdir()
        assert aside != path
        assert is_temporary(aside.name)
    assert [file.name for file in tmp_path.iterdir()] == ["a.arrow"]
    assert path.read_bytes() == b"tea"
    assert sink.num_bytes == 3
    assert sink.checksum == f"xxh3-128:{xxhash.xxh3_128_hexdigest(b'tea')}" == file_checksum(path)


def test_nothing_is_left_of_a_block_that_fails(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_file(tmp_path / "a") as sink:
        sink.write(b"%d" % (1 // 0))
    assert [file.name for file in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize("num_bytes", [100_000, 3 << 20])
def test_full_disk_is_one_clear_error(tmp_path: Path, num_bytes: int):
    """Met when the buffer is full, or when the block ends."""
    with (
        files_end_at(1 << 16),
        pytest.raises(DatasetError, match=r"cannot write .*a: File too large; free some space"),
        atomic_file(tmp_path / "a") as sink,
    ):
        sink.write(bytes(num_bytes))
    assert not list(tmp_path.iterdir())


def test_full_disk_is_told_by_arrow_too(tmp_path: Path):
    batch = pa.record_batch({"a": np.zeros(1 << 20)})
    with (
        files_end_at(1 << 16),
        pytest.raises(DatasetError, match=r"cannot write .*a: File too large"),
        atomic_file(tmp_path / "a") as sink,
        pa.ipc.new_file(sink, batch.schema) as writer,
    ):
        writer.write_batch(batch)
    assert not list(tmp_path.iterdir())


def test_error_of_what_is_read_meanwhile_stays_its_own(tmp_path: Path):
    with pytest.raises(FileNotFoundError, match="absent"), atomic_file(tmp_path / "a"):
        (tmp_path / "absent").read_bytes()
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_one_clear_error(tmp_path: Path):
    with pytest.raises(DatasetError, match="No such file"), atomic_file(tmp_path / "no" / "a"):
        pass


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", ".x", "", "a\0", "a\n", "x" * 300])
def test_names_that_leave_the_folder_are_not_plain(name: str):
    assert not is_plain_name(name)


def test_folder_appears_when_the_block_ends(tmp_path: Path):
    path = tmp_path / "new" / "folder"
    with atomic_folder(path) as aside:
        (aside / "a").write_bytes(b"tea")
        assert not path.exists()
        assert aside.parent == path.parent
        assert is_temporary(aside.name)
    assert [file.name for file in path.parent.iterdir()] == ["folder"]
    assert (path / "a").read_bytes() == b"tea"


def test_nothing_is_left_of_a_folder_whose_block_fails(tmp_path: Path):
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "folder") as aside:
        (aside / "a").write_bytes(b"%d" % (1 // 0))
    assert not list(tmp_path.iterdir())


def test_folder_that_is_there_stays_as_it_is(tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_bytes(b"old")
    with (
        pytest.raises(DatasetError, match="folder: Directory not empty"),
        atomic_folder(tmp_path / "folder") as aside,
    ):
        (aside / "a").write_bytes(b"new")
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "a").read_bytes() == b"old"
