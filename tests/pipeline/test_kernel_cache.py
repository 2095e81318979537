import fcntl
import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

import clozemill.pipeline.jit
from clozemill.pipeline.kernel_cache import CACHE_DIR, cache_dir, remove_old_caches, sources_hash

BUILD_SOMETHING = """
import sys
import numpy as np
from clozemill.pipeline import kernel_cache
from clozemill.pipeline.assemble import assemble
from clozemill.pipeline.instances import Corpus
from clozemill.pipeline.pairs import PairRule, draw_pairs

starts = np.arange(0, 201, 10)
tokens = np.arange(200).astype(sys.argv[1])
ids = np.arange(8, dtype=np.uint64).reshape(4, 2)
corpus = Corpus(tokens, starts, np.arange(0, 21, 5), ids, np.full(4, 3), np.arange(4))
instances, _ = draw_pairs(corpus, PairRule(64, 0.1, False, np.uint64(1)))
order = np.arange(len(instances.pass_number))
batch = assemble(corpus, instances, order, cls_id=201, sep_id=202, has_pairs=True)
print(kernel_cache.CACHE_DIR, batch.input_ids.sum(), len(order))
"""


def run_with_cache(folder: Path, dtypes: list[str]) -> list[list[str]]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", BUILD_SOMETHING, dtype],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for dtype in dtypes
    ]
    outputs = [process.communicate(timeout=300)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0] * len(dtypes)
    return outputs


@pytest.mark.slow
def test_processes_that_compile_at_once_share_one_cache(tmp_path: Path) -> None:
    """Two token types race for the numbers of Numba's cache files; then all is loaded."""
    first = run_with_cache(tmp_path, ["uint16", "uint32", "uint16"])
    compiled = {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")}
    assert len(compiled) >= 4
    again = run_with_cache(tmp_path, ["uint16", "uint32"])
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nbc")} == compiled
    assert len({tuple(output) for output in first + again}) == 1
    assert Path(first[0][0]).parent == tmp_path


def test_hash_covers_kernels_and_their_records_alone(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text("from clozemill.pipeline.jit import njit\n")
    (tmp_path / "instances.py").write_text("x = 1\n")
    (tmp_path / "other.py").write_text("y = 1\n")
    before = sources_hash(tmp_path)
    (tmp_path / "other.py").write_text("y = 2\n")
    assert sources_hash(tmp_path) == before
    (tmp_path / "kernels.py").write_text("from clozemill.pipeline.jit import njit, kernel\n")
    changed = sources_hash(tmp_path)
    assert changed != before
    (tmp_path / "instances.py").write_text("x = 2\n")
    assert sources_hash(tmp_path) not in (before, changed)


def test_cache_folder_is_named_by_the_sources() -> None:
    sources = Path(clozemill.pipeline.jit.__file__).parent.parent
    folders = [sources / name for name in ("pipeline", "train", "analysis")]
    assert CACHE_DIR.name == f"numba-{sources_hash(*folders)}"


def test_importing_does_not_wait_for_a_process_that_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "c").mkdir(mode=0o700)
    with open(tmp_path / "c" / "compiling.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cache_dir("c") == tmp_path / "c"


def test_caches_of_other_sources_go_a_month_after_their_last_use(tmp_path: Path) -> None:
    now, month = time.time(), 31 * 24 * 3600
    names = {"new": "numba-" + "0" * 16, "old": "numba-" + "1" * 16, "busy": "numba-" + "2" * 16}
    own, foreign = tmp_path / ("numba-" + "3" * 16), tmp_path / "numba-of-somebody"
    for folder in [*(tmp_path / name for name in names.values()), own, foreign]:
        (folder / "pipeline").mkdir(parents=True)
        (folder / "compiling.lock").touch()
        os.utime(folder, (now - month, now - month))
    os.utime(tmp_path / names["new"])
    with open(tmp_path / names["busy"] / "compiling.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_old_caches(own)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {names["new"], names["busy"], own.name, foreign.name}
    assert own.stat().st_mtime >= now - 1


def test_a_user_without_a_home_has_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_entry(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", no_entry)
    for name in ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError):
        Path.home()
    assert cache_dir("c") == tmp_path / f"clozemill-{os.getuid()}" / "c"


def test_cache_goes_where_it_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    assert cache_dir("c") == tmp_path / "own" / "c"
    assert stat.S_IMODE((tmp_path / "own" / "c").stat().st_mode) == 0o700
    # What others could write to is not used: cached code is run when loaded.
    (tmp_path / "own" / "c").chmod(0o777)
    assert cache_dir("c") == tmp_path / "home" / "clozemill" / "c"
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_dir("c") == tmp_path / "tmp" / f"clozemill-{os.getuid()}" / "c"
    (tmp_path / "tmp" / f"clozemill-{os.getuid()}" / "c").chmod(0o777)
    last = cache_dir("c")
    assert last.parent == tmp_path / "tmp"
    assert stat.S_IMODE(last.stat().st_mode) == 0o700
