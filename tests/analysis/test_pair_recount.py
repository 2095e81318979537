"""What SQL says of a small dataset, counted once more in plain Python."""

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.pair_datasets import SOURCES, audit_pairs, build_small
from tests.pipeline.small_corpora import (
    document_rows,
    make_texts,
    rows_of,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)

from clozemill.pipeline.dataset import Dataset

Row = dict[str, Any]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Pairs of three sources, one of them drawn more often and one less, in two passes."""
    return build_small(
        tmp_path_factory.mktemp("pairs"),
        num_documents=150,
        dupe_factor=2,
        source_weight=(("news", 1.6), ("web", 0.4)),
    )


@pytest.fixture(scope="module")
def answers(dataset: Dataset) -> dict[str, list[Row]]:
    """The rows of every answer."""
    report = audit_pairs(dataset)
    return {answer.question.name: answer.rows.to_pylist() for answer in report.answers}


@pytest.fixture(scope="module")
def rows(dataset: Dataset) -> list[Row]:
    """Every instance, with its split."""
    return [
        {"split": split, **row}
        for split in ("train", "validation")
        for row in rows_of(dataset, split)
    ]


@pytest.fixture(scope="module")
def documents(dataset: Dataset) -> dict[bytes, Row]:
    return {row["document_id"]: row for row in document_rows(dataset)}


def is_random(row: Row) -> bool:
    return bool(row["next_sentence_label"] == 1)


def test_coins(answers: dict[str, list[Row]], rows: list[Row]) -> None:
    heads: Counter[tuple[str, str]] = Counter()
    coins: Counter[tuple[str, str]] = Counter()
    for row in rows:
        for source in (row["source"], "all sources"):
            coins[row["split"], source] += row["num_chunk_sentences"] > 1
            heads[row["split"], source] += row["num_chunk_sentences"] > 1 and is_random(row)
    assert len(coins) == 8
    assert {
        (row["split"], row["source"]): (row["observed"], row["trials"])
        for row in answers["label_coin"]
    } == {key: (heads[key], coins[key]) for key in coins}


def test_label_shares_and_their_standard_errors(
    answers: dict[str, list[Row]], rows: list[Row], documents: dict[bytes, Row]
) -> None:
    drawn = {key: [0, 0] for key, row in documents.items() if row["fate"] == "kept"}
    for row in rows:
        drawn[row["spans"][0]["document_id"]][is_random(row)] += 1
    groups: defaultdict[tuple[str, str], list[bytes]] = defaultdict(list)
    for key in drawn:
        groups[documents[key]["split"], documents[key]["source"]].append(key)
    assert len(answers["label_share"]) == len(groups) == 6
    for answer in answers["label_share"]:
        keys = groups[answer["split"], answer["source"]]
        num_next, num_random = (sum(drawn[key][label] for key in keys) for label in (0, 1))
        expected_next, expected_random = (
            math.fsum(documents[key][f"expected_{label}"] for key in keys)
            for label in ("next", "random")
        )
        share = expected_random / (expected_random + expected_next)
        squares = [
            (
                (drawn[key][1] - documents[key]["expected_random"]) * (1 - share)
                - (drawn[key][0] - documents[key]["expected_next"]) * share
            )
            ** 2
            for key in keys
        ]
        error = math.sqrt(math.fsum(squares)) / (expected_random + expected_next)
        assert (answer["num_random"], answer["num_next"]) == (num_random, num_next)
        assert answer["expected_share"] == pytest.approx(share, abs=1e-6)
        assert answer["standard_error"] == pytest.approx(error, abs=1e-6)
        random_share = num_random / (num_random + num_next)
        assert answer["random_share"] == pytest.approx(random_share, abs=1e-6)
        assert answer["z"] == pytest.approx((random_share - share) / error, abs=1e-3)


def test_lengths_and_padding(answers: dict[str, list[Row]], rows: list[Row]) -> None:
    lengths = Counter(
        (row["split"], math.floor(math.ceil(10 * len(row["input_ids"]) / 48) * 4.8)) for row in rows
    )
    assert len(lengths) > 8
    assert {
        (row["split"], row["up_to_tokens"]): row["num_instances"] for row in answers["lengths"]
    } == lengths
    for answer in answers["padding"]:
        sizes = [len(row["input_ids"]) for row in rows if row["split"] == answer["split"]]
        batches = [sizes[first : first + 32] for first in range(0, len(sizes), 32)]
        padded = sum(len(batch) * max(batch) for batch in batches)
        assert answer["num_tokens"] == sum(sizes)
        assert answer["padding_to_max_seq_length"] == pytest.approx(
            1 - sum(sizes) / (48 * len(sizes)), abs=1e-6
        )
        assert answer["padding_to_longest_of_32"] == pytest.approx(
            1 - sum(sizes) / padded, abs=1e-6
        )


def test_sources_before_and_after_sampling(
    answers: dict[str, list[Row]], rows: list[Row], documents: dict[bytes, Row]
) -> None:
    assert len(answers["source_shares"]) == 6
    weights = {"books": 2.0, "news": 3.2, "web": 0.8}
    for answer in answers["source_shares"]:
        of_split = [row for row in documents.values() if row["split"] == answer["split"]]
        chosen = [row for row in of_split if row["source"] == answer["source"]]
        passes = [row["num_passes"] for row in chosen]
        drawn = [sum(r["num_tokens"] * r["num_passes"] for r in g) for g in (chosen, of_split)]
        assert answer["share_before"] == pytest.approx(
            sum(row["num_tokens"] for row in chosen) / sum(row["num_tokens"] for row in of_split),
            abs=1e-6,
        )
        assert answer["mean_passes"] == pytest.approx(sum(passes) / len(passes), abs=1e-6)
        assert answer["expected_passes"] == pytest.approx(weights[answer["source"]])
        assert answer["share_after"] == pytest.approx(drawn[0] / drawn[1], abs=1e-6)
        assert answer["num_instances"] == sum(
            row["split"] == answer["split"] and row["source"] == answer["source"] for row in rows
        )
    assert any(row["fate"] == "unsampled" for row in documents.values())
    sampled = {row["source"]: row for row in answers["sampled_passes"]}
    for source, most in (("news", 4), ("web", 1)):
        chosen = [row for row in documents.values() if row["source"] == source]
        assert sampled[source]["observed"] == sum(row["num_passes"] == most for row in chosen)
        assert sampled[source]["trials"] == len(chosen)


def test_truncation_and_equal_rows(
    answers: dict[str, list[Row]], dataset: Dataset, rows: list[Row]
) -> None:
    ledger = dataset.manifest.ledger["pass_tokens"]
    assert len(answers["truncation"]) == 10
    for answer in answers["truncation"]:
        tokens = ledger[answer["split"]][answer["fate"]]
        assert answer["num_tokens"] == tokens
        share = tokens / ledger[answer["split"]]["own"]
        assert answer["share_of_own"] == pytest.approx(share, abs=1e-6)
    for answer in answers["equal_rows"]:
        texts = Counter(tuple(r["input_ids"]) for r in rows if r["split"] == answer["split"])
        others = {tuple(r["input_ids"]) for r in rows if r["split"] != answer["split"]}
        assert answer["num_instances"] == texts.total()
        assert answer["num_repeats"] == texts.total() - len(texts)
        assert answer["num_in_other_split"] == sum(texts[text] for text in texts.keys() & others)
    # Two passes draw some pairs alike.
    assert answers["equal_rows"][0]["num_repeats"] > 0


def test_unknown_tokens_by_source(tmp_path: Path) -> None:
    texts = [text + " \u0416" * (number % 3) for number, text in enumerate(make_texts(60))]
    names = [SOURCES[number % 2] for number in range(60)]
    corpus = write_json_lines(tmp_path / "corpus.jsonl", texts, corpus=names)
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    settings: dict[str, Any] = {"source_field": "corpus", "min_document_sentences": 2}
    dataset = small_dataset(corpus, tokenizer, tmp_path / "data", **settings)
    tokens: Counter[tuple[str, str, str]] = Counter()
    for row in document_rows(dataset):
        if row["fate"] == "kept":
            for name in ("num_tokens", "num_unknown"):
                tokens[row["split"], row["source"], name] += row[name]
    report = audit_pairs(dataset)
    (answer,) = [a for a in report.answers if a.question.name == "unknown_tokens"]
    assert tokens["train", "news", "num_unknown"] > 0
    assert answer.num_rows == 4
    for row in answer.rows.to_pylist():
        for name in ("num_tokens", "num_unknown"):
            assert row[name] == tokens[row["split"], row["source"], name]
        assert row["unknown_share"] == round(row["num_unknown"] / row["num_tokens"], 6)


def property_of(probe: str, row: Row, documents: dict[bytes, Row]) -> Any:
    """Return what a probe sees of a pair: restated from the header of nsp_shortcuts.sql."""
    ids, border = row["input_ids"], row["segment_b_start"]
    a_ids, b_ids = ids[1 : border - 1], ids[border:-1]
    a, b = row["spans"]
    document = documents[a["document_id"]]
    if probe == "forced":
        return row["num_chunk_sentences"] == 1
    if probe == "lengths":
        return len(a_ids) * 16 // 48, len(b_ids) * 16 // 48, len(ids) == 48
    if probe == "source":
        return document["source"], documents[b["document_id"]]["source"]
    if probe == "overlap":
        return 100 * len(set(a_ids) & set(b_ids)) // len(set(a_ids) | set(b_ids))
    left = document["num_sentences"] - a["first_sentence"] - a["num_sentences"]
    return a["first_sentence"] * 10 // document["num_sentences"], min(left, 10)


@pytest.mark.parametrize("probe", ["forced", "lengths", "source", "overlap", "position"])
def test_shortcuts(
    probe: str, answers: dict[str, list[Row]], rows: list[Row], documents: dict[bytes, Row]
) -> None:
    halves: tuple[list[Row], list[Row]] = ([], [])
    for row in rows:
        if row["split"] == "train":
            halves[row["spans"][0]["document_id"][0] >= 128].append(row)
    fitted, measured = halves
    prior = (sum(map(is_random, fitted)) + 0.5) / (len(fitted) + 1)
    counts: defaultdict[Any, list[int]] = defaultdict(lambda: [0, 0])
    for row in fitted:
        counts[property_of(probe, row, documents)][is_random(row)] += 1
    gains: defaultdict[bytes, list[float]] = defaultdict(list)
    correct, loss = 0, 0.0
    for row in measured:
        num_next, num_random = counts[property_of(probe, row, documents)]
        prob = (num_random + prior) / (num_random + num_next + 1)
        own, base = (p if is_random(row) else 1 - p for p in (prob, prior))
        correct += (prob > 0.5) == is_random(row)
        loss -= math.log(own)
        gains[row["spans"][0]["document_id"]].append(math.log(own) - math.log(base))
    mean = math.fsum(map(math.fsum, gains.values())) / len(measured)
    squares = [math.fsum(gain - mean for gain in group) ** 2 for group in gains.values()]
    (answer,) = [row for row in answers["nsp_shortcuts"] if row["probe"] == probe]
    assert answer["num_pairs"] == len(measured) > 200
    assert answer["accuracy"] == pytest.approx(correct / len(measured), abs=1e-6)
    assert answer["loss"] == pytest.approx(loss / len(measured), abs=1e-6)
    assert answer["loss_gain"] == pytest.approx(mean, abs=2e-6)
    margin = 1.959964 * math.sqrt(math.fsum(squares)) / len(measured)
    assert answer["loss_margin"] == pytest.approx(margin, abs=2e-6)
