import gzip
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.pipeline.small_corpora import read_options

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import Document, document_id
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.inputs import list_inputs
from clozemill.pipeline.read import ReadOptions, ReadTally, read_document_at, read_documents
from clozemill.pipeline.read_bytes import is_blank, wide_encoding
from clozemill.pipeline.read_records import RECORD_FATES

ONE_SPLIT = 1 << 40


def read(
    path: Path,
    options: ReadOptions,
    *,
    split_bytes: int = ONE_SPLIT,
    input_format: str | None = None,
) -> tuple[list[Document], ReadTally]:
    """All documents of a file, after checking that every record is counted once."""
    listing = list_inputs(
        [str(path)],
        input_format=input_format,
        layout=options.layout,
        spool_dir=Path("unused"),
        split_bytes=split_bytes,
    )
    tally, documents = ReadTally(), []
    for split in listing.splits:
        part = ReadTally()
        documents.extend(read_documents(split, options, part))
        tally.merge(ReadTally.from_json(json.loads(json.dumps(part.to_json()))))
    assert tally.counts["records_read"] == sum(tally.counts[fate] for fate in RECORD_FATES)
    assert tally.counts["documents_read"] == len(documents)
    assert tally.counts["text_bytes"] == sum(len(d.text.encode()) for d in documents)
    return documents, tally


def texts(path: Path, **options: Any) -> list[str]:
    return [d.text for d in read(path, read_options(**options))[0]]


def fates(tally: ReadTally) -> dict[str, int]:
    names = ("records_read", *RECORD_FATES)
    return {name: tally.counts[name] for name in names if tally.counts[name]}


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def write_records(path: Path, *records: object) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


# Text files


def test_only_universal_newlines_end_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "lines.txt", "a\u2028b\nc\u0085d\ve\nf\r\n\ng\rh\n")
    found = texts(path, layout="sentences")
    assert [text.split("\n") for text in found] == [["a\u2028b", "c\u0085d e", "f"], ["g", "h"]]
    assert texts(path, layout="lines") == ["a\u2028b", "c\u0085d e", "f", "g", "h"]
    assert texts(path) == ["a\u2028b\nc\u0085d e\nf\n\ng\nh"]


@pytest.mark.parametrize("blank", ["", "\r", " \t", "\u3000", "\u00a0\u2003", "\f", "\u0085"])
def test_a_line_of_white_space_ends_a_document(tmp_path: Path, blank: str) -> None:
    path = write(tmp_path / "a.txt", f"one\ntwo\n{blank}\n{blank}\nthree")
    assert texts(path, layout="sentences") == ["one\ntwo", "three"]


def test_blank_lines_are_told_as_python_tells_white_space() -> None:
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    wrong = [c for c in characters if is_blank(f" {c}\n".encode()) != c.isspace()]
    assert wrong == []


def test_blank_lines_of_the_lines_layout_are_counted(tmp_path: Path) -> None:
    documents, tally = read(write(tmp_path / "a.txt", "a\n\n \nb\n"), read_options(layout="lines"))
    assert [(d.text, d.origin_offset) for d in documents] == [("a", 0), ("b", 5)]
    assert fates(tally) == {"records_read": 4, "documents_read": 2, "empty_text": 2}


def test_text_files_take_their_source_from_the_options(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "tea")
    expected = Document(id=document_id("tea"), text="tea", source="tales", origin_path=str(path))
    assert read(path, read_options(source="tales"))[0] == [expected]


@pytest.mark.parametrize("layout", ["prose", "sentences", "lines"])
def test_an_empty_file_holds_no_document(tmp_path: Path, layout: str) -> None:
    assert texts(write(tmp_path / "a.txt", ""), layout=layout) == []
    assert texts(write(tmp_path / "a.txt.gz", gzip.compress(b"")), layout=layout) == []


def test_nuls_stay_in_the_text(tmp_path: Path) -> None:
    assert texts(write(tmp_path / "a.txt", "cold\0 tea, hot tea")) == ["cold\0 tea, hot tea"]


# Byte ranges

TEXT_PIECES = b"a|bc|\n|\r|\r\n| |\xe3\x80\x80|\xef\xbb\xbf|\xe9".split(b"|")
JSON_PIECES = b'{"text": "a"}|{"text": ""}|{}|\n|\r|\r\n| |\xef\xbb\xbf|x'.split(b"|")


def joined(pieces: list[bytes]) -> st.SearchStrategy[bytes]:
    return st.lists(st.sampled_from(pieces), max_size=40).map(b"".join)


def check_ranges(ending: str, content: bytes, split_bytes: int, options: ReadOptions) -> None:
    """Check that byte ranges give what one split gives, and that each document is found again."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / f"a.{ending}", content)
        whole = read(path, options)
        assert read(path, options, split_bytes=split_bytes) == whole
        for document in whole[0]:
            assert read_document_at(str(path), document.origin_offset, options) == document


@settings(max_examples=250, deadline=None)
@given(
    content=st.one_of(joined(TEXT_PIECES), st.binary(max_size=60)),
    split_bytes=st.integers(1, 12),
    layout=st.sampled_from(["lines", "sentences", "prose"]),
    on_bad_input=st.sampled_from(["skip", "replace"]),
)
def test_any_byte_ranges_of_text_give_the_same_documents(
    content: bytes, split_bytes: int, layout: str, on_bad_input: str
) -> None:
    options = read_options(layout=layout, on_bad_input=on_bad_input)
    check_ranges("txt", content, split_bytes, options)


@settings(max_examples=150, deadline=None)
@given(content=joined(JSON_PIECES), split_bytes=st.integers(1, 20))
def test_any_byte_ranges_of_json_lines_give_the_same_documents(
    content: bytes, split_bytes: int
) -> None:
    check_ranges("jsonl", content, split_bytes, read_options(on_bad_input="skip"))


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 7])
@pytest.mark.parametrize("layout", ["lines", "sentences"])
def test_blocks_and_ranges_may_be_cut_anywhere(
    tmp_path: Path, block_bytes: int, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "\ufeffone\r\ntwo\r\r\n\rthree\n\n \n\nfour, a longer line\r\n\r\nfive".encode()
    path = write(tmp_path / "a.txt", content)
    options = read_options(layout=layout)
    expected = read(path, options)
    assert len(expected[0]) >= 4
    monkeypatch.setattr("clozemill.pipeline.read_bytes.BLOCK_BYTES", block_bytes)
    for split_bytes in range(1, len(content) + 1):
        assert read(path, options, split_bytes=split_bytes) == expected


# Encodings


@pytest.mark.parametrize("layout", ["prose", "sentences", "lines"])
@pytest.mark.parametrize("split_bytes", [5, ONE_SPLIT])
def test_a_bad_byte_is_named_by_file_line_and_offset(
    tmp_path: Path, layout: str, split_bytes: int
) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\ntwo\ncaf\xe9 three\nfour\n")
    with pytest.raises(InputError) as caught:
        read(path, read_options(layout=layout), split_bytes=split_bytes)
    assert str(caught.value) == (
        f"{path}:3, byte offset 14: byte 0xe9 is not UTF-8; convert the file with iconv (say, "
        "-f LATIN1 -t UTF-8) or pass --on-bad-input skip or replace."
    )


def test_a_bad_byte_after_a_byte_order_mark_is_placed_in_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbf\xe9")
    with pytest.raises(InputError, match=r"a\.txt:1, byte offset 3: byte 0xe9"):
        read(path, read_options())


@pytest.mark.parametrize("layout", ["prose", "sentences", "lines"])
def test_bad_bytes_can_be_replaced_and_each_bad_line_is_counted(
    tmp_path: Path, layout: str
) -> None:
    path = write(tmp_path / "a.txt", b"\xef\xbb\xbfone\ntwo\n\xe9 three \xe9\nfour\n")
    documents, tally = read(path, read_options(layout=layout, on_bad_input="replace"))
    assert "\n".join(d.text for d in documents) == "one\ntwo\n\ufffd three \ufffd\nfour"
    assert tally.counts["replaced_utf8"] == 1


def test_documents_with_bad_bytes_can_be_skipped(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", b"one\n\xe9\n\ntwo\n")
    assert texts(path, on_bad_input="skip") == []
    assert texts(path, on_bad_input="skip", layout="sentences") == ["two"]
    documents, tally = read(path, read_options(layout="lines", on_bad_input="skip"))
    assert [d.text for d in documents] == ["one", "two"]
    assert tally.counts["bad_utf8"] == 1


@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("layout", ["prose", "sentences", "lines"])
def test_utf16_and_utf32_are_named_as_not_utf8(
    tmp_path: Path, name: str, mark: str, layout: str
) -> None:
    path = write(tmp_path / "a.txt", (mark + "Cold tea.\nHot tea.\n").encode(name))
    with pytest.raises(InputError) as caught:
        read(path, read_options(layout=layout))
    assert str(caught.value) == (
        f"{path} is {name}, not UTF-8; convert it with iconv -f {name} -t UTF-8."
    )
    options = read_options(layout=layout, on_bad_input="replace")
    for split_bytes in (ONE_SPLIT, 6):
        documents, tally = read(path, options, split_bytes=split_bytes)
        assert (documents, fates(tally)) == ([], {"records_read": 1, "bad_utf8": 1})


@pytest.mark.parametrize(
    ("codec", "ending", "unpack"), [("gzip", ".gz", "zcat"), ("zstd", ".zst", "zstdcat")]
)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_compressed_text_without_the_ending_is_called_what_it_is(
    tmp_path: Path, name: str, codec: str, ending: str, unpack: str
) -> None:
    path = write(tmp_path / name, pa.compress(b'{"text": "Tea."}\n', codec, asbytes=True))
    with pytest.raises(InputError) as caught:
        read(path, read_options())
    assert str(caught.value) == (
        f"{path} is {codec}; pipe it through {unpack}, or give the file's name the ending {ending}."
    )


def test_nul_padding_is_not_utf16() -> None:
    assert wide_encoding(b"log line\n" + bytes(500) + b"log line\n" + bytes(500)) is None


# JSON lines


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b'[{"text": "Tea."}]', "one JSON array"),
        (b'[\n{"text": "Tea."}\n]', "one JSON array"),
        (b'{\n  "text": "Tea."\n}\n', "JSON over several lines"),
    ],
)
def test_json_that_is_no_json_lines_is_called_so_and_its_conversion_is_read(
    tmp_path: Path, data: bytes, what: str
) -> None:
    path = write(tmp_path / "a.jsonl", data)
    with pytest.raises(InputError, match=f"; if the file is {what}, convert it with") as caught:
        read(path, read_options())
    command = str(caught.value).split("python -c '")[1].split("'")[0]
    subprocess.run([sys.executable, "-c", command], check=True)
    assert texts(tmp_path / "a.parquet") == ["Tea."]


@pytest.mark.parametrize("split_bytes", [1 << 20, ONE_SPLIT])
def test_null_missing_and_empty_texts_are_counted_by_name(tmp_path: Path, split_bytes: int) -> None:
    long = ("word " * 2_400_000).strip()
    records = ({"text": "good"}, {"text": None}, {"id": 3}, {"text": ""}, {"text": long})
    path = write_records(tmp_path / "a.jsonl", *records)
    documents, tally = read(path, read_options(), split_bytes=split_bytes)
    assert [d.text for d in documents] == ["good", long]
    assert fates(tally) == {
        "records_read": 5,
        "documents_read": 2,
        "null_text": 1,
        "missing_text": 1,
        "empty_text": 1,
    }
    tally.raise_if_no_field(BuildConfig())


BAD_RECORDS = {
    '{"text": "cut': "not JSON (Unterminated string starting at, column 10)",
    '{"text": "a"} {"text": "b"}': "not JSON (something follows the object, column 14)",
    '{"text": ' + "9" * 5_000 + "}": "the JSON holds a number with thousands of digits",
    '{"text": ' + "[" * 100_000: "the JSON is nested too deeply",
    '["a"]': "the record is a list, it must be an object",
    "NaN": "the record is a number, it must be an object",
    '{"text": 12}': "the field 'text' is a number, it must be a string",
    '{"text": NaN}': "the field 'text' is a number, it must be a string",
    '{"text": ["a"]}': "the field 'text' is a list, it must be a string",
    '{"text": "\\ud800"}': "the record holds half of a surrogate pair",
    '{"text": "a", "id": "\\ud800"}': "the record holds half of a surrogate pair",
    '{"text": "a", "id": 1.5}': "the field 'id' is a number, it must be a string",
    '{"text": "a", "id": true}': "the field 'id' is true or false, it must be a string",
    '{"text": "a", "corpus": {}}': "the field 'corpus' is an object, it must be a string",
}


@pytest.mark.parametrize(("line", "what"), BAD_RECORDS.items(), ids=range(len(BAD_RECORDS)))
def test_a_bad_record_is_one_clear_line_or_counted(tmp_path: Path, line: str, what: str) -> None:
    content = '{"text": "one"}\r\n\n' + line + '\n{"text": "two"}\n'
    path = write(tmp_path / "a.jsonl", content)
    options = read_options(id_field="id", source_field="corpus")
    for split_bytes in (ONE_SPLIT, 16):
        with pytest.raises(InputError) as caught:
            read(path, options, split_bytes=split_bytes)
        assert str(caught.value) == f"{path}:3: {what}; mend it or pass --on-bad-input skip."
    for policy in ("skip", "replace"):
        options = read_options(id_field="id", source_field="corpus", on_bad_input=policy)
        documents, tally = read(path, options)
        assert [d.text for d in documents] == ["one", "two"]
        assert tally.counts["bad_json"] + tally.counts["bad_record"] == 1


def test_bad_bytes_in_json_lines_are_placed_skipped_or_replaced(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", gzip.compress(b'{"text": "a"}\n {"text": "b\xff"}\n'))
    with pytest.raises(InputError, match=r"a\.jsonl\.gz:2, byte offset 26: byte 0xff is not"):
        read(path, read_options())
    assert texts(path, on_bad_input="skip") == ["a"]
    assert texts(path, on_bad_input="replace") == ["a", "b\ufffd"]


def test_a_text_field_missing_everywhere_is_an_error_naming_the_fields(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.jsonl", {"body": "a"}, {"body": "b", "title": 1})
    _, tally = read(path, read_options())
    with pytest.raises(InputError) as caught:
        tally.raise_if_no_field(BuildConfig())
    assert str(caught.value) == (
        "no record has the field 'text' (of 2); fields seen: body, title; "
        "name the one that holds the text with --text-field."
    )
    ReadTally().raise_if_no_field(BuildConfig())


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
@pytest.mark.parametrize(("flag", "field"), [("source", "corpus"), ("id", "key")])
def test_a_field_missing_everywhere_is_an_error_naming_the_fields(
    tmp_path: Path, ending: str, flag: str, field: str
) -> None:
    path = tmp_path / f"a.{ending}"
    if ending == "jsonl":
        write_records(path, {"text": "a", "site": "x"}, {"text": "b", "site": "x"})
    else:
        pq.write_table(pa.table({"text": ["a", "b"], "site": ["x", "x"]}), path)
    settings: dict[str, Any] = {f"{flag}_field": field}
    _, tally = read(path, read_options(**settings))
    expected = f"no record has the field '{field}' of --{flag}-field, .* fields seen: site, text;"
    with pytest.raises(InputError, match=expected):
        tally.raise_if_no_field(BuildConfig(**settings))
    tally.raise_if_no_field(BuildConfig())


def test_ids_and_sources_come_from_their_fields(tmp_path: Path) -> None:
    path = write_records(
        tmp_path / "a.jsonl",
        {"text": "a", "id": "x", "corpus": "news"},
        {"text": "b", "id": 10**20, "corpus": 7},
        {"text": "c", "id": None, "corpus": None},
        {"text": "d"},
    )
    options = read_options(id_field="id", source="all", source_field="corpus")
    documents, tally = read(path, options)
    assert (tally.counts["missing_id"], tally.counts["missing_source"]) == (2, 2)
    found = [(d.external_id, d.source) for d in documents]
    assert found == [("x", "news"), (str(10**20), "7"), (None, "all"), (None, "all")]


# Compressed files


def compressed(ending: str, data: bytes) -> bytes:
    if ending == "gz":
        return gzip.compress(data)
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_compressed_files_read_like_plain_ones(tmp_path: Path, ending: str) -> None:
    half = "".join(f"line {i}\nmore\n\n" for i in range(40_000)).encode()
    options = read_options(layout="sentences")
    expected, _ = read(write(tmp_path / "a.txt", half + half), options)
    packed = write(tmp_path / f"a.txt.{ending}", compressed(ending, half) * 2)
    found, _ = read(packed, options, split_bytes=1000)
    assert len(expected) == 80_000
    places = [[(d.text, d.origin_offset) for d in documents] for documents in (expected, found)]
    assert places[0] == places[1]
    assert read_document_at(str(packed), found[-1].origin_offset, options) == found[-1]


@pytest.mark.parametrize("ending", ["gz", "zst"])
@pytest.mark.parametrize("num_lost", [1, 3, 40])
def test_a_truncated_compressed_file_is_an_error(
    tmp_path: Path, ending: str, num_lost: int
) -> None:
    data = compressed(ending, b'{"text": "a long enough text, say"}\n' * 9)
    path = write(tmp_path / f"a.jsonl.{ending}", data[:-num_lost])
    with pytest.raises(InputError) as caught:
        read(path, read_options())
    assert str(caught.value) == (
        f"cannot read {path}: Truncated compressed stream; mend that, or leave it out."
    )


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_an_empty_compressed_file_was_cut_off(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.jsonl.{ending}", b"")
    with pytest.raises(InputError, match=f"{path} is empty, which no (gzip|zstd) file is"):
        read(path, read_options())


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_a_file_that_is_not_compressed_after_all_is_an_error(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.txt.{ending}", "plain text")
    with pytest.raises(InputError, match=rf"^cannot read {path}: .*\.$"):
        read(path, read_options())


# Tables


@pytest.fixture(params=["parquet", "arrow-file", "arrow-stream"])
def table_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table of 100 rows in 10 groups of 10; row 5 has no text, row 6 an empty one."""
    values = [None if i == 5 else "" if i == 6 else f"text {i}" for i in range(100)]
    sources = pa.array([f"s{i % 2}" for i in range(100)]).dictionary_encode()
    table = pa.table(
        {"other": range(100), "text": values, "id": range(100), "source": sources},
    )
    if request.param == "parquet":
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=10)
        return tmp_path / "a.parquet"
    opener = pa.ipc.new_file if request.param == "arrow-file" else pa.ipc.new_stream
    with opener(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    return tmp_path / "a.arrow"


def offset_of(table_path: Path, row: int) -> int:
    """The documented offset of a row: in Arrow files by batches, of which each has 10 rows."""
    return row if table_path.suffix == ".parquet" else (row // 10 << 32) + row % 10


@pytest.mark.parametrize("split_bytes", [1, 1000, ONE_SPLIT])
def test_tables_are_read_by_parts(table_path: Path, split_bytes: int) -> None:
    options = read_options(id_field="id", source_field="source")
    documents, tally = read(table_path, options, split_bytes=split_bytes)
    rows = [i for i in range(100) if i not in (5, 6)]
    assert [d.text for d in documents] == [f"text {i}" for i in rows]
    assert [d.origin_offset for d in documents] == [offset_of(table_path, i) for i in rows]
    assert [(d.external_id, d.source) for d in documents] == [(str(i), f"s{i % 2}") for i in rows]
    counts = {"records_read": 100, "documents_read": 98, "null_text": 1, "empty_text": 1}
    assert fates(tally) == counts


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())], ids=str
)
def test_all_kinds_of_string_columns_are_read(tmp_path: Path, kind: pa.DataType) -> None:
    table = pa.table({"text": pa.array(["tea", None, "more tea"], pa.string()).cast(kind)})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table)
    assert texts(tmp_path / "a.arrow") == ["tea", "more tea"]
    with pa.ipc.new_file(tmp_path / "b.arrow", pa.schema([("text", pa.null())])) as writer:
        writer.write_table(pa.table({"text": [None, None]}))
    assert fates(read(tmp_path / "b.arrow", read_options())[1]) == {
        "records_read": 2,
        "null_text": 2,
    }


def test_a_document_of_a_table_is_found_by_its_row(table_path: Path) -> None:
    for row in (0, 9, 10, 99):
        offset = offset_of(table_path, row)
        assert read_document_at(str(table_path), offset, read_options()).text == f"text {row}"
    with pytest.raises(InputError, match="has no document at offset"):
        read_document_at(str(table_path), offset_of(table_path, 5), read_options())


def test_a_bad_field_of_a_table_is_named_by_its_row(tmp_path: Path) -> None:
    table = pa.table({"text": ["a", "b"], "id": [1.5, 2.5]})
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.ipc.new_stream(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    for name, place in {"a.parquet": "row 0", "a.arrow": "batch 0, row 0"}.items():
        with pytest.raises(InputError) as caught:
            read(tmp_path / name, read_options(id_field="id"))
        assert str(caught.value) == (
            f"{tmp_path / name}, {place}: the field 'id' is a number, it must be a string; "
            "mend it or pass --on-bad-input skip."
        )


def test_a_table_without_the_text_column_names_its_columns(table_path: Path) -> None:
    documents, tally = read(table_path, read_options(text_field="body"))
    assert (documents, fates(tally)) == ([], {"records_read": 100, "missing_text": 100})
    with pytest.raises(InputError, match="fields seen: id, other, source, text;"):
        tally.raise_if_no_field(BuildConfig(text_field="body"))


def test_a_column_that_holds_no_strings_is_an_error(table_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(table_path, read_options(text_field="other"))
    assert str(caught.value) == (
        f"{table_path}: the column 'other' is of type int64, it must hold strings; "
        "name another with --text-field."
    )


@pytest.mark.parametrize("split_bytes", [1, ONE_SPLIT])
def test_a_damaged_table_is_one_clear_line(table_path: Path, split_bytes: int) -> None:
    data = table_path.read_bytes()
    table_path.write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=rf"^cannot read {table_path}: .*\.$") as caught:
        read(table_path, read_options(), split_bytes=split_bytes)
    assert "\n" not in str(caught.value)


def test_bad_utf8_in_a_table_is_placed_skipped_or_replaced(tmp_path: Path) -> None:
    values = pa.array([b"good", b"caf\xe9", None], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, values.buffers())
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": column}), path)
    with pytest.raises(InputError, match=r"a\.parquet, row 1, byte 3: byte 0xe9 is not UTF-8"):
        read(path, read_options())
    _, tally = read(path, read_options(on_bad_input="skip"))
    assert fates(tally) == {"records_read": 3, "documents_read": 1, "bad_utf8": 1, "null_text": 1}
    assert texts(path, on_bad_input="replace") == ["good", "caf\ufffd"]


# Options, and the whole


def test_options_come_from_the_configuration_and_pickle() -> None:
    config = BuildConfig(layout="lines", id_field="id", source="tales", on_bad_input="skip")
    options = ReadOptions.from_config(config)
    expected = ReadOptions(
        layout="lines",
        text_field="text",
        id_field="id",
        source="tales",
        source_field=None,
        on_bad_input="skip",
    )
    assert pickle.loads(pickle.dumps(options)) == expected


def test_no_document_at_an_offset_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "one\n\ntwo\n")
    options = read_options(layout="sentences")
    assert read_document_at(str(path), 5, options).text == "two"
    with pytest.raises(InputError, match=r"a\.txt has no document at offset 9;"):
        read_document_at(str(path), 9, options)
    with pytest.raises(InputError, match=r"the format of .* is unknown; name it with --input-fo"):
        read_document_at("notes.md", 0, options)


@pytest.mark.parametrize("layout", ["prose", "sentences", "lines"])
def test_every_hard_file_is_read_or_refused_in_one_line(corpora: Path, layout: str) -> None:
    paths = sorted(path for path in (corpora / "hard").rglob("*") if path.is_file())
    assert len(paths) >= 40
    num_documents = 0
    for path in paths:
        for policy in ("error", "skip", "replace"):
            options = read_options(layout=layout, on_bad_input=policy)
            num_read, message = documents_or_message(path, options)
            num_documents += num_read
            assert message is None or (policy == "error" and str(path) in message), message
            assert "\n" not in (message or "")
    assert num_documents > 1000


def documents_or_message(path: Path, options: ReadOptions) -> tuple[int, str | None]:
    try:
        return len(read(path, options, input_format="txt")[0]), None
    except InputError as error:
        return 0, str(error)
