"""The flow against a ledger that is read from the manifest's file, section by section."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)

from clozemill.analysis.ledger_flow import (
    document_flow,
    document_stages,
    token_flow,
    token_stages,
)
from clozemill.analysis.sankey import Stage
from clozemill.pipeline.dataset import Dataset

SETTINGS = {
    "pairs": {"dupe_factor": 2},
    "packed": {"recipe": "roberta-full", "min_document_sentences": 3},
}


@pytest.fixture(scope="module", params=SETTINGS)
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Documents of which some are empty, some duplicates and, with packing, some too short."""
    folder = tmp_path_factory.mktemp(request.param)
    texts = make_texts(60)
    corpus = write_json_lines(folder / "corpus.jsonl", [*texts, *texts[:5], "", " "])
    tokenizer = write_tokenizer(folder / "tokenizer")
    return small_dataset(corpus, tokenizer, folder / "data", **SETTINGS[request.param])


def ledger_of(dataset: Dataset) -> dict[str, Any]:
    ledger: dict[str, Any] = json.loads((dataset.folder / "manifest.json").read_text())["ledger"]
    return ledger


def stages_in(stage: Stage) -> Iterator[Stage]:
    yield stage
    for part in stage.parts:
        yield from stages_in(part)


def counts_in(root: Stage) -> dict[str, int]:
    """Return the counts by name, of stages that have any; no name comes twice."""
    found = [(stage.name, stage.count) for stage in stages_in(root) if stage.count]
    assert len(found) == len(dict(found)) > 3
    return dict(found)


def expected_fates(ledger: dict[str, Any], section: str) -> dict[str, int]:
    fates: dict[str, int] = {}
    for split, counts in ledger[section].items():
        for reason, count in counts.items():
            name = f"kept for {split}" if reason == "kept" else reason.replace("_", " ")
            fates[name] = fates.get(name, 0) + count
    return {name: count for name, count in fates.items() if count}


def test_documents_have_the_counts_of_the_ledger(dataset: Dataset) -> None:
    ledger = ledger_of(dataset)
    records = ledger["records"][""]
    assert (records["records_read"], records["documents_read"]) == (67, 65)
    assert counts_in(document_stages(dataset.manifest)) == {
        "records read": 67,
        "documents read": 65,
        "empty text": 2,
        **expected_fates(ledger, "documents"),
    }
    assert ledger["documents"]["train"]["duplicate"] + ledger["documents"]["validation"][
        "duplicate"
    ] == (5)


def test_tokens_have_the_counts_of_the_ledger_once_per_pass(dataset: Dataset) -> None:
    ledger = ledger_of(dataset)
    uses = {
        f"{split}: {fate.replace('_', ' ')}": counts[fate]
        for split, counts in ledger["pass_tokens"].items()
        for fate in ("in_instances", "cut", "truncated", "dropped")
        if counts.get(fate)
    }
    assert len(uses) >= 2
    assert counts_in(token_stages(dataset.manifest)) == {
        "tokens read": ledger["tokens"][""]["read"],
        **expected_fates(ledger, "document_tokens"),
        **uses,
    }


def test_parts_sum_to_their_parent_or_to_its_passes(dataset: Dataset) -> None:
    num_passes = dataset.manifest.configuration["dupe_factor"]
    roots = [document_stages(dataset.manifest), token_stages(dataset.manifest)]
    divided = [stage for root in roots for stage in stages_in(root) if stage.parts]
    assert len(divided) == 5  # records, documents, tokens, and kept tokens of two splits
    for stage in divided:
        is_used = stage.name.startswith("kept for")
        total = sum(part.count for part in stage.parts)
        assert total == stage.count * (num_passes if is_used else 1), stage.name


def test_what_no_instance_has_is_lost(dataset: Dataset) -> None:
    for root in (document_stages(dataset.manifest), token_stages(dataset.manifest)):
        ends = [stage for stage in stages_in(root) if not stage.parts]
        assert any(stage.is_lost for stage in ends)
        for stage in ends:
            is_kept = stage.name.startswith("kept for") or stage.name.endswith("in instances")
            assert stage.is_lost != is_kept, stage.name


def test_the_table_of_the_picture_has_every_count(dataset: Dataset) -> None:
    for chart, root in (
        (document_flow(dataset.manifest), document_stages(dataset.manifest)),
        (token_flow(dataset.manifest), token_stages(dataset.manifest)),
    ):
        assert {row[1]: row[2] for row in chart.rows} == counts_in(root)


def test_records_that_are_all_documents_begin_with_them(tmp_path: Path) -> None:
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(20))
    data = small_dataset(corpus, write_tokenizer(tmp_path / "tokenizer"), tmp_path / "data")
    assert document_stages(data.manifest).name == "documents read"
