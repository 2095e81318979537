"""Cases that were reported about comparable tools."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tests.pipeline.small_corpora import (
    document_rows,
    file_hashes,
    ids_in,
    make_sentence,
    make_texts,
    rows_of,
    small_build,
    small_config,
    small_dataset,
    write_json_lines,
)

from clozemill.pipeline.build import build
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.documents import copy_id, document_id
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.verify import verify_dataset

ONE_IN_A_MILLION = 1e-6


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
