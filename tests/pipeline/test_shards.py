import dataclasses
import io
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.pipeline.small_datasets import make_batches, make_columns, schema_for

from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.files import file_checksum
from clozemill.pipeline.shards import Shard, ShardReader, write_shard

BATCHES = make_batches(make_columns(40))
SUFFIXES = pytest.mark.parametrize("suffix", [".arrow", ".tar"])


def write(path: Path, compression: str = "none", first_key: int = 0) -> Shard:
    return write_shard(
        path,
        BATCHES,
        schema=schema_for(),
        split="train",
        compression=compression,
        first_key=first_key,
    )


@SUFFIXES
@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_what_is_read_is_what_was_written(tmp_path: Path, suffix: str, compression: str):
    shard = write(tmp_path / f"train-0{suffix}", compression)
    back = list(ShardReader(tmp_path, shard))
    assert len(back) == shard.num_batches == 3
    assert all(a.equals(b) for a, b in zip(back, BATCHES, strict=True))
    assert shard.num_instances == 40
    assert shard.num_tokens == sum(len(row) for b in BATCHES for row in b["input_ids"].to_pylist())
    assert shard.num_bytes == (tmp_path / shard.path).stat().st_size
    assert shard.checksum == file_checksum(tmp_path / shard.path)


@SUFFIXES
def test_same_rows_give_the_same_bytes(tmp_path: Path, suffix: str):
    one, two = write(tmp_path / f"a{suffix}"), write(tmp_path / f"b{suffix}")
    assert one.checksum == two.checksum


@SUFFIXES
def test_batches_are_read_in_place(tmp_path: Path, suffix: str):
    reader = ShardReader(tmp_path, write(tmp_path / f"a{suffix}"))
    before = pa.total_allocated_bytes()
    batch = reader.batch(1)
    assert batch.num_rows == 16
    assert pa.total_allocated_bytes() - before < 200  # bookkeeping, none of the 7 KB of rows


def test_tar_has_fixed_headers_and_one_member_per_batch(tmp_path: Path):
    shard = write(tmp_path / "a.tar", first_key=999_999_999)
    with tarfile.open(tmp_path / "a.tar") as tar:
        members = tar.getmembers()
    names = ["999999999.arrow", "1000000000.arrow", "1000000001.arrow"]
    assert [member.name for member in members] == names
    assert [(m.offset_data, m.size) for m in members] == list(shard.members)
    for member in members:
        assert member.offset_data % 512 == 0
        assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)
        assert (member.uname, member.gname) == ("", "")


@SUFFIXES
def test_nothing_is_left_of_a_shard_that_fails(tmp_path: Path, suffix: str):
    def failing() -> Iterator[pa.RecordBatch]:
        yield BATCHES[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_shard(tmp_path / f"a{suffix}", failing(), schema=schema_for(), split="train")
    assert not list(tmp_path.iterdir())


@SUFFIXES
def test_short_write_is_one_clear_error_and_leaves_nothing(tmp_path: Path, suffix: str):
    # A file size limit makes writes fail half-way, as a full disk does.
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.arrow")
    program = f"""
import resource, signal
from pathlib import Path
import pyarrow as pa
from clozemill.pipeline.shards import write_shard
file = pa.ipc.open_file({str(tmp_path / "in" / "a.arrow")!r})
batches = [file.get_batch(i) for i in range(file.num_record_batches)]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
try:
    write_shard(Path({str(tmp_path / "out" / "a")!r} + {suffix!r}), batches, schema=file.schema,
                split="train")
except Exception as error:
    print(type(error).__name__, error)
"""
    (tmp_path / "out").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("DatasetError cannot write"), done.stdout + done.stderr
    assert not list((tmp_path / "out").iterdir())


@SUFFIXES
def test_missing_short_and_long_shards_are_named(tmp_path: Path, suffix: str):
    path = tmp_path / f"train-7{suffix}"
    shard = write(path)
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(DatasetError, match=r"train-7.* has .* bytes, but the manifest says"):
        ShardReader(tmp_path, shard)
    path.write_bytes(data + b"x")
    with pytest.raises(DatasetError, match="train-7"):
        ShardReader(tmp_path, shard)
    path.unlink()
    with pytest.raises(DatasetError, match=r"train-7.* is missing"):
        ShardReader(tmp_path, shard)


@SUFFIXES
def test_noise_of_the_right_size_is_refused(tmp_path: Path, suffix: str):
    path = tmp_path / f"a{suffix}"
    shard = write(path)
    path.write_bytes(np.random.default_rng(0).bytes(shard.num_bytes))
    with pytest.raises(DatasetError, match="cannot be read"):
        list(ShardReader(tmp_path, shard))


def test_batch_of_other_rows_than_listed_is_refused(tmp_path: Path):
    shard = write(tmp_path / "a.tar")
    lying = dataclasses.replace(shard, num_instances=41)
    with pytest.raises(DatasetError, match="batch 2 holds 8 rows"):
        list(ShardReader(tmp_path, lying))


def test_names_inside_a_tar_are_never_used_as_paths(tmp_path: Path):
    data = tmp_path / "in" / "a.tar"
    data.parent.mkdir()
    shard = write(data)
    text = io.BytesIO(data.read_bytes())
    with tarfile.open(fileobj=text) as tar:
        member = tar.getmembers()[0]
    member.name = "../../evil.arrow"
    whole = bytearray(data.read_bytes())
    whole[:512] = member.tobuf(tarfile.USTAR_FORMAT)
    data.write_bytes(whole)
    assert len(list(ShardReader(data.parent, shard))) == 3
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["a.tar"]


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"path": "../a.tar"}, "names the file '../a.tar'"),
        ({"path": "/a.tar"}, "names the file"),
        ({"path": "a.pkl"}, "names the file"),
        ({"num_bytes": 2**63}, "a size or checksum that cannot be"),
        ({"num_instances": 0}, "a size or checksum that cannot be"),
        ({"batch_rows": 0}, "a size or checksum that cannot be"),
        ({"checksum": "md5:0"}, "a size or checksum that cannot be"),
        ({"members": ()}, "0 tar members for 3 batches"),
        ({"members": ((512, 1), (1024, 10**9), (2048, 1))}, "outside the file or on top"),
        ({"members": ((512, 1), (600, 1), (2048, 1))}, "outside the file or on top"),
    ],
)
def test_entries_no_writer_makes_are_refused(tmp_path: Path, changes: dict[str, object], what: str):
    shard = write(tmp_path / "a.tar")
    with pytest.raises(DatasetError, match=what):
        dataclasses.replace(shard, **changes)


@pytest.mark.parametrize(("length", "limit"), [(115, 900), (128, 970)])
def test_bytes_per_instance_at_length_128_and_ten_variants(tmp_path: Path, length: int, limit: int):
    # 115 is the mean length of real pairs; 128 is the worst case.
    columns = make_columns(1024, length=length, num_variants=10)
    batches = make_batches(columns, 1024)
    for name in ("a.arrow", "a.tar"):
        shard = write_shard(tmp_path / name, batches, schema=schema_for(), split="train")
        assert shard.num_bytes / shard.num_instances <= limit
