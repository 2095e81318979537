import dataclasses
import json
import math
import os
from pathlib import Path

import pytest
from tests.full_disk import files_end_at
from tests.train.small_rows import start_row_of_a_corpus, train_row, window

from clozemill.pipeline.errors import RunError
from clozemill.train.metrics import (
    METRICS_NAME,
    MetricsLog,
    exact_columns,
    read_metrics,
    row_line,
)
from clozemill.training_tables import row_text


def test_numbers_that_are_not_finite_are_null_with_a_reason() -> None:
    row = train_row(3, window(mlm_loss_sum=math.nan, nsp_loss_sum=-math.inf))
    table = json.loads(row_line(row))
    assert table["mlm_loss"] is table["nsp_loss"] is None
    assert table["absent"] == {"mlm_loss": "nan", "nsp_loss": "-inf"}


def test_rows_read_back_are_those_appended(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    rows = [
        start_row_of_a_corpus(),
        train_row(1),
        window().evaluation_row(step=1, split="validation"),
    ]
    with MetricsLog(path) as log:
        for number, row in enumerate(rows, start=1):
            log.append(row)
            assert read_metrics(path) == rows[:number]


def test_exact_columns_leave_out_what_was_measured() -> None:
    columns = exact_columns(train_row(1))
    assert columns == exact_columns(train_row(1, window(seconds=3.0, data_wait_seconds=1.0)))
    assert {"mlm_loss", "learning_rate", "gradient_norm", "padding_share"} <= columns.keys()
    assert not {"seconds", "mfu", "tokens_per_second"} & columns.keys()


def test_a_resumed_log_drops_later_rows_and_the_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        for step in (10, 20, 30):
            log.append(train_row(step))
    whole = path.read_text()
    with path.open("a") as stream:
        stream.write('{"kind":"train","st')
    with MetricsLog(path, last_step=20) as log:
        assert log.num_rows == 2
        assert len(log.notices) == 2
        assert "dropped the rows after step 20: 1" in log.notices[0]
        assert "cut off" in log.notices[1]
        assert path.read_text() == whole[: path.stat().st_size]
        log.append(train_row(30))
    assert path.read_text() == whole


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(row_line(train_row(1)) + "rubbish\n" + row_line(train_row(2)))
    with pytest.raises(RunError, match=r"metrics.jsonl:2 is not JSON"):
        MetricsLog(path, last_step=2)


def fill(log: MetricsLog) -> None:
    for step in range(1, 100):
        log.append(train_row(step))


def test_a_full_disk_is_one_line_and_the_log_can_be_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with (
        MetricsLog(path) as log,
        files_end_at(2_000),
        pytest.raises(RunError, match=r"cannot write .*metrics.jsonl: File too large; free some"),
    ):
        fill(log)
    num_whole = len(read_metrics(path))
    assert 1 < num_whole < 10
    with MetricsLog(path, last_step=99) as log:
        assert log.num_rows == num_whole
        assert "cut off" in log.notices[0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[]", "must be an object"),
        ('{"step":1}', "has the kind None"),
        ('{"kind":["train"]}', "has the kind"),
        ('{"kind":"train"}', "has no key 'step'"),
        (row_line(train_row(1)).replace("3.0", "NaN"), "it has NaN"),
        (row_line(train_row(1)).replace("3.0", "1e999"), "is inf; it must be a number"),
        (row_line(train_row(1)).replace("3.0", '"3.0"'), "is '3.0'; it must be a number"),
    ],
)
def test_a_line_that_is_no_row_is_named_with_its_number(
    line: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(line.rstrip() + "\n" + row_line(train_row(2)))
    with pytest.raises(RunError, match=message) as error:
        read_metrics(path)
    assert f"{path}:1" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_damaged_log_says_how_the_run_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / METRICS_NAME
    path.write_text("garbage\n\n")
    with pytest.raises(RunError, match=r"move it away: the log then begins after step 5\."):
        MetricsLog(path, last_step=5)


def test_a_log_that_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / METRICS_NAME
    os.mkfifo(path)
    with pytest.raises(RunError, match="cannot read .*metrics.jsonl"):
        MetricsLog(path, last_step=5)


def test_the_lines_to_beat_of_data_without_pairs_have_no_next_sentences() -> None:
    row = dataclasses.replace(
        start_row_of_a_corpus(), context_free_loss=3.0, even_loss=4.0, nsp_length_accuracy=0.5
    )
    text = "lines to beat: MLM 3.000 nats without context (evenly 4.000)"
    assert row_text(row) == f"{text}, NSP accuracy 50.0% from lengths alone"
    assert row_text(dataclasses.replace(row, nsp_length_accuracy=None)) == text
