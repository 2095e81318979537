"""The corpora that benchmarks make: their size, their words, their repeatability."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.corpus import (
    HEAPS_BYTES,
    HEAPS_EXPONENT,
    HEAPS_WORDS,
    Mixer,
    Pool,
    Recipe,
    load_pool,
    read_records,
    write_corpus,
)
from benchmarks.words import FreshWords

SIZE = 2_000_000


@pytest.fixture(scope="module")
def pool(corpora: Path) -> Pool:
    names = ("mixed_gum", "web_ewt")
    return load_pool([corpora / "pretrain" / f"{name}.jsonl.gz" for name in names])


def texts(folder: Path) -> list[str]:
    files = sorted(folder.glob("*.jsonl*"))
    assert files
    return [record["text"] for record in read_records(files)]


def test_distinct_words_follow_the_curve_of_the_corpora(pool: Pool, tmp_path: Path) -> None:
    tally = write_corpus(lambda: pool, Recipe(num_bytes=SIZE), tmp_path)
    found = texts(tmp_path)
    words = {word for text in found for word in text.split()}
    wanted = HEAPS_WORDS * (SIZE / HEAPS_BYTES) ** HEAPS_EXPONENT
    assert tally.num_documents == len(found)
    assert tally.num_bytes == sum(len(text.encode()) for text in found) >= SIZE
    assert tally.num_fresh_words > 0
    assert tally.num_distinct_words == pytest.approx(wanted, rel=0.05)
    assert len(words) == pytest.approx(wanted, rel=0.05)


def test_closed_corpus_brings_no_new_words(pool: Pool, tmp_path: Path) -> None:
    tally = write_corpus(lambda: pool, Recipe(num_bytes=SIZE, is_closed=True), tmp_path)
    words = {word for text in texts(tmp_path) for word in text.split()}
    assert words <= set(pool.words)
    assert tally.num_fresh_words == 0
    assert tally.num_distinct_words == pytest.approx(len(words), rel=0.01)


def first(documents: Iterator[tuple[str, str]], count: int) -> list[tuple[str, str]]:
    return [next(documents) for _ in range(count)]


def test_same_seed_gives_the_same_documents_and_another_seed_others(pool: Pool) -> None:
    runs = [
        first(Mixer(pool, Recipe(num_bytes=1, seed=seed)).documents(), 200) for seed in (0, 0, 1)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_smaller_corpus_is_the_beginning_of_a_larger_one(pool: Pool, tmp_path: Path) -> None:
    for name, size in (("less", SIZE // 2), ("more", SIZE)):
        write_corpus(lambda: pool, Recipe(num_bytes=size), tmp_path / name)
    less, more = texts(tmp_path / "less"), texts(tmp_path / "more")
    assert less == more[: len(less)]
    assert len(less) < len(more)


def test_gzipped_corpus_holds_the_same_text(pool: Pool, tmp_path: Path) -> None:
    for name, is_gzipped in (("plain", False), ("gz", True)):
        recipe = Recipe(num_bytes=100_000, is_gzipped=is_gzipped)
        write_corpus(lambda: pool, recipe, tmp_path / name)
    assert [file.name for file in (tmp_path / "gz").glob("part*")] == ["part-0000.jsonl.gz"]
    assert texts(tmp_path / "plain") == texts(tmp_path / "gz")


def test_finished_corpus_is_not_made_again(pool: Pool, tmp_path: Path) -> None:
    recipe = Recipe(num_bytes=100_000)
    tally = write_corpus(lambda: pool, recipe, tmp_path)

    def fail() -> Pool:
        raise AssertionError("the corpus is there")

    assert write_corpus(fail, recipe, tmp_path) == tally


def test_documents_keep_lengths_and_sources(pool: Pool) -> None:
    documents = first(Mixer(pool, Recipe(num_bytes=1, is_closed=True)).documents(), 2_000)
    real_share = (pool.document_sources == 0).mean()
    made_share = sum(source == pool.sources[0] for source, _ in documents) / len(documents)
    real_mean = pool.num_bytes.sum() / len(pool.document_lengths)
    made_mean = sum(len(text.encode()) for _, text in documents) / len(documents)
    assert made_share == pytest.approx(real_share, abs=0.05)
    assert made_mean == pytest.approx(real_mean, rel=0.15)


def test_fresh_words_are_new_distinct_and_without_blanks(pool: Pool) -> None:
    fresh = FreshWords(pool.words, seed=0)
    words = [fresh.make() for _ in range(20_000)]
    assert len(set(words)) == len(words)
    assert not set(words) & set(pool.words)
    assert all(word.split() == [word] for word in words)


def test_fresh_words_come_in_many_shapes(pool: Pool) -> None:
    fresh = FreshWords(pool.words, seed=0)
    words = [fresh.make() for _ in range(20_000)]
    shares = {
        "capital": sum(word[0].isupper() for word in words) / len(words),
        "digit": sum(any(c.isdigit() for c in word) for word in words) / len(words),
        "beyond ASCII": sum(not word.isascii() for word in words) / len(words),
        "hyphen": sum("-" in word for word in words) / len(words),
        "letters alone": sum(word.isalpha() and word.isascii() for word in words) / len(words),
    }
    assert 0.05 < shares["capital"] < 0.25
    assert 0.02 < shares["digit"] < 0.15
    assert 0.03 < shares["beyond ASCII"] < 0.1
    assert 0.1 < shares["hyphen"] < 0.5
    assert 0.1 < shares["letters alone"] < 0.4
