"""What a person sees of a training: a line that is kept up to date, and a table at the end.

Both are made from rows of the log alone. Nothing is printed that the caller gave no stream for.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TextIO, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from clozemill.train.metrics import EvaluationRow, Row, StartRow, TrainRow

OnRow: TypeAlias = Callable[[Row], None]
"""Called with each row of a run as soon as it is in the log."""

SECONDS_BETWEEN_LINES = 10.0

_MEASURES = {
    "mlm_loss": ("MLM loss", "context_free_loss"),
    "mask_only_loss": ("  at [MASK] alone", "mask_token_loss"),
    "mlm_accuracy": ("MLM accuracy", "context_free_accuracy"),
    "nsp_loss": ("NSP loss", "nsp_length_loss"),
    "nsp_accuracy": ("NSP accuracy", "nsp_length_accuracy"),
}
"""What the table has a line for: its name, and the reference line it is held against."""


@contextlib.contextmanager
def live(stream: TextIO, *, num_steps: int) -> Iterator[OnRow]:
    """Give a callback that shows how far a training is.

    On a terminal that is one line with a bar and the time left, and a line that stays for each
    evaluation; elsewhere a line now and then, and for each evaluation.

    Args:
        stream: Where to write, such as standard error.
        num_steps: Steps of the whole run.
    """
    if not stream.isatty():
        yield _Lines(stream, num_steps)
        return
    with Progress(
        TextColumn("step {task.completed:,.0f} of {task.total:,.0f}", markup=False),
        BarColumn(bar_width=12),
        TextColumn("{task.description}", markup=False),
        TimeRemainingColumn(),
        console=Console(file=stream),
    ) as bar:
        yield _Bar(bar, num_steps)


def row_text(row: Row) -> str:
    """Return a row as a person reads it, without its step."""
    if isinstance(row, TrainRow):
        return _joined(
            ("loss", row.mlm_loss, ".3f"),
            ("nsp", row.nsp_loss, ".3f"),
            ("rate", row.learning_rate, ".2e"),
            ("norm", row.gradient_norm, ".2f"),
            ("tokens/s", row.tokens_per_second, ",.0f"),
            ("waiting", row.data_wait_share, ".1%"),
        )
    if isinstance(row, EvaluationRow):
        return f"{row.split} " + _joined(
            ("loss", row.mlm_loss, ".3f"),
            ("at masks", row.mask_only_loss, ".3f"),
            ("accuracy", row.mlm_accuracy, ".1%"),
            ("nsp", row.nsp_loss, ".3f"),
            ("nsp accuracy", row.nsp_accuracy, ".1%"),
        )
    return "to beat: " + _joined(
        ("even", row.even_loss, ".3f"),
        ("context-free", row.context_free_loss, ".3f"),
        ("nsp accuracy of lengths", row.nsp_length_accuracy, ".1%"),
    )


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return what a run came to, for JSON: the totals, and each measure's way over the run.

    Of the validation split if it was evaluated, else of training.
    """
    train = [row for row in rows if isinstance(row, TrainRow)]
    start = next((row for row in rows if isinstance(row, StartRow)), None)
    seen: Sequence[TrainRow | EvaluationRow] = [
        row for row in rows if isinstance(row, EvaluationRow) and row.split == "validation"
    ]
    seen = seen or train
    seconds = sum(row.seconds or 0.0 for row in train)
    tokens = sum(row.tokens for row in train)
    return {
        "split": "validation" if seen and isinstance(seen[0], EvaluationRow) else "train",
        "steps": train[-1].step if train else 0,
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds if seconds else None,
        "measures": {
            name: {
                "reference": getattr(start, reference) if start else None,
                "first": getattr(seen[0], name) if seen else None,
                "last": getattr(seen[-1], name) if seen else None,
            }
            for name, (_, reference) in _MEASURES.items()
        },
    }


def summary_table(rows: Sequence[Row]) -> Table:
    """Return what a run came to as a table: each measure first, last, and what it must beat."""
    found = summary(rows)
    title = f"{found['split']} after {found['steps']:,} steps of {found['tokens']:,} tokens in all"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("", no_wrap=True)
    for heading in ("to beat", "first", "last"):
        table.add_column(heading, justify="right")
    for name, (text, _) in _MEASURES.items():
        values = found["measures"][name]
        if values["last"] is not None:
            form = ".1%" if name.endswith("accuracy") else ".3f"
            cells = [_text(values[key], form) for key in ("reference", "first", "last")]
            table.add_row(text.replace("[", "\\["), *cells)
    return table


class _Bar:
    """The line on a terminal."""

    def __init__(self, bar: Progress, num_steps: int) -> None:
        self.bar = bar
        self.task = bar.add_task("", total=num_steps)

    def __call__(self, row: Row) -> None:
        if isinstance(row, TrainRow):
            text = _joined(
                ("loss", row.mlm_loss, ".3f"), ("tokens/s", row.tokens_per_second, ",.0f")
            )
            self.bar.update(self.task, completed=row.step, description=text)
        else:
            line = f"step {row.step:,}: {row_text(row)}"
            self.bar.console.print(line, markup=False, highlight=False)


class _Lines:
    """Lines in a file or pipe."""

    def __init__(self, stream: TextIO, num_steps: int) -> None:
        self.stream = stream
        self.num_steps = num_steps
        self.last = -SECONDS_BETWEEN_LINES

    def __call__(self, row: Row) -> None:
        now = time.monotonic()
        if isinstance(row, TrainRow):
            if now - self.last < SECONDS_BETWEEN_LINES and row.step < self.num_steps:
                return
            self.last = now
        print(
            f"step {row.step:,} of {self.num_steps:,}: {row_text(row)}",
            file=self.stream,
            flush=True,
        )


def _joined(*parts: tuple[str, float | None, str]) -> str:
    """Return `name value, name value`, without what is absent."""
    return ", ".join(f"{name} {value:{form}}" for name, value, form in parts if value is not None)


def _text(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
