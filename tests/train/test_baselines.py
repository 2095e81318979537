import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.pipeline.small_datasets import build_small

from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.instances import TokenBatch
from clozemill.pipeline.mask_rules import MaskRule, MaskVocabulary, make_mask_rule
from clozemill.pipeline.masks import draw_masks
from clozemill.train.baselines import (
    context_free_guesses,
    context_free_losses,
    context_free_predictor,
    fit_lengths,
    measure_baselines,
    smoothed,
)

PAD, UNK, CLS, SEP, MASK = range(5)
X, Y = 5, 6


def rule_for(num_ordinary: int, **settings: Any) -> MaskRule:
    size = 5 + num_ordinary
    vocabulary = MaskVocabulary(
        size=size,
        mask_id=MASK,
        special_ids=np.array([PAD, CLS, SEP, MASK]),
        ordinary_ids=np.arange(5, size),
        is_continuation=None,
    )
    return make_mask_rule(BuildConfig(**settings), vocabulary)


def test_the_best_guess_weighs_what_is_shown_against_the_frequencies() -> None:
    # p(x) = 3/4 and p(y) = 1/4; x is shown if kept (0.1) or drawn (0.1 / 2).
    counts = np.zeros(7, np.int64)
    counts[[X, Y]] = 3_000_000, 1_000_000
    predictor = context_free_predictor(counts, rule_for(2))
    shown = np.array([MASK, MASK, X, X, Y, Y])
    originals = np.array([X, Y, X, Y, Y, X])
    probabilities = np.exp(-context_free_losses(predictor, originals, shown))
    # P(x | x) = 0.75 * 0.15 / (0.05 + 0.1 * 0.75); P(y | y) = 0.25 * 0.15 / (0.05 + 0.1 * 0.25)
    assert probabilities == pytest.approx([0.75, 0.25, 0.9, 0.1, 0.5, 0.5], abs=1e-5)
    assert list(context_free_guesses(predictor, shown[[0, 2]])) == [X, X]


def test_a_shown_token_that_is_never_drawn_at_random_is_certain() -> None:
    counts = np.zeros(7, np.int64)
    counts[[UNK, X, Y]] = 1, 50, 49
    predictor = context_free_predictor(counts, rule_for(2))
    loss = context_free_losses(predictor, np.array([UNK]), np.array([UNK]))
    assert loss == pytest.approx([0.0], abs=1e-12)


@pytest.mark.parametrize(
    "settings",
    [{}, {"random_tokens": "all"}, {"mask_token_prob": 0.5, "random_token_prob": 0.4}],
)
def test_no_context_free_predictor_does_better(settings: dict[str, Any]) -> None:
    """A table of (shown, original) fitted on the very positions that it predicts cannot win."""
    rule = rule_for(12, **settings)
    rng = np.random.default_rng(5)
    frequencies = rng.dirichlet(np.ones(12))
    num_rows, length = 8_000, 128
    ids = rng.choice(np.arange(5, 17), size=(num_rows, length), p=frequencies).astype(np.uint16)
    starts = np.arange(num_rows + 1) * length
    batch = TokenBatch(ids.reshape(-1), starts, starts[1:] - starts[:-1])
    keys = rng.integers(0, 2**63, size=(num_rows, 2)).astype(np.uint64)
    masks = draw_masks(batch, keys, np.zeros(1, np.int64), rule)
    rows = np.repeat(starts[:-1], np.diff(masks.starts))
    originals = ids.reshape(-1)[rows + masks.positions]

    counts = np.bincount(ids.reshape(-1), minlength=17)
    predictor = context_free_predictor(counts, rule)
    ours = context_free_losses(predictor, originals, masks.token_ids)
    table = np.zeros((17, 17))
    np.add.at(table, (masks.token_ids, originals), 1)
    shares = table / np.maximum(1, table.sum(axis=1, keepdims=True))
    best = -np.log(shares[masks.token_ids, originals])
    assert len(ours) > 100_000
    # The table has 13 x 11 free numbers, worth half a nat each in all on its own positions.
    assert best.mean() <= ours.mean() <= best.mean() + 143 / len(ours)
    guessed = context_free_guesses(predictor, masks.token_ids) == originals
    assert abs(guessed.mean() - table.max(axis=1).sum() / table.sum()) < 1e-3


def test_probabilities_of_tokens_add_up_to_one_and_none_possible_is_zero() -> None:
    counts = np.array([0, 900, 90, 9, 1, 0, 0])
    is_possible = np.array([False, *[True] * 6])
    found = smoothed(counts, is_possible)
    assert found.sum() == pytest.approx(1.0)
    assert found[0] == 0.0
    assert (found[1:] > 0.0).all()
    assert found[5] == found[6] < found[4] < found[3]


def test_a_table_of_lengths_learns_what_lengths_tell_and_no_more() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros((2, 32, 32, 2), np.int64)
    # Pairs with a long A are random three times out of four, the others once in two.
    for label, cell in zip(rng.random(40_000), rng.integers(0, 32, (40_000, 2)), strict=True):
        is_random = label < (0.75 if cell[0] >= 16 else 0.5)
        counts[int(is_random), cell[0], cell[1], 0] += 1
    share = fit_lengths(counts)[:, :, 0]
    truth = np.where(np.arange(32) >= 16, 0.75, 0.5)[:, None]
    loss = -(truth * np.log(share) + (1 - truth) * np.log(1 - share)).mean()
    possible = -(truth * np.log(truth) + (1 - truth) * np.log(1 - truth)).mean()
    assert possible < loss < possible + 0.01


def test_a_table_without_pairs_says_one_half() -> None:
    assert (fit_lengths(np.zeros((2, 32, 32, 2), np.int64)) == 0.5).all()


def slow_losses(dataset: Dataset, split: str) -> tuple[list[float], list[float]]:
    """Return the losses at all selected positions and at [MASK], position by position."""
    tokenizer = dataset.manifest.tokenizer
    mask_id = tokenizer.special_ids["mask"]
    special = {i for role, i in tokenizer.special_ids.items() if role != "unk"}
    ordinary = set(range(tokenizer.vocab_size)) - set(tokenizer.special_ids.values())
    counts = np.zeros(tokenizer.vocab_size, np.int64)
    for batch in dataset.batches("train"):
        for ids in batch.column("input_ids").to_pylist():
            np.add.at(counts, [i for i in ids if i not in special], 1)
    p = smoothed(counts, np.array([i not in special for i in range(len(counts))]))
    everywhere, at_mask = [], []
    for batch in dataset.batches(split):
        for row in batch.to_pylist():
            for shown in row["masks"][0]:
                original, seen = row["input_ids"][shown["position"]], shown["token_id"]
                joint = {
                    o: p[o]
                    * (0.8 * (seen == mask_id) + 0.1 * (seen in ordinary) / len(ordinary)
                       + 0.1 * (seen == o))
                    for o in range(len(p))
                }  # fmt: skip
                everywhere.append(-math.log(joint[original] / sum(joint.values())))
                if seen == mask_id:
                    at_mask.append(everywhere[-1])
    assert at_mask
    return everywhere, at_mask


def test_lines_of_a_dataset_are_means_over_its_stored_validation_masks(tmp_path: Path) -> None:
    dataset = open_dataset(build_small(tmp_path))
    lines = measure_baselines(dataset)
    everywhere, at_mask = slow_losses(dataset, "validation")
    assert (lines.split, lines.num_selected) == ("validation", len(everywhere))
    assert lines.num_instances == dataset.num_instances("validation")
    assert lines.num_train_instances == dataset.num_instances("train")
    assert lines.context_free_loss == pytest.approx(np.mean(everywhere))
    assert lines.mask_token_loss == pytest.approx(np.mean(at_mask))
    assert lines.even_loss == pytest.approx(math.log(dataset.manifest.tokenizer.vocab_size))
    assert lines.context_free_loss is not None
    assert lines.context_free_loss < lines.unigram_entropy < lines.even_loss


def test_pairs_have_a_majority_and_a_line_of_lengths(tmp_path: Path) -> None:
    dataset = open_dataset(build_small(tmp_path))
    lines = measure_baselines(dataset)
    labels = np.concatenate(
        [read_columns(b).next_sentence_label for b in dataset.batches("validation")]
    )
    assert lines.nsp_even_loss == pytest.approx(0.693147, abs=1e-6)
    assert lines.nsp_majority_accuracy == max(labels.mean(), 1 - labels.mean())
    assert lines.nsp_length_loss is not None
    assert 0.3 < lines.nsp_length_loss < 0.8
    assert lines.nsp_length_accuracy is not None
    assert 0.4 < lines.nsp_length_accuracy < 1.0


def test_only_the_first_instances_are_evaluated_where_so_many_are_asked(tmp_path: Path) -> None:
    dataset = open_dataset(build_small(tmp_path))
    few = measure_baselines(dataset, eval_instances=7)
    assert few.num_instances == 7
    assert 0 < few.num_selected < measure_baselines(dataset).num_selected


def test_packed_instances_have_no_lines_of_pairs(tmp_path: Path) -> None:
    lines = measure_baselines(open_dataset(build_small(tmp_path, recipe="roberta-full")))
    assert lines.context_free_loss is not None
    assert (lines.nsp_even_loss, lines.nsp_majority_accuracy) == (None, None)
    assert (lines.nsp_length_loss, lines.nsp_length_accuracy) == (None, None)


def test_without_validation_and_stored_masks_variant_0_of_training_is_drawn(tmp_path: Path) -> None:
    stored = open_dataset(build_small(tmp_path / "a", validation_fraction=0.0))
    unstored = open_dataset(build_small(tmp_path / "b", validation_fraction=0.0, mask_variants=0))
    assert "validation" not in stored.splits
    assert measure_baselines(stored).split == "train"
    assert measure_baselines(stored) == measure_baselines(unstored)


def test_without_any_selected_token_there_is_no_loss_and_no_false_zero(tmp_path: Path) -> None:
    dataset = open_dataset(
        build_small(tmp_path, mask_count="stochastic", masked_lm_prob=1e-9, mask_variants=1)
    )
    lines = measure_baselines(dataset)
    assert lines.num_selected == 0
    assert (lines.context_free_loss, lines.mask_token_loss) == (None, None)
    assert lines.nsp_length_loss is not None
