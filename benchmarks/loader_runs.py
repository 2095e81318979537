"""One loader, timed in this process.

    python -m benchmarks.loader_runs ours DATASET --masking dynamic --workers 0
    python -m benchmarks.loader_runs peer DATASET --columns FOLDER --workers 0

Prints one JSON object. The clock runs while a micro-batch is asked for, and not while its tokens
are counted. Imports, opening and the first micro-batches are not in it.
"""

import itertools
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import torch

WARM_UP_BATCHES = 50
"""Micro-batches before the clock starts: kernels are loaded, workers run, files are opened."""

GLOBAL_BATCH_SIZE = 256


def measure(batches: Iterable[dict[str, torch.Tensor]], seconds: float) -> dict[str, float]:
    """Return what a loader gave in about so many seconds."""
    stream = iter(batches)
    first = list(itertools.islice(stream, WARM_UP_BATCHES))
    assert len(first) == WARM_UP_BATCHES
    spent, num_batches, num_tokens, num_selected = 0.0, 0, 0, 0
    while spent < seconds:
        started = time.perf_counter()
        batch = next(stream)
        spent += time.perf_counter() - started
        num_batches += 1
        num_tokens += int(batch["attention_mask"].sum())
        num_selected += int((batch["labels"] != -100).sum())
    return {
        "seconds": spent,
        "num_batches": num_batches,
        "num_tokens": num_tokens,
        "num_selected": num_selected,
    }


def our_batches(
    dataset: Path, *, masking: str, workers: int, batch_size: int
) -> Iterable[dict[str, torch.Tensor]]:
    """Return the micro-batches of clozemill, for many epochs."""
    from clozemill.pipeline.dataset import open_dataset
    from clozemill.train.instances import PretrainingInstances
    from clozemill.train.loader import LoaderSettings, micro_batches
    from clozemill.train.order import BatchOrder

    instances = PretrainingInstances(open_dataset(dataset), "train", masking=masking)
    order = BatchOrder(instances, global_batch_size=GLOBAL_BATCH_SIZE)
    settings = LoaderSettings(micro_batch_size=batch_size, num_workers=workers)
    return micro_batches(instances, order, settings, steps=range(10**9))


def peer_batches(
    dataset: Path, columns: Path, *, workers: int, batch_size: int
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the micro-batches of `datasets` and the collator of `transformers`, epoch by epoch."""
    import datasets
    from torch.utils.data import DataLoader
    from transformers import AutoTokenizer, DataCollatorForLanguageModeling

    tokenizer = AutoTokenizer.from_pretrained(dataset / "tokenizer")
    loader: DataLoader[Any] = DataLoader(
        datasets.load_from_disk(columns),
        batch_size=batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
        collate_fn=DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15),
    )
    while True:
        yield from loader


def write_peer_columns(dataset: Path, columns: Path) -> None:
    """Write the same instances as the peer reads them: ids, segments and pair labels by row."""
    import datasets

    from clozemill.pipeline.dataset import open_dataset

    def rows() -> Iterator[dict[str, Any]]:
        for batch in open_dataset(dataset).batches("train"):
            names = ("input_ids", "segment_b_start", "next_sentence_label")
            for ids, border, label in zip(*(batch[n].to_pylist() for n in names), strict=True):
                kinds = [0] * border + [1] * (len(ids) - border)
                yield {"input_ids": ids, "token_type_ids": kinds, "next_sentence_label": label}

    features = datasets.Features(
        input_ids=datasets.Sequence(datasets.Value("int32")),
        token_type_ids=datasets.Sequence(datasets.Value("int8")),
        next_sentence_label=datasets.Value("int64"),
    )
    datasets.disable_progress_bars()
    # A cache of its own: another dataset at the same path would be taken for this one.
    with tempfile.TemporaryDirectory(dir=columns.parent) as cache:
        made = datasets.Dataset.from_generator(rows, features=features, cache_dir=cache)
        made.save_to_disk(columns)


@click.command()
@click.argument("who", type=click.Choice(["ours", "peer"]))
@click.argument("dataset", type=click.Path(path_type=Path))
@click.option("--columns", type=click.Path(path_type=Path), help="What the peer reads.")
@click.option("--masking", default="dynamic", show_default=True, help="Of ours.")
@click.option("--workers", default=0, show_default=True, help="Loader workers.")
@click.option("--batch-size", default=32, show_default=True, help="Instances of a micro-batch.")
@click.option("--seconds", default=5.0, show_default=True, help="How long to ask for more.")
def main(
    who: str, dataset: Path, columns: Path, masking: str, workers: int, **settings: Any
) -> None:
    """Time one loader."""
    torch.set_num_threads(1)
    size, seconds = settings["batch_size"], settings["seconds"]
    batches = (
        our_batches(dataset, masking=masking, workers=workers, batch_size=size)
        if who == "ours"
        else peer_batches(dataset, columns, workers=workers, batch_size=size)
    )
    click.echo(json.dumps(measure(batches, seconds)))


if __name__ == "__main__":
    main()
