"""Reference lines: the losses of predictors that need no network, from a dataset alone.

A fresh model guesses evenly: ln V per selected token, ln 2 per pair. A model whose attention has
learnt nothing still sees *the shown token at the position*, and that is worth more than the token
frequencies: 10 % of the selected positions show the truth. So the line that a model has to fall
below is not the entropy of the frequencies but the **context-free loss**: the loss of the best
predictor that knows the token frequencies, how masks are made, and what a selected position shows.

With p(o) the frequency of token o, a the share of selected positions that show `[MASK]`, r the
share that show a random token, k the share kept, and u(s) the probability of s among random
tokens, Bayes' rule gives for a position that shows s

    P(o | s) = p(o) * (b(s) + k * [o = s]) / (b(s) + k * p(s)),   b(s) = a * [s = MASK] + r * u(s).

At `[MASK]` that is p itself; elsewhere it says how far to trust what is shown.

For pairs, the lengths of A and B alone tell something: a chunk of one long sentence is always a
random pair, and a random B fills the room it is given. The line is a table of lengths, fitted on
the training split.

The frequencies and the table are those of the training split and the losses those of the
validation split under its stored masks, so a model's evaluation compares with them directly.

Legend: V vocabulary, S selected positions, N instances.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.instances import MaskBatch, take_runs
from clozemill.pipeline.mask_rules import MaskRule
from clozemill.pipeline.masks import draw_masks
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.shards import ShardReader
from clozemill.pipeline.tokenizer import load_tokenizer

MOST_TRAIN_INSTANCES = 262_144
"""Frequencies and lengths are counted on record batches spread over the training split that hold
about so many instances, or on all if it has fewer; 33 million tokens at length 128."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Losses are in nats, means over selected tokens or over pairs; None where there are none."""

    split: str
    """What they are of: validation, or train where a dataset has no validation split."""

    num_instances: int
    """Instances of that split that were evaluated, the first ones."""

    num_selected: int
    """Their selected positions, in the variant that was looked at."""

    num_train_instances: int
    """Training instances that frequencies and lengths were counted on."""

    even_loss: float
    """ln V: the loss of a fresh model."""

    unigram_entropy: float
    """Of the token frequencies of the training split."""

    mask_token_loss: float | None
    """At the positions that show [MASK] alone: what the frequencies predict there."""

    context_free_loss: float | None
    """At all selected positions."""

    context_free_accuracy: float | None
    """Share of the selected positions whose token the same predictor guesses."""

    nsp_even_loss: float | None
    """ln 2: the loss of a fresh model."""

    nsp_majority_accuracy: float | None
    """Share of the more frequent label."""

    nsp_length_loss: float | None
    """Of a table of the lengths of A and B."""

    nsp_length_accuracy: float | None
    """Share of the pairs whose label that table guesses, or the more frequent one if it is more."""


def measure_baselines(
    dataset: Dataset,
    *,
    split: str | None = None,
    variant: int = 0,
    eval_instances: int | None = None,
) -> Baselines:
    """Return the reference lines of a dataset; a few seconds for any size of it.

    Args:
        dataset: From `open_dataset`.
        split: Evaluate on this split; by default on validation, or train where there is none.
        variant: Which masking of it; one that is not stored is drawn.
        eval_instances: Evaluate on the first so many instances of the split; by default on all.

    Raises:
        DatasetError: A file is damaged, or the tokenizer is missing.
    """
    config = dataset.manifest.build_config()
    rule = mask_rule(config, load_tokenizer(dataset.tokenizer_dir))
    counts = _count_train(dataset, rule)
    split = split or ("validation" if "validation" in dataset.splits else "train")
    predictor = context_free_predictor(counts.tokens, rule)
    table = fit_lengths(counts.pairs)
    total = _Sums()
    for columns in _first_instances(dataset, split, eval_instances):
        _add_tokens(total, columns, _masks_of(columns, variant, rule), predictor)
        if config.has_pairs:
            _add_pairs(total, columns, table, rule.max_seq_length)
    frequencies = counts.tokens[counts.tokens > 0] / counts.tokens.sum()
    num_majority = max(total.num_random, total.num_pairs - total.num_random)
    return Baselines(
        split=split,
        num_instances=total.num_instances,
        num_selected=total.num_selected,
        num_train_instances=counts.num_instances,
        even_loss=math.log(len(counts.tokens)),
        unigram_entropy=float(-(frequencies * np.log(frequencies)).sum()),
        mask_token_loss=_mean(total.mask_loss, total.num_masked),
        context_free_loss=_mean(total.loss, total.num_selected),
        context_free_accuracy=_mean(total.num_guessed, total.num_selected),
        nsp_even_loss=math.log(2.0) if total.num_pairs else None,
        nsp_majority_accuracy=_mean(num_majority, total.num_pairs),
        nsp_length_loss=_mean(total.pair_loss, total.num_pairs),
        # The table is fitted on train, and may guess less than a constant does here.
        nsp_length_accuracy=_mean(max(total.num_pairs_guessed, num_majority), total.num_pairs),
    )


@dataclass(slots=True)
class _Sums:
    """Sums over the evaluated instances, so that none is kept."""

    num_instances: int = 0
    num_selected: int = 0
    loss: float = 0.0
    num_guessed: int = 0
    num_masked: int = 0
    mask_loss: float = 0.0
    num_pairs: int = 0
    num_random: int = 0
    pair_loss: float = 0.0
    num_pairs_guessed: int = 0


def _mean(total: float, count: int) -> float | None:
    return total / count if count else None


class _TrainCounts(NamedTuple):
    """What is counted on the training split."""

    num_instances: int
    tokens: NDArray[np.int64]
    """(V,): how often each token occurs where it may be selected."""

    pairs: NDArray[np.int64]
    """See `count_lengths`."""


def _count_train(dataset: Dataset, rule: MaskRule) -> _TrainCounts:
    tokens = np.zeros(len(rule.is_special), np.int64)
    pairs = np.zeros((2, _BINS, _BINS, 2), np.int64)
    num_instances = 0
    for columns in _spread_batches(dataset, "train", MOST_TRAIN_INSTANCES):
        num_instances += len(columns.instance_ids)
        tokens += np.bincount(columns.tokens.input_ids, minlength=len(tokens))
        pairs += count_lengths(columns, rule.max_seq_length)
    tokens[rule.is_special] = 0
    return _TrainCounts(num_instances, tokens, pairs)


def _spread_batches(dataset: Dataset, split: str, most: int) -> Iterator[InstanceColumns]:
    """Yield record batches of about so many instances, evenly spread over a split."""
    stride = max(1, math.ceil(dataset.num_instances(split) / most))
    place = 0
    for shard in dataset.manifest.shards_of(split):
        reader = ShardReader(dataset.folder, shard)
        for index in range(shard.num_batches):
            if place % stride == 0:
                yield read_columns(reader.batch(index))
            place += 1


def _first_instances(dataset: Dataset, split: str, most: int | None) -> Iterator[InstanceColumns]:
    left = dataset.num_instances(split) if most is None else most
    for batch in dataset.batches(split):
        if left <= 0:
            return
        yield read_columns(batch.slice(0, min(left, batch.num_rows)))
        left -= batch.num_rows


class ContextFree(NamedTuple):
    """The best predictor that sees the token shown at a position, and no other position."""

    frequencies: NDArray[np.float64]
    """(V,): p."""

    shown_by_mask: NDArray[np.float64]
    """(V,): b: how probable it is that a selected position shows the token, if not kept."""

    keep_prob: float
    """k."""

    mask_id: int
    """Id of `[MASK]`."""


def context_free_predictor(counts: NDArray[np.int64], rule: MaskRule) -> ContextFree:
    """Return the predictor for tokens that occur so often, (V,), and masks made by a rule."""
    mask_prob = rule.mask_threshold * 2.0**-53
    random_prob = rule.random_threshold * 2.0**-53 - mask_prob
    shown_by_mask = np.zeros(len(counts))
    shown_by_mask[rule.random_ids] = random_prob / max(1, len(rule.random_ids))
    shown_by_mask[rule.mask_id] += mask_prob
    frequencies = smoothed(counts, ~rule.is_special)
    keep_prob = 1.0 - mask_prob - random_prob
    return ContextFree(frequencies, shown_by_mask, keep_prob, rule.mask_id)


def smoothed(counts: NDArray[np.int64], is_possible: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the probabilities of tokens that occur so often, none of the possible ones 0.

    The same number is added to all counts: of several, the one that makes each token of the text
    most probable, given all others (leave-one-out; Ney, Essen and Kneser 1995).

    >>> smoothed(np.array([0, 60, 40, 0]), np.array([False, True, True, True])).round(5)
    array([0. , 0.6, 0.4, 0. ])
    """
    num_possible, total = int(is_possible.sum()), int(counts.sum())
    seen = counts[counts > 0]

    def leave_one_out(added: float) -> float:
        logs = np.log((seen - 1 + added) / (total - 1 + added * num_possible))
        return float((seen * logs).sum())

    added = max((10.0 ** (power / 2) for power in range(-8, 3)), key=leave_one_out)
    together = total + added * num_possible
    return np.where(is_possible, (counts + added) / together, 0.0)


def context_free_losses(
    predictor: ContextFree, originals: NDArray[Any], shown: NDArray[Any]
) -> NDArray[np.float64]:
    """Return -ln P(original | shown) of S selected positions."""
    p, b, k, _ = predictor
    likelihood = b[shown] + k * (originals == shown)
    losses: NDArray[np.float64] = -np.log(p[originals] * likelihood / (b[shown] + k * p[shown]))
    return losses


def context_free_guesses(predictor: ContextFree, shown: NDArray[Any]) -> NDArray[np.int64]:
    """Return the most probable original of S selected positions: the shown or the commonest."""
    p, b, k, _ = predictor
    commonest = int(p.argmax())
    is_trusted = p[shown] * (b[shown] + k) >= p[commonest] * b[shown]
    return np.where(is_trusted, shown, commonest).astype(np.int64)


def _add_tokens(
    total: _Sums, columns: InstanceColumns, masks: MaskBatch, predictor: ContextFree
) -> None:
    num_selected = np.diff(masks.starts)
    rows = np.repeat(columns.tokens.starts[:-1], num_selected)
    originals = columns.tokens.input_ids[rows + masks.positions]
    losses = context_free_losses(predictor, originals, masks.token_ids)
    is_masked = masks.token_ids == predictor.mask_id
    total.num_instances += len(num_selected)
    total.num_selected += len(losses)
    total.loss += float(losses.sum())
    total.num_guessed += int((context_free_guesses(predictor, masks.token_ids) == originals).sum())
    total.num_masked += int(is_masked.sum())
    total.mask_loss += float(losses[is_masked].sum())


def _masks_of(columns: InstanceColumns, variant: int, rule: MaskRule) -> MaskBatch:
    """Return a variant of the instances: the stored one, or the same drawn now."""
    if columns.masks is None or variant >= columns.num_variants:
        ids = np.ascontiguousarray(columns.instance_ids).view(np.uint64)
        return draw_masks(columns.tokens, ids, np.array([variant]), rule)
    places = np.arange(len(columns.instance_ids)) * columns.num_variants + variant
    own_starts, places = take_runs(columns.masks.starts, places)
    return MaskBatch(columns.masks.positions[places], columns.masks.token_ids[places], own_starts)


_BINS = 32
"""Bins of each length in the finest table, a power of two."""

_STRENGTH = 32.0
"""Pairs that a coarser cell counts for in a finer one. On two corpora the held-out loss was the
same within 0.002 for 8 to 128."""


def _cells(columns: InstanceColumns, max_seq_length: int) -> tuple[NDArray[Any], ...]:
    """Return bin of A's length, bin of the whole length, and whether that is the longest."""
    lengths = np.diff(columns.tokens.starts)
    borders = columns.tokens.segment_b_start.astype(np.int64)
    return (
        borders * _BINS // (max_seq_length + 1),
        lengths * _BINS // (max_seq_length + 1),
        (lengths == max_seq_length).astype(np.int64),
    )


def count_lengths(columns: InstanceColumns, max_seq_length: int) -> NDArray[np.int64]:
    """Return how many pairs of each label have which lengths.

    Returns:
        int64 (2, bins of A, bins of the whole, 2): by label, and by whether the pair is full.
    """
    is_pair = columns.next_sentence_label >= 0
    places = (columns.next_sentence_label, *_cells(columns, max_seq_length))
    counts = np.zeros((2, _BINS, _BINS, 2), np.int64)
    np.add.at(counts, tuple(place[is_pair] for place in places), 1)
    return counts


def fit_lengths(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability of a random pair for each cell of lengths, from `count_lengths`.

    From one bin to the finest, each cell mixes its own share with that of the cell around it.

    Returns:
        float64 (bins of A, bins of the whole, 2).
    """
    num_random, num_pairs = int(counts[1].sum()), int(counts.sum())
    share = np.full((1, 1, 2), (num_random + 1.0) / (num_pairs + 2.0))
    bins = 1
    while bins <= _BINS:
        if bins > 1:
            share = share.repeat(2, axis=0).repeat(2, axis=1)
        width = _BINS // bins
        coarse = counts.reshape(2, bins, width, bins, width, 2).sum(axis=(2, 4))
        share = (coarse[1] + _STRENGTH * share) / (coarse.sum(axis=0) + _STRENGTH)
        bins *= 2
    return share


def _add_pairs(
    total: _Sums, columns: InstanceColumns, table: NDArray[np.float64], max_seq_length: int
) -> None:
    is_pair = columns.next_sentence_label >= 0
    is_random = columns.next_sentence_label[is_pair] == 1
    share = table[_cells(columns, max_seq_length)][is_pair]
    total.num_pairs += len(is_random)
    total.num_random += int(is_random.sum())
    total.pair_loss -= float(np.log(np.where(is_random, share, 1.0 - share)).sum())
    total.num_pairs_guessed += int(((share > 0.5) == is_random).sum())
