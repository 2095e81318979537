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

from benchmarks.build import find_tier, measure_build
from benchmarks.loader_runs import write_peer_columns
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


def measure_case(
    dataset: Path, columns: Path, *, masking: str, workers: int, settings: dict[str, Any]
) -> LoaderCase:
    """Measure ours and the peer in turn, each in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.loader_runs"]
    shared = [str(dataset), "--workers", str(workers)]
    for name in ("batch_size", "seconds"):
        shared += [f"--{name.replace('_', '-')}", str(settings[name])]
    runs: dict[str, list[LoaderRun]] = {"ours": [], "peer": []}
    for _ in range(settings["repeats"]):
        for who, more in (("ours", ["--masking", masking]), ("peer", ["--columns", str(columns)])):
            watched = run_watched([*command, who, *shared, *more], {"OMP_NUM_THREADS": "1"})
            found = json.loads(watched.stdout)
            runs[who].append(LoaderRun(**found, peak_pss_bytes=watched.peak_pss_bytes))
            click.echo(f"{who} x{workers} {_rate(runs[who][-1]) / 1e6:.2f} M tokens/s", err=True)
    return LoaderCase(
        masking=masking, workers=workers, ours=tuple(runs["ours"]), peer=tuple(runs["peer"])
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
    lines: list[Sequence[str]] = [COLUMNS, ["---"] + ["---:"] * (len(COLUMNS) - 1)]
    for case in cases:
        lines.append(["clozemill", case.masking, *_cells(case.workers, case.ours, case.ratio)])
        lines.append(["`datasets`", "dynamic", *_cells(case.workers, case.peer, 1.0)])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cells(workers: int, runs: Sequence[LoaderRun], ratio: float) -> Iterator[str]:
    yield str(workers)
    yield f"{median(map(_rate, runs)) / 1e6:.2f}"
    yield f"{median(run.num_selected / run.seconds for run in runs) / 1e6:.2f}"
    yield f"{median(run.seconds / run.num_batches for run in runs) * 1e6:.0f}"
    yield f"{max(run.peak_pss_bytes for run in runs) / 1e6:.0f}"
    yield f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def find_dataset(data: Path | None, tier: str, work: Path) -> Path:
    """Return the dataset to read, built from a tier unless one is named."""
    if data is not None:
        return data
    folder = work / f"loader-{tier}"
    if not (folder / "manifest.json").is_file():
        measure_build(find_tier(tier, work), folder, workers=1, variants=4)
    return folder


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
    masking: str,
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
        dataset = find_dataset(data, tier, place)
        # Written anew: a folder of another dataset would be compared with ours without a word.
        columns = place / "loader-peer"
        shutil.rmtree(columns, ignore_errors=True)
        write_peer_columns(dataset, columns)
        cases = [
            measure_case(dataset, columns, masking=masking, workers=number, settings=settings)
            for number in workers
        ]
    report = {"machine": machine(), "cases": [dataclasses.asdict(case) for case in cases]}
    text = json.dumps(report, indent=1)
    if save:
        save.write_text(text + "\n")
    click.echo(text if is_json else markdown(cases))


if __name__ == "__main__":
    main()
