"""The documents of a bucket: which of equal ones stands for all, and what becomes of each."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.pipeline.small_parts import Tokenized, id_of, random_documents, write_parts

from clozemill.pipeline.bucket import DOCUMENT_FATES, BucketDocuments, load_bucket
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import copy_id
from clozemill.pipeline.parts import Parts
from clozemill.pipeline.plan import make_plan
from clozemill.pipeline.splits import split_rule

CORPUS = random_documents(300)
ONE_IN_A_MILLION = 1e-6


def load(
    folder: Path,
    *documents: Sequence[Tokenized],
    held_out: Sequence[Tokenized] = (),
    **settings: Any,
) -> tuple[Parts, list[BucketDocuments]]:
    """Return the parts and what every bucket holds."""
    settings = {"bucket_tokens": 1_000, "validation_fraction": 0.1, **settings}
    if held_out:
        settings["validation"] = ("v.txt",)
    config = BuildConfig(**settings)
    names = write_parts(folder, *documents, validation=held_out)
    plan = make_plan(folder, names, config)
    parts = Parts([folder / name for name in names])
    rule = split_rule(config, plan.validation_threshold)
    return parts, [load_bucket(bucket, parts, rule, config) for bucket in plan.buckets]


def ids_of(documents: BucketDocuments) -> list[bytes]:
    return [row.tobytes() for row in documents.ids]


def test_buckets_hold_every_document_once_in_id_order(tmp_path: Path):
    _, buckets = load(tmp_path, CORPUS[:100], CORPUS[100:])
    found = [ids_of(bucket) for bucket in buckets]
    assert all(ids == sorted(ids) for ids in found)
    assert sorted(sum(found, [])) == sorted(document.id for document in CORPUS)
    assert len(buckets) > 5


def test_corpus_is_the_kept_documents_end_to_end(tmp_path: Path):
    parts, buckets = load(tmp_path, CORPUS[:100], CORPUS[100:], min_document_sentences=2)
    by_id = {document.id: document for document in CORPUS}
    assert len(buckets) > 3
    for bucket in buckets:
        corpus = bucket.corpus(parts)
        kept = [by_id[row.tobytes()] for row in corpus.document_ids]
        assert kept
        assert all(len(document.sentences) >= 2 for document in kept)
        sentences = [sentence for document in kept for sentence in document.sentences]
        assert corpus.tokens.tolist() == [token for s in sentences for token in s]
        assert np.diff(corpus.sentence_starts).tolist() == list(map(len, sentences))
        assert np.diff(corpus.document_starts).tolist() == [len(d.sentences) for d in kept]


def test_of_equal_documents_the_smallest_source_and_id_stands_for_all(tmp_path: Path):
    names: list[tuple[str, str | None]] = [("b", "1"), ("a", "9"), ("a", "10"), ("a", None)]
    copies = [
        Tokenized(id=id_of(5), source=source, external_id=external_id, offset=number)
        for number, (source, external_id) in enumerate(names)
    ]
    other = Tokenized(id=id_of(6))
    for order in ((0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)):
        chosen = [copies[i] for i in order]
        folder = tmp_path / "".join(map(str, order))
        folder.mkdir()
        _, (bucket,) = load(folder, chosen[:2], [*chosen[2:], other], validation_fraction=0.0)
        assert bucket.table["source"].to_pylist() == ["a", ""]
        assert bucket.table["external_id"].to_pylist() == ["10", None]
        assert bucket.num_duplicates.tolist() == [3, 0]
        assert len(bucket.origins.files) == 5


def test_kept_copies_have_ids_of_their_own_in_the_order_of_their_names(tmp_path: Path):
    copies = [Tokenized(id=id_of(5), source=source) for source in "cab"]
    _, (bucket,) = load(
        tmp_path, copies, duplicates="keep", validation_fraction=0.0, recipe="roberta-doc"
    )
    expected = {copy_id(id_of(5), number): source for number, source in enumerate("abc")}
    found = dict(zip(ids_of(bucket), bucket.table["source"].to_pylist(), strict=True))
    assert found == expected
    assert ids_of(bucket) == sorted(expected)
    assert bucket.num_duplicates.tolist() == [0, 0, 0]


def test_every_document_has_a_fate(tmp_path: Path):
    documents = [
        *CORPUS[:40],
        Tokenized(id=id_of(1), sentences=()),
        Tokenized(id=id_of(2), source="never", sentences=((5,), (6,))),
        Tokenized(id=id_of(3), source="never", sentences=()),
    ]
    _, buckets = load(
        tmp_path,
        documents,
        min_document_sentences=2,
        source_weight=(("never", 0.0),),
        dupe_factor=3,
    )
    fate = {
        key: (DOCUMENT_FATES[code], int(passes))
        for bucket in buckets
        for key, code, passes in zip(ids_of(bucket), bucket.fates, bucket.num_passes, strict=True)
    }
    assert fate.pop(id_of(1)) == ("no_tokens", 0)
    assert fate.pop(id_of(2)) == ("unsampled", 0)
    assert fate.pop(id_of(3)) == ("no_tokens", 0)
    for document in CORPUS[:40]:
        is_short = len(document.sentences) < 2
        assert fate.pop(document.id) == (("too_few_sentences", 0) if is_short else ("kept", 3))
    assert not fate


@pytest.mark.parametrize(("weight", "factor"), [(0.3, 1), (1.5, 1), (0.75, 2), (2.0, 2)])
def test_a_fraction_of_a_pass_is_a_chance(tmp_path: Path, weight: float, factor: int):
    many = random_documents(3_000, seed=1, most_sentences=1)
    documents = [dataclasses.replace(document, source="s") for document in many]
    _, buckets = load(
        tmp_path,
        documents,
        source_weight=(("s", weight),),
        dupe_factor=factor,
        recipe="roberta-doc",
    )
    passes = np.concatenate([bucket.num_passes for bucket in buckets])
    whole = int(factor * weight)
    share = factor * weight - whole
    assert len(passes) == len(many)
    assert set(passes.tolist()) <= {whole, whole + 1}
    low, high = stats.binom.ppf([ONE_IN_A_MILLION, 1 - ONE_IN_A_MILLION], len(many), share)
    assert low <= (passes == whole + 1).sum() <= high


def test_copies_of_a_text_named_for_validation_are_all_held_out(tmp_path: Path):
    _, buckets = load(tmp_path, CORPUS[:100], held_out=CORPUS[90:120], bucket_tokens=100_000)
    train, validation = (set(ids_of(bucket)) for bucket in buckets)
    assert train == {document.id for document in CORPUS[:90]}
    assert validation == {document.id for document in CORPUS[90:120]}
    assert buckets[1].num_duplicates.sum() == 10
