import dataclasses
import gzip
from pathlib import Path

import pytest
from tests.pipeline.small_corpora import make_texts, small_build, small_config, write_json_lines

from clozemill.pipeline.errors import InputError
from clozemill.pipeline.estimate import estimate_build


def test_an_input_within_the_sample_is_estimated_exactly(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    estimate = estimate_build(small_config(corpus, syllables, tmp_path / "data"))
    assert not (tmp_path / "data").exists()
    manifest = small_build(corpus, syllables, tmp_path / "data").manifest
    records = manifest.ledger["records"][""]
    assert estimate.num_documents == records["documents_read"]
    assert estimate.num_text_bytes == records["text_bytes"]
    assert estimate.num_instances == sum(e.num_instances for e in manifest.splits.values())
    assert estimate.num_free_bytes > 0


@pytest.mark.slow
@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_larger_input_is_estimated_within_a_fifth(
    syllables: Path, tmp_path: Path, is_compressed: bool
) -> None:
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(6_000))
    if is_compressed:
        packed = tmp_path / "corpus.jsonl.gz"
        packed.write_bytes(gzip.compress(corpus.read_bytes()))
        corpus = packed
    config = small_config(corpus, syllables, tmp_path / "data")
    estimate = estimate_build(dataclasses.replace(config, bucket_tokens=100_000))
    manifest = small_build(corpus, syllables, tmp_path / "data", bucket_tokens=100_000).manifest
    records = manifest.ledger["records"][""]
    assert estimate.num_sampled_bytes < records["text_bytes"] / 2
    assert estimate.num_documents == pytest.approx(records["documents_read"], rel=0.2)
    assert estimate.num_text_bytes == pytest.approx(records["text_bytes"], rel=0.2)
    instances = sum(entry.num_instances for entry in manifest.splits.values())
    assert estimate.num_instances == pytest.approx(instances, rel=0.2)


def test_a_limit_on_documents_limits_the_estimate(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(corpus, syllables, tmp_path / "data", limit_documents=30)
    assert estimate_build(config).num_documents == 30


def test_an_input_without_documents_is_refused(syllables: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(InputError, match="no documents in the sample"):
        estimate_build(small_config(empty, syllables, tmp_path / "data"))


@pytest.mark.parametrize("recipe", ["bert", "roberta-full", "roberta-doc"])
def test_every_recipe_is_estimated(
    recipe: str, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(corpus, syllables, tmp_path / "data", recipe=recipe)
    assert estimate_build(config).num_instances > 100


def test_first_documents_that_give_nothing_do_not_stop_the_estimate(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    short, equal = ["Ba ba."] * 6, [texts[0]] * 6
    corpus = write_json_lines(tmp_path / "corpus.jsonl", [*short, *equal, *texts])
    config = small_config(corpus, syllables, tmp_path / "data", min_document_sentences=2)
    assert estimate_build(config).num_documents == len(texts) + 12


def test_validation_inputs_are_estimated_too(corpus: Path, syllables: Path, tmp_path: Path) -> None:
    own = write_json_lines(tmp_path / "own.jsonl", make_texts(30, seed=1))
    without = estimate_build(small_config(corpus, syllables, tmp_path / "data"))
    config = small_config(corpus, syllables, tmp_path / "data", validation=[own])
    estimate = estimate_build(config)
    assert estimate.num_files == 2
    assert estimate.num_documents == without.num_documents + 30
    own.unlink()
    with pytest.raises(InputError, match="own.jsonl does not exist"):
        estimate_build(config)


def test_thousands_of_small_files_are_sampled_all_over(syllables: Path, tmp_path: Path) -> None:
    """Every file is a document, and the few long ones at the beginning stand for themselves."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number, text in enumerate(make_texts(1_000, most_sentences=3)):
        (folder / f"{number:04d}.txt").write_text(text * (30 if number < 50 else 1))
    config = small_config(folder, syllables, tmp_path / "data", validation=[folder / "0999.txt"])
    estimate = estimate_build(dataclasses.replace(config, recipe="roberta-full"))
    assert estimate.num_files == estimate.num_documents == 1_001
    num_bytes = sum(path.stat().st_size for path in folder.iterdir())
    assert estimate.num_text_bytes == pytest.approx(num_bytes, rel=0.2)
    assert estimate.notices[0].startswith("1,000 files read for training and 1 file for validation")
