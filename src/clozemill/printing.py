"""How verbs print: results on standard output, and all else on standard error."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

import click

from clozemill.pipeline.errors import ClozemillError

if TYPE_CHECKING:
    from clozemill.printouts import Printout

EXIT_FOUND = 1
"""A check ran and found something."""

EXIT_COULD_NOT_RUN = 2
"""Usage, configuration or input."""

EXIT_INTERRUPTED = 130

PLAIN_WIDTH = 100
"""Columns of what is printed where no terminal says how many it has, and most of the help."""


def fail(message: str, code: int) -> int:
    """Say what went wrong on standard error, and return the exit code."""
    tell(f"clozemill: {message}")
    return code


def tell(line: str) -> None:
    """Say a line on standard error, where a notice or progress stands.

    Where it cannot be written, as to a full disk, the work it tells of still goes on.
    """
    try:
        click.echo(line, err=True)
    except OSError:
        lead_nowhere(sys.stderr)


def print_text(text: str) -> bool:
    """Print a result as it is; return whether somebody still reads."""
    try:
        with reader_may_leave(sys.stdout):
            click.echo(text, nl=False)
            return True
    except OSError as error:
        lead_nowhere(sys.stdout)
        raise ClozemillError(
            f"cannot write to standard output: {error.strerror}; lead it somewhere else."
        ) from error
    return False


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is a terminal; it may be closed."""
    return stream is not None and stream.isatty()


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


def show(printout: "Printout", is_json: bool) -> None:
    """Print a result as JSON or for a person."""
    print_text(
        json.dumps(printout.data, sort_keys=True, indent=2) + "\n" if is_json else printout.text
    )


def output_width() -> tuple[int, bool]:
    """Return the columns of standard output, at least 80, and whether it is a terminal."""
    is_shown = is_terminal(sys.stdout)
    return max(80, shutil.get_terminal_size().columns) if is_shown else PLAIN_WIDTH, is_shown
