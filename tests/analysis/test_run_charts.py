import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clozemill.analysis.charts import ReportError, draw, svg_file
from clozemill.analysis.run_charts import curves, read_runs
from clozemill.train.metrics import EvaluationRow, StartRow, TrainRow, row_line

SVG = "{http://www.w3.org/2000/svg}"


def write_run(folder: Path, *, num_rows: int = 300, context_free_loss: float = 3.0) -> Path:
    """Write a log whose losses fall from 9 to 2; odd steps have twice the tokens."""
    folder.mkdir()
    start = StartRow(
        split="validation",
        instances=1,
        selected=1,
        train_instances=1,
        even_loss=9.0,
        unigram_entropy=3.0,
        mask_token_loss=3.0,
        context_free_loss=context_free_loss,
        context_free_accuracy=0.1,
        nsp_even_loss=0.69,
        nsp_majority_accuracy=0.52,
        nsp_length_loss=0.69,
        nsp_length_accuracy=0.55,
    )
    lines = [row_line(start)]
    means = {"mask_only_loss": None, "nsp_loss": 0.6, "mlm_accuracy": 0.3}
    for step in range(1, num_rows + 1):
        counts = {"instances": 8, "pairs": 8, "tokens": 80, "selected": 10 + 10 * (step % 2)}
        row = TrainRow(
            step=step,
            epoch=0,
            steps=1,
            mlm_loss=9 - 7 * step / num_rows,
            nsp_accuracy=0.5 + step / num_rows / 4,
            learning_rate=0.1,
            gradient_norm=1.0,
            padding_share=0.0,
            mask_only=5,
            seconds=1.0,
            tokens_per_second=1.0,
            selected_per_second=1.0,
            data_wait_share=0.0,
            mfu=None,
            peak_memory_bytes=None,
            **means,
            **counts,
        )
        lines.append(row_line(row))
    last = EvaluationRow(
        step=num_rows,
        split="validation",
        mlm_loss=2.5,
        nsp_accuracy=0.7,
        mask_only=5,
        instances=8,
        pairs=8,
        tokens=80,
        selected=10,
        seconds=1.0,
        **means,
    )
    (folder / "metrics.jsonl").write_text("".join([*lines, row_line(last)]))
    return folder


def test_a_picture_names_the_lines_and_says_where_the_run_ended(tmp_path: Path) -> None:
    picture = ElementTree.fromstring(svg_file(curves(read_runs([write_run(tmp_path / "run")]))))
    texts = {element.text for element in picture.iter(f"{SVG}text")}
    assert {"without context", "from lengths alone", "step"} <= texts
    description = picture.find(f"{SVG}desc")
    assert description is not None
    assert description.text == (
        "At step 300 run has a validation MLM loss of 2.500 and an NSP accuracy of 70.0%."
    )
    assert "prefers-color-scheme: dark" in (picture.findtext(f"{SVG}style") or "")


def test_points_of_a_curve_are_means_over_the_tokens_of_their_steps(tmp_path: Path) -> None:
    chart = curves(read_runs([write_run(tmp_path / "run")]))
    first = next(row for row in chart.rows if row[2] == "training")
    # Steps 1 to 3 have 20, 10 and 20 selected tokens.
    losses = [9 - 7 * step / 300 for step in (1, 2, 3)]
    expected = (20 * losses[0] + 10 * losses[1] + 20 * losses[2]) / 50
    assert first[:4] == ("Masked language model: loss in nats", "run", "training", 3)
    assert first[4] == pytest.approx(expected)


def test_runs_of_other_data_share_no_reference_line(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b", context_free_loss=4.0)]
    lines = {row[2] for row in curves(read_runs(runs)).rows if row[3] is None}
    assert "knowing nothing" in lines
    assert "without context" not in lines


def test_a_name_that_looks_like_markup_is_text(tmp_path: Path) -> None:
    name = "a<script>alert(1)&<script>"
    picture = ElementTree.fromstring(draw(curves(read_runs([write_run(tmp_path / name)]))))
    assert name in (picture.findtext(f"{SVG}title") or "")
    assert not list(picture.iter(f"{SVG}script"))


def test_two_runs_of_one_name_cannot_be_told_apart(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    shutil.copytree(run, tmp_path / "other" / "run")
    with pytest.raises(ReportError, match="two runs are called run, as is .*rename a folder"):
        read_runs([run, tmp_path / "other" / "run"])


def test_a_log_without_a_step_has_no_curve(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    log = run / "metrics.jsonl"
    log.write_text(log.read_text().splitlines()[0] + "\n")
    with pytest.raises(ReportError, match="no step is in the logs of run; train for longer"):
        curves(read_runs([run]))
