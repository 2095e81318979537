"""What a benchmark of builds found, and the tables that say it.

python -m benchmarks.build_report FILE.json...
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click

from benchmarks.tables import markdown_table


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRun:
    """One build."""

    seconds: float
    """The whole process, its start included."""

    stage_seconds: dict[str, float]
    num_bytes: int
    """Text read."""

    num_tokens: int
    """Tokens of the documents, without specials."""

    num_instances: int
    dataset_bytes: int
    peak_pss_bytes: int
    peak_rss_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRun:
    """One encoding of the text's beginning by `tokenizers`; nothing else is in its time."""

    seconds: float
    num_bytes: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Repeats of one setting; build i ran next to peer i."""

    tier: str
    workers: int
    variants: int
    builds: tuple[BuildRun, ...]
    peers: tuple[PeerRun, ...]

    @property
    def seconds(self) -> float:
        """Median over the repeats."""
        return median(run.seconds for run in self.builds)

    @property
    def gigabytes(self) -> float:
        """Text, in 10^9 bytes."""
        return self.builds[0].num_bytes / 1e9

    @property
    def ratio(self) -> float:
        """Median over the pairs of our bytes a second over the peer's."""
        pairs = zip(self.builds, self.peers, strict=True)
        return median(_rate(build) / _rate(peer) for build, peer in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything measured in one call."""

    machine: dict[str, Any]
    cases: tuple[Case, ...]


def _key(case: Case) -> tuple[str, int, int]:
    return case.tier, case.workers, case.variants


def _rate(run: BuildRun | PeerRun) -> float:
    return run.num_bytes / run.seconds / 1e6


COLUMNS = (
    "tier",
    "MB",
    "workers",
    "variants",
    "s",
    "MB/s",
    "M tokens/s",
    "`tokenizers` MB/s",
    "ratio",
    "peak PSS MB",
    "a worker",
    "peak RSS MB",
    "bytes an instance",
)


def markdown(report: Report) -> str:
    """Return the machine, a row per case, and how time grows with text."""
    rows = [_cells(case) for case in report.cases]
    parts = [_machine_line(report.machine), markdown_table(COLUMNS, rows)]
    growth = list(growth_rows(report.cases))
    if growth:
        columns = ("workers", "variants", "from", "to", "s per GB at", "s per GB more")
        parts.append(markdown_table(columns, growth))
    return "\n\n".join(parts)


def _cells(case: Case) -> list[str]:
    builds, peers = case.builds, case.peers
    pss = max(run.peak_pss_bytes for run in builds) / 1e6
    is_sample = peers[0].num_bytes < 0.9 * builds[0].num_bytes
    sample = f" (first {peers[0].num_bytes / 1e6:.0f} MB)" if is_sample else ""
    return [
        case.tier,
        f"{case.gigabytes * 1e3:.1f}",
        str(case.workers),
        str(case.variants),
        f"{case.seconds:.1f}",
        f"{median(map(_rate, builds)):.1f}",
        f"{median(run.num_tokens / run.seconds for run in builds) / 1e6:.2f}",
        f"{median(map(_rate, peers)):.2f}{sample}",
        f"{case.ratio:.1f}",
        f"{pss:.0f}",
        f"{pss / case.workers:.0f}",
        f"{max(run.peak_rss_bytes for run in builds) / 1e6:.0f}",
        f"{builds[0].dataset_bytes / builds[0].num_instances:.0f}",
    ]


def growth_rows(cases: Sequence[Case]) -> Iterable[list[str]]:
    """Yield, from each corpus to the next larger one, the seconds that a further GB takes.

    Text with and without fresh words is kept apart; the real text begins both.
    """
    settings = sorted({(case.workers, case.variants) for case in cases})
    for (workers, variants), is_closed in itertools.product(settings, (False, True)):
        chosen = [
            case
            for case in cases
            if (case.workers, case.variants) == (workers, variants)
            and (not case.tier[0].isdecimal() or case.tier.endswith("-closed") == is_closed)
        ]
        if is_closed and not any(case.tier.endswith("-closed") for case in chosen):
            continue
        chosen.sort(key=lambda case: case.gigabytes)
        for less, more in itertools.pairwise(chosen):
            marginal = (more.seconds - less.seconds) / (more.gigabytes - less.gigabytes)
            rate = f"{more.seconds / more.gigabytes:.0f}"
            yield [str(workers), str(variants), less.tier, more.tier, rate, f"{marginal:.0f}"]


def _machine_line(machine: dict[str, Any]) -> str:
    names = [name for name in machine if name not in ("cpu", "cores", "memory_gib", "date")]
    versions = ", ".join(f"{name} {machine[name]}" for name in names)
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; "
        f"{versions}; {machine['date']}"
    )


def read_report(data: dict[str, Any]) -> Report:
    """Return the report that was saved as JSON."""
    cases = [
        Case(
            **{
                **case,
                "builds": tuple(BuildRun(**run) for run in case["builds"]),
                "peers": tuple(PeerRun(**run) for run in case["peers"]),
            }
        )
        for case in data["cases"]
    ]
    return Report(machine=data["machine"], cases=tuple(cases))


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
def main(files: tuple[Path, ...]) -> None:
    """Print the tables of saved runs of one machine, joined."""
    reports = [read_report(json.loads(file.read_text())) for file in files]
    cases = tuple(case for report in reports for case in report.cases)
    repeated = [key for key, times in Counter(map(_key, cases)).items() if times > 1]
    if repeated:
        tier, workers, variants = repeated[0]
        raise click.UsageError(
            f"tier {tier}, {workers} workers, {variants} variants is there twice; leave one out."
        )
    click.echo(markdown(Report(machine=reports[0].machine, cases=cases)))


if __name__ == "__main__":
    main()
