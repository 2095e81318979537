"""The step between the stages: the split, the buckets, and what is too few."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.pipeline.small_corpora import make_texts
from tests.pipeline.small_parts import write_parts

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import document_id
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.plan import (
    NUM_CELLS,
    cell_rows,
    cells_of,
    make_plan,
    open_part,
    part_ids,
)
from clozemill.pipeline.splits import MAX_HASH, split_hashes


def config_with(**settings: Any) -> BuildConfig:
    return BuildConfig(**{"bucket_tokens": 2_000, "validation_fraction": 0.1, **settings})


def words_of(ids: list[bytes]) -> Any:
    return np.frombuffer(b"".join(ids), np.uint64).reshape(-1, 2)


def test_a_cell_is_the_first_two_bytes_of_an_id() -> None:
    ids = [bytes([1, 2] + [9] * 14), bytes(16), b"\xff" * 16]
    assert cells_of(words_of(ids)).tolist() == [0x0102, 0, 0xFFFF]


def test_a_part_holds_its_documents_in_id_order_and_cells_are_slices(
    syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    map_dir, (name,) = write_parts(tmp_path, syllables, [texts])
    part = open_part(map_dir / name)
    ids = part["document_id"].to_pylist()
    assert ids == sorted(document_id(text) for text in texts)
    assert part_ids(part).tobytes() == b"".join(ids)
    middle = cell_rows(part, 1_000, 30_000)
    inside = [i for i in ids if 1_000 <= int.from_bytes(i[:2], "big") < 30_000]
    assert inside
    assert ids[middle] == inside


@pytest.mark.parametrize("recipe", ["bert", "roberta-full"])
def test_buckets_are_runs_of_cells_that_cover_each_split_evenly(
    recipe: str, syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    config = config_with(recipe=recipe, bucket_tokens=1_000)
    plan = make_plan(*write_parts(tmp_path, syllables, [texts]), config)
    for split in ("train", "validation"):
        buckets = [bucket for bucket in plan.buckets if bucket.split == split]
        assert [bucket.number for bucket in buckets] == list(range(len(buckets)))
        borders = [bucket.first_cell for bucket in buckets] + [NUM_CELLS]
        assert borders[0] == 0
        assert [bucket.stop_cell for bucket in buckets] == borders[1:]
        assert all(bucket.num_documents >= 2 for bucket in buckets)
        assert all(bucket.num_tokens >= 500 for bucket in buckets)
    assert len(plan.buckets) > 8
    assert sum(bucket.num_documents for bucket in plan.buckets) == len(texts)


def test_the_plan_is_one_for_any_cut_of_the_documents_and_any_duplicates(
    syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    config = config_with()
    whole = make_plan(*write_parts(tmp_path / "a", syllables, [texts]), config)
    groups = [texts[80:], texts[:30], texts[30:80], texts[50:60]]
    assert make_plan(*write_parts(tmp_path / "b", syllables, groups), config) == whole


def test_validation_is_what_hashes_below_the_threshold(syllables: Path, tmp_path: Path) -> None:
    texts = make_texts(600, seed=2, most_sentences=2)
    map_dir, parts = write_parts(tmp_path, syllables, [texts])
    for fraction in (0.1, 0.5):
        plan = make_plan(map_dir, parts, config_with(validation_fraction=fraction))
        assert plan.validation_threshold == round(fraction * MAX_HASH)
        assert plan.notices == ()
        hashes = split_hashes(words_of([document_id(t) for t in texts]), np.uint64(0))
        count = int((hashes < np.uint64(plan.validation_threshold)).sum())
        held_out = [b.num_documents for b in plan.buckets if b.split == "validation"]
        assert sum(held_out) == count
        low, high = stats.binom.ppf([1e-6, 1 - 1e-6], len(texts), fraction)
        assert low <= count <= high


def test_sources_are_sorted_and_each_once(syllables: Path, tmp_path: Path) -> None:
    texts = make_texts(6)
    names = [["b", "a", "b"], ["\u00e9", "", "a"]]
    place = write_parts(tmp_path, syllables, [texts[:3], texts[3:]], sources=names)
    assert make_plan(*place, config_with()).sources == ("", "a", "b", "\u00e9")


def test_a_text_among_the_validation_inputs_is_planned_there(
    syllables: Path, texts: list[str], tmp_path: Path
) -> None:
    place = write_parts(tmp_path, syllables, [texts[:80], texts[60:]], is_validation=[False, True])
    plan = make_plan(*place, config_with(validation=("held.jsonl",)))
    counts = {"train": 0, "validation": 0}
    for bucket in plan.buckets:
        counts[bucket.split] += bucket.num_documents
    assert counts == {"train": 60, "validation": 60}


@pytest.mark.parametrize(
    ("texts", "settings", "said"),
    [
        (["\u200b"], {}, "no documents: every record was empty"),
        (["Ba."], {}, "the train split has 1 document, and a random B must come from another"),
        (["Ba.", "Ba."], {"duplicates": "keep"}, "the train split has 1 document,"),
        (["Ba.", "Be."], {"source_weight": (("", 0.0),)}, "no documents"),
        (["Ba.", "Be."], {"min_document_sentences": 2}, "left out by min_document_sentences 2"),
    ],
)
def test_too_few_documents_are_refused(
    texts: list[str], settings: dict[str, Any], said: str, syllables: Path, tmp_path: Path
) -> None:
    place = write_parts(tmp_path, syllables, [texts])
    with pytest.raises(InputError, match=said):
        make_plan(*place, config_with(**settings))
