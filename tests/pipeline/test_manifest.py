import dataclasses
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_datasets import make_dataset

from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.manifest import (
    manifest_bytes,
    parse_manifest,
    read_manifest,
    write_manifest,
)


@pytest.fixture(scope="module", params=["arrow", "webdataset"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    make_dataset(folder, format=request.param)
    return folder


def test_manifest_comes_back_as_it_was_written(folder: Path, tmp_path: Path):
    manifest = read_manifest(folder)
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    assert (tmp_path / "manifest.json").read_bytes() == (folder / "manifest.json").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]


def test_manifest_is_one_text_with_a_shard_a_line(folder: Path):
    manifest = read_manifest(folder)
    shuffled = dataclasses.replace(
        manifest, configuration=dict(reversed(manifest.configuration.items()))
    )
    data = manifest_bytes(shuffled)
    assert data == manifest_bytes(manifest)
    lines = [line for line in data.decode().split("\n") if '"batch_rows"' in line]
    assert len(lines) == len(manifest.shards)
    assert "nouvelles d'été" in data.decode()


def changed(folder: Path, *keys: Any, value: Any) -> bytes:
    table = json.loads((folder / "manifest.json").read_bytes())
    place = table
    for key in keys[:-1]:
        place = place[key]
    if value is None:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    return json.dumps(table).encode()


@pytest.mark.parametrize(
    ("keys", "value", "what"),
    [
        (("format_version",), 2, r"has format version 2, but this clozemill reads 1; .* \(0.1.0\)"),
        (("format_version",), True, "format_version is True"),
        (
            ("shards", 0, "path"),
            "../../etc/passwd.arrow",
            "names the file '../../etc/passwd.arrow'",
        ),
        (("shards", 0, "num_bytes"), 10**30, r"shards\[0\]: num_bytes is 1000.*whole number"),
        (("shards", 0, "num_bytes"), -1, "a size or checksum that cannot be"),
        (("shards", 0, "num_bytes"), 1.5, "whole number"),
        (("shards", 0, "split"), "test", "its shards have"),
        (("shards", 0, "num_instances"), 47, "its shards have"),
        (("shards", 0), "x", "must be an object"),
        (("documents", 0, "path"), "x.tar", "names the file 'x.tar'"),
        (("splits", "train", "num_tokens"), 5, "tokens, but its shards have"),
        (("splits", "evil"), {"num_instances": 0}, r"splits\.evil has no key"),
        (("configuration",), [], "must be an object"),
        (("configuration", "max_seq_length"), "128", "max_seq_length is '128'"),
        (("configuration", "max_seq_length"), 10**6, "a length from 3 to 65,535"),
        (("sources",), "books", "must be a list"),
        (("sources", 0), 1, "must be a text"),
        (("tokenizer", "vocab_size"), None, "no key 'vocab_size'"),
        (("sources", 0), "\ud800", "must be a text"),
        (("fingerprints", "instances"), "xyz", "must be 32 hex digits"),
        (("surprise",), 1, "unknown key 'surprise'"),
        (("ledger",), None, "no key 'ledger'"),
    ],
)
def test_damaged_manifests_are_refused(folder: Path, keys: tuple[Any, ...], value: Any, what: str):
    data = changed(folder, *keys, value=value)
    with pytest.raises(DatasetError, match=what) as caught:
        parse_manifest(data, "manifest.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [b"", b"\xff\xfe", b"[" * 100_000, b'{"format_version": ' + b"9" * 5_000 + b"}", b"[]", b"7"],
)
def test_hostile_json_is_refused(data: bytes):
    with pytest.raises(DatasetError, match=r"^m (is not|holds)"):
        parse_manifest(data, "m")


def test_every_cut_of_a_manifest_is_refused(folder: Path):
    data = (folder / "manifest.json").read_bytes()
    cuts = range(0, len(data) - 2, 97)
    assert len(cuts) > 10
    for cut in cuts:
        with pytest.raises(DatasetError):
            parse_manifest(data[:cut], "m")


def test_folder_without_a_manifest_says_what_to_do(tmp_path: Path):
    with pytest.raises(DatasetError, match="is empty; build a dataset"):
        read_manifest(tmp_path)
    (tmp_path / "train-000000.arrow").write_bytes(b"")
    with pytest.raises(DatasetError, match=r"interrupted, run the same .* command again"):
        read_manifest(tmp_path)
    with pytest.raises(DatasetError, match="no such folder"):
        read_manifest(tmp_path / "no")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        (
            "run.json",
            '{"facts": {"dataset": {"path": "/data/wiki"}}}',
            "is a training run and no dataset; its dataset is '/data/wiki'.",
        ),
        (
            "state.json",
            '{"state": {"facts": {"dataset": {"path": "/a\\u001b"}}}}',
            "is a checkpoint and no dataset; its dataset is '/a\\x1b'.",
        ),
        (
            "plan.json",
            '{"config": {"data": "d"}}',
            "is a study and no dataset; its dataset is 'd'.",
        ),
        ("plan.json", "[", "is a study and no dataset; give the dataset it is made from."),
        ("run.json", '{"facts": 7}', "is a training run and no dataset; give the dataset it is "),
        (
            "config.json",
            "{}",
            "is a model and no dataset; give a folder that clozemill build wrote",
        ),
        (
            "vocab.txt",
            "",
            "is a tokenizer and no dataset; build one with: clozemill build INPUT...",
        ),
    ],
)
def test_another_folder_is_called_what_it_is(tmp_path: Path, name: str, content: str, told: str):
    (tmp_path / name).write_text(content)
    with pytest.raises(DatasetError, match=re.escape(f"{tmp_path} {told}")):
        read_manifest(tmp_path)


def test_a_folder_whose_name_is_no_text_is_refused(tmp_path: Path):
    with pytest.raises(
        DatasetError, match=r"^the name of a\\xff is not UTF-8; rename the folder\.$"
    ):
        read_manifest(Path("a\udcff"))


def test_a_pipe_is_no_manifest(tmp_path: Path):
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(DatasetError, match=r"manifest\.json: it is not a regular file\.$"):
        read_manifest(tmp_path)


def test_files_listed_twice_or_for_no_split_are_refused(tmp_path: Path):
    make_dataset(tmp_path)
    twice = changed(tmp_path, "documents", 0, "path", value="train-000000.arrow")
    with pytest.raises(DatasetError, match="names a file twice"):
        parse_manifest(twice, "m")
    table = json.loads((tmp_path / "manifest.json").read_bytes())
    del table["splits"]["validation"]
    with pytest.raises(DatasetError, match="into the split 'validation', which it does not desc"):
        parse_manifest(json.dumps(table).encode(), "m")
