"""What the tests of verbs share: command lines, run as the installed program runs them."""

import io
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from clozemill import cli


class Done(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command line as the installed program does."""

    def run_command(*arguments: Any, typed: str = "", is_terminal: bool = False) -> Done:
        stdin = io.StringIO(typed)
        monkeypatch.setattr(stdin, "isatty", lambda: is_terminal)
        monkeypatch.setattr(sys, "argv", ["clozemill", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", stdin)
        with pytest.raises(SystemExit) as left:
            cli.main()
        printed = capsys.readouterr()
        return Done(int(left.value.code or 0), printed.out, printed.err)

    return run_command
