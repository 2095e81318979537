"""How fast `clozemill build` is, in what memory, beside `tokenizers` encoding the same text.

    python -m benchmarks.build --tier quick --tier full --work /tmp/bench

A tier is `quick` (five of the real files, 10.7 MB), `full` (all, 50 MB), or megabytes of
recombined text (`250`, `1000`), with `-closed` for text without fresh words. See
docs/benchmarks.md for what is measured and how.
"""

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import click

from benchmarks.build_report import BuildRun, Case, PeerRun, Report, markdown
from benchmarks.corpus import (
    FULL,
    QUICK,
    Pool,
    Recipe,
    corpora_dir,
    load_pool,
    real_files,
    write_corpus,
)
from benchmarks.tables import give
from benchmarks.watch import machine, run_watched

VOCAB = "bert-base-uncased-vocab.txt"
SMALL_TIER_BYTES = 100_000_000
"""Up to here a tier is measured three times by default, above it once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A corpus to build from."""

    name: str
    files: tuple[str, ...]
    num_bytes: int
    """About how much text it holds."""


def find_tier(name: str, work: Path) -> Tier:
    """Return a tier, made first if it is neither real nor there."""
    if name in (QUICK, FULL):
        files = real_files(name)
        # Compressed text of this kind is about a third as long.
        num_bytes = 3 * sum(file.stat().st_size for file in files)
        return Tier(name=name, files=tuple(map(str, files)), num_bytes=num_bytes)
    megabytes, dash, kind = name.partition("-")
    if not megabytes.isdecimal() or (dash and kind != "closed"):
        raise click.BadParameter(f"{name!r} is no tier; give quick, full, 250 or 250-closed.")
    recipe = Recipe(num_bytes=int(megabytes) * 10**6, is_closed=bool(dash))
    folder = work / f"corpus-{name}"
    if not (folder / "corpus.json").is_file():
        _say(f"making {folder}")
    write_corpus(_pool, recipe, folder)
    files = sorted(folder.glob("*.jsonl*"))
    return Tier(name=name, files=tuple(map(str, files)), num_bytes=recipe.num_bytes)


@lru_cache(maxsize=1)
def _pool() -> Pool:
    return load_pool(real_files(FULL))


def measure_build(tier: Tier, out: Path, *, workers: int, variants: int) -> BuildRun:
    """Build the tier in a fresh process, into an empty folder."""
    shutil.rmtree(out, ignore_errors=True)
    # What earlier runs wrote shall not be on its way to the disk now.
    os.sync()
    command = [sys.executable, "-m", "clozemill", "build", *tier.files, "--quiet"]
    command += ["--tokenizer", str(corpora_dir() / "vocab" / VOCAB), "--out", str(out)]
    command += ["--workers", str(workers), "--mask-variants", str(variants)]
    watched = run_watched(command, {})
    manifest = json.loads((out / "manifest.json").read_text())
    tokens = manifest["ledger"]["document_tokens"].values()
    log = [json.loads(line) for line in (out / "build.log.jsonl").read_text().splitlines()]
    return BuildRun(
        seconds=watched.seconds,
        stage_seconds=next(line["seconds"] for line in log if line["event"] == "done"),
        num_bytes=manifest["ledger"]["records"][""]["text_bytes"],
        num_tokens=sum(sum(fates.values()) for fates in tokens),
        num_instances=sum(split["num_instances"] for split in manifest["splits"].values()),
        dataset_bytes=sum(shard["num_bytes"] for shard in manifest["shards"]),
        peak_pss_bytes=watched.peak_pss_bytes,
        peak_rss_bytes=watched.peak_rss_bytes,
    )


def find_dataset(folder: Path, tier: str, *, workers: int, variants: int) -> Path:
    """Return the folder of a tier's dataset, built unless it is there; made text lies beside it."""
    if not (folder / "manifest.json").is_file():
        measure_build(find_tier(tier, folder.parent), folder, workers=workers, variants=variants)
    return folder


def measure_peer(tier: Tier, *, threads: int, megabytes: int) -> PeerRun:
    """Encode the tier's beginning with `tokenizers` in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.peer", "--megabytes", str(megabytes)]
    command += [str(corpora_dir() / "vocab" / VOCAB), *tier.files]
    environment = {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    return PeerRun(**json.loads(run_watched(command, environment).stdout))


def measure_tier(tier: Tier, plan: "Plan") -> Iterator[Case]:
    """Yield the cases of a tier; every repeat runs the peer and then the builds it goes with."""
    small = tier.num_bytes < SMALL_TIER_BYTES
    repeats = plan.repeats or (3 if small else 1)
    for workers in plan.workers:
        peers: list[PeerRun] = []
        builds: dict[int, list[BuildRun]] = {variants: [] for variants in plan.variants}
        for _ in range(repeats):
            peers.append(measure_peer(tier, threads=workers, megabytes=plan.peer_megabytes))
            _say(f"{tier.name} x{workers} tokenizers {peers[-1].seconds:.1f} s")
            for variants, runs in builds.items():
                runs.append(
                    measure_build(tier, plan.work / "dataset", workers=workers, variants=variants)
                )
                _say(f"{tier.name} x{workers} v{variants} {runs[-1].seconds:.1f} s")
        for variants, runs in builds.items():
            yield Case(
                tier=tier.name,
                workers=workers,
                variants=variants,
                builds=tuple(runs),
                peers=tuple(peers),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure."""

    workers: Sequence[int]
    variants: Sequence[int]
    repeats: int | None
    peer_megabytes: int
    work: Path


def warm_up(plan: Plan) -> None:
    """Compile every kernel that the measured builds use, and read the libraries once."""
    file = str(corpora_dir() / "pretrain" / "mixed_gum.jsonl.gz")
    tier = Tier(name="warm-up", files=(file,), num_bytes=0)
    for variants in plan.variants:
        measure_build(tier, plan.work / "dataset", workers=1, variants=variants)
    measure_peer(tier, threads=1, megabytes=1)


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command()
@click.option("--tier", "tiers", multiple=True, default=(QUICK,), show_default=True)
@click.option("--workers", multiple=True, type=int, default=(1, 2), show_default=True)
@click.option("--variants", multiple=True, type=int, default=(1, 10), show_default=True)
@click.option("--repeats", type=int, help="Runs of each case; 3 for small tiers, else 1.")
@click.option(
    "--peer-megabytes", default=50, show_default=True, help="tokenizers encodes the first so many."
)
@click.option("--work", type=click.Path(path_type=Path), help="Keeps made corpora between runs.")
@click.option("--save", type=click.Path(path_type=Path), help="Also write the JSON to this file.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def main(
    tiers: tuple[str, ...],
    work: Path | None,
    save: Path | None,
    is_json: bool,
    **settings: Any,
) -> None:
    """Measure builds beside `tokenizers`, and print a Markdown table."""
    with tempfile.TemporaryDirectory(prefix="clozemill-bench-") as temporary:
        plan = Plan(work=work or Path(temporary), **settings)
        corpora = [find_tier(name, plan.work) for name in tiers]
        warm_up(plan)
        cases = [case for tier in corpora for case in measure_tier(tier, plan)]
    found = Report(machine=machine(), cases=tuple(cases))
    give(dataclasses.asdict(found), markdown(found), is_json=is_json, save=save)


if __name__ == "__main__":
    main()
