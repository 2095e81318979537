"""What a folder is that was given in place of a dataset."""

import json
from pathlib import Path
from typing import Any

from clozemill.pipeline.files import open_regular

_TRAINED: dict[str, tuple[str, tuple[str, ...]]] = {
    "run.json": ("a training run", ("facts", "dataset", "path")),
    "state.json": ("a checkpoint", ("state", "facts", "dataset", "path")),
    "plan.json": ("a study", ("config", "data")),
}
"""What a folder with such a file is, and where the file names the dataset."""

_TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")


def other_folder(folder: Path) -> str | None:
    """Return what a folder without a manifest is and what to give instead; None: who knows."""
    for name, (what, keys) in _TRAINED.items():
        if (folder / name).is_file():
            dataset = _text_at(folder / name, keys)
            way_out = (
                f"its dataset is {dataset!r:.200}"
                if dataset
                else "give the dataset it is made from"
            )
            return f"{folder} is {what} and no dataset; {way_out}."
    if (folder / "config.json").is_file():
        return f"{folder} is a model and no dataset; give a folder that clozemill build wrote."
    if any((folder / name).is_file() for name in _TOKENIZER_FILES):
        return (
            f"{folder} is a tokenizer and no dataset; build one with: clozemill build INPUT... "
            f"--tokenizer {folder} --out DIR."
        )
    return None


def _text_at(path: Path, keys: tuple[str, ...]) -> str | None:
    """Return the text below these keys of a file of JSON; None where there is none."""
    try:
        with open_regular(path) as stream:
            value: Any = json.load(stream)
    except (OSError, ValueError, RecursionError):
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
