"""Which documents become instances: duplicates, weights, splits, limits."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.pipeline.small_corpora import (
    document_rows,
    file_hashes,
    ids_in,
    make_sentence,
    make_texts,
    origins_of,
    rows_of,
    small_build,
    small_dataset,
    write_json_lines,
)

from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.documents import copy_id, document_id
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.ledger import from_json

ONE_IN_A_MILLION = 1e-6


def write_copies(folder: Path, texts: Sequence[str]) -> Path:
    """Write each text once, and the first 40 three times more under other names."""
    copies = [*texts, *list(texts[:40]) * 3]
    sources = ["z"] * len(texts) + ["y"] * 40 + ["x"] * 80
    ids = [f"id{i:04d}" for i in reversed(range(len(copies)))]
    return write_json_lines(folder / "copies.jsonl", copies, source=sources, id=ids)


def test_duplicates_are_dropped_and_counted_and_the_smallest_name_wins(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    path = write_copies(tmp_path, texts)
    named = {"source_field": "source", "id_field": "id"}
    dataset = small_dataset(path, syllables, tmp_path / "out", **named)
    rows = {row["document_id"]: row for row in document_rows(dataset)}
    assert rows.keys() == {document_id(text) for text in texts}
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for text in texts:
        copies = [(r["source"], r["id"]) for r in records if r["text"] == text]
        row = rows[document_id(text)]
        assert (row["source"], row["external_id"]) == min(copies)
        assert row["num_duplicates"] == len(copies) - 1
    ledger = from_json(dataset.manifest.ledger)
    assert sum(ledger["documents", split, "duplicate"] for split in dataset.splits) == 120
    lines = origins_of(tmp_path / "out")
    assert len(lines) == len(records)
    assert {(path.read_bytes()[line["offset"] :][:8]) for line in lines} == {b'{"text":'}


def test_kept_duplicates_have_ids_of_their_own_in_the_split_of_the_original(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    path = write_copies(tmp_path, texts)
    dataset = small_dataset(path, syllables, tmp_path / "out", duplicates="keep")
    rows = {row["document_id"]: row for row in document_rows(dataset)}
    assert len(rows) == len(texts) + 120
    for text in texts[:40]:
        copies = [rows[copy_id(document_id(text), i)] for i in range(4)]
        assert len({copy["split"] for copy in copies}) == 1
        assert {copy["num_tokens"] for copy in copies} == {copies[0]["num_tokens"]}
        assert {copy["fate"] for copy in copies} == {"kept"}
    assert {rows[document_id(text)]["split"] for text in texts[:40]} == {"train", "validation"}
    assert not ids_in(dataset, "train") & ids_in(dataset, "validation")
    ledger = from_json(dataset.manifest.ledger)
    assert sum(ledger["documents", split, "duplicate"] for split in dataset.splits) == 0
    assert sum(ledger["documents", split, "kept"] for split in dataset.splits) == len(rows)


def test_weights_repeat_leave_out_and_draw_documents_of_a_source(
    syllables: Path, tmp_path: Path
) -> None:
    num = 400
    texts = make_texts(3 * num, seed=6, most_sentences=2)
    sources = ["half", "none", "twice"] * num
    path = write_json_lines(tmp_path / "a.jsonl", texts, source=sources)
    dataset = small_dataset(
        path,
        syllables,
        tmp_path / "out",
        source_field="source",
        source_weight=(("half", 1.5), ("none", 0.0), ("twice", 2.0)),
        recipe="roberta-doc",
        bucket_tokens=100_000,
        validation_fraction=0.0,
    )
    passes: dict[str, Counter[int]] = {name: Counter() for name in ("half", "none", "twice")}
    for row in document_rows(dataset):
        passes[row["source"]][row["num_passes"]] += 1
        assert row["fate"] == ("unsampled" if row["source"] == "none" else "kept")
    assert passes["twice"] == {2: num}
    assert passes["none"] == {0: num}
    assert passes["half"].keys() == {1, 2}
    low, high = stats.binom.ppf([ONE_IN_A_MILLION, 1 - ONE_IN_A_MILLION], num, 0.5)
    assert low <= passes["half"][2] <= high
    drawn = Counter(span["document_id"] for r in rows_of(dataset, "train") for span in r["spans"])
    for row in document_rows(dataset):
        assert drawn[row["document_id"]] >= row["num_passes"]
        assert bool(drawn[row["document_id"]]) == bool(row["num_passes"])


def test_short_documents_are_left_out_and_counted(
    texts: list[str], corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    dataset = small_dataset(corpus, syllables, tmp_path / "out", min_document_sentences=5)
    rows = document_rows(dataset)
    assert {row["fate"] for row in rows} == {"kept", "too_few_sentences"}
    for row in rows:
        assert (row["fate"] == "kept") == (row["num_sentences"] >= 5)
    used = ids_in(dataset, "train") | ids_in(dataset, "validation")
    assert used == {row["document_id"] for row in rows if row["fate"] == "kept"}
    with pytest.raises(InputError, match="no documents: .* min_document_sentences 50"):
        small_build(corpus, syllables, tmp_path / "none", min_document_sentences=50)


def test_a_text_in_both_inputs_is_validation_only(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    train = write_json_lines(tmp_path / "train.jsonl", texts[:80])
    held_out = write_json_lines(tmp_path / "held.jsonl", texts[60:])
    report = small_build(train, syllables, tmp_path / "out", validation=[held_out])
    assert report.notices[1:] == (
        "documents of the training inputs that are also in the validation inputs, and so held out "
        "of training: 20.",
    )
    dataset = open_dataset(tmp_path / "out")
    splits = {row["document_id"]: row["split"] for row in document_rows(dataset)}
    for number, text in enumerate(texts):
        assert splits[document_id(text)] == ("train" if number < 60 else "validation")
    assert ids_in(dataset, "train") == {document_id(text) for text in texts[:60]}
    ledger = from_json(dataset.manifest.ledger)
    assert ledger["documents", "validation", "duplicate"] == 20
    again = small_dataset(train, syllables, tmp_path / "seed", validation=[held_out], split_seed=9)
    assert {r["document_id"]: r["split"] for r in document_rows(again)} == splits


@pytest.mark.parametrize("recipe", ["bert", "roberta-full"])
def test_validation_inputs_that_hold_all_documents_out_are_refused_as_such(
    recipe: str, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    said = "the train split has 0 documents, as validation inputs hold .*, here 120; name other"
    with pytest.raises(InputError, match=said):
        small_build(corpus, syllables, tmp_path / "out", recipe=recipe, validation=[corpus])


@pytest.mark.parametrize(
    ("recipe", "num_documents", "expected"),
    [
        ("bert", 3, 0),
        ("bert", 4, 2),
        ("bert", 12, 2),
        ("roberta-full", 1, 0),
        ("roberta-full", 2, 1),
    ],
)
def test_a_small_validation_split_is_topped_up_or_left_out_with_a_notice(
    recipe: str, num_documents: int, expected: int, syllables: Path, tmp_path: Path
) -> None:
    path = write_json_lines(tmp_path / "a.jsonl", make_texts(num_documents, seed=7))
    report = small_build(path, syllables, tmp_path / "out", recipe=recipe, validation_fraction=1e-9)
    rows = document_rows(open_dataset(tmp_path / "out"))
    assert sum(row["split"] == "validation" for row in rows) == expected
    said = [notice for notice in report.notices if "validation" in notice]
    assert len(said) == 1
    assert (
        f"validation has {expected}." if expected else "too few for a validation split"
    ) in said[0]


def test_a_large_validation_split_leaves_enough_for_training(
    syllables: Path, tmp_path: Path
) -> None:
    path = write_json_lines(tmp_path / "a.jsonl", make_texts(12, seed=7))
    report = small_build(path, syllables, tmp_path / "out", validation_fraction=0.9999)
    splits = Counter(row["split"] for row in document_rows(open_dataset(tmp_path / "out")))
    assert splits == {"train": 2, "validation": 10}
    assert "leaves train fewer than the 2 that the recipe needs" in " ".join(report.notices)


def test_no_validation_split_can_be_asked_for(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    dataset = small_dataset(corpus, syllables, tmp_path / "out", validation_fraction=0.0)
    assert dataset.splits == ("train",)


def test_the_seed_changes_instances_and_the_split_seed_the_split(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    def build_with(name: str, **seeds: int) -> tuple[set[bytes], set[bytes]]:
        dataset = small_dataset(corpus, syllables, tmp_path / name, **seeds)
        return ids_in(dataset, "validation"), {
            row["instance_id"] for row in rows_of(dataset, "train")
        }

    held_out, instances = build_with("first")
    same, others = build_with("seed", seed=5)
    assert same == held_out
    assert not others & instances
    moved, _ = build_with("split", split_seed=5)
    assert moved != held_out


def test_only_the_first_documents_are_read_if_asked(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    files = [
        write_json_lines(tmp_path / "b.jsonl", texts[:30]),
        write_json_lines(tmp_path / "a.jsonl", texts[30:]),
    ]
    dataset = small_dataset(
        files, syllables, tmp_path / "out", limit_documents=40, input_split_bytes=2_000
    )
    ids = {row["document_id"] for row in document_rows(dataset)}
    assert ids == {document_id(text) for text in texts[:40]}
    assert dataset.manifest.ledger["records"][""]["records_read"] == 40


def test_too_few_validation_documents_are_an_error(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    one = write_json_lines(tmp_path / "one.jsonl", make_texts(1, seed=8))
    with pytest.raises(InputError, match="the validation split has 1 document, and a random B"):
        small_build(corpus, syllables, tmp_path / "out", validation=[one])
    report = small_build(
        corpus, syllables, tmp_path / "out", validation=[one], recipe="roberta-full"
    )
    assert report.manifest.splits["validation"].num_instances >= 1


def test_sentences_that_all_are_too_long_make_no_dataset(syllables: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    path = write_json_lines(tmp_path / "a.jsonl", [make_sentence(rng, 40) for _ in range(9)])
    settings: dict[str, Any] = {"recipe": "roberta-full", "max_seq_length": 16}
    with pytest.raises(InputError, match="no instances: long_sentences is 'drop'"):
        small_build(path, syllables, tmp_path / "out", long_sentences="drop", **settings)
    assert not (tmp_path / "out").exists()


def test_dataset_is_not_lost_to_one_without_instances(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"recipe": "roberta-full", "max_seq_length": 16}
    small_build(corpus, syllables, tmp_path / "out", **settings)
    before = file_hashes(tmp_path / "out")
    assert "manifest.json" in before
    rng = np.random.default_rng(9)
    path = write_json_lines(tmp_path / "a.jsonl", [make_sentence(rng, 40) for _ in range(9)])
    settings |= {"long_sentences": "drop", "overwrite": True}
    with pytest.raises(InputError, match="no instances: long_sentences is 'drop'"):
        small_build(path, syllables, tmp_path / "out", **settings)
    assert file_hashes(tmp_path / "out") == before
