"""A ledger adds up, and says which of its sums does not."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import document_rows, rows_of, small_dataset

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.ledger import (
    Ledger,
    LedgerError,
    close_ledger,
    from_json,
    ledger_faults,
    merge_ledgers,
    to_json,
)


@pytest.fixture(scope="module", params=["bert", "roberta-full", "roberta-doc"])
def dataset(
    request: pytest.FixtureRequest,
    corpus: Path,
    syllables: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Dataset:
    out = tmp_path_factory.mktemp("ledger") / request.param
    settings: dict[str, Any] = {"recipe": request.param, "dupe_factor": 2, "max_seq_length": 24}
    return small_dataset(corpus, syllables, out, **settings)


def test_the_ledger_of_a_dataset_closes(dataset: Dataset) -> None:
    ledger = from_json(dataset.manifest.ledger)
    assert ledger["records", "", "records_read"] == 120
    assert ledger_faults(ledger) == []
    close_ledger(ledger)


def test_the_ledger_counts_what_is_in_the_files(dataset: Dataset) -> None:
    ledger = from_json(dataset.manifest.ledger)
    documents = document_rows(dataset)
    for split in dataset.splits:
        rows = rows_of(dataset, split)
        of_split = [row for row in documents if row["split"] == split]
        assert ledger["documents", split, "kept"] == len(of_split)
        tokens = sum(row["num_tokens"] for row in of_split)
        assert ledger["document_tokens", split, "kept"] == tokens
        assert ledger["pass_tokens", split, "own"] == 2 * tokens
        assert ledger["instances", split, "all"] == len(rows)
        labels = Counter(row["next_sentence_label"] for row in rows)
        assert ledger["instances", split, "next"] == labels[0]
        assert ledger["instances", split, "random"] == labels[1]
        selected = sum(len(mask) for row in rows for mask in row["masks"])
        assert ledger["masks", split, "selected"] == selected
        assert ledger["masks", split, "tokens"] == sum(len(row["input_ids"]) for row in rows)
        cuts = sum(s["cut_front"] + s["cut_back"] for row in rows for s in row["spans"])
        if dataset.manifest.configuration["recipe"] == "bert":
            found = ledger["pass_tokens", split, "cut"]
            assert found + ledger["pass_tokens", split, "borrowed_cut"] == cuts > 0


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (("records", "", "documents_read"), "documents were read and 120 have a fate"),
        (("records", "", "records_read"), "records were read and 120 have an outcome"),
        (("records", "", "bad_json"), "120 records were read and 121 have an outcome"),
        (("documents", "train", "kept"), "120 documents were read and 121 have a fate"),
        (("documents", "validation", "duplicate"), "120 documents were read and 121 have a fate"),
        (("pass_tokens", "train", "in_instances"), "own tokens went in and"),
        (("pass_tokens", "validation", "own"), "validation: "),
    ],
)
def test_every_count_that_is_off_by_one_is_found(
    entry: tuple[str, str, str], said: str, dataset: Dataset
) -> None:
    ledger = from_json(dataset.manifest.ledger)
    ledger[entry] += 1
    faults = ledger_faults(ledger)
    assert any(said in fault for fault in faults), faults
    with pytest.raises(LedgerError, match="the ledger does not close: .* fault of clozemill"):
        close_ledger(ledger)


def test_a_ledger_survives_json_and_sums_keep_their_zeros() -> None:
    one: Ledger = Counter({("documents", "train", "kept"): 2, ("records", "", "bad_json"): 0})
    other: Ledger = Counter({("documents", "train", "kept"): 3})
    assert from_json(to_json(one)) == one
    total = merge_ledgers([one, other])
    assert dict(total) == {("documents", "train", "kept"): 5, ("records", "", "bad_json"): 0}
    assert to_json(total) == {"documents": {"train": {"kept": 5}}, "records": {"": {"bad_json": 0}}}
