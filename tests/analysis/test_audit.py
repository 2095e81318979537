import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.analysis.faults import plant, separators_selected
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.audit import (
    AuditReport,
    AuditSettings,
    _Asked,
    _judge,
    p_values,
    run_audit,
)
from clozemill.analysis.db import open_database
from clozemill.analysis.questions import Kind, all_questions
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import ClozemillError, ConfigError, QueryError
from clozemill.pipeline.progress import Progress

ONLY = ("actions", "mask_rates", "selected_by_segment", "special_tokens_selected", "words_whole")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audited")
    tokenizer = write_tokenizer(folder / "tokenizer")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(100))
    small_build(corpus, tokenizer, folder / "data", mask_variants=20)
    return folder / "data"


def audited(folder: Path, settings: AuditSettings, **more: object) -> AuditReport:
    with open_database(folder, threads=1) as connection:
        return run_audit(connection, open_dataset(folder).manifest, settings, **more)  # type: ignore[arg-type]


def test_the_rate_is_shared_by_tested_questions_and_then_by_their_groups(data: Path) -> None:
    report = audited(data, AuditSettings(only=ONLY, false_alarm_rate=1e-3))
    assert not report.has_failed
    found = {a.question.name: (a.verdict, a.num_groups, a.threshold) for a in report.answers}
    assert found == {
        "actions": ("passed", 6, pytest.approx(1e-3 / 2 / 6)),
        "mask_rates": ("figures", 0, 5e-4),
        "selected_by_segment": ("passed", 2, pytest.approx(1e-3 / 2 / 2)),
        "special_tokens_selected": ("passed", 0, 5e-4),
        "words_whole": ("not asked", 0, 5e-4),
    }


def test_groups_come_least_probable_first_and_pass_within_their_interval(data: Path) -> None:
    report = audited(data, AuditSettings(only=("selected_by_token",)))
    [answer] = report.answers
    assert answer.num_groups > len(answer.groups) == 5
    values = [group.p_value for group in answer.groups]
    assert values == sorted(values)
    first = answer.rows.slice(0, 1).to_pylist()[0]
    assert answer.groups[0].label == f"{first['split']}, token {first['token_id']}"
    assert answer.groups[0].observed == first["observed"]
    for group in answer.groups:
        assert group.low is not None
        assert group.high is not None
        assert group.low <= group.observed <= group.high


def test_what_has_nothing_to_test_has_no_verdict(data: Path) -> None:
    [answer] = audited(data, AuditSettings(only=("sampled_passes",))).answers
    assert (answer.verdict, answer.reason) == ("not asked", "nothing to test")


def test_offences_are_counted_and_kept(data: Path, tmp_path: Path) -> None:
    wrong = plant(data, tmp_path / "wrong", separators_selected)
    only = ("special_tokens_selected",)
    [few] = audited(wrong, AuditSettings(only=only)).answers
    assert few.verdict == "failed"
    assert 0 < few.rows.num_rows == few.num_rows < 1_000
    assert few.rows.column_names[:4] == ["split", "instance", "variant", "position"]


def test_a_damaged_shard_is_told_in_a_line(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "damaged")
    shard = next((tmp_path / "damaged").glob("train-*.arrow"))
    content = bytearray(shard.read_bytes())
    begin, end = len(content) // 4, len(content) * 3 // 4
    content[begin:end] = b"\xff" * (end - begin)
    shard.write_bytes(content)
    with pytest.raises(ClozemillError) as caught:
        audited(tmp_path / "damaged", AuditSettings())
    assert "\n" not in str(caught.value)


def test_too_little_memory_is_told_in_a_line(data: Path) -> None:
    with open_database(data, threads=1, memory_limit="1MB") as connection:
        manifest = open_dataset(data).manifest
        with pytest.raises(QueryError, match="give the query more with --memory-limit"):
            run_audit(connection, manifest, AuditSettings())


def test_an_expectation_that_is_no_number_fails() -> None:
    rows = pa.table({"observed": [5.0], "trials": [9.0], "expected": [np.nan], "variance": [1.0]})
    assert np.isnan(p_values(Kind.SUMS, rows)).all()
    question = next(q for q in all_questions() if q.kind is Kind.SUMS)
    asked = _Asked(
        question=question,
        reason="",
        rows=rows,
        num_rows=1,
        p_values=p_values(Kind.SUMS, rows),
    )
    assert _judge(asked, 1e-6).verdict == "failed"


def test_progress_is_told_before_each_question_and_at_the_end(data: Path) -> None:
    seen: list[Progress] = []
    audited(data, AuditSettings(only=ONLY[:2]), on_progress=seen.append)
    assert [(step.done, step.total) for step in seen] == [(0, 2), (1, 2), (2, 2)]


def test_numbers_of_any_type_are_judged() -> None:
    rows = pa.table({"observed": [50, 5], "trials": [100, 100], "probability": [0.5, 0.5]})
    exact = p_values(Kind.SHARES, rows)
    assert exact[0] == 1.0
    assert exact[1] < 1e-20
    wide = rows.set_column(0, "observed", rows.column("observed").cast(pa.decimal128(38)))
    assert (p_values(Kind.SHARES, wide) == exact).all()


@pytest.mark.parametrize("rate", [0.0, 1.0, -1e-6])
def test_a_rate_outside_0_to_1_is_refused(rate: float) -> None:
    with pytest.raises(ConfigError, match=r"false_alarm_rate is .*; it must be between 0 and 1"):
        AuditSettings(false_alarm_rate=rate)
