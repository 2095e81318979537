from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pytest
from tests.pipeline.small_parts import Tokenized, columns_of, id_of, random_documents, write_parts

from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.parts import (
    NUM_CELLS,
    Parts,
    big_endian,
    cell_rows,
    cells_of,
    open_part,
    part_ids,
    write_part,
)

SOME = random_documents(50)


@pytest.fixture
def part(tmp_path: Path) -> pa.RecordBatch:
    return open_part(tmp_path / write_parts(tmp_path, SOME)[0])


def test_what_was_written_is_read_in_id_order(tmp_path: Path, part: pa.RecordBatch):
    ordered = sorted(SOME, key=lambda document: document.id)
    assert part["document_id"].to_pylist() == [document.id for document in ordered]
    assert part["sentence_lengths"].to_pylist() == [list(map(len, d.sentences)) for d in ordered]
    assert part["tokens"].to_pylist() == [list(sum(d.sentences, ())) for d in ordered]
    assert part["longest_sentence"].to_pylist() == [max(map(len, d.sentences)) for d in ordered]
    assert {path.name for path in tmp_path.iterdir()} == {"000000.arrow"}


def test_size_is_that_of_the_file(tmp_path: Path):
    size = write_part(tmp_path / "a.arrow", columns_of(SOME))
    assert size == (tmp_path / "a.arrow").stat().st_size
    with pytest.raises(DatasetError, match="cannot write"):
        write_part(tmp_path / "absent" / "a.arrow", columns_of(SOME))


def test_unknown_tokens_and_documents_without_sentences_are_counted(tmp_path: Path):
    documents = [
        Tokenized(id=id_of(1), sentences=()),
        Tokenized(id=id_of(2), sentences=((1, 5), (1, 1))),
        Tokenized(id=id_of(3), sentences=()),
        Tokenized(id=id_of(4), sentences=((5,),)),
        Tokenized(id=id_of(5), sentences=()),
    ]
    part = open_part(tmp_path / write_parts(tmp_path, documents)[0])
    assert part["num_unknown"].to_pylist() == [0, 3, 0, 0, 0]
    assert part["longest_sentence"].to_pylist() == [0, 2, 0, 1, 0]
    assert part["tokens"].to_pylist() == [[], [1, 5, 1, 1], [], [5], []]


def test_ids_of_a_slice_are_those_of_its_rows(part: pa.RecordBatch):
    ids = part_ids(part.slice(7, 20))
    assert [row.tobytes() for row in ids] == part["document_id"].to_pylist()[7:27]


def test_cells_are_the_first_two_bytes_and_ids_sort_as_bytes(part: pa.RecordBatch):
    ids = part_ids(part)
    keys = part["document_id"].to_pylist()
    assert cells_of(ids).tolist() == [int.from_bytes(key[:2], "big") for key in keys]
    order = np.random.default_rng(0).permutation(len(ids))
    back = np.lexsort(big_endian(ids[order]).T[::-1])
    assert [ids[order][i].tobytes() for i in back] == sorted(keys)


def test_rows_of_cells_join_to_the_whole(tmp_path: Path):
    cells = [0, 0, 1, 500, 500, 500, NUM_CELLS - 1]
    documents = [Tokenized(id=id_of(cell, number)) for number, cell in enumerate(cells)]
    part = open_part(tmp_path / write_parts(tmp_path, documents)[0])
    assert cell_rows(part, 0, 1) == slice(0, 2)
    assert cell_rows(part, 2, 500) == slice(3, 3)
    assert cell_rows(part, 500, 501) == slice(3, 6)
    borders = [0, 1, 2, 500, 501, NUM_CELLS]
    found = [cell_rows(part, *pair) for pair in zip(borders, borders[1:], strict=False)]
    assert [place for rows in found for place in range(rows.start, rows.stop)] == list(range(7))


@pytest.mark.parametrize(("most_mapped", "at_once"), [(1, 1), (2, 2), (100, 32)])
def test_lists_are_gathered_from_several_parts_in_any_order_and_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_mapped: int, at_once: int
):
    monkeypatch.setattr("clozemill.pipeline.parts._MOST_MAPPED", most_mapped)
    monkeypatch.setattr("clozemill.pipeline.parts._PARTS_AT_ONCE", at_once)
    names = write_parts(tmp_path, SOME[:20], SOME[20:40], SOME[40:])
    parts = Parts([tmp_path / name for name in names])
    by_id = {document.id: document for document in SOME}
    for first, stop in ((0, NUM_CELLS), (NUM_CELLS // 3, NUM_CELLS // 2)):
        table = parts.rows(first, stop)
        assert "tokens" not in table.column_names
        inside = {key for key in by_id if first <= int.from_bytes(key[:2], "big") < stop}
        assert set(table["document_id"].to_pylist()) == inside
        assert len(table) == len(inside) > 3
        rows = np.random.default_rng(1).integers(0, len(table), 60)
        chosen = [by_id[table["document_id"][int(row)].as_py()] for row in rows]
        tokens, lengths = parts.gather_lists(table, rows)
        assert tokens.dtype == np.uint16
        assert tokens.tolist() == [t for document in chosen for s in document.sentences for t in s]
        assert lengths.tolist() == [len(s) for document in chosen for s in document.sentences]
        assert table["num_tokens"].to_pylist()[0] == len(tokens_of(by_id, table, 0))


def test_cells_without_documents_have_no_rows(tmp_path: Path):
    names = write_parts(tmp_path, [Tokenized(id=id_of(5))], [Tokenized(id=id_of(9))])
    parts = Parts([tmp_path / name for name in names])
    assert len(parts.rows(6, 9)) == 0
    assert parts.rows(6, 9).schema == parts.rows(0, 99).schema


def test_parts_take_neither_memory_nor_descriptors(tmp_path: Path):
    folders = [tmp_path / str(number) for number in range(40)]
    for number, folder in enumerate(folders):
        folder.mkdir()
        write_parts(
            folder, [Tokenized(id=id_of(n, number), sentences=((7,) * 500,)) for n in range(500)]
        )
    parts = Parts([next(folder.iterdir()) for folder in folders])
    process = psutil.Process()
    before, num_descriptors = process.memory_full_info(), process.num_fds()
    for first in range(0, 500, 20):
        table = parts.rows(first, first + 20)
        assert len(parts.gather_lists(table, np.arange(len(table)))[0]) == 40 * 20 * 500
    after = process.memory_full_info()
    assert sum(next(folder.iterdir()).stat().st_size for folder in folders) > 20_000_000
    assert after.pss < before.pss + 10_000_000
    assert process.num_fds() == num_descriptors


def tokens_of(by_id: dict[bytes, Tokenized], table: pa.Table, row: int) -> list[int]:
    return [t for s in by_id[table["document_id"][row].as_py()].sentences for t in s]
