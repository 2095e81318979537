from pathlib import Path

import pytest
from tests.analysis.fault_tables import FAULTS, PACKED_FAULTS, PAIR_FAULTS, SOUND
from tests.analysis.faults import plant
from tests.analysis.sound_builds import assert_same_offences, audit_all
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.audit import AuditReport
from clozemill.analysis.questions import Kind, all_questions


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders of sound datasets, by name."""
    folder = tmp_path_factory.mktemp("sound")
    tokenizer = write_tokenizer(folder / "tokenizer")
    sources = [f"s{number % 3}" for number in range(400)]
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(400), source=sources)
    for name, settings in SOUND.items():
        small_build(
            corpus, tokenizer, folder / name, source_field="source", mask_variants=3, **settings
        )
    return {name: folder / name for name in SOUND}


def failed(report: AuditReport) -> set[str]:
    assert len(report.answers) >= 20
    return {answer.question.name for answer in report.answers if answer.verdict == "failed"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_audits_and_no_others(
    sound: dict[str, Path], fault: str, tmp_path: Path
) -> None:
    name, change, fails, may_fail = FAULTS[fault]
    report = audit_all(plant(sound[name], tmp_path / "wrong", change))
    assert_same_offences(tmp_path / "wrong", report)
    found = failed(report)
    assert {audit for audit in found if audit in fails or not audit.startswith(may_fail)} == fails


@pytest.mark.slow
def test_what_faults_are_planted_in_is_sound(sound: dict[str, Path]) -> None:
    found = {name: failed(audit_all(folder)) for name, folder in sound.items()}
    assert found == {**dict.fromkeys(SOUND, set()), "long, cap 20": {"cap_on_selected"}}


def test_every_question_with_a_verdict_notices_a_fault() -> None:
    noticed = {name for fault in FAULTS.values() for name in fault.fails}
    for _, fails in (*PAIR_FAULTS.values(), *PACKED_FAULTS.values()):
        noticed |= fails
    assert noticed == {q.name for q in all_questions() if q.kind is not Kind.FIGURES}
