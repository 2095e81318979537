"""The page that describes the format is run, so that it cannot be wrong."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.small_datasets import build_small

from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.schema import document_schema

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "format.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def block(mark: str) -> str:
    """Return the one code block that holds the mark."""
    (found,) = [text for text in BLOCKS if mark in text]
    return str(found)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one dataset in both formats, under the names that the page uses."""
    folder = tmp_path_factory.mktemp("format")
    build_small(folder, "data")
    build_small(folder, "tars", format="webdataset", shard_size=17)
    return folder


@pytest.fixture(scope="module")
def rows(work: Path) -> list[dict[str, Any]]:
    return pa.Table.from_batches(list(open_dataset(work / "data").batches("train"))).to_pylist()


def masked_rows(work: Path) -> list[list[Any]]:
    """Return id, input and labels of variant 0 of every training instance, from flat arrays."""
    result = []
    for batch in open_dataset(work / "data").batches("train"):
        columns = read_columns(batch)
        tokens, masks = columns.tokens, columns.masks
        assert masks is not None
        for i, instance_id in enumerate(columns.instance_ids):
            ids = tokens.input_ids[tokens.starts[i] : tokens.starts[i + 1]].astype(int)
            labels = np.full(len(ids), -100)
            overlay = i * columns.num_variants
            chosen = slice(masks.starts[overlay], masks.starts[overlay + 1])
            positions = masks.positions[chosen].astype(int)
            labels[positions] = ids[positions]
            ids[positions] = masks.token_ids[chosen]
            result.append([instance_id.tobytes().hex(), ids.tolist(), labels.tolist()])
    return result


READERS = {
    "pyarrow": "open_file(",
    "datasets": "import datasets",
    "duckdb": "import duckdb",
    "webdataset": "webdataset.WebDataset(",
}


@pytest.mark.parametrize(
    "library",
    [
        "pyarrow",
        "duckdb",
        pytest.param("datasets", marks=pytest.mark.slow),
        pytest.param("webdataset", marks=pytest.mark.slow),
    ],
)
def test_readers_of_the_page_read_what_we_read(work: Path, library: str):
    code = block(READERS[library])
    lines = [line for line in code.splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 10
    # A process of its own: the libraries warn of their own making and keep caches.
    environment = {**os.environ, "HF_HOME": str(work / "hf"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code + "\nprint(json.dumps(rows))"],
        cwd=work,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    expected = masked_rows(work)
    assert len(expected) > 100
    assert sorted(found) == sorted(expected)


def run(*marks: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for mark in marks:
        exec(block(mark), names)
    return names


def test_instance_ids_are_the_hashes_the_page_describes(work: Path, rows: list[dict[str, Any]]):
    instance_id = run("def instance_id(")["instance_id"]
    fingerprint = open_dataset(work / "data").manifest.fingerprints.instances
    assert len(rows) > 100
    for row in rows:
        assert row["instance_id"] in [instance_id(fingerprint, number, row) for number in (0, 1)]


def test_digests_are_the_sums_the_page_describes(work: Path, rows: list[dict[str, Any]]):
    names = run("def digest(")
    entry = open_dataset(work / "data").manifest.splits["train"]
    assert names["digest"]([names["instance_hash"](row) for row in rows]) == entry.instances_digest
    assert names["digest"]([names["dataset_hash"](row) for row in rows]) == entry.dataset_digest


def ids_of_the_page(folder: Path, settings: dict[str, Any]) -> tuple[set[int], list[int], set[int]]:
    """Return `special`, `ordinary` and `continuing` as the page says to find them."""
    state = json.loads((folder / "tokenizer" / "tokenizer.json").read_bytes())
    manifest = json.loads((folder / "manifest.json").read_bytes())
    roles = manifest["tokenizer"]["special_ids"]
    unk = roles["unk"]
    special = {token["id"] for token in state["added_tokens"] if token["special"]}
    special |= {*roles.values()}
    pieces = {token: piece for piece, token in state["model"]["vocab"].items()}
    assert len(pieces) == manifest["tokenizer"]["vocab_size"]
    pattern = PAGE.split("a piece that fits\n  `")[1].split("`")[0]
    unused = {token for token, piece in pieces.items() if re.fullmatch(pattern, piece)}
    ordinary = sorted(set(pieces) - special - {unk} - unused)
    if settings.get("random_tokens") == "all":
        ordinary = sorted(pieces)
    opening = ("\u0120", "\u010a", "\u0109", "\u010d")
    if state["model"]["type"] == "BPE":
        continuing = {token for token, piece in pieces.items() if not piece.startswith(opening)}
    else:
        continuing = {token for token, piece in pieces.items() if piece.startswith("##")}
    return special - {unk}, ordinary, continuing - special


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"mask_count": "stochastic", "random_tokens": "all"},
        {"mask_unit": "word"},
        {"mask_unit": "word", "recipe": "roberta-full", "is_roberta": True},
        {"recipe": "roberta-doc", "is_roberta": True},
    ],
)
def test_masks_are_the_draws_the_page_describes(
    tmp_path: Path, corpora: Path, settings: dict[str, Any]
) -> None:
    settings = dict(settings)
    if settings.pop("is_roberta", False):
        (tmp_path / "roberta").mkdir()
        for kind in ("vocab.json", "merges.txt"):
            shutil.copy(corpora / "vocab" / f"roberta-base-{kind}", tmp_path / "roberta" / kind)
        settings["tokenizer"] = str(tmp_path / "roberta")
    folder = build_small(tmp_path, **settings)
    dataset = open_dataset(folder)
    special, ordinary, continuing = ids_of_the_page(folder, settings)
    mask = run("def bounded(", "def mask(")["mask"]
    (batch,) = pa.Table.from_batches(list(dataset.batches("validation"))).to_batches()[:1]
    assert batch.num_rows > 10
    mask_id = dataset.manifest.tokenizer.special_ids["mask"]
    for row in batch.to_pylist():
        for variant, overlay in enumerate(row["masks"]):
            args = (dataset.manifest.configuration, mask_id, special, ordinary, continuing)
            assert mask(row, variant, *args) == overlay


def vectors() -> list[list[str]]:
    lines = PAGE.split("| bounded 0, 1, 2, 3 |\n")[1].splitlines()[1:]
    cells = [line.strip("|").split("|") for line in lines[: lines.index("")]]
    return [[cell.strip() for cell in row] for row in cells]


def test_vectors_are_what_the_page_computes():
    names = run("def bounded(")
    assert len(vectors()) >= 4
    for seed, variant, purpose, key, first, second, uniform, bounded in vectors():
        found = names["key"](int(seed), bytes(range(16)), int(variant), int(purpose))
        assert f"{found:016x}" == key
        assert [f"{names['draw'](found, j):016x}" for j in (0, 1)] == [first, second]
        assert repr(names["uniform"](found, 0)) == uniform
        drawn = [names["bounded"](found, j, 125) for j in range(4)]
        assert ", ".join(map(str, drawn)) == bounded


def test_rejected_draws_are_what_the_page_and_the_kernels_draw() -> None:
    from clozemill.pipeline import draws

    text = PAGE.split("With n = ")[1].split(".\n")[0]
    n, *expected = map(int, re.findall(r"\d{10,}", text))
    assert len(expected) == 4
    names = run("def bounded(")
    key = names["key"](0, bytes(range(16)), 0, 17)
    assert any(names["draw"](key, j) * n % 2**64 < (2**64 - n) % n for j in range(4))
    assert [names["bounded"](key, j, n) for j in range(4)] == expected
    assert [draws.bounded(np.uint64(key), j, n) for j in range(4)] == expected


def test_vectors_are_what_the_kernels_draw():
    from clozemill.pipeline import draws

    low, high = np.frombuffer(bytes(range(16)), np.uint64)
    assert len(vectors()) >= 4
    for seed, variant, purpose, key, first, _, uniform, bounded in vectors():
        found = draws.stream_key(
            draws.identity_key(np.uint64(int(seed)), low, high), int(variant), int(purpose)
        )
        found = np.uint64(found)
        assert f"{int(found):016x}" == key
        assert f"{int(draws.draw(found, 0)):016x}" == first
        assert repr(draws.uniform(found, 0)) == uniform
        assert ", ".join(str(draws.bounded(found, j, 125)) for j in range(4)) == bounded


def test_own_reader_of_the_page_reads(work: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(work)
    names = run("open_dataset(")
    assert names["some"].num_rows == 3
    assert len(names["columns"].instance_ids) > 0


def test_page_names_every_column_and_key(work: Path):
    dataset = open_dataset(work / "data")
    table = json.loads((work / "data" / "manifest.json").read_bytes())
    names = [*dataset.schema.names, *document_schema().names, *table, *table["shards"][0]]
    names += [*table["documents"][0], *table["splits"]["train"], *table["tokenizer"]]
    spans = dataset.schema.field("spans").type.value_type
    names += [spans.field(i).name for i in range(spans.num_fields)]
    assert len(names) > 40
    missing = sorted({name for name in names if f"`{name}`" not in PAGE})
    assert not missing
