from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.analysis import faults
from tests.analysis.faults import Change, plant
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.audit import AuditReport, run_audit
from clozemill.analysis.db import open_database
from clozemill.pipeline.dataset import open_dataset

SOUND: dict[str, dict[str, Any]] = {
    "tokens": {"max_seq_length": 64, "bucket_tokens": 20_000},
    "words": {"max_seq_length": 64, "bucket_tokens": 20_000, "mask_unit": "word"},
    "long": {"max_seq_length": 512, "bucket_tokens": 20_000},
    "long, cap 20": {
        "max_seq_length": 512,
        "bucket_tokens": 20_000,
        "max_predictions_per_seq": 20,
    },
}
"""Settings of sound datasets, by name."""


class Fault(NamedTuple):
    sound: str
    """The dataset it is planted in."""

    change: Change

    fails: set[str]
    """Audits that must fail."""

    may_fail: tuple[str, ...] = ()
    """Beginnings of the names of others that may."""


FAULTS = {
    "cap 20 at length 512": Fault("long", faults.cap_of_20, {"selected_per_instance"}),
    "specials drawn as random tokens": Fault(
        "tokens", faults.special_random_tokens, {"random_tokens_special"}
    ),
    "[SEP] selected": Fault("tokens", faults.separators_selected, {"special_tokens_selected"}),
    "one seed for every row": Fault(
        "tokens",
        faults.one_seed_for_every_row,
        {"repeated_masks", "selected_by_position"},
        may_fail=("selected_by_", "overlap_", "actions", "random_tokens_by_"),
    ),
    "one seed for every shard": Fault(
        "tokens", faults.one_seed_for_every_shard, {"repeated_masks"}
    ),
    "100 % [MASK]": Fault("tokens", faults.only_mask_tokens, {"actions"}),
    "masks drawn with replacement": Fault(
        "tokens", faults.drawn_with_replacement, {"repeated_positions", "overlap_of_variants"}
    ),
    "masks drawn with replacement, repeats left out": Fault(
        "tokens", faults.repeats_left_out, {"selected_per_instance"}
    ),
    "variants all equal": Fault(
        "tokens", faults.equal_variants, {"equal_variants", "overlap_of_variants"}
    ),
    "variants of whole words all equal": Fault(
        "words", faults.equal_variants, {"equal_variants_of_words"}
    ),
    "whole words across [SEP]": Fault(
        "words", faults.words_across_separators, {"words_across_special", "words_per_instance"}
    ),
}


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


def audited(folder: Path) -> AuditReport:
    with open_database(folder, threads=1) as connection:
        return run_audit(connection, open_dataset(folder).manifest)


def failed(report: AuditReport) -> set[str]:
    assert len(report.answers) >= 20
    return {answer.question.name for answer in report.answers if answer.verdict == "failed"}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_audits_and_no_others(
    sound: dict[str, Path], fault: str, tmp_path: Path
) -> None:
    name, change, fails, may_fail = FAULTS[fault]
    found = failed(audited(plant(sound[name], tmp_path / "wrong", change)))
    assert {audit for audit in found if audit in fails or not audit.startswith(may_fail)} == fails


@pytest.mark.slow
def test_what_faults_are_planted_in_is_sound(sound: dict[str, Path]) -> None:
    found = {name: failed(audited(folder)) for name, folder in sound.items()}
    assert found == {**dict.fromkeys(SOUND, set()), "long, cap 20": {"cap_on_selected"}}
