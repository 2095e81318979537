"""The plan: which documents are worked on together, and which are held out."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.small_parts import Tokenized, id_of, random_documents, write_parts

from clozemill.pipeline import census
from clozemill.pipeline import plan as planning
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.parts import NUM_CELLS
from clozemill.pipeline.plan import Bucket, Plan, make_plan
from clozemill.pipeline.splits import split_hashes

CORPUS = random_documents(600)


def plan_of(
    folder: Path,
    *parts: Sequence[Tokenized],
    held_out: Sequence[Tokenized] = (),
    **settings: Any,
) -> Plan:
    settings = {"bucket_tokens": 1_000, "validation_fraction": 0.1, **settings}
    if held_out:
        settings["validation"] = ("v.txt",)
    return make_plan(
        folder, write_parts(folder, *parts, validation=held_out), BuildConfig(**settings)
    )


def num_tokens(documents: Sequence[Tokenized]) -> int:
    return sum(len(s) for document in documents for s in document.sentences)


def of_split(plan: Plan, split: str) -> list[Bucket]:
    return [bucket for bucket in plan.buckets if bucket.split == split]


@pytest.mark.parametrize("recipe", ["bert", "roberta-full"])
def test_buckets_cover_every_cell_once_and_hold_about_what_was_asked(tmp_path: Path, recipe: str):
    plan = plan_of(tmp_path, CORPUS[:250], CORPUS[250:], recipe=recipe)
    assert sum(bucket.num_documents for bucket in plan.buckets) == len(CORPUS)
    assert sum(bucket.num_tokens for bucket in plan.buckets) == num_tokens(CORPUS)
    most = max(num_tokens([document]) for document in CORPUS)
    for split in ("train", "validation"):
        buckets = of_split(plan, split)
        assert [bucket.number for bucket in buckets] == list(range(len(buckets)))
        assert [bucket.first_cell for bucket in buckets[1:]] == [b.stop_cell for b in buckets[:-1]]
        assert (buckets[0].first_cell, buckets[-1].stop_cell) == (0, NUM_CELLS)
        # A bucket ends with the cell that fills it, and cells of this corpus are small.
        assert all(1_000 <= bucket.num_tokens < 1_000 + 2 * most for bucket in buckets[:-1])
        assert 500 <= buckets[-1].num_tokens < 1_500 + 2 * most
    assert len(of_split(plan, "train")) > 8
    assert [bucket.split for bucket in plan.buckets] == sorted(b.split for b in plan.buckets)


@pytest.mark.parametrize(("least", "expected"), [(10, 8), (2_000, 4), (10**6, 1)])
def test_a_corpus_smaller_than_eight_buckets_is_cut_finer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, least: int, expected: int
):
    monkeypatch.setattr(planning, "_LEAST_TOKENS", least)
    plan = plan_of(tmp_path, CORPUS, bucket_tokens=None, validation_fraction=0.0)
    assert 8_000 < num_tokens(CORPUS) < 20_000
    assert abs(len(plan.buckets) - expected) <= (expected > 1)


def test_copies_count_as_often_as_each_is_drawn(tmp_path: Path) -> None:
    copies = [
        dataclasses.replace(document, source=source)
        for document in CORPUS[:100]
        for source in ("a", "b")
    ]
    weights = (("a", 0.0), ("b", 2.0))
    plan = plan_of(tmp_path, copies, duplicates="keep", source_weight=weights)
    assert sum(bucket.num_documents for bucket in plan.buckets) == 100
    assert sum(bucket.num_tokens for bucket in plan.buckets) == 2 * num_tokens(CORPUS[:100])


def test_a_plan_does_not_depend_on_how_documents_lie_in_parts(tmp_path: Path):
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    shuffled = [CORPUS[i] for i in np.random.default_rng(1).permutation(len(CORPUS))]
    plans = [
        plan_of(folders[0], CORPUS, dupe_factor=3),
        plan_of(folders[1], shuffled[:9], shuffled[9:400], shuffled[400:], dupe_factor=3),
    ]
    assert plans[0] == plans[1]


def test_documents_are_counted_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    whole = plan_of(tmp_path, CORPUS[:100], CORPUS[100:])
    monkeypatch.setattr(census, "_DOCUMENTS_AT_ONCE", 50)
    assert plan_of(tmp_path, CORPUS[:100], CORPUS[100:]) == whole


def test_a_remainder_under_half_a_bucket_joins_the_last(tmp_path: Path):
    def documents(*sizes: int) -> list[Tokenized]:
        return [Tokenized(id=id_of(i), sentences=((7,) * size,)) for i, size in enumerate(sizes)]

    for rest, expected in ((499, [1_000, 1_499]), (500, [1_000, 1_000, 500])):
        folder = tmp_path / str(rest)
        folder.mkdir()
        sizes = (600, 400, 600, 400, rest)
        plan = plan_of(folder, documents(*sizes), recipe="roberta-full", validation_fraction=0.0)
        assert [bucket.num_tokens for bucket in plan.buckets] == expected


def test_every_bucket_has_the_documents_that_a_pair_takes(tmp_path: Path):
    long = [Tokenized(id=id_of(i), sentences=((7,) * 5_000,)) for i in range(7)]
    plan = plan_of(tmp_path, long, validation_fraction=0.0)
    assert [bucket.num_documents for bucket in plan.buckets] == [2, 2, 3]
    packed = plan_of(tmp_path, long, validation_fraction=0.0, recipe="roberta-doc")
    assert [bucket.num_documents for bucket in packed.buckets] == [1] * 7


@pytest.mark.parametrize("factor", [1, 4])
def test_tokens_are_counted_as_often_as_they_are_drawn(tmp_path: Path, factor: int):
    weights = (("twice", 2.0),)
    documents = [
        Tokenized(id=d.id, sentences=d.sentences, source="twice" if i % 2 else "once")
        for i, d in enumerate(CORPUS)
    ]
    plan = plan_of(tmp_path, documents, dupe_factor=factor, source_weight=weights)
    once, twice = num_tokens(documents[::2]), num_tokens(documents[1::2])
    assert sum(bucket.num_tokens for bucket in plan.buckets) == factor * (once + 2 * twice)
    assert plan.sources == ("once", "twice")


@pytest.mark.parametrize(("duplicates", "times"), [("drop", 1), ("keep", 4)])
def test_kept_copies_count_and_dropped_ones_do_not(tmp_path: Path, duplicates: str, times: int):
    plan = plan_of(tmp_path, CORPUS * 2, CORPUS, CORPUS, duplicates=duplicates)
    assert sum(bucket.num_tokens for bucket in plan.buckets) == times * num_tokens(CORPUS)
    assert sum(bucket.num_documents for bucket in plan.buckets) == len(CORPUS)


def test_a_document_counts_if_any_copy_of_it_is_drawn(tmp_path: Path) -> None:
    """Each of three copies has a coin of its own: 7/8 of 600 documents, and 3/2 of their tokens."""
    settings: dict[str, Any] = {"source_weight": (("", 0.5),), "duplicates": "keep"}
    plan = plan_of(tmp_path, CORPUS * 3, **settings)
    num_kept = sum(bucket.num_documents for bucket in plan.buckets)
    assert abs(num_kept - 525) < 4 * (600 * 7 / 64) ** 0.5
    assert 1.4 < sum(bucket.num_tokens for bucket in plan.buckets) / num_tokens(CORPUS) < 1.6


def test_documents_without_enough_sentences_count_nowhere(tmp_path: Path):
    plan = plan_of(tmp_path, CORPUS, min_document_sentences=3)
    kept = [document for document in CORPUS if len(document.sentences) >= 3]
    assert 100 < len(kept) < len(CORPUS)
    assert sum(bucket.num_documents for bucket in plan.buckets) == len(kept)
    assert sum(bucket.num_tokens for bucket in plan.buckets) == num_tokens(kept)
    with pytest.raises(InputError, match="left out by min_document_sentences 9"):
        plan_of(tmp_path, CORPUS, min_document_sentences=9)


def hashes(documents: Sequence[Tokenized]) -> list[int]:
    ids = np.array([np.frombuffer(document.id, np.uint64) for document in documents])
    return sorted(split_hashes(ids, np.uint64(0)).tolist())


@pytest.mark.parametrize(("recipe", "needed"), [("bert", 2), ("roberta-full", 1)])
def test_a_small_validation_split_is_topped_up_in_hash_order(
    tmp_path: Path, recipe: str, needed: int
):
    few = CORPUS[:20]
    plan = plan_of(tmp_path, few, recipe=recipe, validation_fraction=1e-9)
    assert plan.validation_threshold == hashes(few)[needed - 1] + 1
    assert sum(bucket.num_documents for bucket in of_split(plan, "validation")) == needed
    (notice,) = plan.notices
    assert f"leaves validation fewer than the {needed}" in notice


def test_training_keeps_the_documents_that_it_needs(tmp_path: Path):
    few = CORPUS[:20]
    plan = plan_of(tmp_path, few, validation_fraction=0.999_999_9)
    assert plan.validation_threshold == hashes(few)[-2]
    assert sum(bucket.num_documents for bucket in of_split(plan, "train")) == 2
    assert "leaves train fewer than the 2 that the recipe needs; validation has 18" in " ".join(
        plan.notices
    )


@pytest.mark.parametrize(("count", "recipe"), [(3, "bert"), (1, "roberta-doc")])
def test_too_few_documents_for_two_splits_are_all_for_training(
    tmp_path: Path, count: int, recipe: str
):
    plan = plan_of(tmp_path, CORPUS[:count], recipe=recipe, validation_fraction=0.9)
    assert [bucket.split for bucket in plan.buckets] == ["train"]
    assert plan.buckets[0].num_documents == count
    assert "too few for a validation split" in plan.notices[0]


def test_no_share_asked_for_makes_no_validation(tmp_path: Path):
    plan = plan_of(tmp_path, CORPUS, validation_fraction=0.0)
    assert not of_split(plan, "validation")
    assert plan.notices == ()


def test_a_text_named_for_validation_is_held_out_of_training(tmp_path: Path):
    plan = plan_of(tmp_path, CORPUS[:100], held_out=CORPUS[90:120])
    counts = {s: sum(b.num_documents for b in of_split(plan, s)) for s in ("train", "validation")}
    assert counts == {"train": 90, "validation": 30}
    with pytest.raises(InputError, match="the validation split has 1 document, and a random B"):
        plan_of(tmp_path, CORPUS[:100], held_out=CORPUS[:1])


def test_sources_are_sorted_and_the_longest_span_is_known(tmp_path: Path):
    documents = [
        Tokenized(id=id_of(i), source=source, sentences=((7,) * length,) * count)
        for i, (source, length, count) in enumerate([("z", 9, 1), ("a", 300, 2), ("m", 1, 500)])
    ]
    settings: dict[str, Any] = {"validation_fraction": 0.0, "max_seq_length": 48}
    plan = plan_of(tmp_path, documents[:1], documents[1:], **settings)
    assert plan.sources == ("a", "m", "z")
    assert plan.most_span_value == 500
    assert plan_of(tmp_path, documents[:2], **settings).most_span_value == 348
