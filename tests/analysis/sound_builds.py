"""Sound datasets of every recipe and many seeds, of which no audit may fail.

    python -m tests.analysis.sound_builds

builds 1 MB of real text for each recipe and seed and asks every question. Tests take less text.
"""

import gzip
import json
import os
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
from tests.conftest import ROOT
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines, write_tokenizer

from clozemill.analysis.audit import AuditReport, AuditSettings, run_audit
from clozemill.analysis.db import open_database
from clozemill.analysis.questions import Kind
from clozemill.audit_rows import rows_printout
from clozemill.audit_tables import audit_printout
from clozemill.pipeline.dataset import open_dataset

NUM_SEEDS = 20
NUM_SEEDS_OF_BOTH_FORMATS = 3

RECIPES: dict[str, dict[str, Any]] = {
    "bert": {"recipe": "bert"},
    "bert, whole words": {"recipe": "bert", "mask_unit": "word"},
    "roberta-full": {"recipe": "roberta-full", "mask_count": "stochastic"},
    "roberta-doc": {"recipe": "roberta-doc", "random_tokens": "all"},
}
FILES = ("encyc_enwiki", "mixed_masc", "web_ewt", "speech_sotu", "tech_sqlite", "science_oastm")


class Text(NamedTuple):
    texts: list[str]
    sources: list[str]
    tokenizer: Path


def read_text(folder: Path) -> Text:
    """Return real text where it is at hand, else made of syllables; a small vocabulary for both."""
    tokenizer = write_tokenizer(folder / "tokenizer")
    corpora = Path(os.environ.get("CLOZEMILL_CORPORA", ROOT.parent / "shared" / "corpora"))
    if not corpora.is_dir():
        texts = make_texts(NUM_SEEDS * 60)
        return Text(texts, ["made"] * len(texts), tokenizer)
    records = []
    for name in FILES:
        with gzip.open(corpora / "pretrain" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            records += [json.loads(line) for line in lines]
    return Text([r["text"] for r in records], [r["source"] for r in records], tokenizer)


def build_seed(
    text: Text, folder: Path, seed: int, *, num_characters: int, **settings: Any
) -> Path:
    """Return the folder of a dataset of `num_characters`, of documents of up to a fifteenth of it.

    The documents of a seed are every twentieth from its own one on, and then from the next.
    """
    folder.mkdir()
    texts, sources, length = [], [], 0
    for place in _places(len(text.texts), seed):
        if length >= num_characters:
            break
        texts.append(text.texts[place][: num_characters // 15])
        sources.append(text.sources[place])
        length += len(texts[-1])
    assert length > num_characters / 3
    corpus = write_json_lines(folder / "corpus.jsonl", texts, source=sources)
    defaults = {"bucket_tokens": 20_000, "max_seq_length": 128, "source_field": "source"}
    small_build(corpus, text.tokenizer, folder / "data", seed=seed, **{**defaults, **settings})
    return folder / "data"


def _places(number: int, seed: int) -> Iterator[int]:
    for first in range(seed, seed + NUM_SEEDS):
        yield from range(first % NUM_SEEDS, number, NUM_SEEDS)


def audit_all(
    folder: Path,
    *,
    threads: int = 1,
    memory_limit: str = "4GB",
    only: Collection[str] = (),
) -> AuditReport:
    """Return the answers to every question, or only to some."""
    settings = AuditSettings(only=tuple(only))
    with open_database(folder, threads=threads, memory_limit=memory_limit) as connection:
        return run_audit(connection, open_dataset(folder).manifest, settings)


def assert_same_offences(folder: Path, report: AuditReport) -> None:
    """Make sure that what breaks a rule comes in the same order with another number of threads."""
    failed = [a for a in report.answers if a.verdict == "failed"]
    offences = {a.question.name: a.rows for a in failed if a.question.kind is Kind.OFFENCES}
    if offences:
        again = audit_all(folder, threads=2, only=offences)
        for answer in again.answers:
            assert answer.rows.equals(offences[answer.question.name]), answer.question.name


def printed(report: AuditReport) -> str:
    """Return all that is printed of an audit, for people and as JSON."""
    table, rows = audit_printout("data", report), rows_printout("data", report)
    data = {"table": table.data, "rows": rows.data}
    return "\n".join([table.text, rows.text, json.dumps(data, indent=1)])


def audits(
    recipe: str, text: Text, folder: Path, *, num_characters: int
) -> Iterator[tuple[str, AuditReport]]:
    """Yield for each seed and format its name and what the audit says."""
    for seed in range(NUM_SEEDS):
        for format in ("arrow", "webdataset")[: 2 if seed < NUM_SEEDS_OF_BOTH_FORMATS else 1]:
            settings = {"format": format, **RECIPES[recipe]}
            place = folder / f"{seed}-{format}"
            data = build_seed(text, place, seed, num_characters=num_characters, **settings)
            yield f"seed {seed}, {format}", audit_all(data)


@click.command()
@click.option("--characters", default=1_000_000, show_default=True, help="Text of a dataset.")
def main(characters: int) -> None:
    """Print what fails, by recipe, and how many groups were tested."""
    for recipe in RECIPES:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            text = read_text(folder)
            num_builds = num_groups = num_failed = 0
            for build, report in audits(recipe, text, folder, num_characters=characters):
                failed = [a.question.name for a in report.answers if a.verdict == "failed"]
                if failed:
                    print(f"{recipe}, {build}: {', '.join(failed)}", flush=True)
                num_builds += 1
                num_failed += bool(failed)
                num_groups += sum(answer.num_groups for answer in report.answers)
            print(f"{recipe}: {num_builds} builds, {num_groups:,} groups, {num_failed} failed.")


if __name__ == "__main__":
    main()
