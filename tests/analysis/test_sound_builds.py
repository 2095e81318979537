"""Sound datasets pass every question, and it answers the same again."""

from pathlib import Path

import pytest
from tests.analysis.sound_builds import (
    RECIPES,
    Text,
    audit_all,
    audits,
    build_seed,
    printed,
    read_text,
)
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)

from clozemill.analysis.audit import AuditSettings, run_audit
from clozemill.analysis.db import open_database
from clozemill.pipeline.convert import convert_dataset

NUM_CHARACTERS = 60_000
"""Text of one dataset; `python -m tests.analysis.sound_builds` takes 1 MB."""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    return read_text(tmp_path_factory.mktemp("text"))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_no_sound_dataset_fails(recipe: str, text: Text, tmp_path: Path) -> None:
    num_builds = 0
    for build, report in audits(recipe, text, tmp_path, num_characters=NUM_CHARACTERS):
        num_builds += 1
        assert sum(answer.num_groups for answer in report.answers) > 200
        failed = [a.question.name for a in report.answers if a.verdict == "failed"]
        assert failed == [], build
    assert num_builds == 23


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_what_is_printed_is_the_same_again_in_both_formats_with_any_threads_and_memory(
    recipe: str, text: Text, tmp_path: Path
) -> None:
    settings = {"mask_variants": 6, **RECIPES[recipe]}
    data = build_seed(text, tmp_path / "built", 0, num_characters=NUM_CHARACTERS, **settings)
    convert_dataset(data, tmp_path / "tar", format="webdataset")
    reports = [
        audit_all(data),
        audit_all(data, threads=2),
        audit_all(tmp_path / "tar", threads=2),
        audit_all(data, threads=7, memory_limit="1GB"),
    ]
    assert sum(answer.num_rows for answer in reports[0].answers) > 500
    first, *others = [printed(report).splitlines() for report in reports]
    for other in others:
        assert [pair for pair in zip(first, other, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.slow
def test_200_000_instances_are_audited_in_1_gb_and_rates_are_those_of_a_recount(
    tmp_path: Path,
) -> None:
    """P44: read more than once in a session; the rate is a sum over a sum, and skips no row."""
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(1_000, most_sentences=40))
    settings = {"max_seq_length": 128, "mask_variants": 1, "dupe_factor": 50}
    settings |= {"bucket_tokens": 2_000_000}
    dataset = small_dataset(corpus, tokenizer, tmp_path / "data", **settings)
    num_selected = num_maskable = num_instances = 0
    for batch in dataset.batches("train"):
        num_instances += batch.num_rows
        num_maskable += len(batch.column("input_ids").flatten()) - 3 * batch.num_rows
        num_selected += len(batch.column("masks").flatten().flatten())
    assert num_instances >= 200_000
    with open_database(dataset, threads=2, memory_limit="1GB") as connection:
        for only in ((), ("mask_rates",)):
            report = run_audit(connection, dataset.manifest, AuditSettings(only=only))
            assert not report.has_failed
            [rates] = [a.rows for a in report.answers if a.question.name == "mask_rates"]
            rows = [row for row in rates.to_pylist() if row["split"] == "train"]
            [whole] = [row for row in rows if row["kind"] == "all"]
            assert whole["num_selected"] == num_selected
            assert whole["num_maskable"] == num_maskable
            assert whole["rate"] == round(num_selected / num_maskable, 9)
