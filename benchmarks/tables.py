"""How benchmarks give what they found: as a Markdown table, or as JSON to print or to keep."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; all columns but the first hold numbers."""
    lines = [columns, ["---"] + ["---:"] * (len(columns) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def give(found: dict[str, Any], text: str, *, is_json: bool, save: Path | None = None) -> None:
    """Print what was found as JSON or for a person, and write the JSON to a named file."""
    data = json.dumps(found, indent=1)
    if save:
        save.write_text(data + "\n")
    click.echo(data if is_json else text)
