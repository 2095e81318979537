"""Sound datasets pass every question about masks, and it answers the same again."""

import gzip
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.conftest import ROOT
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.audit import AuditReport, AuditSettings, run_audit
from clozemill.analysis.db import open_database
from clozemill.analysis.questions import Kind, all_questions
from clozemill.pipeline.convert import convert_dataset
from clozemill.pipeline.dataset import open_dataset

NUM_SEEDS = 20
NUM_CHARACTERS = 60_000
"""Text of one dataset, at least; each seed has its own."""

RECIPES: dict[str, dict[str, Any]] = {
    "bert": {"recipe": "bert"},
    "bert, whole words": {"recipe": "bert", "mask_unit": "word"},
    "roberta-full": {"recipe": "roberta-full", "mask_count": "stochastic"},
    "roberta-doc": {"recipe": "roberta-doc", "random_tokens": "all"},
}
LAWS = {"observed", "trials", "expected", "variance", "probability"}
FIGURES = {"num_selected", "num_maskable", "rate"}
MASK_QUESTIONS = tuple(q.name for q in all_questions() if "variants" in q.needs)


class Text(NamedTuple):
    texts: list[str]
    sources: list[str]
    tokenizer: Path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    """Real text where it is at hand, else made of syllables; a small vocabulary spells both."""
    tokenizer = write_tokenizer(tmp_path_factory.mktemp("tokenizers") / "syllables")
    corpora = Path(os.environ.get("CLOZEMILL_CORPORA", ROOT.parent / "shared" / "corpora"))
    if not corpora.is_dir():
        texts = make_texts(NUM_SEEDS * 60)
        return Text(texts, ["made"] * len(texts), tokenizer)
    records = []
    for name in ("encyc_enwiki", "mixed_masc", "web_ewt", "speech_sotu"):
        with gzip.open(corpora / "pretrain" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            records += [json.loads(line) for line in lines]
    return Text([r["text"][:4_000] for r in records], [r["source"] for r in records], tokenizer)


def build_seed(text: Text, folder: Path, seed: int, **settings: Any) -> Path:
    """Return the folder of a dataset of the seed's own share of the documents."""
    folder.mkdir()
    texts, sources, length = [], [], 0
    for place in range(seed, len(text.texts), NUM_SEEDS):
        if length < NUM_CHARACTERS:
            length += len(text.texts[place])
            texts.append(text.texts[place])
            sources.append(text.sources[place])
    assert length > 20_000
    corpus = write_json_lines(folder / "corpus.jsonl", texts, source=sources)
    defaults = {"bucket_tokens": 20_000, "max_seq_length": 128, "source_field": "source"}
    small_build(corpus, text.tokenizer, folder / "data", seed=seed, **{**defaults, **settings})
    return folder / "data"


def audit_masks(folder: Path, *, threads: int = 1, memory_limit: str = "4GB") -> AuditReport:
    with open_database(folder, threads=threads, memory_limit=memory_limit) as connection:
        settings = AuditSettings(only=MASK_QUESTIONS)
        return run_audit(connection, open_dataset(folder).manifest, settings)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_no_sound_dataset_fails(recipe: str, text: Text, tmp_path: Path) -> None:
    for seed in range(NUM_SEEDS):
        for format in ("arrow", "webdataset")[: 2 if seed < 3 else 1]:
            folder = tmp_path / f"{seed}-{format}"
            data = build_seed(text, folder, seed, format=format, **RECIPES[recipe])
            report = audit_masks(data)
            assert sum(answer.num_groups for answer in report.answers) > 200
            assert [a.question.name for a in report.answers if a.verdict == "failed"] == []


@pytest.mark.slow
def test_answers_are_the_same_again_in_both_formats_with_any_threads_and_memory(
    text: Text, tmp_path: Path
) -> None:
    data = build_seed(text, tmp_path / "built", 0)
    convert_dataset(data, tmp_path / "tar", format="webdataset")
    reports = [
        audit_masks(data),
        audit_masks(data),
        audit_masks(tmp_path / "tar"),
        audit_masks(data, threads=2),
        audit_masks(data, memory_limit="1GB"),
    ]
    first, *others = [numbers_of(report) for report in reports]
    assert len(first) > 500
    for other in others:
        assert other == pytest.approx(first, rel=1e-9)


def numbers_of(report: AuditReport) -> dict[str, float]:
    """Return every number of every row of the answers, by question, group and column."""
    found = {}
    for answer in report.answers:
        for row in answer.rows.to_pylist():
            is_figure = answer.question.kind is Kind.FIGURES
            measured = row.keys() & (FIGURES if is_figure else LAWS)
            group = [value for name, value in row.items() if name not in measured]
            for name in measured:
                found[f"{answer.question.name} {group} {name}"] = float(row[name])
    return found
