import json
from pathlib import Path

import numpy as np

from clozemill.pipeline.origins import Origin, Origins, find_origins, join_origins, write_origins

IDS = [bytes([number]) * 16 for number in range(4)]


def origins(*rows: tuple[int, int, str, int]) -> Origins:
    return Origins(
        document_ids=np.array([np.frombuffer(IDS[row[0]], np.uint64) for row in rows]),
        copies=np.array([row[1] for row in rows]),
        files=[row[2] for row in rows],
        offsets=[row[3] for row in rows],
    )


def test_first_occurrence_of_each_document_is_found(tmp_path: Path):
    write_origins(tmp_path / "a", origins((0, 0, "caf\u00e9.txt", 7), (0, 0, "b.txt", 0)))
    write_origins(tmp_path / "b", origins((1, 2, "c.txt", 2**40), (2, 0, "d.txt", 1)))
    path = tmp_path / "origins.jsonl"
    join_origins(path, [tmp_path / "a", tmp_path / "b"])
    assert find_origins(path, {IDS[0], IDS[1], IDS[3]}) == {
        IDS[0]: Origin("caf\u00e9.txt", 7, 0),
        IDS[1]: Origin("c.txt", 2**40, 2),
    }


def test_lines_are_those_of_the_format(tmp_path: Path):
    write_origins(tmp_path / "a", origins((1, 0, "a.txt", 5), (2, 1, "a.txt", 6)))
    first, second = (json.loads(line) for line in (tmp_path / "a").read_text().splitlines())
    assert first == {"document_id": IDS[1].hex(), "file": "a.txt", "offset": 5}
    assert second == {"document_id": IDS[2].hex(), "file": "a.txt", "offset": 6, "copy": 1}


def test_missing_and_damaged_files_tell_nothing(tmp_path: Path):
    assert find_origins(tmp_path / "absent", set(IDS)) == {}
    line = b'{"document_id": "%s", "file": 3' % IDS[0].hex().encode()
    (tmp_path / "a").write_bytes(b"\xff\n" + line + b"\n")
    assert find_origins(tmp_path / "a", set(IDS)) == {}
