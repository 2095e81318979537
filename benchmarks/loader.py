"""How fast micro-batches are made, beside `datasets` with the collator of `transformers`.

    python -m benchmarks.loader --work /tmp/bench

Both read the same instances, of up to 128 tokens, in micro-batches of 32 as tensors padded to the
longest; ours with dynamic masks. See docs/benchmarks.md for what is measured and how.
"""

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.build import find_dataset
from benchmarks.loader_runs import write_peer_columns
from benchmarks.tables import give, markdown_table
from benchmarks.watch import machine, run_watched


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderRun:
    """One loader in a process of its own."""

    seconds: float
    """Spent in asking for micro-batches."""

    num_batches: int
    num_tokens: int
    """Without padding."""

    num_selected: int
    """Positions to predict."""

    peak_pss_bytes: int
    """Of the process and its workers; the mapped dataset counts as far as it was read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderCase:
    """Repeats of one setting; run i of ours ran next to run i of the peer."""

    masking: str
    workers: int
    ours: tuple[LoaderRun, ...]
    peer: tuple[LoaderRun, ...]

    @property
    def ratio(self) -> float:
        """Median over the pairs of our tokens a second over the peer's."""
        pairs = zip(self.ours, self.peer, strict=True)
        return median(_rate(ours) / _rate(peer) for ours, peer in pairs)


def _rate(run: LoaderRun) -> float:
    return run.num_tokens / run.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure."""

    masking: str
    """Of ours."""

    batch_size: int
    seconds: float
    """Length of each run."""

    repeats: int


def measure_case(dataset: Path, columns: Path, plan: Plan, *, workers: int) -> LoaderCase:
    """Measure ours and the peer in turn, each in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.loader_runs"]
    shared = [str(dataset), "--workers", str(workers)]
    shared += ["--batch-size", str(plan.batch_size), "--seconds", str(plan.seconds)]
    own = {"ours": ["--masking", plan.masking], "peer": ["--columns", str(columns)]}
    runs: dict[str, list[LoaderRun]] = {"ours": [], "peer": []}
    for _ in range(plan.repeats):
        for who, more in own.items():
            watched = run_watched([*command, who, *shared, *more], {"OMP_NUM_THREADS": "1"})
            found = json.loads(watched.stdout)
            runs[who].append(LoaderRun(**found, peak_pss_bytes=watched.peak_pss_bytes))
            click.echo(f"{who} x{workers} {_rate(runs[who][-1]) / 1e6:.2f} M tokens/s", err=True)
    return LoaderCase(
        masking=plan.masking, workers=workers, ours=tuple(runs["ours"]), peer=tuple(runs["peer"])
    )


COLUMNS = (
    "loader",
    "masks",
    "workers",
    "M tokens/s",
    "M selected/s",
    "us a micro-batch",
    "peak PSS MB",
    "ratio",
)


def markdown(cases: Sequence[LoaderCase]) -> str:
    """Return a table with two rows per case."""
    rows = []
    for case in cases:
        rows.append(["clozemill", case.masking, *_cells(case.workers, case.ours, case.ratio)])
        rows.append(["`datasets`", "dynamic", *_cells(case.workers, case.peer, 1.0)])
    return markdown_table(COLUMNS, rows)


def _cells(workers: int, runs: Sequence[LoaderRun], ratio: float) -> Iterator[str]:
    yield str(workers)
    yield f"{median(map(_rate, runs)) / 1e6:.2f}"
    yield f"{median(run.num_selected / run.seconds for run in runs) / 1e6:.2f}"
    yield f"{median(run.seconds / run.num_batches for run in runs) * 1e6:.0f}"
    yield f"{max(run.peak_pss_bytes for run in runs) / 1e6:.0f}"
    yield f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="A dataset to read.")
@click.option("--tier", default="full", show_default=True, help="Else built from this text.")
@click.option("--masking", default="dynamic", show_default=True, help="dynamic or static.")
@click.option("--workers", multiple=True, type=int, default=(0,), show_default=True)
@click.option("--batch-size", default=32, show_default=True, help="Instances of a micro-batch.")
@click.option("--seconds", default=5.0, show_default=True, help="Length of each run.")
@click.option("--repeats", default=3, show_default=True, help="Runs of each; medians are shown.")
@click.option("--work", type=click.Path(path_type=Path), help="Keeps datasets between runs.")
@click.option("--save", type=click.Path(path_type=Path), help="Also write the JSON to this file.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def main(
    data: Path | None,
    tier: str,
    workers: tuple[int, ...],
    work: Path | None,
    save: Path | None,
    is_json: bool,
    **settings: Any,
) -> None:
    """Measure our loader beside the peer, and print a Markdown table."""
    with tempfile.TemporaryDirectory(prefix="clozemill-bench-") as temporary:
        place = work or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        dataset = data or find_dataset(place / f"loader-{tier}", tier, workers=1, variants=4)
        # Written anew: a folder of another dataset would be compared with ours without a word.
        columns = place / "loader-peer"
        shutil.rmtree(columns, ignore_errors=True)
        write_peer_columns(dataset, columns)
        plan = Plan(**settings)
        cases = [measure_case(dataset, columns, plan, workers=number) for number in workers]
    report = {"machine": machine(), "cases": [dataclasses.asdict(case) for case in cases]}
    give(report, markdown(cases), is_json=is_json, save=save)


if __name__ == "__main__":
    main()
