import errno
from pathlib import Path

import pytest
import xxhash

from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.files import (
    atomic_file,
    file_checksum,
    folder_checksums,
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


def test_full_disk_is_one_clear_error(tmp_path: Path):
    with (
        pytest.raises(DatasetError, match=r"cannot write .*a: No space left.*; free some space"),
        atomic_file(tmp_path / "a"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert not list(tmp_path.iterdir())


def test_missing_folder_is_one_clear_error(tmp_path: Path):
    with pytest.raises(DatasetError, match="No such file"), atomic_file(tmp_path / "no" / "a"):
        pass


@pytest.mark.parametrize("name", ["../x", "/etc/passwd", "a/b", ".x", "", "a\0", "a\n", "x" * 300])
def test_names_that_leave_the_folder_are_not_plain(name: str):
    assert not is_plain_name(name)


def test_checksums_of_a_folder_by_name(tmp_path: Path):
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "a").write_bytes(b"1")
    sums = folder_checksums(tmp_path)
    assert list(sums) == ["a", "b"]
    assert sums["a"] == file_checksum(tmp_path / "a")
