"""The same bytes on a real Ray cluster of two nodes, also when one of them goes away."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.pipeline.small_corpora import file_hashes, only_line, run_command, small_config

from clozemill.pipeline.build import build
from clozemill.pipeline.engine import make_engine
from clozemill.pipeline.errors import ConfigError, InputError
from clozemill.pipeline.progress import Progress

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.slow,
    # Ray's own code leaves files and processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]


def ray_processes() -> list[psutil.Process]:
    """Return the processes below this one that are Ray's, but for those that end meanwhile."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words = " ".join(process.cmdline())
            is_rays = any(name in words for name in ("raylet", "gcs_server", "ray::"))
            if is_rays and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    try:
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        stop = time.monotonic() + 20
        while left := ray_processes():
            assert time.monotonic() < stop, left
            time.sleep(0.1)


def fail_at_one(number: int) -> int:
    if number == 1:
        raise InputError(f"{number} cannot be read.")
    return number


def test_without_a_cluster_one_line_says_so(corpus: Path, syllables: Path, tmp_path: Path) -> None:
    config = small_config(corpus, syllables, tmp_path / "out", engine="ray")
    done = run_command(config, RAY_ADDRESS="")
    assert done.returncode == 2
    assert "no Ray cluster at 'auto'; start one with `ray start --head`" in only_line(done.stderr)
    assert not (tmp_path / "out").exists()


def test_results_and_errors_come_as_from_any_engine(cluster: Any) -> None:
    with make_engine("ray", workers=None, ray_address=cluster.address) as engine:
        assert sorted(engine.run(fail_at_one, [0, 2, 3])) == [0, 2, 3]
        with pytest.raises(InputError, match="1 cannot be read"):
            list(engine.run(fail_at_one, [0, 1, 2]))
    assert not ray.is_initialized()


@pytest.mark.parametrize("workers", [None, 1])
def test_a_cluster_gives_the_bytes_of_one_process(
    workers: int | None, cluster: Any, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"input_split_bytes": 10_000, "mask_unit": "word"}
    build(small_config(corpus, syllables, tmp_path / "local", **settings))
    settings |= {"engine": "ray", "ray_address": cluster.address, "workers": workers}
    build(small_config(corpus, syllables, tmp_path / "ray", **settings))
    assert file_hashes(tmp_path / "ray") == file_hashes(tmp_path / "local")


def test_a_node_may_leave_while_it_works(
    cluster: Any, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"input_split_bytes": 5_000, "bucket_tokens": 1_000}
    build(small_config(corpus, syllables, tmp_path / "local", **settings))
    leaving = [cluster.add_node(num_cpus=2)]

    def lose_a_node(progress: Progress) -> None:
        if progress.stage == "writing" and progress.done and leaving:
            cluster.remove_node(leaving.pop(), allow_graceful=False)

    settings |= {"engine": "ray", "ray_address": cluster.address, "workers": None}
    build(small_config(corpus, syllables, tmp_path / "ray", **settings), on_progress=lose_a_node)
    assert not leaving
    assert file_hashes(tmp_path / "ray") == file_hashes(tmp_path / "local")


def test_an_address_where_nothing_is_is_an_error() -> None:
    with (
        pytest.raises(ConfigError, match="no Ray cluster at '127.0.0.1:1'"),
        make_engine("ray", workers=None, ray_address="127.0.0.1:1"),
    ):
        pass
