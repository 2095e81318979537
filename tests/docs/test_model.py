"""The page about the model is run, and its numbers are those of the code."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from clozemill.model.config import PRESETS, preset
from clozemill.model.flops import num_parameters

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "model.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    assert len(BLOCKS) == 2
    for block in BLOCKS:
        exec(block, names)
    shapes = [tuple(tensor.shape) for tensor in names["logits"]]
    said = re.findall(r"\.shape +# \((\d+), (\d+)\)", BLOCKS[0])
    assert shapes == [(int(rows), int(columns)) for rows, columns in said]
    state, theirs = names["model"].state_dict(), names["theirs"].state_dict()
    for name, tensor in names["same"].state_dict().items():
        assert torch.equal(tensor, state[name])
        assert torch.equal(tensor, theirs[name])
    assert names["theirs"].config.note == "any entries of your own"


def test_the_table_of_sizes_is_that_of_the_code():
    rows = re.findall(r"\| `(\w+)` \| (\d+) \| ([\d,]+) \| (\d+) \| ([\d,]+) \|", PAGE)
    found = [(row[0], *(int(cell.replace(",", "")) for cell in row[1:])) for row in rows]
    assert found == [
        (name, *sizes, num_parameters(preset(name, vocab_size=30522)))
        for name, sizes in PRESETS.items()
    ]
