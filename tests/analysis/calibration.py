"""How often audits fail of sound datasets: many small ones, that differ in their masks alone.

    python -m tests.analysis.calibration

Every dataset is a split of one, since questions are answered and judged by split. The instances
are built once and the masks drawn under a seed for each dataset, in memory.
"""

import dataclasses
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from tests.analysis.faults import masks_drawn, rule_of
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.audit import p_values
from clozemill.analysis.db import open_database
from clozemill.analysis.questions import Kind, all_questions, unmet_need
from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.schema import instance_batch

NUM_DATASETS = 2_000
RATE = 0.05
"""False-alarm rate that the datasets are audited at."""

RECIPES: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"recipe": "roberta-full", "mask_count": "stochastic", "random_tokens": "all"},
    "bert, whole words": {"mask_unit": "word"},
}
_TESTED = (Kind.SUMS, Kind.EXCESS, Kind.SHARES)
_AT_ONCE = 100


class RedrawnDataset(Dataset):
    """The training instances of a dataset, under masks of many seeds; a split for each."""

    def __init__(self, folder: Path, seeds: range) -> None:
        super().__init__(folder)
        rows = pa.Table.from_batches(super().batches("train")).combine_chunks().to_batches()[0]
        self.columns = read_columns(rows)
        self.rule = rule_of(self)
        entry = dataclasses.replace(self.manifest.splits["train"], num_instances=rows.num_rows)
        self.seeds = {f"seed {seed}": seed for seed in seeds}
        self.manifest = dataclasses.replace(self.manifest, splits=dict.fromkeys(self.seeds, entry))

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.seeds)

    def batches(self, split: str) -> Iterator[pa.RecordBatch]:
        rule = self.rule._replace(seed=np.uint64(self.seeds[split]))
        columns = masks_drawn(self.columns, rule)
        yield instance_batch(columns, self.schema, self.source_names)


def smallest_p_values(folder: Path, num_datasets: int) -> dict[str, Any]:
    """Return by question the smallest p-value of each dataset (num_datasets,), times its groups."""
    found: dict[str, list[float]] = defaultdict(list)
    for first in range(0, num_datasets, _AT_ONCE):
        dataset = RedrawnDataset(folder, range(first, min(first + _AT_ONCE, num_datasets)))
        with open_database(dataset, threads=1) as connection:
            for question in all_questions():
                is_of_masks = "variants" in question.needs and question.kind in _TESTED
                if not is_of_masks or unmet_need(question, dataset.manifest):
                    continue
                rows = connection.sql(question.sql).to_arrow_table()
                found[question.name] += _smallest(question.kind, rows, dataset.splits)
    return {name: np.array(values) for name, values in found.items()}


def _smallest(kind: Kind, rows: pa.Table, splits: tuple[str, ...]) -> list[float]:
    """Return the smallest p-value of each split, times its groups; 1 where it has none."""
    names, values = np.array(rows.column("split").to_pylist()), p_values(kind, rows)
    assert set(names) <= set(splits)
    of_split = [values[names == split] for split in splits]
    return [float(found.min(initial=1.0) * max(1, len(found))) for found in of_split]


def false_alarms(folder: Path, num_datasets: int = NUM_DATASETS) -> dict[str, float]:
    """Return by question which share of datasets fails at `RATE`; `all` of the family."""
    smallest = smallest_p_values(folder, num_datasets)
    shares = {name: float((values < RATE).mean()) for name, values in smallest.items()}
    family = np.min(list(smallest.values()), axis=0) < RATE / len(smallest)
    return {**shares, "all": float(family.mean())}


def build_recipe(folder: Path, recipe: str) -> Path:
    """Return the folder of a small dataset of a recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = write_tokenizer(folder / "tokenizer")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(12, most_sentences=12))
    out = folder / "data"
    settings = {"mask_variants": 3, "validation_fraction": 0.0, "bucket_tokens": 20_000}
    small_build(corpus, tokenizer, out, **settings, **RECIPES[recipe])
    return out


def main() -> None:
    """Print the table of docs/audit.md."""
    found: dict[str, dict[str, str]] = defaultdict(lambda: dict.fromkeys(RECIPES, ""))
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as folder:
            for name, share in false_alarms(build_recipe(Path(folder), recipe)).items():
                found[name][recipe] = f"{share:.1%}"
    print(f"| question | {' | '.join(RECIPES)} |\n| --- |{' ---: |' * len(RECIPES)}")
    for name in (*sorted(found.keys() - {"all"}), "all"):
        print(f"| {name} | {' | '.join(found[name].values())} |")


if __name__ == "__main__":
    main()
