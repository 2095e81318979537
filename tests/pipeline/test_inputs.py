import io
import os
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.pipeline.small_corpora import read_options

from clozemill.pipeline.errors import InputError
from clozemill.pipeline.inputs import Listing, check_unchanged, list_inputs
from clozemill.pipeline.read import ReadTally, read_document_at, read_documents
from clozemill.pipeline.read_bytes import read_head


def listed(*inputs: object, **options: Any) -> Listing:
    settings: dict[str, Any] = {"input_format": None, "layout": "prose", "split_bytes": 1 << 25}
    settings |= {"spool_dir": Path("unused")} | options
    return list_inputs([str(name) for name in inputs], **settings)


def paths(listing: Listing) -> list[str]:
    return [file.path for file in listing.files]


def texts(listing: Listing) -> list[str]:
    options = read_options()
    return [d.text for split in listing.splits for d in read_documents(split, options, ReadTally())]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files of known and of other endings, and a folder inside."""
    for name in ("b.txt", "a.jsonl", "v1.2/a.b.txt", "v1.2/a.b.c.TXT.gz", "c.md", ".hidden"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "data"


def test_a_folder_gives_its_files_in_order_and_names_the_others(folder: Path) -> None:
    listing = listed(folder)
    expected = ["a.jsonl", "b.txt", "v1.2/a.b.c.TXT.gz", "v1.2/a.b.txt"]
    assert paths(listing) == [str(folder / name) for name in expected]
    assert listing.ignored == (str(folder / "c.md"), str(folder / ".hidden"))
    kinds = [(file.format, file.compression) for file in listing.files]
    assert kinds == [("jsonl", None), ("txt", None), ("txt", "gzip"), ("txt", None)]
    assert pickle.loads(pickle.dumps(listing)) == listing


def test_an_input_format_is_for_other_endings(folder: Path) -> None:
    listing = listed(folder, input_format="txt")
    assert [file.format for file in listing.files] == ["jsonl", "txt", "txt", "txt", "txt"]
    assert listing.ignored == (str(folder / ".hidden"),)
    assert listed(folder / "c.md", input_format="jsonl").files[0].format == "jsonl"


def test_what_is_hidden_in_a_folder_is_read_only_where_it_is_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / ".mine"
    names = ("a.txt", "._a.txt", ".git/b.txt", ".git/refs/c.txt", "d/.e/f.txt")
    for path in (folder / name for name in names):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    listing = listed(folder)
    assert paths(listing) == [str(folder / "a.txt")] == paths(listed(folder / "*.txt"))
    hidden = ("._a.txt", ".git", "d/.e")
    assert listing.ignored == tuple(str(folder / name) for name in hidden)
    assert paths(listed(folder / "._a.txt")) == [str(folder / "._a.txt")]
    assert paths(listed(folder / "._*")) == [str(folder / "._a.txt")]
    assert len(listed(folder / ".git").files) == 2
    with pytest.raises(InputError, match=r"d holds only hidden files, such as .*/d/\.e; name"):
        listed(folder / "d")


def test_patterns_match_files_and_folders(folder: Path) -> None:
    assert paths(listed(folder / "*.txt")) == [str(folder / "b.txt")]
    assert len(listed(folder / "**" / "*.txt").files) == 2
    assert len(listed(folder / "v*").files) == 2
    odd = folder / "x[1].txt"
    odd.write_text("odd")
    assert paths(listed(odd)) == [str(odd)]
    assert texts(listed(odd)) == ["odd"]


def test_a_file_named_twice_is_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    listing = listed("data/b.txt", folder, "data/../data/*.txt", f"file://{folder}/b.txt")
    assert paths(listing)[0] == str(folder / "b.txt")
    assert len(listing.files) == len(set(paths(listing))) == len(listing.splits) == 4


def test_links_to_files_are_read_and_other_links_are_named(folder: Path) -> None:
    links = folder / "links"
    links.mkdir()
    (links / "b.txt").symlink_to(folder / "b.txt")
    (links / "more").symlink_to(folder / "v1.2")
    (links / "loop").symlink_to(links)
    (links / "endless.txt").symlink_to("/dev/zero")
    listing = listed(links)
    assert paths(listing) == [str(links / "b.txt")]
    assert listing.ignored == tuple(str(links / name) for name in ("endless.txt", "loop", "more"))
    assert len(listed(links / "m*").files) == 2
    (links / "gone.txt").symlink_to(folder / "nowhere")
    with pytest.raises(InputError, match=rf"^cannot read {links}/gone\.txt: No such file"):
        listed(links)


def test_two_colons_in_the_name_of_a_file_are_no_chain_of_file_systems(tmp_path: Path) -> None:
    path = tmp_path / "in" / "x::y.txt"
    path.parent.mkdir()
    path.write_text("Ba be.")
    for name in (path, path.parent):
        listing = listed(name)
        assert paths(listing) == [str(path)]
        check_unchanged(listing.files)
    assert read_head(str(path), None) == b"Ba be."


def test_the_version_of_a_file_is_its_modification_time(folder: Path) -> None:
    file = listed(folder / "b.txt").files[0]
    assert file.version == str((folder / "b.txt").stat().st_mtime_ns)


def test_each_input_that_names_nothing_is_one_clear_line(folder: Path) -> None:
    (folder / "empty").mkdir()
    others = folder / "others"
    others.mkdir()
    (others / "a.md").touch()
    cases = {
        folder / "gone.txt": "{} does not exist; check the path.",
        folder / "*.zip": "no file matches the pattern {}; check it, and quote it.",
        folder / "empty": "the folder {} holds no files; name another.",
        others: "{} has no .txt, .jsonl, .parquet or .arrow file but others, such as "
        f"{others}/a.md; name their format with --input-format.",
        folder / "c.md": "the ending of {} tells no format (.txt, .jsonl, each also .gz or .zst; "
        ".parquet, .arrow); name it with --input-format.",
        Path("/dev/null"): "{} is neither file nor folder; pipe it in and name - as the input.",
    }
    for path, message in cases.items():
        with pytest.raises(InputError) as caught:
            listed(path)
        assert str(caught.value) == message.format(path)


def test_csv_and_json_come_with_the_command_that_converts_them(folder: Path) -> None:
    (folder / "t").mkdir()
    for name, reader, end in (
        ("t.csv", "csv", "."),
        ("t.json", "json", ", or pass --input-format jsonl if each line is a record."),
    ):
        path = folder / "t" / name
        path.touch()
        call = f'duckdb.read_{reader}("{path}").write_parquet("{folder}/t/t.parquet")'
        with pytest.raises(InputError) as caught:
            listed(path)
        assert str(caught.value) == (
            f"{path} is not read as it is; convert it with python -c 'import duckdb; {call}'{end}"
        )
    with pytest.raises(InputError, match=r"t has no file that is read as it is; convert each with"):
        listed(folder / "t")


@pytest.fixture
def with_own(folder: Path) -> Path:
    """The same folder, with what clozemill writes in it."""
    names = ("done/manifest.json", "done/train-0.arrow", "done/more/a.txt", "begun/.build/lock")
    names += ("begun/documents-train-0.arrow", "v1.2/words/tokenizer_config.json")
    names += ("v1.2/words/vocab.txt", "v1.2/words/below/t.txt", "manifest.json", "o/.build/x.txt")
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return folder


def test_what_clozemill_wrote_below_a_folder_is_no_input(with_own: Path) -> None:
    others = ["c.md", "manifest.json", ".hidden", "o/.build", "begun/", "done/", "v1.2/words/"]
    texts = ["a.jsonl", "b.txt", "v1.2/a.b.c.TXT.gz", "v1.2/a.b.txt", "v1.2/words/below/t.txt"]
    listing = listed(with_own)
    assert paths(listing) == [str(with_own / name) for name in texts]
    assert listing.ignored == tuple(f"{with_own}/{name}" for name in others)
    for pattern, own in (("**/*.arrow", "begun"), ("*/words/*.txt", "v1.2/words")):
        with pytest.raises(InputError) as caught:
            listed(with_own / pattern)
        assert str(caught.value) == (
            f"{with_own / pattern} holds nothing but what clozemill wrote, such as "
            f"{with_own / own}/; name the folder of the texts."
        )
    assert len(listed(with_own / "v*").files) == 3
    assert len(listed(with_own / "done" / "train-*").files) == 1
    for own, what in (("done", "dataset"), ("v1.2/words", "tokenizer")):
        said = f"{with_own / own} is a {what} and no text; name the folder of the texts."
        with pytest.raises(InputError, match=re.escape(said)):
            listed(with_own / own)


def test_what_clozemill_wrote_in_a_store_is_no_input() -> None:
    store = fsspec.filesystem("memory")
    for name in ("a.txt", "done/manifest.json", "done/train-0.arrow", "done/documents-0.arrow"):
        store.pipe(f"/mixed/{name}", b"Tea.")
    try:
        listing = listed("memory://mixed")
        assert paths(listing) == ["memory:///mixed/a.txt"]
        assert listing.ignored == ("memory:///mixed/done/",)
        assert paths(listed("memory://mixed/*")) == paths(listing)
    finally:
        store.rm("/mixed", recursive=True)


def test_a_folder_that_cannot_be_read_is_an_error(folder: Path) -> None:
    """One too deep to be named, since nothing is forbidden to a root user."""
    place = os.open(folder, os.O_RDONLY)
    for _ in range(17):
        os.mkdir("d" * 250, dir_fd=place)
        inner = os.open("d" * 250, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    with pytest.raises(InputError) as caught:
        listed(folder)
    start, _, end = str(caught.value).rpartition("ddd: ")
    assert start.startswith(f"cannot read the folder {folder}/ddd")
    assert end == "File name too long; mend that, or name the files beside it."


def test_an_empty_text_is_no_input() -> None:
    with pytest.raises(InputError, match=r"^an input is an empty text; name a file or folder"):
        listed("")


def test_a_name_that_is_not_utf8_is_one_clear_line(folder: Path) -> None:
    (folder / os.fsdecode(b"d\xff.txt")).touch()
    message = rf"^the name of {folder}/d\\xff\.txt is not UTF-8; rename the file\.$"
    for name in (folder, folder / os.fsdecode(b"d\xff.txt")):
        with pytest.raises(InputError, match=message):
            listed(name)
    (folder / os.fsdecode(b"d\xff.txt")).rename(folder / os.fsdecode(b"d\xff.md"))
    assert f"{folder}/d\\xff.md" in listed(folder).ignored


def test_a_file_that_changed_since_it_was_listed_is_an_error(folder: Path) -> None:
    listing = listed(folder)
    check_unchanged(listing.files)
    stored = (folder / "b.txt").stat()
    os.utime(folder / "b.txt", ns=(stored.st_atime_ns, stored.st_mtime_ns + 1))
    with pytest.raises(InputError) as caught:
        check_unchanged(listing.files)
    assert str(caught.value) == (
        f"{folder}/b.txt changed while it was read; run the same command again once nothing "
        "writes to it."
    )
    (folder / "b.txt").unlink()
    with pytest.raises(InputError, match=rf"^cannot read {folder}/b\.txt: No such file"):
        check_unchanged(listing.files)


def test_a_table_compressed_as_a_whole_has_no_known_ending(folder: Path) -> None:
    (folder / "t.parquet.gz").touch()
    with pytest.raises(InputError, match="tells no format"):
        listed(folder / "t.parquet.gz")


def test_an_unknown_protocol_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"^cannot read nowhere://a/b\.txt: .*nowhere.*\.$"):
        listed("nowhere://a/b.txt")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    known = sys.modules["fsspec.registry"]._registry
    monkeypatch.delitem(known, "s3", raising=False)
    with pytest.raises(InputError, match=r"install the extra with pip install 'clozemill\[s3\]'"):
        listed("s3://mill/a.txt")


def test_large_files_of_lines_are_split_by_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x" * 100)
    bounds = [(s.start, s.stop) for s in listed(path, layout="lines", split_bytes=30).splits]
    assert sum(s.num_bytes for s in listed(path, layout="lines", split_bytes=30).splits) == 100
    assert bounds == [(0, 25), (25, 50), (50, 75), (75, None)]
    assert len(listed(path, layout="prose", split_bytes=30).splits) == 1
    assert len(listed(path, layout="lines", split_bytes=100).splits) == 1
    packed = path.rename(tmp_path / "a.txt.gz")
    assert len(listed(packed, layout="lines", split_bytes=30).splits) == 1


def test_large_tables_are_split_by_groups_of_about_equal_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = [f"{i:050d}" for i in range(1000)]
    pq.write_table(pa.table({"text": values}), path, row_group_size=100, use_dictionary=False)
    listing = listed(path, split_bytes=path.stat().st_size // 3 + 1)
    assert [(s.start, s.stop) for s in listing.splits] == [(0, 4), (4, 8), (8, None)]
    assert texts(listing) == values


def test_standard_input_is_kept_so_that_it_can_be_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def piped() -> Listing:
        data = b'{"text": "one"}\n{"text": "two"}\n'
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return listed("-", input_format="jsonl", spool_dir=tmp_path / "spool", split_bytes=9)

    listing = piped()
    assert paths(listing) == ["-"]
    assert len(listing.splits) == 4
    assert texts(listing) == ["one", "two"]
    assert piped() == listing
    assert [path.suffix for path in (tmp_path / "spool").iterdir()] == [".jsonl"]


@pytest.mark.parametrize(
    ("data", "input_format", "said"),
    [
        (b"\x1f\x8b\x08", "txt", "standard input is gzip; "),
        (b"Tea.\n\xe9", "txt", "standard input:2, byte offset 5: byte 0xe9 is not UTF-8; "),
        (b"PAR1", "parquet", "cannot read standard input: "),
    ],
)
def test_an_error_of_standard_input_calls_it_so(
    data: bytes, input_format: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    with pytest.raises(InputError) as caught:
        texts(listed("-", input_format=input_format, spool_dir=tmp_path / "spool"))
    assert str(caught.value).startswith(said)
    assert "stdin-" not in str(caught.value)


def test_urls_of_file_systems_are_read() -> None:
    fs = fsspec.filesystem("memory")
    fs.pipe({"/mill/b.txt": b"hot", "/mill/a.txt": b"cold", "/mill/c.bin": b""})
    try:
        listing = listed("memory://mill")
        assert texts(listing) == ["cold", "hot"]
        assert paths(listing) == ["memory:///mill/a.txt", "memory:///mill/b.txt"]
        assert texts(listed("memory://mill/b*.txt")) == ["hot"]
    finally:
        fs.rm("/mill", recursive=True)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a real S3 server on loopback; gives its name."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    settings = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    fs = fsspec.filesystem("s3")
    fs.mkdir("mill")
    yield "mill"
    fs.clear_instance_cache()
    server.stop()


@pytest.mark.slow
def test_s3_objects_are_listed_split_and_read(bucket: str, tmp_path: Path) -> None:
    fs = fsspec.filesystem("s3")
    expected = [f"document {i}" for i in range(1000)]
    lines = "".join(f'{{"text": "{text}"}}\n' for text in expected)
    pq.write_table(pa.table({"text": ["in a table"]}), tmp_path / "t.parquet")
    table = pa.table({"text": ["in arrow"]})
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    fs.pipe(f"{bucket}/data/a.jsonl", lines.encode())
    for name in ("t.parquet", "t.arrow"):
        fs.pipe(f"{bucket}/data/{name}", (tmp_path / name).read_bytes())
    listing = listed(f"s3://{bucket}/data", split_bytes=4_000)
    assert len(listing.splits) > 5
    assert all(file.version for file in listing.files)
    assert texts(listing) == [*expected, "in arrow", "in a table"]
    url = f"s3://{bucket}/data/a.jsonl"
    offset = len('{"text": "document 0"}\n')
    assert read_document_at(url, offset, read_options()).text == "document 1"
    with pytest.raises(InputError, match=rf"^s3://{bucket}/gone\.txt does not exist"):
        listed(f"s3://{bucket}/gone.txt")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_saved_datasets_are_read_by_rows(tmp_path: Path) -> None:
    import datasets

    values = [f"text {i}" for i in range(50)]
    train = datasets.Dataset.from_dict({"text": values, "n": list(range(50))})
    test = datasets.Dataset.from_dict({"text": ["held out"], "n": [0]})
    train.save_to_disk(tmp_path / "one")
    datasets.DatasetDict({"train": train, "test": test}).save_to_disk(tmp_path / "both")
    for name in (f"hf:{tmp_path}/one", f"hf:{tmp_path}/both", f"hf:{tmp_path}/both::train"):
        listing = listed(name, split_bytes=300)
        assert len(listing.splits) > 1
        assert texts(listing) == values
        assert paths(listing) == [name]
        assert read_document_at(name, 7, read_options()).text == "text 7"
    assert texts(listed(f"hf:{tmp_path}/both:test")) == ["held out"]
    errors = {
        "both:dev": r"has no split 'dev'; name one of test, train as hf:NAME:CONFIG:SPLIT or hf:",
        "both:en:test": r"names a configuration, but .*/both has none; leave it\.",
        "one:dev": r"is one table without a split 'dev'; leave it out\.",
    }
    for name, message in errors.items():
        with pytest.raises(InputError, match=message):
            listed(f"hf:{tmp_path}/{name}")


def test_a_file_of_this_machine_is_no_hub_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    with pytest.raises(InputError, match=r"names a file on this machine; leave out hf:\.$"):
        listed(f"hf:{tmp_path}/a.jsonl")


def test_a_hub_out_of_reach_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # nobody listens
    message = r"^cannot read hf:nobody/nothing: the hub does not answer \(.*HF_HUB_OFFLINE=1 if"
    with pytest.raises(InputError, match=message):
        listed("hf:nobody/nothing")


@pytest.mark.slow
@pytest.mark.usefixtures("offline")
def test_folders_of_data_files_are_datasets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    (folder / "test.jsonl").write_text('{"text": "three"}\n')
    assert texts(listed(f"hf:{folder}")) == ["one", "two"]
    assert texts(listed(f"hf:{folder}::test")) == ["three"]
    monkeypatch.chdir(tmp_path)
    listing = listed("hf:set:test")
    assert paths(listing) == [f"hf:{folder}:test"]
    assert texts(listing) == ["three"]
    (folder / "train.jsonl").rename(folder / "validation.jsonl")
    with pytest.raises(InputError, match=r"has several splits; name one of test, validation as"):
        listed(f"hf:{folder}:default")
    with pytest.raises(InputError, match=r"^cannot read hf:.*\.$"):
        listed(f"hf:{tmp_path}/gone")
    with pytest.raises(InputError, match=r"is no data set; write hf:NAME"):
        listed("hf:")
