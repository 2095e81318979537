"""What the tests of reading share: one corpus, built in every format."""

from pathlib import Path

import pytest
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)
from tests.train.small_readings import BuiltDataset

from clozemill.pipeline.dataset import Dataset, open_dataset


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> BuiltDataset:
    """Return a function that opens a dataset of the same documents under any settings.

    About 500 pairs of up to 48 tokens in shards of at most 25, with 3 variants.
    """
    folder = tmp_path_factory.mktemp("reading")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(120))
    tokenizer = write_tokenizer(folder / "tokenizer")
    paths: dict[str, Path] = {}

    def build_or_open(
        format: str = "arrow", compression: str = "none", **settings: object
    ) -> Dataset:
        settings = {"format": format, "compression": compression, **settings}
        key = repr(sorted(settings.items()))
        if key not in paths:
            path = folder / f"data-{len(paths)}"
            defaults = {"mask_variants": 3, "shard_size": 25, "short_seq_prob": 0.4}
            small_dataset(corpus, tokenizer, path, **{**defaults, **settings})
            paths[key] = path
        return open_dataset(paths[key])

    return build_or_open
