import contextlib
import io
import os
from pathlib import Path

from rich.console import Console
from tests.train.test_metrics import start, train_row, window

from clozemill.train.live import live, row_text, summary, summary_table
from clozemill.train.metrics import EvaluationRow, Row, Window


def evaluation_row(step: int, loss: float) -> EvaluationRow:
    return window(mlm_loss_sum=10 * loss).evaluation_row(step=step, split="validation")


def run_rows() -> list[Row]:
    return [
        start(),
        train_row(10),
        evaluation_row(10, 2.5),
        train_row(20),
        evaluation_row(20, 1.5),
    ]


def test_a_row_is_read_aloud_without_what_it_lacks() -> None:
    assert row_text(train_row(1)) == (
        "loss 3.000, nsp 0.500, rate 1.00e-04, norm 1.25, tokens/s 45, waiting 25.0%"
    )
    assert row_text(Window(steps=1).evaluation_row(step=1, split="train")) == "train "
    assert row_text(evaluation_row(1, 2.5)) == (
        "validation loss 2.500, at masks 3.000, accuracy 10.0%, nsp 0.500, nsp accuracy 75.0%"
    )
    assert "context-free 1.900" in row_text(start())


def test_elsewhere_than_on_a_terminal_there_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    with live(stream, num_steps=30) as on_row:
        for row in run_rows():
            on_row(row)
        on_row(train_row(30))
    steps = [line.split(":")[0] for line in stream.getvalue().splitlines()]
    assert steps == [f"step {step} of 30" for step in (0, 10, 10, 20, 30)]


def read_all(leader: int) -> str:
    """Return what was written to a terminal that nobody has open any more."""
    shown = b""
    with contextlib.suppress(OSError):  # which is how a terminal ends
        while piece := os.read(leader, 1 << 16):
            shown += piece
    os.close(leader)
    return shown.decode()


def test_on_a_terminal_there_is_one_line_and_those_of_evaluations() -> None:
    leader, follower = os.openpty()
    with os.fdopen(follower, "w") as terminal, live(terminal, num_steps=30) as on_row:
        for row in run_rows():
            on_row(row)
    shown = read_all(leader)
    assert "step 20 of 30" in shown
    assert "step 20: validation" in shown


def test_the_summary_holds_the_last_evaluation_against_what_is_to_beat() -> None:
    found = summary(run_rows())
    assert (found["split"], found["steps"], found["tokens"]) == ("validation", 20, 180)
    assert found["tokens_per_second"] == 45.0
    assert found["measures"]["mlm_loss"] == {"reference": 1.9, "first": 2.5, "last": 1.5}


def test_without_evaluations_the_summary_is_of_training() -> None:
    assert summary([train_row(3)])["split"] == "train"
    assert summary([])["measures"]["mlm_loss"]["last"] is None


def test_the_table_has_a_line_for_each_measure(tmp_path: Path) -> None:
    stream = io.StringIO()
    Console(file=stream, width=80).print(summary_table(run_rows()))
    text = stream.getvalue()
    for name in ("MLM loss", "at [MASK] alone", "NSP accuracy", "75.0%", "2.500", "1.500", "1.900"):
        assert name in text
