"""A result in both forms that a verb prints, and the small tables in it."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from clozemill.printing import PLAIN_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Printout:
    """A result in both forms that a command prints."""

    data: dict[str, Any]
    """For `--json`."""

    text: str
    """For a person, with its final newline."""


def new_table(title: str, columns: Sequence[str], *, right: Sequence[int]) -> Table:
    """Return an empty table; the columns at the places in `right` hold numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place in right else "left")
    return table


def render(*parts: Any, width: int = PLAIN_WIDTH, is_terminal: bool = False) -> str:
    """Return tables and texts as lines, none with blanks at its end; markup in them is text.

    Args:
        parts: What `rich` can print.
        width: Columns to wrap at.
        is_terminal: Whether to colour.
    """
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=is_terminal,
        no_color=not is_terminal,
        color_system="standard" if is_terminal else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for part in parts:
        console.print(part)
        if isinstance(part, Table):
            console.print()
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"
