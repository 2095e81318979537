"""Small datasets with several sources, and what an audit of their pairs and documents finds."""

from pathlib import Path
from typing import Any

from tests.analysis.sound_builds import assert_same_offences
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)

from clozemill.analysis.audit import AuditReport, AuditSettings, run_audit
from clozemill.analysis.db import open_database
from clozemill.analysis.questions import Question, all_questions
from clozemill.pipeline.dataset import Dataset

SOURCES = ("books", "news", "web")


def build_small(folder: Path, *, num_documents: int = 400, **settings: Any) -> Dataset:
    """Return a dataset of distinct documents, each of one of three sources in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = make_texts(num_documents, seed=settings.get("seed", num_documents))
    names = [SOURCES[number % 3] for number in range(num_documents)]
    corpus = write_json_lines(folder / "corpus.jsonl", texts, corpus=names)
    tokenizer = write_tokenizer(folder / "tokenizer")
    settings = {"source_field": "corpus", **settings}
    return small_dataset(corpus, tokenizer, folder / "data", **settings)


def is_about_pairs(question: Question) -> bool:
    """Return whether masks have nothing to do with it."""
    return "variants" not in question.needs


def audit_pairs(
    dataset: Dataset, *, threads: int | None = None, sample: int | None = None
) -> AuditReport:
    """Return the answers to every question that is not about masks."""
    names = tuple(question.name for question in all_questions() if is_about_pairs(question))
    assert len(names) > 20
    settings = AuditSettings(only=names, is_sample=sample is not None)
    with open_database(dataset, threads=threads, sample=sample) as connection:
        return run_audit(connection, dataset.manifest, settings)


def failed_questions(dataset: Dataset) -> set[str]:
    """Return the names of the questions about pairs and documents that a dataset fails."""
    report = audit_pairs(dataset, threads=1)
    assert_same_offences(dataset.folder, report)
    return {answer.question.name for answer in report.answers if answer.verdict == "failed"}
