"""The ledger adds up, and a finished dataset shows every count but those of lost records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import small_build, write_json_lines
from tests.pipeline.small_datasets import build_small, write_vocab

from clozemill.pipeline.ledger import (
    OWN_FATES,
    Ledger,
    LedgerError,
    close_ledger,
    from_json,
    ledger_faults,
    merge_ledgers,
    to_json,
)
from clozemill.pipeline.manifest import read_manifest
from clozemill.pipeline.verify import verify_dataset

COPY = {"text": "W1 w2 w3. W4 w5 w6 w7. W8 w9 nothing.", "source": "s1"}
RECORDS = [{"id": f"x{i}", **COPY} for i in range(5)] + [{"id": "none", "text": "", "source": ""}]


@pytest.fixture(scope="module")
def ledger_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Ledger]:
    def get(**settings: Any) -> Ledger:
        folder = build_small(tmp_path_factory.mktemp("data"), records=RECORDS, **settings)
        return from_json(read_manifest(folder).ledger)

    return get


def total(ledger: Ledger, section: str, reason: str) -> int:
    return sum(n for (name, _, key), n in ledger.items() if (name, key) == (section, reason))


def test_tokens_of_dropped_copies_are_counted(ledger_of: Callable[..., Ledger]):
    ledger = ledger_of()
    assert total(ledger, "documents", "duplicate") == 4
    # 10 words, of which `nothing` is unknown, and 3 full stops.
    assert total(ledger, "document_tokens", "duplicate") == 4 * 13
    assert total(ledger, "unknown_tokens", "duplicate") == 4
    kept = ledger_of(duplicates="keep")
    assert kept["tokens", "", "read"] == ledger["tokens", "", "read"]
    assert total(kept, "document_tokens", "duplicate") == 0
    assert ledger["records", "", "empty_text"] == 1


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"min_document_sentences": 4, "source_weight": (("s0", 0.5), ("s1", 0.0))},
        {"recipe": "roberta-full"},
        {"recipe": "roberta-doc", "max_seq_length": 10, "long_sentences": "drop"},
    ],
)
def test_every_document_and_token_read_has_one_fate(
    ledger_of: Callable[..., Ledger], settings: dict[str, Any]
):
    ledger = ledger_of(**settings)
    assert ledger_faults(ledger) == []
    for section, read in (
        ("documents", ("records", "", "documents_read")),
        ("document_tokens", ("tokens", "", "read")),
    ):
        fates = [count for (name, _, _), count in ledger.items() if name == section]
        assert len(fates) >= 5
        assert sum(fates) == ledger[read] > 0
    for split in ("train", "validation"):
        own = ledger["pass_tokens", split, "own"]
        assert own == sum(ledger["pass_tokens", split, fate] for fate in OWN_FATES) > 0
        if "source_weight" not in settings:
            assert own == 2 * ledger["document_tokens", split, "kept"]


@pytest.mark.parametrize("rule", ["split", "truncate", "drop"])
def test_long_sentences_are_counted_by_what_became_of_them(tmp_path: Path, rule: str):
    lengths = [3, 10, 11, 25, 8, 40]
    path = write_json_lines(tmp_path / "a.jsonl", ["\n".join("w1 " * n for n in lengths)])
    manifest = small_build(
        path,
        write_vocab(tmp_path / "vocab.txt"),
        tmp_path / "data",
        recipe="roberta-doc",
        max_seq_length=12,
        long_sentences=rule,
        layout="sentences",
        dupe_factor=2,
    ).manifest
    name = {"split": "split", "truncate": "truncated", "drop": "dropped"}[rule]
    nothing = {"split": 0, "truncated": 0, "dropped": 0}
    assert manifest.ledger["long_sentences"]["train"] == {**nothing, name: 2 * 3}
    assert verify_dataset(tmp_path / "data") == []


def test_pairs_have_no_long_sentences(ledger_of: Callable[..., Ledger]):
    assert not [key for key in ledger_of() if key[0] == "long_sentences"]


def sound() -> Ledger:
    counts = {
        ("records", "", "records_read"): 5,
        ("records", "", "documents_read"): 4,
        ("records", "", "null_text"): 1,
        ("records", "", "text_bytes"): 99,
        ("tokens", "", "read"): 50,
        ("documents", "train", "kept"): 2,
        ("documents", "validation", "kept"): 1,
        ("documents", "train", "duplicate"): 1,
        ("document_tokens", "train", "kept"): 30,
        ("document_tokens", "train", "duplicate"): 10,
        ("document_tokens", "validation", "kept"): 10,
        ("pass_tokens", "train", "own"): 60,
        ("pass_tokens", "train", "in_instances"): 55,
        ("pass_tokens", "train", "cut"): 5,
        ("pass_tokens", "train", "borrowed"): 7,
    }
    return Ledger(counts)


@pytest.mark.parametrize(
    ("key", "fault"),
    [
        (("records", "", "records_read"), "6 records were read and 5 have a fate"),
        (("records", "", "null_text"), "5 records were read and 6 have a fate"),
        (("tokens", "", "read"), "51 tokens were read and 50 have a fate"),
        (("document_tokens", "train", "duplicate"), "50 tokens were read and 51 have a fate"),
        (("documents", "validation", "kept"), "4 documents were read and 5 have a fate"),
        (("pass_tokens", "train", "cut"), "train: 60 own tokens went in and 61 came out"),
    ],
)
def test_a_sum_that_does_not_close_is_named(key: tuple[str, str, str], fault: str):
    assert ledger_faults(sound()) == []
    ledger = sound()
    ledger[key] += 1
    assert ledger_faults(ledger) == [fault]
    with pytest.raises(LedgerError, match=f"{fault}.*please report it"):
        close_ledger(ledger)


def test_ledgers_go_through_json_and_add_up_with_their_zeros():
    ledger = sound()
    ledger["masks", "train", "selected"] = 0
    assert from_json(json.loads(json.dumps(to_json(ledger)))) == ledger
    twice = merge_ledgers([ledger, ledger])
    assert twice["tokens", "", "read"] == 100
    assert ("masks", "train", "selected") in twice
