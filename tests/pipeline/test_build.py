"""Builds as a whole: which documents become instances, and what is refused."""

import dataclasses
import gzip
import json
import math
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats
from tests.pipeline.small_corpora import (
    Stopped,
    document_rows,
    file_hashes,
    has_written,
    make_sentence,
    make_texts,
    rows_of,
    small_build,
    small_config,
    small_dataset,
    stop_when,
    write_json_lines,
)

from clozemill.pipeline.build import build
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.documents import copy_id, document_id
from clozemill.pipeline.errors import ClozemillError, ConfigError, InputError
from clozemill.pipeline.ledger import from_json, ledger_faults
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.sentences import find_sentences
from clozemill.pipeline.tokenizer import load_tokenizer
from clozemill.pipeline.verify import verify_dataset

ONE_IN_A_MILLION = 1e-6
RECIPES = ("bert", "roberta-full", "roberta-doc")


def ids_in(dataset: Dataset, split: str) -> set[bytes]:
    """Return every document that an instance of the split is made of, of A or of B."""
    return {span["document_id"] for row in rows_of(dataset, split) for span in row["spans"]}


def fates_of(dataset: Dataset) -> dict[str, int]:
    return Counter(row["fate"] for row in document_rows(dataset))


def origins_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "origins.jsonl").read_text().splitlines()]


# Cases that were reported about comparable tools.


def test_a_random_b_is_never_of_the_same_document(syllables: Path, tmp_path: Path) -> None:
    """P01: the retry loop for another document must not give up and take the same one."""
    path = tmp_path / "two.txt"
    path.write_text("Ba be.\nBi bo.\n\nDu da.\nDe di.\n")
    settings: dict[str, Any] = {"layout": "sentences", "validation_fraction": 0.0}
    settings |= {"mask_variants": 10, "dupe_factor": 20}
    rows = rows_of(small_dataset(path, syllables, tmp_path / "out", **settings), "train")
    random = [row for row in rows if row["next_sentence_label"] == 1]
    assert random
    for row in random:
        a, b = row["spans"]
        assert a["document_id"] != b["document_id"]


def test_a_random_b_is_never_of_a_kept_copy_of_the_text(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    """P01: next sentences would get the label random."""
    path = write_json_lines(tmp_path / "a.jsonl", [*texts[:6] * 8, *texts[6:12]])
    out = tmp_path / "out"
    dataset = small_dataset(path, syllables, out, duplicates="keep", validation_fraction=0.0)
    ids = [document_id(text) for text in texts[:12]]
    originals = {copy_id(key, number): key for key in ids for number in range(8)}
    random = [row for row in rows_of(dataset, "train") if row["next_sentence_label"] == 1]
    assert len({span["document_id"] for row in random for span in row["spans"]}) == 54
    for row in random:
        a, b = row["spans"]
        assert originals[a["document_id"]] != originals[b["document_id"]]
    assert verify_dataset(out) == []


def test_one_document_is_too_few_for_pairs(syllables: Path, tmp_path: Path) -> None:
    """P01: never an empty dataset with exit 0."""
    path = tmp_path / "one.txt"
    path.write_text("Ba be.\nBi bo.\nDu da.\n")
    said = "the train split has 1 document, and a random B .* --recipe roberta-full"
    with pytest.raises(InputError, match=said):
        small_build(path, syllables, tmp_path / "out", layout="sentences")
    assert not (tmp_path / "out").exists()
    report = small_build(
        path, syllables, tmp_path / "out", layout="sentences", recipe="roberta-full"
    )
    assert report.manifest.splits["train"].num_instances == 1


def test_sentences_as_documents_make_only_random_pairs_and_say_so(
    syllables: Path, tmp_path: Path
) -> None:
    """P02: a blank line after every sentence."""
    rng = np.random.default_rng(0)
    sentences = [make_sentence(rng, 8) for _ in range(200)]
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(sentences))
    report = small_build(path, syllables, tmp_path / "out", layout="sentences", max_seq_length=64)
    assert any("random" in notice for notice in report.notices), report.notices
    labels = report.manifest.ledger["instances"]
    assert labels["train"]["next"] == labels["validation"]["next"] == 0
    assert labels["train"]["random"] + labels["validation"]["random"] == 200

    path.write_text("\n".join(sentences[:100]) + "\n\n" + "\n".join(sentences[100:]))
    other = small_build(path, syllables, tmp_path / "joined", layout="sentences", max_seq_length=64)
    counts = other.manifest.ledger["instances"]["train"]
    assert counts["next"] / counts["all"] > 0.25


@pytest.mark.parametrize("short_seq_prob", [0.0, 0.1])
def test_pairs_are_filled_to_the_length_asked_for(
    short_seq_prob: float, syllables: Path, tmp_path: Path
) -> None:
    """P04: documents of 40 sentences of 10 tokens at length 128."""
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in "aeiou"]
    rng = np.random.default_rng(1)
    documents = [
        "\n".join(" ".join(rng.choice(words, size=10).tolist()) for _ in range(40))
        for _ in range(5)
    ]
    (tmp_path / "a.txt").write_text("\n\n".join(documents))
    dataset = small_dataset(
        tmp_path / "a.txt",
        syllables,
        tmp_path / "out",
        layout="sentences",
        max_seq_length=128,
        short_seq_prob=short_seq_prob,
        validation_fraction=0.0,
        dupe_factor=10,
    )
    assert {row["num_tokens"] for row in document_rows(dataset)} == {400}
    rows = rows_of(dataset, "train")
    assert max(len(row["input_ids"]) for row in rows) == 128
    if short_seq_prob:
        targets = [t for row in document_rows(dataset) for t in row["targets"]]
        assert len(targets) == 50
        assert 1 <= sum(target < 125 for target in targets) <= 15
        return
    following = [row for row in rows if row["next_sentence_label"] == 0]
    inner = [row for row in following if not is_last_chunk(row)]
    assert len(inner) > 20
    assert {len(row["input_ids"]) for row in inner} == {128}


def is_last_chunk(row: dict[str, Any]) -> bool:
    b = row["spans"][1]
    return bool(b["first_sentence"] + b["num_sentences"] == 40)


def test_small_shards_are_never_empty_and_are_all_listed(
    syllables: Path, corpus: Path, tmp_path: Path
) -> None:
    """P06: shards are filled evenly within a bucket; none is empty, and none is more than asked."""
    for name, shards in (("a", "arrow"), ("w", "webdataset")):
        report = small_build(
            corpus, syllables, tmp_path / name, shard_size=5, bucket_tokens=100_000, format=shards
        )
        total = report.manifest.splits["train"].num_instances
        train = report.manifest.shards_of("train")
        assert len(train) == math.ceil(total / 5)
        assert {shard.num_instances for shard in train} <= {4, 5}
        suffix = ".arrow" if shards == "arrow" else ".tar"
        found = {p.name for p in (tmp_path / name).glob(f"*{suffix}")}
        assert found == {
            entry.path for entry in report.manifest.files if entry.path.endswith(suffix)
        }


def test_three_documents_make_no_more_shards_than_instances(
    syllables: Path, tmp_path: Path
) -> None:
    """P06: more shards could be asked for than there is."""
    path = write_json_lines(tmp_path / "a.jsonl", make_texts(3, seed=1))
    report = small_build(path, syllables, tmp_path / "out", shard_size=1)
    assert "3 documents are too few for a validation split" in " ".join(report.notices)
    dataset = open_dataset(tmp_path / "out")
    assert [shard.num_instances for shard in dataset.manifest.shards] == [1] * len(
        rows_of(dataset, "train")
    )


@pytest.mark.parametrize("content", ["", "\n\n \n\n", "\ufeff\n"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_blank_corpus_is_refused(
    content: str, name: str, syllables: Path, tmp_path: Path
) -> None:
    """P06: ends at once, and leaves nothing."""
    (tmp_path / name).write_text(content.lstrip("\ufeff") if name == "a.jsonl" else content)
    with pytest.raises(InputError, match="no documents"):
        small_build(tmp_path / name, syllables, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_empty_file_beside_others_is_read_as_nothing(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    small_build([tmp_path / "empty.jsonl", corpus], syllables, tmp_path / "first")
    small_build([corpus], syllables, tmp_path / "alone")
    assert file_hashes(tmp_path / "first") == file_hashes(tmp_path / "alone")


def test_bytes_that_are_not_utf8_are_named_by_line_and_offset(
    syllables: Path, tmp_path: Path
) -> None:
    """P22: line 3 holds E9 alone, after a byte order mark."""
    data = b"\xef\xbb\xbfBa be.\nBi bo.\nDu \xe9 da.\nDe di.\n"
    (tmp_path / "bad.txt").write_bytes(data)
    said = rf"bad\.txt:3, byte offset {data.index(0xE9)}: byte 0xe9 is not UTF-8"
    with pytest.raises(InputError, match=said):
        small_build(tmp_path / "bad.txt", syllables, tmp_path / "out", layout="lines")
    assert not (tmp_path / "out").exists()
    dataset = small_dataset(
        tmp_path / "bad.txt", syllables, tmp_path / "out", layout="lines", on_bad_input="replace"
    )
    records = dataset.manifest.ledger["records"][""]
    assert records["replaced_utf8"] == 1
    assert records["documents_read"] == 4
    ids = {row["document_id"] for row in document_rows(dataset)}
    assert document_id("Ba be.") in ids, "the mark is not part of the text"


def test_a_file_in_utf16_is_named_as_such(syllables: Path, tmp_path: Path) -> None:
    """P22."""
    (tmp_path / "wide.txt").write_bytes("Ba be. Bi bo.".encode("utf-16"))
    with pytest.raises(InputError, match=r"wide\.txt is UTF-16"):
        small_build(tmp_path / "wide.txt", syllables, tmp_path / "out")


def test_records_without_a_text_are_counted_by_reason(syllables: Path, tmp_path: Path) -> None:
    """P23: one good text, null, missing, empty, and one enormous line."""
    rng = np.random.default_rng(2)
    huge = " ".join(make_sentence(rng, 10) for _ in range(2_000))
    records = [{"text": "Ba be. Bi."}, {"text": None}, {"id": 3}, {"text": ""}, {"text": huge}]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    report = small_build(path, syllables, tmp_path / "out", input_split_bytes=10_000)
    counts = report.manifest.ledger["records"][""]
    assert {name: counts[name] for name in counts if name != "text_bytes"} == {
        "records_read": 5,
        "documents_read": 2,
        "null_text": 1,
        "missing_text": 1,
        "empty_text": 1,
    }
    path.write_text(path.read_text() + '{"text": "cut in ha')
    with pytest.raises(InputError, match=r"a\.jsonl:6: not JSON .* pass --on-bad-input skip"):
        small_build(path, syllables, tmp_path / "cut")
    skipped = small_build(path, syllables, tmp_path / "cut", on_bad_input="skip")
    assert skipped.manifest.ledger["records"][""]["bad_json"] == 1


def test_dots_in_names_of_inputs_do_not_merge_or_split_samples(
    syllables: Path, tmp_path: Path
) -> None:
    """P24: read back with plain webdataset and with ours."""
    folder = tmp_path / "v1.2"
    folder.mkdir()
    names = ("a.b.txt", "a.b.c.txt", "doc-3.5.txt", "doc-3.6.txt", "doc-4.0.txt")
    for name, text in zip(names, make_texts(5, seed=4), strict=True):
        (folder / name).write_text(text)
    dataset = small_dataset(
        folder, syllables, tmp_path / "out", format="webdataset", validation_fraction=0.0
    )
    assert dataset.manifest.ledger["records"][""]["documents_read"] == 5
    from webdataset.tariterators import group_by_keys, tar_file_expander

    keys, rows = [], 0
    for shard in dataset.manifest.shards:
        with (tmp_path / "out" / shard.path).open("rb") as stream:
            members = tar_file_expander([{"url": shard.path, "stream": stream}])
            samples = list(group_by_keys(members))
        for sample in samples:
            keys.append(sample["__key__"])
            rows += pa.ipc.open_stream(sample["arrow"]).read_all().num_rows
    assert keys
    assert len(set(keys)) == len(keys)
    assert all(key.isdigit() for key in keys)
    assert rows == len(rows_of(dataset, "train"))


def test_no_instance_comes_twice_and_no_document_is_in_both_splits(
    syllables: Path, tmp_path: Path
) -> None:
    """P33: 50 documents, several shards, 3 variants, a tenth for validation."""
    path = write_json_lines(tmp_path / "a.jsonl", make_texts(50, seed=5))
    dataset = small_dataset(path, syllables, tmp_path / "out", mask_variants=3, shard_size=20)
    assert len(dataset.manifest.shards_of("train")) >= 5
    for split in ("train", "validation"):
        rows = rows_of(dataset, split)
        assert len({row["instance_id"] for row in rows}) == len(rows)
        assert {len(row["masks"]) for row in rows} == {3}
    assert not ids_in(dataset, "train") & ids_in(dataset, "validation")
    held_out = sum(row["split"] == "validation" for row in document_rows(dataset))
    low, high = stats.binom.ppf([ONE_IN_A_MILLION, 1 - ONE_IN_A_MILLION], 50, 0.1)
    assert max(low, 2) <= held_out <= high


def test_a_build_inside_its_own_input_folder_is_repeatable(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    write_json_lines(tmp_path / "a.jsonl", texts)
    shutil.copytree(syllables, tmp_path / "words")
    (tmp_path / "words" / "tokenizer_config.json").write_text("{}")
    config = small_config(tmp_path, tmp_path / "words", tmp_path / "out")
    first = build(config)
    assert first.manifest.ledger["records"][""]["records_read"] == len(texts)
    again = build(config)
    assert again.was_finished
    assert again.manifest == first.manifest


@pytest.mark.parametrize("moment", [0, -1])
def test_an_input_that_changes_while_it_is_read_is_refused_and_read_again(
    texts: list[str], syllables: Path, tmp_path: Path, moment: int
) -> None:
    path = write_json_lines(tmp_path / "a.jsonl", texts[:-1])
    config = small_config(path, syllables, tmp_path / "out")
    late = iter([json.dumps({"text": texts[-1]})])

    def add_late(progress: Progress) -> None:
        if progress.stage == "reading" and progress.done == (progress.total if moment else 0):
            with path.open("a") as stream:
                stream.writelines(late)

    with pytest.raises(InputError, match=rf"^{path} changed while it was read; run the same "):
        build(config, on_progress=add_late)
    assert not (tmp_path / "out" / "manifest.json").exists()
    manifest = build(config).manifest
    assert manifest == small_build(path, syllables, tmp_path / "fresh").manifest
    assert manifest.ledger["records"][""]["records_read"] == len(texts)


def test_field_names_that_are_no_text_are_spelled_out(syllables: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"\\ud800": 1}\n')
    with pytest.raises(InputError, match=r"has the field 'text' \(of 1\); fields seen: \\ud800;"):
        small_build(path, syllables, tmp_path / "out")


# Documents: duplicates, weights, splits, limits.


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


# What is reported.


def test_progress_is_told_from_nothing_to_all(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    events: list[Progress] = []
    build(
        small_config(corpus, syllables, tmp_path / "out", input_split_bytes=5_000),
        on_progress=events.append,
    )
    for stage in ("reading", "writing"):
        done = [event.done for event in events if event.stage == stage]
        assert len(done) > 2
        assert done[0] == 0
        assert done == sorted(done)
        assert done[-1] == [event.total for event in events if event.stage == stage][0] > 0


@pytest.mark.parametrize(
    ("missing", "flag"), [("inputs", "INPUT"), ("tokenizer", "--tokenizer"), ("out", "--out")]
)
def test_what_must_be_given_is_named(
    missing: str, flag: str, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(corpus, syllables, tmp_path / "out")
    empty: Any = () if missing == "inputs" else ""
    with pytest.raises(ConfigError, match=f"^{flag} must be given; "):
        build(dataclasses.replace(config, **{missing: empty}))


# Law 3 and law 8, for any documents.

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
    tokenizer = load_tokenizer(dataset.tokenizer_path)
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


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("listing", "absent"),
        ("reading", "a.jsonl:121: not JSON"),
        ("planning", "the train split has 1 document"),
        ("writing", "train-00000-000.arrow"),
        ("finishing", "origins.jsonl"),
    ],
)
def test_an_error_in_any_stage_is_one_of_ours(
    stage: str, said: str, texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    path = write_json_lines(tmp_path / "a.jsonl", texts[:1] if stage == "planning" else texts)
    if stage == "reading":
        path.write_text(path.read_text() + "not JSON\n")
    tokenizer = tmp_path / "absent" if stage == "listing" else syllables
    config = small_config(path, tokenizer, tmp_path / "out")

    def stand_in_the_way(progress: Progress) -> None:
        if progress.stage == "writing" and stage in ("writing", "finishing"):
            (tmp_path / "out" / said).mkdir(exist_ok=True)

    with pytest.raises(ClozemillError, match=said):
        build(config, on_progress=stand_in_the_way)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_receipt_of_another_bucket_of_that_name_is_not_trusted(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    source, out = write_json_lines(tmp_path / "a.jsonl", texts), tmp_path / "data"
    config = small_config(source, syllables, out)
    with pytest.raises(Stopped):
        build(config, on_progress=stop_when(lambda p: has_written(p) and p.done == p.total))
    receipt = out / ".build" / "reduce" / "train-00001.json"
    record = json.loads(receipt.read_text())
    record["bucket"]["stop_cell"] -= 1
    receipt.write_text(json.dumps(record))
    shard = out / record["shards"][0]["path"]
    shard.write_bytes(bytes(shard.stat().st_size))
    build(config)
    small_build(source, syllables, tmp_path / "fresh")
    assert file_hashes(out) == file_hashes(tmp_path / "fresh")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="maps are listed by Linux")
def test_a_build_in_this_process_lets_its_parts_go(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    small_build(write_json_lines(tmp_path / "a.jsonl", texts), syllables, tmp_path / "data")
    assert str(tmp_path / "data") not in Path("/proc/self/maps").read_text()
