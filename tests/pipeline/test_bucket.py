"""The documents of a bucket: all of them once, in order, with the tokens of their sentences."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.small_parts import write_parts

from clozemill.pipeline.bucket import FATES, BucketDocuments, load_bucket
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import copy_id, document_id
from clozemill.pipeline.plan import make_plan
from clozemill.pipeline.sentences import find_sentences
from clozemill.pipeline.splits import num_passes, split_rule
from clozemill.pipeline.tokenizer import load_tokenizer


def load_all(
    place: tuple[Path, tuple[str, ...]], config: BuildConfig
) -> tuple[list[BucketDocuments], list[Path]]:
    map_dir, parts = place
    plan = make_plan(map_dir, parts, config)
    paths = [map_dir / part for part in parts]
    rule = split_rule(config, plan.validation_threshold)
    return [load_bucket(bucket, paths, rule, config) for bucket in plan.buckets], paths


def ids_of(documents: BucketDocuments) -> list[bytes]:
    return [row.tobytes() for row in documents.ids]


def config_with(**settings: Any) -> BuildConfig:
    return BuildConfig(**{"bucket_tokens": 2_000, "validation_fraction": 0.1, **settings})


@pytest.mark.parametrize("cut", [0, 50])
def test_a_bucket_holds_the_tokens_of_its_documents_in_id_order(
    cut: int, syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    groups = [texts[:cut], texts[cut:]] if cut else [texts]
    buckets, paths = load_all(write_parts(tmp_path, syllables, groups), config_with())
    assert len(buckets) > 8
    tokenizer = load_tokenizer(syllables)
    text_of = {document_id(text): text for text in texts}
    seen: list[bytes] = []
    for documents in buckets:
        ids = ids_of(documents)
        assert ids == sorted(ids)
        seen += ids
        corpus = documents.corpus(paths)
        for i, document in enumerate(ids):
            sentences = find_sentences(text_of[document], "sentencex:en")
            encoded = [tokenizer.backend.encode(s).ids for s in sentences]
            starts = corpus.sentence_starts[
                corpus.document_starts[i] : corpus.document_starts[i + 1] + 1
            ]
            found = [corpus.tokens[a:b].tolist() for a, b in zip(starts, starts[1:], strict=False)]
            assert found == encoded
    assert sorted(seen) == sorted(text_of)


def test_the_smallest_source_stands_for_equal_documents(
    syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    place = write_parts(
        tmp_path,
        syllables,
        [texts, texts[:20]],
        sources=[["m"] * len(texts), ["a", "z"] * 10],
    )
    buckets, _ = load_all(place, config_with())
    found = {
        document: (source, int(copies))
        for documents in buckets
        for document, source, copies in zip(
            ids_of(documents),
            documents.table["source"].to_pylist(),
            documents.num_duplicates,
            strict=True,
        )
    }
    for number, text in enumerate(texts):
        is_twice = number < 20
        expected = "a" if is_twice and number % 2 == 0 else "m"
        assert found[document_id(text)] == (expected, int(is_twice))


def test_kept_copies_are_documents_of_their_own(
    syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    place = write_parts(tmp_path, syllables, [texts, texts[:20], texts[:10]])
    buckets, paths = load_all(place, config_with(duplicates="keep"))
    expected = {document_id(text) for text in texts}
    expected |= {copy_id(document_id(text), 1) for text in texts[:20]}
    expected |= {copy_id(document_id(text), 2) for text in texts[:10]}
    assert {i for documents in buckets for i in ids_of(documents)} == expected
    for documents in buckets:
        assert ids_of(documents) == sorted(ids_of(documents))
        lengths = np.diff(documents.corpus(paths).document_starts)
        assert lengths.tolist() == documents.numbers("num_sentences").tolist()


def test_each_fate_is_given_for_its_reason(
    syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    """The first reason that holds is the fate: tokens, then sentences, then the draw."""
    odd = ["\u200b", "Ba be."]
    sources = [["yes"] * len(texts), ["no", "no"], ["no"]]
    place = write_parts(tmp_path, syllables, [texts, odd, ["Ba. Be. Bi."]], sources=sources)
    config = config_with(source_weight=(("no", 0.0),), min_document_sentences=2)
    buckets, _ = load_all(place, config)
    fates = {
        document: FATES[fate]
        for documents in buckets
        for document, fate in zip(ids_of(documents), documents.fates, strict=True)
    }
    assert fates[document_id("\u200b")] == "no_tokens"
    assert fates[document_id("Ba be.")] == "too_few_sentences"
    assert fates[document_id("Ba. Be. Bi.")] == "unsampled"
    assert set(fates.values()) == set(FATES)


def test_passes_follow_from_id_seed_and_weight() -> None:
    ids = np.arange(20_000, dtype=np.uint64).reshape(-1, 2)
    sources = ["a", "b"] * 5_000
    config = BuildConfig(dupe_factor=3, source_weight=(("a", 0.5),))
    passes = num_passes(ids, sources, config)
    assert set(passes[0::2]) == {1, 2}
    assert abs(passes[0::2].mean() - 1.5) < 0.05
    assert set(passes[1::2]) == {3}
    assert np.array_equal(passes, num_passes(ids, sources, config))
    other = num_passes(
        ids, sources, BuildConfig(dupe_factor=3, seed=1, source_weight=(("a", 0.5),))
    )
    assert not np.array_equal(passes, other)
