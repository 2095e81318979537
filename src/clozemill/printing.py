"""What verbs print. Nothing else in the project does."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import click

EXIT_FOUND = 1
"""A check ran and found something."""

EXIT_COULD_NOT_RUN = 2
"""Usage, configuration or input."""

EXIT_INTERRUPTED = 130

json_option = click.option("--json", "is_json", is_flag=True, help="Print one JSON object.")
quiet_option = click.option("--quiet", is_flag=True, help="No progress on standard error.")


def fail(message: str, code: int) -> int:
    """Say what went wrong on standard error, and return the exit code."""
    with reader_may_leave(sys.stderr):
        click.echo(f"clozemill: {message}", err=True)
    return code


def print_text(text: str) -> None:
    """Print a result as it is."""
    with reader_may_leave(sys.stdout):
        click.echo(text, nl=False)


@contextlib.contextmanager
def reader_may_leave(stream: TextIO) -> Iterator[None]:
    """Go on after a reader has closed the pipe: it has seen enough, and the result stands."""
    try:
        yield
    except BrokenPipeError:
        lead_nowhere(stream)


def lead_nowhere(stream: TextIO) -> None:
    """Let the interpreter flush at its end what no reader wants."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show(table: Any, is_json: bool) -> None:
    """Print a `View` as JSON or for a person."""
    print_text(json.dumps(table.data, sort_keys=True, indent=2) + "\n" if is_json else table.text)
