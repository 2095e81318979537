"""Law 2: the bytes of a build depend on the documents and on what is asked for, alone."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tests.pipeline.small_corpora import (
    file_hashes,
    run_command,
    small_build,
    small_config,
    write_json_lines,
)

LEAST_BUCKETS = 8


@pytest.fixture(scope="module")
def expected(
    corpus: Path, syllables: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., dict[str, str]]:
    """Return hashes of a plain build with some settings, made once each."""
    made: dict[str, dict[str, str]] = {}

    def build_once(**settings: Any) -> dict[str, str]:
        key = json.dumps(settings, sort_keys=True)
        if key not in made:
            out = tmp_path_factory.mktemp("expected") / "data"
            report = small_build(corpus, syllables, out, **settings)
            buckets = {s.path[:11] for s in report.manifest.shards if s.split == "train"}
            assert len(buckets) >= LEAST_BUCKETS
            made[key] = file_hashes(out)
        return made[key]

    return build_once


@pytest.mark.parametrize(
    ("recipe", "shards"),
    [
        ("bert", "arrow"),
        ("bert", "webdataset"),
        ("roberta-full", "webdataset"),
        ("roberta-doc", "arrow"),
    ],
)
def test_order_and_cuts_of_the_input_do_not_matter(
    recipe: str,
    shards: str,
    texts: list[str],
    syllables: Path,
    tmp_path: Path,
    expected: Callable[..., dict[str, str]],
) -> None:
    shuffled = random.Random(1).sample(texts, len(texts))
    files = [
        write_json_lines(tmp_path / f"{name}.jsonl", part)
        for name, part in zip("cab", (shuffled[:9], shuffled[9:70], shuffled[70:]), strict=True)
    ]
    settings = {"recipe": recipe, "format": shards, "mask_unit": "word"}
    small_build(files, syllables, tmp_path / "out", input_split_bytes=3_000, **settings)
    assert file_hashes(tmp_path / "out") == expected(**settings)


def test_running_twice_gives_the_same_bytes_and_another_seed_does_not(
    corpus: Path, syllables: Path, tmp_path: Path, expected: Callable[..., dict[str, str]]
) -> None:
    small_build(corpus, syllables, tmp_path / "again")
    assert file_hashes(tmp_path / "again") == expected()
    small_build(corpus, syllables, tmp_path / "other", seed=1)
    differ = {n for n, h in file_hashes(tmp_path / "other").items() if expected().get(n) != h}
    assert {"manifest.json", "train-00000-000.arrow"} <= differ
    assert not any(name.startswith("tokenizer/") for name in differ)


def write_prose(folder: Path, texts: list[str]) -> Path:
    (folder / "prose").mkdir()
    for i, text in enumerate(texts):
        (folder / "prose" / f"v1.{i}.txt").write_text(f"{text}\n")
    return folder / "prose"


def write_gzip(folder: Path, texts: list[str]) -> Path:
    path = folder / "a.jsonl.gz"
    path.write_bytes(gzip.compress(write_json_lines(folder / "a.jsonl", texts).read_bytes()))
    return path


def write_zstandard(folder: Path, texts: list[str]) -> Path:
    data = write_json_lines(folder / "a.jsonl", texts).read_bytes()
    path = folder / "a.jsonl.zst"
    path.write_bytes(zstandard.ZstdCompressor().compress(data))
    return path


def write_parquet(folder: Path, texts: list[str]) -> Path:
    pq.write_table(pa.table({"text": texts}), folder / "a.parquet", row_group_size=17)
    return folder / "a.parquet"


def write_arrow(folder: Path, texts: list[str]) -> Path:
    table = pa.table({"text": texts, "other": list(range(len(texts)))})
    with pa.ipc.new_file(folder / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=13)
    return folder / "a.arrow"


def write_line_ends(folder: Path, texts: list[str]) -> Path:
    lines = [json.dumps({"text": f"\ufeff{text}\r\n"}) for text in texts]
    (folder / "a.jsonl").write_bytes("\r\n\r\n".join(lines).encode())
    return folder / "a.jsonl"


WRITERS = (
    write_prose,
    write_gzip,
    write_zstandard,
    write_parquet,
    write_arrow,
    write_line_ends,
)


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_the_format_of_the_input_does_not_matter(
    write: Callable[[Path, list[str]], Path],
    texts: list[str],
    syllables: Path,
    tmp_path: Path,
    expected: Callable[..., dict[str, str]],
) -> None:
    path = write(tmp_path, texts)
    small_build(path, syllables, tmp_path / "out", input_split_bytes=3_000)
    assert file_hashes(tmp_path / "out") == expected()


def test_lines_of_a_text_file_are_the_documents_of_records(
    texts: list[str], syllables: Path, tmp_path: Path, expected: Callable[..., dict[str, str]]
) -> None:
    (tmp_path / "a.txt").write_text("\n".join(texts))
    small_build(
        tmp_path / "a.txt", syllables, tmp_path / "out", layout="lines", input_split_bytes=2_000
    )
    assert file_hashes(tmp_path / "out") == expected()


def test_formats_give_one_digest_and_numbers_of_variants_share_their_instances(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    def splits(name: str, **settings: Any) -> Any:
        report = small_build(corpus, syllables, tmp_path / name, **settings)
        assert set(report.manifest.splits) == {"train", "validation"}
        return report.manifest.splits

    four = splits("four", mask_variants=4)
    tars = splits("tars", mask_variants=4, format="webdataset", shard_size=7)
    packed = splits("packed", mask_variants=4, compression="zstd")
    ten = splits("ten", mask_variants=10)
    assert four == tars == packed
    for split, entry in four.items():
        assert ten[split].instances_digest == entry.instances_digest
        assert ten[split].dataset_digest != entry.dataset_digest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "workers"), [("bert", 3), ("roberta-full", 2), ("roberta-doc", 2)]
)
def test_the_number_of_workers_does_not_matter(
    recipe: str,
    workers: int,
    corpus: Path,
    syllables: Path,
    tmp_path: Path,
    expected: Callable[..., dict[str, str]],
) -> None:
    settings = {"recipe": recipe, "format": "webdataset", "mask_unit": "word"}
    small_build(
        corpus, syllables, tmp_path / "out", workers=workers, input_split_bytes=2_000, **settings
    )
    assert file_hashes(tmp_path / "out") == expected(**settings)


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["4242"])
def test_the_hash_seed_of_python_does_not_matter(
    hash_seed: str,
    corpus: Path,
    syllables: Path,
    tmp_path: Path,
    expected: Callable[..., dict[str, str]],
) -> None:
    done = run_command(small_config(corpus, syllables, tmp_path / "out"), PYTHONHASHSEED=hash_seed)
    assert done.returncode == 0, done.stderr
    assert file_hashes(tmp_path / "out") == expected()


@pytest.mark.slow
def test_real_text_is_built_alike_by_three_workers_and_one(corpora: Path, tmp_path: Path) -> None:
    vocab = corpora / "vocab" / "bert-base-uncased-vocab.txt"
    gum = corpora / "pretrain" / "mixed_gum.jsonl.gz"
    plain = tmp_path / "plain.jsonl"
    lines = gzip.decompress(gum.read_bytes()).splitlines()
    assert len(lines) > 100
    plain.write_bytes(b"\n".join(random.Random(2).sample(lines, len(lines))))
    settings: dict[str, Any] = {"bucket_tokens": 15_000, "max_seq_length": 128}
    settings |= {"id_field": "id", "source_field": "source"}
    report = small_build(gum, vocab, tmp_path / "one", **settings)
    assert len([s for s in report.manifest.shards if s.split == "train"]) >= LEAST_BUCKETS
    small_build(plain, vocab, tmp_path / "three", workers=3, input_split_bytes=100_000, **settings)
    assert file_hashes(tmp_path / "one") == file_hashes(tmp_path / "three")
