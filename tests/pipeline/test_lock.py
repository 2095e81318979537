import os
from pathlib import Path

import pytest

from clozemill.pipeline.lock import lock_file


def test_a_file_is_locked_once_and_free_when_it_is_closed(tmp_path: Path) -> None:
    first = lock_file(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        lock_file(tmp_path / "lock")
    os.close(first)
    os.close(lock_file(tmp_path / "lock"))


def test_a_deleted_file_is_made_anew_and_locked(tmp_path: Path) -> None:
    first = lock_file(tmp_path / "lock")
    (tmp_path / "lock").unlink()
    second = lock_file(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        lock_file(tmp_path / "lock")
    os.close(first)
    os.close(second)
