"""What questions about masks count and expect, beside a plain recount of the same rows."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import duckdb
import pytest
from tests.pipeline.small_corpora import (
    make_texts,
    rows_of,
    small_dataset,
    write_json_lines,
    write_tokenizer,
)

from clozemill.analysis.db import open_database
from clozemill.analysis.questions import all_questions
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer

SPECIAL = {"[CLS]", "[SEP]", "[PAD]", "[MASK]"}


class Overlay(NamedTuple):
    """A variant of an instance."""

    row: dict[str, Any]
    maskable: list[int]
    positions: list[int]
    shown: list[int]


class Recounted(NamedTuple):
    dataset: Dataset
    tokenizer: PretrainingTokenizer
    overlays: list[list[Overlay]]
    """The variants of each training instance."""

    answers: dict[str, list[dict[str, Any]]]
    """Rows of the questions, of the training split."""


@pytest.fixture(scope="module", params=["ordinary", "all"])
def counted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recounted:
    folder = tmp_path_factory.mktemp("counted")
    tokens = write_tokenizer(folder / "tokenizer")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(50))
    settings = {"mask_variants": 3, "random_tokens": request.param, "random_token_prob": 0.2}
    dataset = small_dataset(corpus, tokens, folder / "data", **settings)
    tokenizer = load_tokenizer(dataset.tokenizer_dir)
    special = {tokenizer.pieces.index(piece) for piece in SPECIAL}
    overlays = [list(overlays_of(row, special)) for row in rows_of(dataset, "train")]
    with open_database(dataset, threads=1) as connection:
        answers = {
            question.name: [
                row
                for row in connection.sql(question.sql).to_arrow_table().to_pylist()
                if row["split"] == "train"
            ]
            for question in all_questions()
            if "variants" in question.needs and "words" not in question.needs
        }
    return Recounted(dataset, tokenizer, overlays, answers)


def overlays_of(row: dict[str, Any], special: set[int]) -> Iterator[Overlay]:
    maskable = [p for p, token in enumerate(row["input_ids"]) if token not in special]
    for mask in row["masks"]:
        positions = [shown["position"] for shown in mask]
        yield Overlay(row, maskable, positions, [shown["token_id"] for shown in mask])


def word_lengths(row: dict[str, Any], tokenizer: PretrainingTokenizer) -> dict[int, int]:
    words: list[list[int]] = []
    for position, token in enumerate(row["input_ids"]):
        piece = tokenizer.pieces[token]
        if piece in SPECIAL:
            words.append([])
        elif piece.startswith("##") and words[-1]:
            words[-1].append(position)
        else:
            words.append([position])
    return {position: len(word) for word in words for position in word}


def groups_of(name: str, counted: Recounted) -> Any:
    """Return the function from a row to the group of each of its maskable positions."""
    occurrences = Counter(
        token for variants in counted.overlays for token in variants[0].row["input_ids"]
    )

    def groups(row: dict[str, Any]) -> Any:
        ids = row["input_ids"]
        if name == "selected_by_token":
            return ids
        if name == "selected_by_frequency":
            return [int(math.log2(occurrences[token])) for token in ids]
        if name == "selected_by_position":
            return [int(20 * (p + 0.5) / len(ids)) for p in range(len(ids))]
        return word_lengths(row, counted.tokenizer)

    return groups


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("selected_by_token", "token_id"),
        ("selected_by_frequency", "k"),
        ("selected_by_position", "twentieth"),
        ("selected_by_word_length", "word_length"),
    ],
)
def test_positions_by_group(counted: Recounted, name: str, column: str) -> None:
    groups = groups_of(name, counted)
    law: dict[Any, list[Any]] = defaultdict(lambda: [0, 0, Fraction(0), Fraction(0)])
    for overlay in (overlay for variants in counted.overlays for overlay in variants):
        group_of = groups(overlay.row)
        rate = Fraction(len(overlay.positions), len(overlay.maskable))
        for position in overlay.maskable:
            entry = law[group_of[position]]
            entry[0] += position in overlay.positions
            entry[1] += 1
            entry[2] += rate
            entry[3] += rate * (1 - rate)
    found = {row[column]: numbers(row) for row in counted.answers[name]}
    assert len(found) > 2
    assert found == {
        group: pytest.approx([float(value) for value in entry]) for group, entry in law.items()
    }


def numbers(row: dict[str, Any]) -> list[float]:
    return [float(row[name]) for name in ("observed", "trials", "expected", "variance")]


def hypergeometric(m: int, s: int, n: int) -> tuple[Fraction, Fraction]:
    share = Fraction(s, m)
    return n * share, n * share * (1 - share) * Fraction(m - n, max(m - 1, 1))


def test_positions_of_a(counted: Recounted) -> None:
    observed, moments = 0, []
    for overlay in (overlay for variants in counted.overlays for overlay in variants):
        border = overlay.row["segment_b_start"]
        observed += sum(position < border for position in overlay.positions)
        size = sum(position < border for position in overlay.maskable)
        moments.append(hypergeometric(len(overlay.maskable), size, len(overlay.positions)))
    [row] = counted.answers["selected_by_segment"]
    found = [row["observed"], row["expected"], row["variance"]]
    assert found == pytest.approx([observed, *map(float, map(sum, zip(*moments, strict=True)))])


def test_neighbouring_variants(counted: Recounted) -> None:
    overlap, moments, equal, chances = 0, [], 0, []
    for variants in counted.overlays:
        for one, other in zip(variants, variants[1:], strict=False):
            m, n = len(one.maskable), len(one.positions)
            overlap += len(set(one.positions) & set(other.positions))
            moments.append(hypergeometric(m, len(other.positions), n))
            equal += one.positions == other.positions
            chances.append(1 / math.comb(m, n))
    [row] = counted.answers["overlap_of_variants"]
    found = [row["observed"], row["expected"], row["variance"]]
    assert found == pytest.approx([overlap, *map(float, map(sum, zip(*moments, strict=True)))])
    [row] = counted.answers["equal_variants"]
    found = [row["observed"], row["trials"], row["expected"]]
    assert found == pytest.approx([equal, len(chances), sum(chances)])


def looked_at(counted: Recounted) -> list[Overlay]:
    """Return one variant of each instance, by DuckDB's hash of the instance's number."""
    size = len(counted.overlays)
    hashes = duckdb.sql(f"select hash(i::bigint) from range({size}) as t (i) order by i").fetchall()
    return [
        variants[hashed % len(variants)]
        for variants, (hashed,) in zip(counted.overlays, hashes, strict=True)
    ]


def test_masks_of_different_instances(counted: Recounted) -> None:
    masks: dict[tuple[int, int], Counter[tuple[int, ...]]] = defaultdict(Counter)
    for overlay in looked_at(counted):
        places = tuple(overlay.maskable.index(position) for position in overlay.positions)
        masks[len(overlay.maskable), len(places)][places] += 1
    expected = {
        (m, n): [
            masks[m, n].total() - len(masks[m, n]),
            min(total, total * (total - 1) / 2 / math.comb(m, n)),
        ]
        for m, n in masks
        if (total := masks[m, n].total()) > 1
    }
    found = {
        (row["num_maskable"], row["num_selected"]): pytest.approx(
            [float(row["observed"]), row["expected"]]
        )
        for row in counted.answers["repeated_masks"]
    }
    assert len(expected) > 5
    assert found == expected


def test_random_tokens_of_different_instances(counted: Recounted) -> None:
    is_all = counted.dataset.manifest.configuration["random_tokens"] == "all"
    tokenizer = counted.tokenizer
    num_pool = tokenizer.vocab_size - 1 if is_all else len(tokenizer.ordinary_ids)
    tokens: dict[int, Counter[tuple[int, ...]]] = defaultdict(Counter)
    for overlay in looked_at(counted):
        ids = overlay.row["input_ids"]
        drawn = tuple(
            shown
            for position, shown in zip(overlay.positions, overlay.shown, strict=True)
            if shown not in (ids[position], tokenizer.mask_id)
        )
        tokens[len(drawn)][drawn] += 1
    expected = {
        r: [
            tokens[r].total() - len(tokens[r]),
            min(total, total * (total - 1) / 2 / (num_pool - 1) ** r),
        ]
        for r in tokens
        if r > 1 and (total := tokens[r].total()) > 1
    }
    found = {
        row["num_random"]: pytest.approx([float(row["observed"]), row["expected"]])
        for row in counted.answers["repeated_random_tokens"]
    }
    assert len(expected) > 1
    assert found == expected


def random_draws(counted: Recounted) -> tuple[list[int], list[tuple[int, int]]]:
    """Return ids that look random when drawn, in order, and original and shown id of each draw."""
    tokenizer = counted.tokenizer
    pool = pool_of(counted)
    draws = [
        (original, shown)
        for original, shown in acted(counted)
        if shown not in (tokenizer.mask_id, original)
    ]
    return sorted(pool - {tokenizer.mask_id}), draws


def pool_of(counted: Recounted) -> set[int]:
    """Return the ids that random tokens are drawn from."""
    is_all = counted.dataset.manifest.configuration["random_tokens"] == "all"
    size, ordinary = counted.tokenizer.vocab_size, counted.tokenizer.ordinary_ids
    return set(range(size) if is_all else ordinary.tolist())


def acted(counted: Recounted) -> list[tuple[int, int]]:
    """Return original and shown id of every selected position whose original may be drawn."""
    pool = pool_of(counted)
    return [
        (overlay.row["input_ids"][position], shown)
        for variants in counted.overlays
        for overlay in variants
        for position, shown in zip(overlay.positions, overlay.shown, strict=True)
        if overlay.row["input_ids"][position] in pool
    ]


def test_what_is_shown(counted: Recounted) -> None:
    mask_id = counted.tokenizer.mask_id
    actions = Counter(
        "mask" if shown == mask_id else "keep" if shown == original else "random"
        for original, shown in acted(counted)
    )
    found = {row["action"]: float(row["observed"]) for row in counted.answers["actions"]}
    assert found == actions


def test_random_tokens_by_id(counted: Recounted) -> None:
    others, draws = random_draws(counted)
    assert {
        row["token_id"]: [row["observed"], row["trials"], row["probability"]]
        for row in counted.answers["random_tokens_by_id"]
    } == {
        token: [
            sum(shown == token for _, shown in draws),
            sum(original != token for original, _ in draws),
            pytest.approx(1 / (len(others) - 1)),
        ]
        for token in others
    }


def test_bands_of_random_tokens(counted: Recounted) -> None:
    others, draws = random_draws(counted)
    sizes = [len(others) // 50 + (band < len(others) % 50) for band in range(50)]
    starts = [sum(sizes[:band]) for band in range(50)]
    found = {row["band"]: numbers(row) for row in counted.answers["random_tokens_by_band"]}
    assert len(draws) > 500
    assert found == {
        band + 1: pytest.approx(band_law(set(others[start : start + size]), len(others), draws))
        for band, (start, size) in enumerate(zip(starts, sizes, strict=True))
    }


def band_law(band: set[int], size: int, draws: list[tuple[int, int]]) -> list[float]:
    """Return observed, trials, expected and variance of the draws that fall into a band."""
    chances = [Fraction(len(band) - (original in band), size - 1) for original, _ in draws]
    return [
        float(sum(shown in band for _, shown in draws)),
        float(len(draws)),
        float(sum(chances)),
        float(sum(chance * (1 - chance) for chance in chances)),
    ]


def test_probabilities_of_actions_add_up(counted: Recounted) -> None:
    size = counted.tokenizer.vocab_size
    is_all = counted.dataset.manifest.configuration["random_tokens"] == "all"
    found = {row["action"]: row["probability"] for row in counted.answers["actions"]}
    number = size if is_all else len(counted.tokenizer.ordinary_ids)
    mask = 0.8 + (0.2 / size if is_all else 0.0)
    keep = 0.2 / number
    assert found == pytest.approx({"mask": mask, "keep": keep, "random": 1 - mask - keep})
