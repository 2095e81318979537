"""Law 4: a dataset is there whole or not at all, and the same command finishes it.

The fast tests stop a build from its own progress callback; the slow ones kill real processes.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.pipeline.small_corpora import (
    Stopped,
    command,
    environment,
    file_hashes,
    has_written,
    make_texts,
    only_line,
    run_command,
    small_build,
    small_config,
    stop_when,
    write_json_lines,
)

from clozemill.pipeline.build import build
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.files import file_checksum
from clozemill.pipeline.manifest import read_manifest

NUM_KILLS = 10


def build_until(config: BuildConfig, num_events: int) -> bool:
    """Build until so many progress events were seen; return whether it was stopped."""
    seen = itertools.count(1)
    try:
        build(config, on_progress=stop_when(lambda progress: next(seen) == num_events))
    except Stopped:
        return True
    return False


@pytest.fixture(scope="module")
def expected(
    corpus: Path, syllables: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    out = tmp_path_factory.mktemp("whole") / "data"
    small_build(corpus, syllables, out)
    return file_hashes(out)


@pytest.mark.parametrize("num_events", [1, 2, 4, 5, 11])
def test_a_stopped_build_goes_on_where_it_was(
    num_events: int, corpus: Path, syllables: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    config = small_config(corpus, syllables, tmp_path / "out")
    assert build_until(config, num_events)
    assert not (tmp_path / "out" / "manifest.json").exists()
    before = {path: path.stat().st_ino for path in (tmp_path / "out").glob("*-000.arrow")}
    assert bool(before) == (num_events > 3)
    report = build(config)
    assert not report.was_finished
    resumed = [notice for notice in report.notices if notice.startswith("resumed: ")]
    assert bool(resumed) == (num_events > 1)
    assert (
        not resumed
        or resumed[0] == "resumed: 1 of 1 reading tasks have receipts of an earlier call."
    )
    assert file_hashes(tmp_path / "out") == expected
    assert {path: path.stat().st_ino for path in before} == before, "made again"


def test_a_build_stopped_at_every_step_ends_with_the_same_bytes(
    corpus: Path, syllables: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    config = small_config(corpus, syllables, tmp_path / "out")
    num_stops = 0
    while build_until(config, num_stops + 2):
        num_stops += 1
    assert num_stops > 8
    assert file_hashes(tmp_path / "out") == expected


def test_inputs_named_in_another_order_do_not_fool_a_resumed_build(
    texts: list[str], syllables: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    files = [
        write_json_lines(tmp_path / "a.jsonl", texts[:10]),
        write_json_lines(tmp_path / "b.jsonl", texts[10:]),
    ]
    out = tmp_path / "out"
    assert build_until(small_config(files, syllables, out, input_split_bytes=1_000), 4)
    small_build(files[::-1], syllables, out, input_split_bytes=2_000)
    assert file_hashes(out) == expected


def test_parts_that_were_cut_short_are_made_again(
    corpus: Path, syllables: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    config = small_config(corpus, syllables, tmp_path / "out")
    assert build_until(config, 6)
    parts = list((tmp_path / "out" / ".build" / "map").glob("*.arrow"))
    shards = list((tmp_path / "out").glob("train-*.arrow"))
    assert parts
    assert shards
    for path in (*parts, *shards[:1]):
        os.truncate(path, 100)
    build(config)
    assert file_hashes(tmp_path / "out") == expected


def test_a_build_killed_after_the_manifest_is_finished(
    corpus: Path, syllables: Path, tmp_path: Path, expected: dict[str, str]
) -> None:
    config = small_config(corpus, syllables, tmp_path / "out")
    build_until(config, 6)
    left = shutil.copytree(tmp_path / "out" / ".build", tmp_path / "left")
    build(config)
    shutil.copytree(left, tmp_path / "out" / ".build")
    assert build(config).was_finished
    assert file_hashes(tmp_path / "out") == expected
    assert not (tmp_path / "out" / ".build").exists()


def test_a_receipt_of_another_bucket_of_that_name_is_not_trusted(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    source, out = write_json_lines(tmp_path / "a.jsonl", texts), tmp_path / "data"
    config = small_config(source, syllables, out)
    with pytest.raises(Stopped):
        build(config, on_progress=stop_when(lambda p: has_written(p) and p.done == p.total))
    receipt = out / ".build" / "reduce" / "train-00001.json"
    record = json.loads(receipt.read_text())
    record["bucket"]["stop_cell"] -= 1
    receipt.write_text(json.dumps(record))
    shard = out / record["shards"][0]["path"]
    shard.write_bytes(bytes(shard.stat().st_size))
    build(config)
    small_build(source, syllables, tmp_path / "fresh")
    assert file_hashes(out) == file_hashes(tmp_path / "fresh")


class Running:
    """A build in processes of its own, all of which can be found by a mark they inherit."""

    def __init__(self, config: BuildConfig) -> None:
        self.out = Path(config.out)
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            command(config),
            env=environment(CLOZEMILL_TEST_MARK=self.mark),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def others(self) -> list[psutil.Process]:
        """Return its processes but for the first; one that ends meanwhile is none of them."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get("CLOZEMILL_TEST_MARK") == self.mark
                is_other = is_ours and process.pid != self.process.pid
                if is_other and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def workers(self) -> list[psutil.Process]:
        """Return the processes forked by the process that is there for it."""
        found = []
        for process in self.others():
            with contextlib.suppress(psutil.Error):
                parent = process.parent()
                if parent is not None and process.cmdline() == parent.cmdline():
                    found.append(process)
        return found

    def servers(self) -> list[psutil.Process]:
        """Return the process that workers are forked from, which first imports what they need."""
        found = []
        for process in self.others():
            with contextlib.suppress(psutil.Error):
                if any("forkserver" in word for word in process.cmdline()):
                    found.append(process)
        return found

    def wait_until(self, is_reached: Callable[[], Any]) -> None:
        stop = time.monotonic() + 60
        while not is_reached():
            assert self.process.poll() is None, "ended too early"
            assert time.monotonic() < stop
            time.sleep(0.005)

    def end(self) -> tuple[int, str]:
        """Return exit code and standard error, and leave nothing running."""
        _, error = self.process.communicate(timeout=60)
        self.assert_nothing_runs()
        return self.process.returncode, error

    def assert_nothing_runs(self) -> None:
        stop = time.monotonic() + 5
        while left := self.others():
            assert time.monotonic() < stop, left
            time.sleep(0.05)

    def num_shards(self) -> int:
        return len(list(self.out.glob("train-*.arrow")))


@contextlib.contextmanager
def running(config: BuildConfig) -> Iterator[Running]:
    build = Running(config)
    try:
        yield build
    finally:
        for process in build.others():
            with contextlib.suppress(psutil.Error):
                process.kill()
        build.process.kill()
        build.process.communicate()


def assert_whole_if_there(out: Path) -> bool:
    """Check a folder at any moment; return whether it holds a dataset."""
    if not (out / "manifest.json").exists():
        return False
    files = read_manifest(out).files
    assert files
    for entry in files:
        assert file_checksum(out / entry.path) == entry.checksum
    return True


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough text for two workers to be busy for about as long as they take to start."""
    folder = tmp_path_factory.mktemp("more")
    return write_json_lines(folder / "more.jsonl", make_texts(1_000, seed=5))


@pytest.fixture(scope="module")
def slow_config(more: Path, syllables: Path) -> Callable[..., BuildConfig]:
    def config(out: Path, **settings: Any) -> BuildConfig:
        settings = {"workers": 2, "input_split_bytes": 100_000, "bucket_tokens": 8_000, **settings}
        return small_config(more, syllables, out, **settings)

    return config


@pytest.fixture(scope="module")
def expected_slow(
    slow_config: Callable[..., BuildConfig], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, str], float]:
    """The files of a build that nobody disturbed, and how many seconds it took."""
    config = slow_config(tmp_path_factory.mktemp("whole") / "data")
    started = time.monotonic()
    assert run_command(config).returncode == 0
    return file_hashes(Path(config.out)), time.monotonic() - started


@pytest.mark.slow
def test_killed_at_ten_moments_a_build_ends_with_the_same_bytes(
    slow_config: Callable[..., BuildConfig],
    expected_slow: tuple[dict[str, str], float],
    tmp_path: Path,
) -> None:
    expected, seconds = expected_slow
    config = slow_config(tmp_path / "out")
    rng = np.random.default_rng(4)
    num_kills = 0
    for _ in range(3 * NUM_KILLS):
        started = time.monotonic()
        with running(config) as build:
            with contextlib.suppress(subprocess.TimeoutExpired):
                build.process.wait(timeout=rng.uniform(0.1, 0.95) * seconds)
            num_kills += build.process.poll() is None
            build.process.kill()
            build.assert_nothing_runs()
        if assert_whole_if_there(tmp_path / "out"):
            assert run_command(config).returncode == 0
            assert file_hashes(tmp_path / "out") == expected
            shutil.rmtree(tmp_path / "out")
            seconds = min(seconds, time.monotonic() - started)
        if num_kills == NUM_KILLS:
            break
    assert num_kills == NUM_KILLS
    done = run_command(config)
    assert done.returncode == 0, done.stderr
    assert file_hashes(tmp_path / "out") == expected
    assert not (tmp_path / "out" / ".build").exists()


@pytest.mark.slow
def test_the_manifest_comes_last(slow_config: Callable[..., BuildConfig], tmp_path: Path) -> None:
    with running(slow_config(tmp_path / "out", workers=1)) as build:
        build.wait_until(lambda: assert_whole_if_there(tmp_path / "out"))
        build.process.kill()
    assert assert_whole_if_there(tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["server starts", "workers start", "shards appear"])
def test_an_interrupted_build_says_so_and_can_be_resumed(
    number: signal.Signals,
    moment: str,
    slow_config: Callable[..., BuildConfig],
    expected_slow: tuple[dict[str, str], float],
    tmp_path: Path,
) -> None:
    config = slow_config(tmp_path / "out")
    with running(config) as build:
        moments = {"server starts": build.servers, "workers start": build.workers}
        build.wait_until(moments.get(moment, build.num_shards))
        if number == signal.SIGINT:
            os.killpg(build.process.pid, number)  # as a terminal does
        else:
            build.process.send_signal(number)
        code, error = build.end()
    assert code == 130, error
    assert only_line(error) == "clozemill: interrupted; the same command resumes."
    assert not (tmp_path / "out" / "manifest.json").exists()
    if moment == "shards appear":
        assert run_command(config).returncode == 0
        assert file_hashes(tmp_path / "out") == expected_slow[0]


@pytest.mark.slow
def test_a_second_build_of_a_folder_is_refused_and_the_first_unharmed(
    slow_config: Callable[..., BuildConfig],
    expected_slow: tuple[dict[str, str], float],
    tmp_path: Path,
) -> None:
    config = slow_config(tmp_path / "out")
    with running(config) as build:
        build.wait_until((tmp_path / "out" / ".build" / "build.json").exists)
        build.process.send_signal(signal.SIGSTOP)  # or it may end before the second begins
        second = run_command(slow_config(tmp_path / "out", overwrite=True))
        build.process.send_signal(signal.SIGCONT)
        code, error = build.end()
    assert second.returncode == 2
    assert "another build is writing" in only_line(second.stderr)
    assert (code, error) == (0, "")
    assert file_hashes(tmp_path / "out") == expected_slow[0]


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_build_in_one_line(
    slow_config: Callable[..., BuildConfig],
    expected_slow: tuple[dict[str, str], float],
    tmp_path: Path,
) -> None:
    config = slow_config(tmp_path / "out")
    with running(config) as build:
        build.wait_until(lambda: len(build.workers()) == 2 and build.num_shards())
        build.workers()[0].kill()
        code, error = build.end()
    assert code == 2
    assert "a worker process died" in only_line(error)
    assert not (tmp_path / "out" / "manifest.json").exists()
    assert run_command(config).returncode == 0
    assert file_hashes(tmp_path / "out") == expected_slow[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a file system of 400 KB cannot be mounted here; it takes root")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_build_in_one_line_and_space_lets_it_go_on(
    workers: int,
    slow_config: Callable[..., BuildConfig],
    expected_slow: tuple[dict[str, str], float],
    small_disk: Path,
) -> None:
    out = small_disk / "out"
    config = slow_config(out, workers=workers)
    done = run_command(config)
    assert done.returncode == 2
    assert "No space left on device" in only_line(done.stderr)
    assert not (out / "manifest.json").exists()
    again = run_command(config)
    assert "No space left on device" in only_line(again.stderr)
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    assert run_command(config).returncode == 0
    assert file_hashes(out) == expected_slow[0]
