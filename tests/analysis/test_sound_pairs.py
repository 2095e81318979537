"""No setting and no sound input makes a question about pairs and documents fail."""

from pathlib import Path
from typing import Any

import pytest
from tests.analysis.pair_datasets import audit_pairs, build_small, failed_questions
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)


@pytest.fixture(scope="module")
def syllables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a WordPiece tokenizer that spells every word of `make_texts`."""
    return write_tokenizer(tmp_path_factory.mktemp("tokenizers") / "syllables")


@pytest.mark.parametrize(
    "settings",
    [
        {"nsp_balance": "exact", "source_weight": (("news", 1.6), ("web", 0.4)), "dupe_factor": 2},
        {"validation_fraction": 0.0, "mask_variants": 0, "min_document_sentences": 4},
        {"validation_fraction": 1e-9, "short_seq_prob": 1.0, "max_seq_length": 12},
        {"recipe": "roberta-full", "max_seq_length": 24, "long_sentences": "truncate"},
        {"recipe": "roberta-full", "max_seq_length": 24, "long_sentences": "drop"},
        {"recipe": "roberta-doc", "max_seq_length": 14, "dupe_factor": 2},
    ],
)
def test_no_setting_makes_a_sound_dataset_fail(settings: dict[str, Any], tmp_path: Path) -> None:
    dataset = build_small(tmp_path, num_documents=120, **settings)
    assert failed_questions(dataset) == set()


def test_kept_duplicates_and_empty_documents_are_no_fault(syllables: Path, tmp_path: Path) -> None:
    texts = make_texts(40)
    corpus = write_json_lines(tmp_path / "corpus.jsonl", [*texts, "\x00", *texts[:20], texts[0]])
    for duplicates in ("keep", "drop"):
        out = tmp_path / duplicates
        dataset = small_dataset(corpus, syllables, out, duplicates=duplicates)
        assert failed_questions(dataset) == set()


def test_named_validation_inputs_are_no_fault(syllables: Path, tmp_path: Path) -> None:
    texts = make_texts(60)
    corpus = write_json_lines(tmp_path / "train.jsonl", texts[:40])
    held_out = write_json_lines(tmp_path / "held_out.jsonl", texts[38:])
    dataset = small_dataset(corpus, syllables, tmp_path / "data", validation=[held_out])
    report = audit_pairs(dataset)
    assert not report.has_failed
    verdicts = {answer.question.name: answer.verdict for answer in report.answers}
    assert verdicts["validation_share"] == "not asked"
    assert verdicts["shared_documents"] == "passed"


def test_pairs_of_two_documents_are_sound(syllables: Path, tmp_path: Path) -> None:
    """P01: every random B comes from the other document, however often one is drawn."""
    path = tmp_path / "two.txt"
    path.write_text("Ba be.\nBi bo.\n\nDu da.\nDe di.\n")
    settings: dict[str, Any] = {"layout": "sentences", "validation_fraction": 0.0}
    settings |= {"mask_variants": 10, "dupe_factor": 20}
    dataset = small_dataset(path, syllables, tmp_path / "data", **settings)
    assert dataset.manifest.ledger["instances"]["train"]["random"] > 20
    assert failed_questions(dataset) == set()


def test_shards_of_a_small_corpus_are_sound(syllables: Path, tmp_path: Path) -> None:
    """P33: 50 documents, several shards, 3 variants, a tenth for validation."""
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(50, seed=5))
    settings = {"mask_variants": 3, "shard_size": 20}
    dataset = small_dataset(corpus, syllables, tmp_path / "data", **settings)
    assert len(dataset.manifest.shards_of("train")) >= 5
    assert failed_questions(dataset) == set()


def test_sentences_as_documents_are_random_pairs_as_they_must_be(
    syllables: Path, tmp_path: Path
) -> None:
    """P02: no coin is drawn, and the expectation that is stated has no next pair."""
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(200, most_sentences=1))
    answers = {
        answer.question.name: answer
        for answer in audit_pairs(small_dataset(corpus, syllables, tmp_path / "data")).answers
    }
    assert {answer.verdict for answer in answers.values()} <= {"passed", "figures", "not asked"}
    assert answers["label_coin"].groups == ()
    shares = answers["label_share"].rows.to_pylist()
    assert sum(row["num_random"] for row in shares) == 200
    for row in shares:
        assert row["random_share"] == row["expected_share"] == 1.0
    assert {row["accuracy"] for row in answers["nsp_shortcuts"].rows.to_pylist()} == {1.0}


def test_a_sample_of_a_sound_dataset_is_sound(tmp_path: Path) -> None:
    dataset = build_small(tmp_path, num_documents=120)
    report = audit_pairs(dataset, sample=100)
    assert not report.has_failed
    unasked = {answer.question.name for answer in report.answers if answer.reason == "needs whole"}
    assert {"documents_in_pairs", "ledger_pairs", "label_share"} <= unasked
    (coins,) = [answer for answer in report.answers if answer.question.name == "label_coin"]
    assert 0 < sum(row["trials"] for row in coins.rows.to_pylist()) < 400
