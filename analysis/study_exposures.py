"""What each arm of a study sees of the training text: counted from the masks, and by closed forms.

After e epochs, static masking with K variants has shown min(e, K) maskings of an instance, and
dynamic masking e of them (K is infinite). Each masking selects n of an instance's m maskable
positions, every subset alike and independently of the others, so a position is in one of them with
p = n / m. With v = min(e, K):

- a position has ever been selected with 1 - (1 - p)^v: static masking saturates;
- the share of exposures that repeat a masking shown before is 1 - v / e;
- of the e times, a position showed [MASK], itself or each other token as often as draws with
  their probabilities say, so the expected entropy of what it showed is a sum over binomials.

The counts are taken from a sample of instances with the masks that training shows them.

Legend: n instances of the sample, E epochs, P maskable positions of the sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray
from scipy import stats

from clozemill.pipeline.columns import read_columns
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.instances import MaskBatch, TokenBatch
from clozemill.pipeline.mask_rules import MaskRule
from clozemill.pipeline.masks import draw_masks, num_selected
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.tokenizer import load_tokenizer

NUM_SAMPLED = 256
"""Instances of the sample, evenly spread over the training split."""

_MOST_EPOCHS = 48
"""Epochs of the curves; of more, some are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One number of what an arm has seen."""

    arm: str
    """Name of the arm."""

    epoch: int
    """Epochs done."""

    quantity: str
    """`ever_selected`: share of maskable positions that some masking has selected; `repeats`:
    share of exposures that showed a masking again; `entropy`: nats of what a position shows.
    """

    observed: float
    """Counted in the sample."""

    expected: float | None
    """By the closed form; None for whole-word masks, which have none."""


class _Odds(NamedTuple):
    """Groups of instances whose positions have equal chances."""

    probabilities: NDArray[np.float64]
    """(G,): p = n / m of each group."""

    weights: NDArray[np.float64]
    """(G,): share of the P positions that are in it."""


class _Sample(NamedTuple):
    """Instances with the maskings 0 .. V - 1, and the law of these."""

    rule: MaskRule
    """What draws the maskings."""

    odds: _Odds | None
    """Chances of positions; None for whole-word masks, which have no closed form."""

    num_positions: int
    """P."""

    selected: list[NDArray[np.int64]]
    """For each variant the places of selected positions among all tokens of the sample."""

    changed: list[NDArray[np.int64]]
    """For each variant place * vocabulary + shown id, where that is not the original."""

    overlay_keys: NDArray[np.uint64]
    """(n, V): equal for equal maskings of an instance."""

    @property
    def vocab_size(self) -> int:
        """Size of the vocabulary."""
        return len(self.rule.is_special)


def what_arms_see(
    dataset: Dataset, arms: dict[str, int | None], num_epochs: int, *, mask_offset: int = 0
) -> tuple[Seen, ...]:
    """Return what each arm has seen after each epoch (of many epochs, after some of them).

    Args:
        dataset: Its training split is sampled.
        arms: Name and number of static variants; None is dynamic masking.
        num_epochs: E, at least 1.
        mask_offset: Variant of epoch 0.

    Raises:
        DatasetError: The dataset's tokenizer is not one that made it.
    """
    config = dataset.manifest.build_config()
    rule = mask_rule(config, load_tokenizer(dataset.tokenizer_dir))
    most = max(num_epochs if count is None else min(count, num_epochs) for count in arms.values())
    batch = dataset.take("train", _spread_numbers(dataset.num_instances("train")))
    columns = read_columns(batch)
    ids = np.ascontiguousarray(columns.instance_ids).view(np.uint64)
    masks = draw_masks(columns.tokens, ids, np.arange(most) + mask_offset, rule)
    sample = _sample(columns.tokens, masks, most, rule)
    epochs = epochs_shown(num_epochs, [count for count in arms.values() if count is not None])
    return tuple(
        row
        for arm, count in arms.items()
        for epoch in epochs
        for row in _rows(arm, epoch, _times_shown(epoch, count), sample)
    )


def epochs_shown(num_epochs: int, kept: Sequence[int]) -> list[int]:
    """Return the epochs of the curves: all, or of many some and those that are to be kept.

    >>> epochs_shown(5, [1, 4]), epochs_shown(1_000, [1, 10])[-3:]
    ([1, 2, 3, 4, 5], [745, 863, 1000])
    """
    if num_epochs <= _MOST_EPOCHS:
        return list(range(1, num_epochs + 1))
    spaced = np.geomspace(1, num_epochs, _MOST_EPOCHS).round().astype(int)
    return sorted({*spaced.tolist(), *(epoch for epoch in kept if epoch <= num_epochs)})


def _times_shown(epoch: int, num_variants: int | None) -> NDArray[np.int64]:
    """Return how often each variant has been shown after so many epochs.

    >>> _times_shown(7, 3), _times_shown(2, 3), _times_shown(2, None)
    (array([3, 2, 2]), array([1, 1]), array([1, 1]))
    """
    return np.bincount(np.arange(epoch) % (num_variants or epoch))


def _rows(arm: str, epoch: int, times: NDArray[np.int64], sample: _Sample) -> Iterator[Seen]:
    """Yield what an arm has seen that has shown its variants so often, each at least once."""
    count = len(times)
    reached = np.unique(np.concatenate(sample.selected[:count]))
    distinct = [len(np.unique(row[:count])) for row in sample.overlay_keys]
    observed = {
        "ever_selected": len(reached) / sample.num_positions,
        "repeats": 1.0 - float(np.mean(distinct)) / epoch,
        "entropy": _observed_entropy(sample, times),
    }
    expected = _expected(sample, times)
    for quantity, value in observed.items():
        yield Seen(
            arm=arm,
            epoch=epoch,
            quantity=quantity,
            observed=value,
            expected=expected.get(quantity),
        )


def _expected(sample: _Sample, times: NDArray[np.int64]) -> dict[str, float]:
    """Return the closed forms by quantity, or none of them."""
    odds, count = sample.odds, len(times)
    if odds is None:
        return {}
    return {
        "ever_selected": float(odds.weights @ (1 - (1 - odds.probabilities) ** count)),
        "repeats": 1.0 - count / int(times.sum()),
        "entropy": _expected_entropy(odds, sample.rule, times),
    }


def _spread_numbers(num_instances: int) -> NDArray[np.int64]:
    size = min(NUM_SAMPLED, num_instances)
    return np.arange(size) * num_instances // size


def _sample(tokens: TokenBatch, masks: MaskBatch, num_variants: int, rule: MaskRule) -> _Sample:
    """Return the maskings of instances, variant by variant."""
    counts = np.diff(masks.starts)  # instance by instance, and in it variant by variant
    overlays = np.repeat(np.arange(len(counts)), counts)
    places = tokens.starts[overlays // num_variants] + masks.positions
    shown = masks.token_ids.astype(np.int64)
    keys = places * len(rule.is_special) + shown
    is_changed = shown != tokens.input_ids[places]
    by_variant = np.argsort(overlays % num_variants, kind="stable")
    ends = np.cumsum(counts.reshape(-1, num_variants).sum(axis=0))[:-1]
    ordered = [np.split(values[by_variant], ends) for values in (places, keys, is_changed)]
    bounds = zip(masks.starts[:-1], masks.starts[1:], strict=True)
    whole = [xxhash.xxh3_64_intdigest(keys[begin:end].tobytes()) for begin, end in bounds]
    return _Sample(
        rule=rule,
        odds=None if rule.is_word else _odds(tokens, rule),
        num_positions=int(np.count_nonzero(~rule.is_special[tokens.input_ids])),
        selected=ordered[0],
        changed=[own[flags] for own, flags in zip(*ordered[1:], strict=True)],
        overlay_keys=np.array(whole, np.uint64).reshape(-1, num_variants),
    )


def _observed_entropy(sample: _Sample, times: NDArray[np.int64]) -> float:
    """Return the mean over maskable positions of the entropy of what they showed, in nats."""
    total = int(times.sum())
    changed = sample.changed[: len(times)]
    keys, inverse = np.unique(np.concatenate(changed), return_inverse=True)
    weights = np.repeat(times, [len(part) for part in changed])
    counts = np.bincount(inverse, weights=weights, minlength=len(keys))
    # What is left of a position's exposures showed the token itself.
    places, place_of_key = np.unique(keys // sample.vocab_size, return_inverse=True)
    own = total - np.bincount(place_of_key, weights=counts, minlength=len(places))
    sums = float(_plog(counts / total).sum() + _plog(own / total).sum())
    return sums / sample.num_positions


def _plog(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -x ln x, and 0 for 0."""
    safe = np.where(shares > 0, shares, 1.0)
    return -safe * np.log(safe)


def _odds(tokens: TokenBatch, rule: MaskRule) -> _Odds:
    """Return the chance of a position to be selected, by the number of tokens of its instance."""
    lengths = np.diff(tokens.starts)
    is_maskable = (~rule.is_special[tokens.input_ids]).astype(np.int64)
    maskable = np.add.reduceat(is_maskable, tokens.starts[:-1])
    pairs, counts = np.unique(np.stack([lengths, maskable], axis=1), axis=0, return_counts=True)
    chances = [_expected_count(int(n), int(m), rule) / max(1, int(m)) for n, m in pairs]
    weights = counts * pairs[:, 1]
    return _Odds(np.array(chances), weights / weights.sum())


def _expected_count(length: int, num_maskable: int, rule: MaskRule) -> float:
    """Return how many positions a masking selects, in the mean."""
    cap = min(rule.max_predictions, num_maskable)
    if not rule.is_stochastic:
        return num_selected(length, num_maskable, rule.masked_lm_prob, rule.max_predictions)
    whole, rest = divmod(rule.masked_lm_prob * num_maskable, 1.0)
    return (1 - rest) * min(cap, whole) + rest * min(cap, whole + 1)


def _expected_entropy(odds: _Odds, rule: MaskRule, times: NDArray[np.int64]) -> float:
    """Return the expectation of the mean entropy; of tokens that are ordinary, as nearly all are.

    A symbol that a masking shows with probability q is shown by binomially many of the variants.
    """
    masked = rule.mask_threshold / 2.0**53
    random = rule.random_threshold / 2.0**53 - masked
    others = max(1, len(rule.random_ids))
    each = odds.probabilities * random / others
    itself = 1.0 - odds.probabilities * (masked + random) + each
    sums = _expected_term(odds.probabilities * masked, times)
    sums = sums + (others - 1) * _expected_term(each, times) + _expected_term(itself, times)
    return float(odds.weights @ sums)


def _expected_term(chances: NDArray[np.float64], times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the expectation of -x ln x, x the share of exposures that showed a symbol.

    Args:
        chances: (G,) probability of the symbol in one masking.
        times: How often each variant was shown: some once more often than the others.
    """
    total, fewest = int(times.sum()), int(times.min())
    num_more = int((times > fewest).sum())
    num_less = len(times) - num_more
    more, less = np.arange(num_more + 1), np.arange(num_less + 1)
    terms = _plog((more[:, None] * (fewest + 1) + less * fewest) / total)
    of_more, of_less = (
        stats.binom.pmf(counts[:, None], num, chances)
        for counts, num in ((more, num_more), (less, num_less))
    )
    expected: NDArray[np.float64] = np.einsum("ig,ij,jg->g", of_more, terms, of_less)
    return expected
