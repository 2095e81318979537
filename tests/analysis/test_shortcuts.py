"""The shortcut probe, on tables of pairs whose labels are known to follow from something or not."""

from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import stats

from clozemill.analysis.questions import all_questions

Row = dict[str, Any]
PROBES = ("forced", "lengths", "overlap", "position", "source")
NUM_DOCUMENTS, PAIRS_PER_DOCUMENT = 160, 5


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute("set variable max_seq_length = 64")
        yield connection


def pair_table(rng: np.random.Generator) -> dict[str, Any]:
    """Return the columns of pairs that have nothing in common, every document with as many."""
    count = NUM_DOCUMENTS * PAIRS_PER_DOCUMENT
    # The first digit of an id says which half it is in.
    names = [f"{'07af'[number % 4]}{rng.bytes(16).hex()[1:]}" for number in range(NUM_DOCUMENTS)]
    lengths = rng.integers(5, 28, (2, count))
    a_document = np.arange(count) % NUM_DOCUMENTS
    return {
        "split": ["train"] * count,
        "instance_id": [rng.bytes(16).hex() for _ in range(count)],
        "source": ["web"] * count,
        "next_sentence_label": rng.integers(0, 2, count),
        "num_chunk_sentences": rng.integers(1, 3, count),
        "a_document_id": [names[number] for number in a_document],
        "b_document_id": [names[number] for number in rng.integers(0, NUM_DOCUMENTS, count)],
        "a_first_sentence": rng.integers(0, 10, count),
        "a_num_sentences": np.ones(count, np.int64),
        "a_num_tokens": lengths[0],
        "b_num_tokens": lengths[1],
        "a_ids": [rng.integers(0, 99, length) for length in lengths[0]],
        "b_ids": [rng.integers(0, 99, length) for length in lengths[1]],
    }


def probe(
    connection: duckdb.DuckDBPyConnection, columns: dict[str, Any], num_pairs: int | None = None
) -> dict[str, Row]:
    """Return the answer by probe; `num_pairs` is what the ledger says."""
    names = sorted({*columns["a_document_id"], *columns["b_document_id"]})
    tables = {
        "pairs": columns,
        "documents": {
            "document_id": names,
            "source": [("web", "books")[number % 2] for number in range(len(names))],
            "num_sentences": [12] * len(names),
        },
        "ledger": {
            "section": ["instances"],
            "split": ["train"],
            "reason": ["all"],
            "count": [num_pairs or len(columns["split"])],
        },
    }
    for name, table in tables.items():
        connection.register(name, pa.table(table))
    (question,) = [question for question in all_questions() if question.name == "nsp_shortcuts"]
    rows = connection.sql(question.sql).to_arrow_table().to_pylist()
    assert [row["probe"] for row in rows] == list(PROBES)
    return {row["probe"]: row for row in rows}


def is_long(columns: dict[str, Any]) -> NDArray[np.bool_]:
    return np.asarray(columns["a_num_tokens"] >= 16)


def shared(columns: dict[str, Any]) -> NDArray[np.bool_]:
    lists = zip(columns["a_ids"], columns["b_ids"], strict=True)
    return np.array([len(set(a) & set(b)) * 100 // len({*a, *b}) >= 8 for a, b in lists])


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("lengths", is_long),
        ("forced", lambda columns: columns["num_chunk_sentences"] == 1),
        ("position", lambda columns: columns["a_first_sentence"] >= 6),
        ("overlap", shared),
    ],
)
def test_a_label_that_follows_from_a_property_is_found_by_its_probe_alone(
    connection: duckdb.DuckDBPyConnection, name: str, label: Any
) -> None:
    columns = pair_table(np.random.default_rng(1))
    columns["next_sentence_label"] = label(columns).astype(np.int64)
    found = probe(connection, columns)
    assert found[name]["accuracy"] > 0.99
    # Overlap depends on lengths a little; nothing else depends on anything.
    others = set(PROBES) - {name} - ({"lengths"} if name == "overlap" else set())
    for other in others - ({"overlap"} if name == "lengths" else set()):
        assert found[other]["accuracy_gain"] - 2 * found[other]["accuracy_margin"] <= 0


def test_a_label_that_follows_from_both_sources_is_found(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    columns = pair_table(np.random.default_rng(2))
    names = sorted({*columns["a_document_id"], *columns["b_document_id"]})
    b_source = [names.index(name) % 2 for name in columns["b_document_id"]]
    columns["next_sentence_label"] = np.array(b_source)
    found = probe(connection, columns)
    assert found["source"]["accuracy"] == 1.0
    assert found["lengths"]["accuracy_gain"] < found["lengths"]["accuracy_margin"] * 2


def test_where_there_is_nothing_to_find_intervals_are_rarely_above_zero(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    """Labels of a document are alike, so pairs are dependent; 100 tables, at most 2.5 % each."""
    false_gains: dict[str, int] = dict.fromkeys(PROBES, 0)
    num_tables = 100
    for seed in range(num_tables):
        rng = np.random.default_rng(seed)
        columns = pair_table(rng)
        shares = rng.beta(1, 1, NUM_DOCUMENTS)[np.arange(len(columns["split"])) % NUM_DOCUMENTS]
        columns["next_sentence_label"] = (rng.random(len(shares)) < shares).astype(np.int64)
        for name, row in probe(connection, columns).items():
            assert row["num_pairs"] == NUM_DOCUMENTS * PAIRS_PER_DOCUMENT / 2
            false_gains[name] += row["accuracy_gain"] > row["accuracy_margin"]
            false_gains[name] += row["loss_gain"] > row["loss_margin"]
    most = stats.binom.isf(1e-4, 2 * num_tables, 0.025)
    assert max(false_gains.values()) <= most


def test_of_many_pairs_a_sample_is_taken_by_their_ids(
    connection: duckdb.DuckDBPyConnection,
) -> None:
    columns = pair_table(np.random.default_rng(3))
    found = probe(connection, columns, num_pairs=800_000)
    chosen = [
        document >= "8" and instance < "4"
        for document, instance in zip(columns["a_document_id"], columns["instance_id"], strict=True)
    ]
    assert 50 < sum(chosen) < 150
    assert {row["num_pairs"] for row in found.values()} == {sum(chosen)}
