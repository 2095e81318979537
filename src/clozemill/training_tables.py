"""What a person sees of a training: a live line, and the table at its end."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Iterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from clozemill.train.metrics import EvaluationRow, Row, StartRow, TrainRow
from clozemill.train.pretrain import PretrainReport
from clozemill.train.replay import Replay
from clozemill.train.reporting import OnRow
from clozemill.views import View, new_table, render

_SECONDS_BETWEEN_LINES = 10.0


@contextlib.contextmanager
def live_rows(*, is_shown: bool) -> Iterator[OnRow]:
    """Give a callback that shows the rows of a training on standard error.

    One line that changes on a terminal, and a line now and then elsewhere; evaluations stay.
    """
    if not is_shown:
        yield lambda row: None
    elif sys.stderr.isatty():
        console = Console(stderr=True, highlight=False)
        with Live(console=console, auto_refresh=False) as live:
            yield lambda row: _show_live(live, row)
    else:
        yield _Lines()


def _show_live(live: Live, row: Row) -> None:
    if isinstance(row, TrainRow):
        live.update(Text(row_text(row)), refresh=True)
    else:
        live.console.print(row_text(row))


class _Lines:
    """Prints a row unless another was printed a moment ago."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self, row: Row) -> None:
        now = time.monotonic()
        if not isinstance(row, TrainRow) or now - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = now
            print(row_text(row), file=sys.stderr, flush=True)


def row_text(row: Row) -> str:
    """Return a row of the log as a line."""
    if isinstance(row, StartRow):
        return (
            f"lines to beat: MLM {_number(row.context_free_loss)} nats without context "
            f"(evenly {_number(row.even_loss)}), NSP accuracy "
            f"{_percent(row.nsp_length_accuracy)} from lengths alone"
        )
    losses = (
        f"MLM {_number(row.mlm_loss)} ({_percent(row.mlm_accuracy)}), "
        f"NSP {_number(row.nsp_loss)} ({_percent(row.nsp_accuracy)})"
    )
    if isinstance(row, EvaluationRow):
        return f"step {row.step}  {row.split}: {losses}"
    speed = "" if row.tokens_per_second is None else f"  {row.tokens_per_second:,.0f} tokens/s"
    return f"step {row.step}  epoch {row.epoch}  {losses}{speed}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def run_view(report: PretrainReport) -> View:
    """Return how far a training came, and what its evaluations say beside the reference lines."""
    data = {
        "out": str(report.folder),
        "step": report.step,
        "num_steps": report.num_steps,
        "is_finished": report.is_finished,
        "rows": [{"kind": row.kind, **dataclasses.asdict(row)} for row in _last_of_kinds(report)],
        "notices": list(report.notices),
    }
    columns = ["step", "MLM loss", "at [MASK]", "MLM accuracy", "NSP loss", "NSP accuracy"]
    table = new_table("validation", columns, right=range(len(columns)))
    evaluations = [row for row in report.rows if isinstance(row, EvaluationRow)]
    for row in evaluations[-_MOST_EVALUATIONS:]:
        table.add_row(
            str(row.step),
            _number(row.mlm_loss),
            _number(row.mask_only_loss),
            _percent(row.mlm_accuracy),
            _number(row.nsp_loss),
            _percent(row.nsp_accuracy),
        )
    starts = [row_text(row) for row in report.rows if isinstance(row, StartRow)]
    parts = [table] if evaluations else []
    return View(data=data, text=render(*parts, *starts, _end_text(report)))


_MOST_EVALUATIONS = 10


def _last_of_kinds(report: PretrainReport) -> list[Row]:
    last: dict[str, Row] = {row.kind: row for row in report.rows}
    return list(last.values())


def _end_text(report: PretrainReport) -> str:
    if report.is_finished:
        return f"{report.folder} has all its {report.num_steps} steps."
    return (
        f"{report.folder} was asked to stop after step {report.step} of {report.num_steps}; the "
        "same command goes on from there."
    )


def replay_view(replay: Replay) -> View:
    """Return a step taken again, an instance a line, the largest loss first."""
    window = replay.result.window
    data = {
        "step": replay.step,
        "window": dataclasses.asdict(window),
        "gradient_norm": str(replay.result.gradient_norm),
        "is_finite": replay.result.is_finite,
        "instances": [
            {**dataclasses.asdict(i), "mlm_loss": str(i.mlm_loss), "nsp_loss": str(i.nsp_loss)}
            for i in replay.instances
        ],
    }
    columns = ["instance", "number", "variant", "tokens", "selected", "MLM loss", "NSP loss"]
    table = new_table(f"step {replay.step}", columns, right=range(1, len(columns)))
    # What is no number first: NaN compares with nothing.
    for i in sorted(replay.instances, key=lambda i: (i.is_finite, -i.mlm_loss)):
        counts = (i.number, i.variant, i.num_tokens, i.num_selected)
        table.add_row(i.instance_id, *map(str, counts), _number(i.mlm_loss), _number(i.nsp_loss))
    means = (
        f"whole step, with dropout: MLM {_number(window.mlm_loss_sum / max(1, window.selected))}, "
        f"NSP {_number(window.nsp_loss_sum / max(1, window.pairs))}, gradient norm "
        f"{replay.result.gradient_norm:.3f}; nothing was written."
    )
    return View(data=data, text=render(table, means))
