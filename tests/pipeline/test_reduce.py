"""The second stage, as a build runs it."""

from pathlib import Path

import pytest
from tests.pipeline.small_corpora import small_build, write_json_lines


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="maps are listed by Linux")
def test_a_build_in_this_process_lets_its_parts_go(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    small_build(write_json_lines(tmp_path / "a.jsonl", texts), syllables, tmp_path / "data")
    assert str(tmp_path / "data") not in Path("/proc/self/maps").read_text()
