"""What the tests of whole builds share: a tokenizer of syllables, and texts spelled with it."""

from pathlib import Path

import pytest
from tests.pipeline.small_corpora import make_texts, write_json_lines, write_tokenizer


@pytest.fixture(scope="session")
def syllables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a WordPiece tokenizer that spells every word of `make_texts`."""
    return write_tokenizer(tmp_path_factory.mktemp("tokenizers") / "syllables")


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """120 documents of 1 to 20 sentences, about 20,000 tokens."""
    return make_texts(120)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> Path:
    """Those documents as JSON lines."""
    return write_json_lines(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", texts)
