import contextlib
import dataclasses
import io
import itertools
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.small_datasets import build_small, folder_checksums, slice_columns, spoil

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.convert import convert_dataset
from clozemill.pipeline.documents import copy_id, document_id
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.files import file_checksum
from clozemill.pipeline.instances import MaskBatch
from clozemill.pipeline.manifest import read_manifest, write_manifest
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.remask import remask_dataset
from clozemill.pipeline.shards import write_documents
from clozemill.pipeline.verify import Finding, verify_dataset

RECIPES: dict[str, dict[str, Any]] = {
    "pairs": {},
    "tar": {"format": "webdataset", "compression": "zstd"},
    "words": {"mask_unit": "word", "random_tokens": "all"},
    "full": {"recipe": "roberta-full", "mask_count": "stochastic"},
    "doc": {"recipe": "roberta-doc", "max_seq_length": 16, "long_sentences": "drop"},
    "capped": {"max_predictions_per_seq": 2, "nsp_balance": "exact", "duplicates": "keep"},
    "dynamic": {"mask_variants": 0},
}
FEW: dict[str, dict[str, Any]] = {
    name: {"bucket_tokens": 100_000, "limit_documents": 14, **settings}
    for name, settings in (
        ("few", {}),
        (
            "few_packed",
            {"recipe": "roberta-full", "long_sentences": "truncate", "max_seq_length": 16},
        ),
        ("few_dropped", {"recipe": "roberta-doc", "long_sentences": "drop", "max_seq_length": 16}),
    )
}
"""Small enough to be verified a hundred times."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def get(name: str) -> Path:
        if name not in made:
            settings = {**RECIPES, **FEW}[name]
            made[name] = build_small(tmp_path_factory.mktemp(name), **settings)
        return made[name]

    return get


@pytest.fixture
def pairs(built: Callable[[str], Path], tmp_path: Path) -> Path:
    """A dataset of pairs that the test may spoil."""
    return Path(shutil.copytree(built("pairs"), tmp_path / "data"))


@pytest.mark.parametrize("name", RECIPES)
def test_built_datasets_are_sound(built: Callable[[str], Path], name: str):
    seen: list[Progress] = []
    assert verify_dataset(built(name), on_progress=seen.append) == []
    sizes = [shard.num_tokens for shard in read_manifest(built(name)).shards]
    assert len(sizes) > 3
    assert [progress.done for progress in seen] == list(itertools.accumulate(sizes, initial=0))
    assert {(p.stage, p.unit, p.total) for p in seen} == {("checking", "tokens", sum(sizes))}


def test_no_dataset_is_an_error(tmp_path: Path):
    with pytest.raises(DatasetError, match="is empty"):
        verify_dataset(tmp_path)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["pairs", "tar"])
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "bytes, but the manifest says"),
        (flip, "its bytes are not those that were written"),
        (Path.unlink, "is missing"),
        (lambda path: shutil.copy(path, path.with_name("new" + path.name)), "no part of the data"),
    ],
)
def test_damaged_files_are_named(
    built: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    damage: Callable[[Path], None],
    problem: str,
):
    folder = Path(shutil.copytree(built(name), tmp_path / "data"))
    manifest = read_manifest(folder)
    names = [manifest.shards[1].path, manifest.shards[-1].path, manifest.documents[0].path]
    for file in names:
        damage(folder / file)
    findings = verify_dataset(folder)
    assert sorted(finding.file.removeprefix("new") for finding in findings) == sorted(names)
    assert all(problem in finding.problem for finding in findings)


def test_tokenizer_files_are_compared(pairs: Path):
    vocab = pairs / "tokenizer" / "vocab.txt"
    vocab.write_text(vocab.read_text().replace("w17", "x17"))
    (pairs / "tokenizer" / "extra.json").write_text("{}")
    assert verify_dataset(pairs) == [
        Finding(file="tokenizer/extra.json", problem="it is no part of the dataset; delete it"),
        Finding(file="tokenizer/vocab.txt", problem="its bytes are not those that were written"),
    ]


def test_files_that_are_none_are_found(pairs: Path):
    (pairs / "tokenizer" / "vocab.txt").unlink()
    (pairs / "tokenizer" / "vocab.txt").mkdir()
    (pairs / "tokenizer" / "tokenizer.json").unlink()
    os.mkfifo(pairs / "tokenizer" / "tokenizer.json")
    problem = "cannot read {}: it is not a regular file."
    assert verify_dataset(pairs) == [
        Finding(file=name, problem=problem.format(pairs / name))
        for name in ("tokenizer/tokenizer.json", "tokenizer/vocab.txt")
    ]


def test_other_tokenizer_of_the_same_size_is_found(pairs: Path):
    text = pairs / "tokenizer" / "tokenizer.json"
    text.write_text(text.read_text().replace('"w17"', '"x17"'))
    manifest = read_manifest(pairs)
    files = folder_checksums(pairs / "tokenizer")
    tokenizer = dataclasses.replace(manifest.tokenizer, files=files)
    write_manifest(pairs, dataclasses.replace(manifest, tokenizer=tokenizer))
    (finding,) = verify_dataset(pairs)
    assert finding.problem.count(manifest.tokenizer.hash) == 1
    assert "has the hash" in finding.problem


def edit_ids(place: int, value: int) -> Callable[[InstanceColumns], InstanceColumns]:
    def edit(columns: InstanceColumns) -> InstanceColumns:
        ids = columns.tokens.input_ids.copy()
        ids[place] = value
        return columns._replace(tokens=columns.tokens._replace(input_ids=ids))

    return edit


def edit_span(name: str, change: int) -> Callable[[InstanceColumns], InstanceColumns]:
    def edit(columns: InstanceColumns) -> InstanceColumns:
        values = getattr(columns.spans, name).astype(np.int64)
        place = 2 * int(np.flatnonzero(columns.next_sentence_label == 0)[0])
        values[place] += change
        return columns._replace(spans=columns.spans._replace(**{name: values}))

    return edit


def test_random_pairs_of_copies_of_a_text_are_found(tmp_path: Path):
    copies = [{"text": "w1 w2. w3 w4. w5 w6.", "source": "a"}] * 40
    folder = build_small(tmp_path, records=copies, duplicates="keep")
    original = document_id(str(copies[0]["text"]))
    ids = [list(copy_id(original, number)) for number in range(40)]
    edited: list[str] = []

    def edit(columns: InstanceColumns) -> InstanceColumns:
        pairs = columns.spans.document_ids.reshape(-1, 2, 16).copy()
        for pair, label in zip(pairs, columns.next_sentence_label, strict=True):
            if label == 1 and list(pair[0]) in ids and not edited:
                pair[1] = ids[(ids.index(list(pair[0])) + 1) % 40]
                edited.append("once")
        return columns._replace(spans=columns.spans._replace(document_ids=pairs.reshape(-1, 16)))

    for shard in read_manifest(folder).shards:
        path = spoil(folder, edit, path=shard.path)
        if edited:
            break
    problem = "1 random pairs draw B from a copy of A's text"
    assert Finding(file=path, problem=problem) in verify_dataset(folder)


def edit_masks(change: Callable[[MaskBatch], MaskBatch]) -> Any:
    return lambda columns: columns._replace(masks=change(columns.masks))


def flip_label(value: int) -> Callable[[InstanceColumns], InstanceColumns]:
    def edit(columns: InstanceColumns) -> InstanceColumns:
        label = columns.next_sentence_label.copy()
        label[np.flatnonzero(label == value)[0]] = 1 - value
        return columns._replace(next_sentence_label=label)

    return edit


def lose_position(masks: MaskBatch) -> MaskBatch:
    starts = masks.starts.copy()
    starts[1:] -= 1
    return MaskBatch(masks.positions[1:], masks.token_ids[1:], starts)


def move(masks: MaskBatch, value: int) -> MaskBatch:
    positions = masks.positions.copy()
    positions[0] = value
    return masks._replace(positions=positions)


def show(masks: MaskBatch, value: int) -> MaskBatch:
    shown = masks.token_ids.copy()
    shown[0] = value
    return masks._replace(token_ids=shown)


def drop_variant(columns: InstanceColumns) -> InstanceColumns:
    masks = columns.masks
    assert masks is not None
    counts = np.diff(masks.starts).reshape(-1, columns.num_variants)
    keep = np.repeat(np.tile([True, True, False], len(counts)), counts.reshape(-1))
    starts = np.concatenate([[0], np.cumsum(counts[:, :2].reshape(-1))])
    masks = MaskBatch(masks.positions[keep], masks.token_ids[keep], starts)
    return columns._replace(masks=masks, num_variants=2)


def edit_id(columns: InstanceColumns) -> InstanceColumns:
    ids = columns.instance_ids.copy()
    ids[0, 3] ^= 1
    return columns._replace(instance_ids=ids)


def edit_chunk(columns: InstanceColumns) -> InstanceColumns:
    return columns._replace(num_chunk_sentences=columns.num_chunk_sentences + 1)


def edit_border(columns: InstanceColumns) -> InstanceColumns:
    border = columns.tokens.segment_b_start.copy()
    border[0] += 1
    return columns._replace(tokens=columns.tokens._replace(segment_b_start=border))


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (edit_ids(1, 9999), "hold token ids outside the vocabulary"),
        (edit_ids(0, 7), "special tokens where they belong"),
        (edit_ids(1, 3), "special tokens where they belong"),
        (edit_ids(1, 0), "special tokens where they belong"),
        (edit_border, "special tokens where they belong"),
        (edit_span("first_sentence", 1), "labelled next, but B does not follow A"),
        (edit_span("num_sentences", 100), "labelled next, but B does not follow A"),
        (flip_label(0), "labelled random, but A and B are of one document"),
        (flip_label(1), "labelled next, but B does not follow A"),
        (edit_chunk, "num_chunk_sentences that does not fit their spans"),
        (drop_variant, "store another number of variants"),
        (edit_masks(lose_position), "select another number of positions"),
        (edit_masks(lambda m: move(m, 250)), "do not ascend or lie outside"),
        (edit_masks(lambda m: move(m, 0)), "select special tokens"),
        (edit_masks(lambda m: show(m, 2)), "show tokens that no masking shows"),
        (edit_masks(lambda m: show(m, 9999)), "show tokens that no masking shows"),
        (edit_masks(lambda m: show(m, 8 + int(m.token_ids[0] == 8))), "seed does not draw"),
        (edit_span("cut_back", 1), "id that is not the hash of their spans"),
        (edit_id, "id that is not the hash of their spans"),
    ],
)
def test_rows_that_break_a_rule_are_found_under_checksums_that_agree(
    pairs: Path, edit: Callable[[InstanceColumns], InstanceColumns], problem: str
):
    path = spoil(pairs, edit)
    findings = [finding for finding in verify_dataset(pairs) if problem in finding.problem]
    assert [finding.file for finding in findings] == [path], verify_dataset(pairs)
    assert "the first is" in findings[0].problem


def test_repeated_and_missing_instances_are_found(pairs: Path):
    def repeat(columns: InstanceColumns) -> InstanceColumns:
        head = slice_columns(columns, 0, 1)
        count = len(columns.instance_ids)
        ids = columns.instance_ids.copy()
        ids[1] = head.instance_ids[0]
        assert count > 2
        return columns._replace(instance_ids=ids)

    spoil(pairs, repeat)
    problems = " ".join(finding.problem for finding in verify_dataset(pairs))
    assert "1 instance ids occur twice" in problems


def test_lost_instance_leaves_documents_and_ledger_open(pairs: Path):
    path = spoil(pairs, lambda columns: slice_columns(columns, 1, len(columns.instance_ids)))
    problems = " ".join(finding.problem for finding in verify_dataset(pairs))
    assert path.startswith("train")
    assert "each of their sentences in instances once per pass" in problems
    assert "each of their tokens in instances once per pass" in problems
    assert "its ledger has" in problems


def edit_documents(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change rows of the first documents file, with a manifest that vouches for them."""
    manifest = read_manifest(folder)
    path = folder / manifest.documents[0].path
    table = pa.ipc.open_file(pa.BufferReader(path.read_bytes())).read_all()
    rows = table.to_pylist()
    change(rows[0])
    edited = write_documents(path, pa.Table.from_pylist(rows, table.schema).to_batches())
    documents = (edited, *manifest.documents[1:])
    write_manifest(folder, dataclasses.replace(manifest, documents=documents))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"split": "validation"}, "spans name a document of another split"),
        ({"document_id": bytes(16)}, "spans name a document that has no row"),
        ({"num_sentences": 0}, "spans end after their document does"),
        ({"num_tokens": 1}, "each of their tokens in instances"),
        ({"fate": "no_tokens"}, "spans name a document that was left out"),
    ],
)
def test_documents_that_disagree_with_spans_are_found(
    pairs: Path, change: dict[str, Any], problem: str
):
    edit_documents(pairs, lambda row: row.update(change))
    findings = [finding for finding in verify_dataset(pairs) if problem in finding.problem]
    assert findings, verify_dataset(pairs)


def test_document_in_both_splits_is_found(pairs: Path):
    other = pa.ipc.open_file(pairs / read_manifest(pairs).documents[-1].path).read_all()
    assert other["split"][0].as_py() == "validation"
    edit_documents(pairs, lambda row: row.update(other.to_pylist()[0], split="train"))
    problems = " ".join(finding.problem for finding in verify_dataset(pairs))
    assert "1 documents have a row twice" in problems
    assert "of another split" in problems


def change_manifest(folder: Path, **changes: Any) -> None:
    write_manifest(folder, dataclasses.replace(read_manifest(folder), **changes))


def test_manifest_with_another_digest_is_found(pairs: Path):
    splits = dict(read_manifest(pairs).splits)
    splits["train"] = dataclasses.replace(splits["train"], dataset_digest="0" * 32)
    change_manifest(pairs, splits=splits)
    (finding,) = verify_dataset(pairs)
    assert finding.problem.startswith("the dataset digest of train is")


def test_ledger_that_does_not_close_is_found(pairs: Path):
    ledger = json.loads(json.dumps(read_manifest(pairs).ledger))
    ledger["pass_tokens"]["train"]["in_instances"] += 1
    change_manifest(pairs, ledger=ledger)
    problems = [finding.problem for finding in verify_dataset(pairs)]
    assert len(problems) == 2
    assert "its ledger does not close" in problems[0]
    assert "for pass_tokens train in_instances, but there are" in problems[1]


def numbers_of(value: Any, *place: str) -> Iterator[tuple[str, ...]]:
    """Yield where the numbers and hashes of a JSON value stand."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_of(inner, *place, key)
    else:
        yield place


def changed(value: Any) -> Any:
    """Return a number one larger, or a hash with another last digit."""
    return value + 1 if not isinstance(value, str) else value[:-1] + "01"[value[-1] == "0"]


NOT_IN_FILES = {"text_bytes", "missing_id", "missing_source", "replaced_utf8"}
"""Counts of which nothing is left in the files, and that are no part of a sum."""


@pytest.mark.parametrize("name", ["few", "few_packed", "few_dropped"])
def test_every_number_of_a_manifest_that_is_one_off_is_found(
    built: Callable[[str], Path], tmp_path: Path, name: str
):
    folder = Path(shutil.copytree(built(name), tmp_path / "data"))
    path = folder / "manifest.json"
    sound = path.read_bytes()
    sections = ("label_expectations", "ledger", "fingerprints", "splits")
    manifest = json.loads(sound)
    places = [place for key in sections for place in numbers_of(manifest[key], key)]
    assert len(places) > 60
    assert {place[0] for place in places} >= set(sections) - (
        {"label_expectations"} if name != "few" else set()
    )
    missed = []
    for place in places:
        manifest = json.loads(sound)
        inner = manifest
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = changed(inner[place[-1]])
        path.write_text(json.dumps(manifest))
        with contextlib.suppress(DatasetError):
            missed += [] if verify_dataset(folder) else [place]
    assert {place[-1] for place in missed} <= NOT_IN_FILES, missed
    path.write_bytes(sound)
    assert verify_dataset(folder) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("seed", 7), ("masked_lm_prob", 0.16), ("shard_size", 31), ("language", "de")],
)
def test_settings_that_the_fingerprints_do_not_hash_are_found(pairs: Path, name: str, value: Any):
    configuration = {**read_manifest(pairs).configuration, name: value}
    change_manifest(pairs, configuration=configuration)
    problems = [finding.problem for finding in verify_dataset(pairs)]
    assert any("fingerprint of its configuration is" in problem for problem in problems)


def test_expectations_of_something_else_are_found(pairs: Path):
    for expectations in ({"train": 3}, {"train": {"s0": {"random": "x"}}}, {}):
        change_manifest(pairs, label_expectations=expectations)
        findings = verify_dataset(pairs)
        assert findings
        assert all("expect" in finding.problem for finding in findings)


def test_masks_are_not_counted_into_a_ledger_of_something_else(pairs: Path, tmp_path: Path):
    change_manifest(pairs, ledger={"x": 1})
    with pytest.raises(DatasetError, match="^the ledger of the dataset is not made of counts; "):
        remask_dataset(pairs, tmp_path / "out", {"mask_variants": 1})


@pytest.mark.parametrize("ledger", [{"a": 1}, {"a": {"b": {"c": "d"}}}, {}])
def test_ledger_of_something_else_is_found(pairs: Path, ledger: dict[str, Any]):
    change_manifest(pairs, ledger=ledger)
    findings = verify_dataset(pairs)
    assert findings
    assert all(finding.file == "manifest.json" for finding in findings)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"masked_lm_prob": 3}, "masked_lm_prob is 3; it must be between 0.0 and 1.0."),
        ({"source_weight": [[1]]}, "source_weight is ((1,),); it must be a table of numbers."),
        ({"source_weight": [1]}, "source_weight is (1,); it must be a table of numbers."),
    ],
)
def test_settings_that_no_build_accepts_are_found(
    pairs: Path, tmp_path: Path, change: dict[str, Any], problem: str
):
    configuration = {**read_manifest(pairs).configuration, **change}
    change_manifest(pairs, configuration=configuration)
    text = f"the configuration in manifest.json is none: {problem}"
    assert verify_dataset(pairs) == [Finding(file="manifest.json", problem=text)]
    with pytest.raises(DatasetError) as caught:
        convert_dataset(pairs, tmp_path / "out")
    assert str(caught.value) == text


def rename_member(path: Path, name: str) -> None:
    data = bytearray(path.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        member = tar.getmembers()[0]
    member.name = name
    data[:512] = member.tobuf(tarfile.USTAR_FORMAT)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("../../evil.arrow", "has a member named '../../evil.arrow'"),
        (None, "is in the shards twice"),
    ],
)
def test_tar_names_that_could_merge_or_escape_are_found(
    built: Callable[[str], Path], tmp_path: Path, name: str | None, problem: str
):
    folder = Path(shutil.copytree(built("tar"), tmp_path / "data"))
    manifest = read_manifest(folder)
    with tarfile.open(folder / manifest.shards[1].path) as tar:
        other = tar.getnames()[0]
    path = folder / manifest.shards[0].path
    rename_member(path, name or other)
    shard = dataclasses.replace(manifest.shards[0], checksum=file_checksum(path))
    change_manifest(folder, shards=(shard, *manifest.shards[1:]))
    assert any(problem in finding.problem for finding in verify_dataset(folder))
    assert not list(tmp_path.rglob("evil*"))
