"""How long an audit takes and how much memory, as datasets grow, beside `pandas` for one question.

    python -m benchmarks.audit --tier quick --tier full --tier 250 --work /tmp/bench

See docs/benchmarks.md for what is measured and how.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from benchmarks.build import find_dataset
from benchmarks.tables import give, markdown_table
from benchmarks.watch import Watched, machine, run_watched
from clozemill.pipeline.dataset import open_dataset

QUESTION = "selected_by_token"
"""What the peer is asked too: how often each token is selected, of how many places."""


def audit(dataset: Path, *, threads: int, memory_limit: str, only: Sequence[str] = ()) -> Watched:
    """Audit a dataset in a fresh process, which ends with an error if something failed."""
    command = [sys.executable, "-m", "clozemill", "audit", str(dataset), "--json", "--quiet"]
    command += ["--threads", str(threads), "--memory-limit", memory_limit]
    return run_watched([*command, *(word for name in only for word in ("--only", name))], {})


def measure(dataset: Path, *, has_peer: bool, **settings: Any) -> dict[str, Any]:
    """Return what a whole audit took, and what one question took ours and the peer."""
    manifest = open_dataset(dataset).manifest
    whole = audit(dataset, **settings)
    found = {
        "num_instances": sum(split.num_instances for split in manifest.splits.values()),
        "num_selected": sum(manifest.ledger["masks"][s]["selected"] for s in manifest.splits),
        "seconds": whole.seconds,
        "peak_pss_bytes": whole.peak_pss_bytes,
    }
    if has_peer:
        ours = audit(dataset, only=(QUESTION,), **settings)
        peer = run_watched([sys.executable, "-m", "benchmarks.audit", "--peer", str(dataset)], {})
        found |= {"question_seconds": ours.seconds, "peer_seconds": peer.seconds}
        found |= {"peer_pss_bytes": peer.peak_pss_bytes}
    return found


def ask_pandas(dataset: Path) -> int:
    """Count by token how often it stands and is selected, with pandas; return the tokens seen.

    As a notebook would: a shard at a time, one row per token and one per selected position.
    """
    import pandas as pd  # type: ignore[import-untyped]

    found = open_dataset(dataset)
    counts = []
    for split in found.splits:
        for batch in found.batches(split):
            frame = pa.table(batch.select(["input_ids", "masks"])).to_pandas()
            ids = frame["input_ids"].explode()
            overlays = frame["masks"].explode().explode()
            selected = pd.Series(
                [frame["input_ids"][row][shown["position"]] for row, shown in overlays.items()]
            )
            counts.append(pd.DataFrame({"all": ids.value_counts(), "of": selected.value_counts()}))
    return len(pd.concat(counts).groupby(level=0).sum())


COLUMNS = (
    "text",
    "instances",
    "M selected",
    "seconds",
    "us an instance",
    "peak PSS MB",
    f"`{QUESTION}` s",
    "pandas s",
    "ratio",
)


def markdown(cases: dict[str, dict[str, Any]]) -> str:
    """Return a table with a row per dataset."""
    return markdown_table(COLUMNS, [[tier, *_cells(case)] for tier, case in cases.items()])


def _cells(case: dict[str, Any]) -> Iterator[str]:
    yield f"{case['num_instances']:,}"
    yield f"{case['num_selected'] / 1e6:.1f}"
    yield f"{case['seconds']:.1f}"
    yield f"{case['seconds'] / case['num_instances'] * 1e6:.0f}"
    yield f"{case['peak_pss_bytes'] / 1e6:,.0f}"
    if "peer_seconds" not in case:
        yield from ("", "", "")
        return
    yield f"{case['question_seconds']:.1f}"
    yield f"{case['peer_seconds']:.1f}"
    yield f"{case['peer_seconds'] / case['question_seconds']:.1f}"


@click.command()
@click.option("--tier", "tiers", multiple=True, default=("quick", "full"), show_default=True)
@click.option("--variants", default=10, show_default=True, help="Stored maskings.")
@click.option("--threads", default=2, show_default=True)
@click.option("--memory-limit", default="4GB", show_default=True)
@click.option("--work", type=click.Path(path_type=Path), help="Keeps datasets between runs.")
@click.option("--peer", type=click.Path(path_type=Path), help="Only ask pandas about a dataset.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
def main(
    tiers: tuple[str, ...],
    variants: int,
    work: Path | None,
    peer: Path | None,
    is_json: bool,
    **settings: Any,
) -> None:
    """Measure audits of growing datasets, and print a Markdown table."""
    if peer:
        click.echo(ask_pandas(peer))
        return
    with tempfile.TemporaryDirectory(prefix="clozemill-bench-") as temporary:
        place = work or Path(temporary)
        place.mkdir(parents=True, exist_ok=True)
        datasets = {
            tier: find_dataset(
                place / f"audit-{tier}-{variants}", tier, workers=2, variants=variants
            )
            for tier in tiers
        }
        # The peer takes minutes for the smallest already.
        cases = {
            tier: measure(dataset, has_peer=tier == tiers[0], **settings)
            for tier, dataset in datasets.items()
        }
    give({"machine": machine(), "cases": cases}, markdown(cases), is_json=is_json)


if __name__ == "__main__":
    main()
