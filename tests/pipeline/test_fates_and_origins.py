"""Law 3 and law 8, for any documents: each has a fate, and what is made of it an origin."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tests.pipeline.small_corpora import (
    document_rows,
    origins_of,
    rows_of,
    small_build,
    small_dataset,
    write_json_lines,
)

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.documents import copy_id, document_id
from clozemill.pipeline.ledger import from_json, ledger_faults
from clozemill.pipeline.sentences import find_sentences
from clozemill.pipeline.tokenizer import load_tokenizer

RECIPES = ("bert", "roberta-full", "roberta-doc")
WORDS = st.sampled_from(
    ["ba", "bede", "gi", "kotu", "[MASK]", "\u4e2d", "xyz\u00e9", "...", "\u200b"]
)
SENTENCES = st.one_of(
    st.lists(WORDS, min_size=1, max_size=12),
    st.integers(60, 150).map(lambda n: ["ba"] * n),
    st.just(["\u200b"]),
)
TEXTS = st.lists(SENTENCES, max_size=6).map(
    lambda sentences: "\n".join(" ".join(words) for words in sentences)
)


@hypothesis_settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    documents=st.lists(TEXTS, min_size=1, max_size=14),
    recipe=st.sampled_from(RECIPES),
    duplicates=st.sampled_from(["drop", "keep"]),
    long_sentences=st.sampled_from(["split", "truncate", "drop"]),
    passes=st.integers(1, 2),
)
def test_every_document_and_token_has_a_fate_and_every_instance_an_origin(
    documents: list[str],
    recipe: str,
    duplicates: str,
    long_sentences: str,
    passes: int,
    syllables: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    documents = [*documents, *documents[:2], "Ba be.\nBi.", "Da.\nDe du."]
    path = write_json_lines(folder / "a.jsonl", documents)
    dataset = small_dataset(
        path,
        syllables,
        folder / "out",
        recipe=recipe,
        duplicates=duplicates,
        long_sentences=long_sentences,
        dupe_factor=passes,
        max_seq_length=24,
        mask_variants=1,
        validation_fraction=0.3,
    )
    assert ledger_faults(from_json(dataset.manifest.ledger)) == []
    distinct = {text.strip() for text in documents} - {""}
    ids = {row["document_id"] for row in document_rows(dataset)}
    assert {document_id(text) for text in distinct} <= ids
    if duplicates == "drop":
        assert len(ids) == len(distinct)
    assert_instances_read_as_their_spans_say(dataset, distinct)


def assert_instances_read_as_their_spans_say(dataset: Dataset, texts: set[str]) -> None:
    """Check tokens of every instance against the tokens of the sentences it names, less cuts."""
    tokenizer = load_tokenizer(dataset.tokenizer_dir)
    rule = dataset.manifest.configuration["sentences"]
    sentences: dict[bytes, list[list[int]]] = {}
    for text in texts:
        encoded = [tokenizer.backend.encode(s).ids for s in find_sentences(text, rule)]
        for i in range(len(texts) * 40 if len(texts) < 3 else 40):
            sentences[copy_id(document_id(text), i)] = [ids for ids in encoded if ids]
    for split in dataset.splits:
        for row in rows_of(dataset, split):
            expected = [tokenizer.cls_id]
            for number, span in enumerate(row["spans"]):
                own = sentences[span["document_id"]]
                begin = span["first_sentence"]
                run = sum(own[begin : begin + span["num_sentences"]], [])
                cut = run[span["cut_front"] : len(run) - span["cut_back"]]
                assert cut
                expected += [tokenizer.sep_id] * bool(number) + cut
            assert row["input_ids"] == [*expected, tokenizer.sep_id]


def test_real_documents_are_found_again_from_their_origins(corpora: Path, tmp_path: Path) -> None:
    gum = corpora / "pretrain" / "mixed_gum.jsonl.gz"
    vocab = corpora / "vocab" / "bert-base-uncased-vocab.txt"
    small_build(gum, vocab, tmp_path / "out", bucket_tokens=50_000, limit_documents=20)
    data = gzip.decompress(gum.read_bytes())
    lines = origins_of(tmp_path / "out")
    assert len(lines) == 20
    for line in lines:
        assert line["file"] == str(gum)
        record = json.loads(data[line["offset"] :].split(b"\n", 1)[0])
        assert document_id(record["text"].strip()).hex() == line["document_id"]
