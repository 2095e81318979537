"""The page about exports: its code runs, and its tables and listing are those of an export."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)
from tests.train.trained_runs import train_briefly

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "export.md").read_text(encoding="utf-8")


def test_the_page_says_what_an_export_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    corpus = write_json_lines(tmp_path / "texts.jsonl", make_texts(120))
    small_dataset(corpus, write_tokenizer(tmp_path / "tokenizer"), Path("data"))
    train_briefly(Path("data"), Path("run"))
    (code,) = re.findall("```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert capfd.readouterr().err == "", "transformers is kept quiet"
    assert len(names["filled"].masks[0].candidates) == 3
    assert names["found"].row.instances == 20
    (listing,) = re.findall("DIR/\n(.*?)```", PAGE, re.DOTALL)
    listed = re.findall(r"^  ([\w.]+) ", listing, re.MULTILINE)
    assert sorted(listed) == sorted(path.name for path in Path("model").iterdir())
    lineage = json.loads(Path("model/config.json").read_text())["clozemill"]
    rows = re.findall(r"^\| (`.*?) \| .* \|$", PAGE, re.MULTILINE)
    assert sorted(re.findall("`(.*?)`", " ".join(rows))) == sorted(lineage)
