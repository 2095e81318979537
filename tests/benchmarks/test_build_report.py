"""The tables of benchmarks: every figure of them, from runs made by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.build_report import growth_rows, main, markdown, read_report
from click.testing import CliRunner

MACHINE = {"cpu": "Abacus 9", "cores": 2, "memory_gib": 8, "python": "3.11", "date": "2026-01-31"}


def build_run(seconds: float, num_bytes: int, pss: int = 440) -> dict[str, Any]:
    """Return a build of 5 bytes a token and 100,000 bytes an instance, of which 250 are stored."""
    return {
        "seconds": seconds,
        "stage_seconds": {"reading": seconds},
        "num_bytes": num_bytes,
        "num_tokens": num_bytes // 5,
        "num_instances": num_bytes // 100_000,
        "dataset_bytes": num_bytes // 400,
        "peak_pss_bytes": pss * 10**6,
        "peak_rss_bytes": (pss + 200) * 10**6,
    }


def peer_run(seconds: float, num_bytes: int) -> dict[str, Any]:
    return {"seconds": seconds, "num_bytes": num_bytes, "num_tokens": num_bytes // 5}


def case(tier: str, seconds: float, num_bytes: int, **changes: Any) -> dict[str, Any]:
    """Return a case of one build, next to a peer that encodes all of it at 2 MB a second."""
    return {
        "tier": tier,
        "workers": 2,
        "variants": 10,
        "builds": [build_run(seconds, num_bytes)],
        "peers": [peer_run(num_bytes / 2e6, num_bytes)],
        **changes,
    }


# Builds at 10, 5 and 4 MB a second, the peer beside each at 2.5, 2 and 5: 4, 2.5 and 0.8 times it.
FULL = case(
    "full",
    0,
    100_000_000,
    builds=[build_run(s, 100_000_000, pss) for s, pss in [(10, 300), (20, 400), (25, 350)]],
    peers=[peer_run(seconds, 50_000_000) for seconds in (20, 25, 10)],
)
LARGE = case("1100", 110, 1_100_000_000)
CLOSED = case("600-closed", 60, 600_000_000)


def test_medians_peaks_and_growth_are_those_worked_by_hand() -> None:
    report = read_report({"machine": MACHINE, "cases": [LARGE, FULL]})
    assert markdown(report) == (
        "Abacus 9, 2 cores, 8 GiB; python 3.11; 2026-01-31\n"
        "\n"
        "| tier | MB | workers | variants | s | MB/s | M tokens/s | `tokenizers` MB/s | ratio "
        "| peak PSS MB | a worker | peak RSS MB | bytes an instance |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: "
        "| ---: | ---: | ---: | ---: |\n"
        "| 1100 | 1100.0 | 2 | 10 | 110.0 | 10.0 | 2.00 | 2.00 | 5.0 | 440 | 220 | 640 | 250 |\n"
        "| full | 100.0 | 2 | 10 | 20.0 | 5.0 | 1.00 | 2.50 (first 50 MB) | 2.5 "
        "| 400 | 200 | 600 | 250 |\n"
        "\n"
        "| workers | variants | from | to | s per GB at | s per GB more |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: |\n"
        "| 2 | 10 | full | 1100 | 100 | 90 |"
    )


def test_growth_joins_corpora_of_one_setting_and_one_kind_of_text() -> None:
    """From 20 s for 0.1 GB: 90 s for 1 GB more with new words, 40 s for half of one without."""
    others = [case("1100", 220, 1_100_000_000, workers=1), case("full", 9, 10**8, variants=1)]
    report = read_report({"machine": MACHINE, "cases": [CLOSED, LARGE, *others, FULL]})
    assert list(growth_rows(report.cases)) == [
        ["2", "10", "full", "1100", "100", "90"],
        ["2", "10", "full", "600-closed", "100", "80"],
    ]


@pytest.mark.parametrize(
    ("cases", "code", "said"),
    [
        ([LARGE], 0, "| 2 | 10 | full | 1100 | 100 | 90 |\n"),
        ([LARGE, FULL], 2, "tier full, 2 workers, 10 variants is there twice; leave one out.\n"),
    ],
)
def test_saved_runs_are_joined_unless_a_case_is_there_twice(
    tmp_path: Path, cases: list[dict[str, Any]], code: int, said: str
) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    for file, content in zip(files, ([FULL], cases), strict=True):
        file.write_text(json.dumps({"machine": MACHINE, "cases": content}))
    done = CliRunner().invoke(main, list(map(str, files)))
    assert (done.exit_code, done.output[-len(said) :]) == (code, said)
