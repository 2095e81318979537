"""The tables of the pipeline's verbs."""

import dataclasses
from pathlib import Path

import pytest
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill import data_tables
from clozemill.pipeline.build import BuildReport


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> BuildReport:
    folder = tmp_path_factory.mktemp("built")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(60))
    return small_build(corpus, write_tokenizer(folder / "tokenizer"), folder / "data")


def test_a_build_is_shown_with_its_documents_labels_speed_and_memory(
    report: BuildReport,
) -> None:
    printout = data_tables.build_printout(report, "data")
    lines = printout.text.splitlines()
    assert lines[0] == "documents"
    assert any(line.split()[:2] == ["train", "kept"] for line in lines)
    said = "mask rate: selected of maskable tokens: 15 % of the length, specials included, rounded;"
    assert said in lines
    assert "MB/s), [UNK] 0.0%, peak " in printout.text
    assert lines[-1] == "data is a dataset; look inside with: clozemill inspect data"
    assert printout.data["peak_process_bytes"] > 50_000_000
    assert list(printout.data["seconds"]) == [
        "listing",
        "reading",
        "planning",
        "writing",
        "finishing",
    ]


def test_a_share_that_is_rounded_at_random_is_one_of_the_maskable_tokens(
    report: BuildReport,
) -> None:
    configuration = {**report.manifest.configuration, "mask_count": "stochastic"}
    configuration["masked_lm_prob"] = 0.125
    manifest = dataclasses.replace(report.manifest, configuration=configuration)
    text = data_tables.build_printout(dataclasses.replace(report, manifest=manifest), "data").text
    assert "mask rate: selected of maskable tokens: 12.5 % of them, rounded at random;\n" in text


def test_packed_blocks_have_no_columns_for_pairs(tmp_path: Path) -> None:
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(60))
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    packed = small_build(corpus, tokenizer, tmp_path / "data", recipe="roberta-full")
    text = data_tables.build_printout(packed, "data").text
    assert "mask rate" in text
    assert "random B" not in text
    assert "expected" not in text
