"""Law 5: memory follows the configuration, not the corpus or the number of variants.

Measured is memory that no file backs (its proportional size, summed over all processes of a
build), since the share of a library's pages depends on what else runs on the machine. Growth is
that of what comes on top of a build of almost nothing: libraries would hide it otherwise.
"""

import contextlib
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.pipeline.small_corpora import command, environment, make_texts, small_config

from clozemill.pipeline.config import BuildConfig

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/smaps_rollup").exists(), reason="memory is measured by Linux"
    ),
]

MEGABYTE = 1 << 20
SECONDS_BETWEEN_SAMPLES = 0.02


def write_corpus(path: Path, num_bytes: int) -> Path:
    """Write documents of about 3 KB, made of the same sentences in ever another order."""
    rng = np.random.default_rng(0)
    sentences = np.array([s + "." for text in make_texts(200) for s in text.split(".") if s])
    with path.open("w") as stream:
        while stream.tell() < num_bytes:
            text = " ".join(rng.choice(sentences, size=40).tolist())
            stream.write(json.dumps({"text": text}) + "\n")
    return path


def sizes_of(process: psutil.Process) -> tuple[int, int]:
    """Return the bytes of a process that no file backs, and its proportional set size."""
    found = {"Pss_Anon:": 0, "Pss:": 0}
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, number, _ = line.split()
            if name in found:
                found[name] = int(number) * 1024
    return found["Pss_Anon:"], found["Pss:"]


def peaks_of(config: BuildConfig) -> tuple[int, int]:
    """Return two peaks in bytes: without files of all processes, and of the largest process."""
    total = largest = 0
    with subprocess.Popen(
        command(config), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        tree = psutil.Process(process.pid)
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                sizes = [sizes_of(p) for p in [tree, *tree.children(recursive=True)]]
                total = max(total, sum(anonymous for anonymous, _ in sizes))
                largest = max(largest, *(pss for _, pss in sizes))
            time.sleep(SECONDS_BETWEEN_SAMPLES)
        assert process.stderr is not None
        assert process.returncode == 0, process.stderr.read()
    return total, largest


@pytest.fixture(scope="module")
def measure(
    syllables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[int, int]]:
    """Return a function of megabytes and settings that measures a build, once each."""
    folder = tmp_path_factory.mktemp("memory")
    measured: dict[str, tuple[int, int]] = {}

    def of(megabytes: float, **settings: Any) -> tuple[int, int]:
        key = json.dumps([megabytes, settings], sort_keys=True)
        if key not in measured:
            corpus = folder / f"{megabytes}.jsonl"
            if not corpus.exists():
                write_corpus(corpus, int(megabytes * MEGABYTE))
            bounds = {"workers": 2, "input_split_bytes": 2_000_000, "bucket_tokens": 500_000}
            config = small_config(
                corpus,
                syllables,
                folder / f"out{len(measured)}",
                **{**bounds, "max_seq_length": 128, **settings},
            )
            measured[key] = peaks_of(config)
        return measured[key]

    return of


def growth(measure: Callable[..., tuple[int, int]], small: Any, large: Any) -> float:
    """Return how many times the memory of one build another takes, beyond that of almost none."""
    fixed = measure(0.05)[0]
    nets = [measure(size, **settings)[0] - fixed for size, settings in (small, large)]
    assert nets[0] > 30 * MEGABYTE, "the smaller build must take memory of its own"
    return nets[1] / nets[0]


def test_four_times_the_corpus_takes_no_more_memory(
    measure: Callable[..., tuple[int, int]],
) -> None:
    assert growth(measure, (8, {}), (32, {})) < 1.5


def test_ten_variants_take_no_more_memory_than_one(
    measure: Callable[..., tuple[int, int]],
) -> None:
    one, ten = (8, {"mask_variants": 1}), (8, {"mask_variants": 10})
    assert growth(measure, one, ten) < 1.5
    assert measure(8, mask_variants=10)[0] / measure(8, mask_variants=1)[0] < 1.3


def test_larger_buckets_do_take_more_memory(measure: Callable[..., tuple[int, int]]) -> None:
    """Shows that what is measured here can grow."""
    unbounded = {"bucket_tokens": 100_000_000, "input_split_bytes": 1_000_000_000}
    assert growth(measure, (32, {}), (32, unbounded)) > 1.5


def test_a_worker_stays_below_one_gigabyte_as_configured_by_default(
    measure: Callable[..., tuple[int, int]],
) -> None:
    default = BuildConfig()
    bounds = {
        "bucket_tokens": default.bucket_tokens,
        "input_split_bytes": default.input_split_bytes,
    }
    largest = measure(32, **bounds, mask_variants=10)[1]
    assert 100 * MEGABYTE < largest < 1_000 * MEGABYTE
