"""The dataset that studies are made on in tests."""

from pathlib import Path

from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)

from clozemill.pipeline.dataset import Dataset


def build_pairs(folder: Path) -> Dataset:
    """Return some hundred pairs of up to 48 tokens, with two stored variants."""
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(80))
    tokenizer = write_tokenizer(folder / "tokenizer")
    return small_dataset(corpus, tokenizer, folder / "data", short_seq_prob=0.4)
