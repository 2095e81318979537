"""Masks: which positions of an instance are predicted, and what the input shows there.

A masking is a pure function of (seed, instance id, variant), so it is the same wherever,
whenever and beside whatever else it is computed.

Legend: N instances, K variants, T tokens, V vocabulary.

Sources: google-research/bert `create_pretraining_data.py:342-415`; fairseq
`MaskTokensDataset` for the stochastic count.
Differs from BERT: a word never reaches across a special token; by default random
replacements are ordinary tokens, never special.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline import draws
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError, DatasetError, TokenizerError
from clozemill.pipeline.instances import MaskBatch, TokenBatch
from clozemill.pipeline.jit import kernel, lowest_one, njit


class MaskVocabulary(NamedTuple):
    """What masking has to know about a tokenizer."""

    size: int
    """V: ids are 0 .. V - 1."""

    mask_id: int
    """Id of `[MASK]`."""

    special_ids: NDArray[np.int64]
    """Ids that are never selected: `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`; not `[UNK]`."""

    ordinary_ids: NDArray[np.int64]
    """Ids that stand for text: not special, not `[UNK]`, not `[unusedN]`."""

    is_continuation: NDArray[np.bool_] | None
    """(V,): whether a token continues the word before it; None where words are unknown."""


class MaskRule(NamedTuple):
    """How masks are drawn: what `make_mask_rule` makes of settings and vocabulary."""

    seed: np.uint64
    max_seq_length: int
    masked_lm_prob: float
    max_predictions: int
    is_stochastic: bool
    """Whether counts are rounded at random (RoBERTa) instead of to the nearest (BERT)."""
    is_word: bool
    """Whether all pieces of a word are selected together."""
    mask_threshold: int
    """A selected position shows `[MASK]` if the upper 53 bits of its draw are below this."""
    random_threshold: int
    """Else a random token if they are below this, else the token itself."""
    mask_id: int
    is_special: NDArray[np.bool_]
    """(V,)"""
    random_ids: NDArray[np.int64]
    """What random replacements are drawn from, uniformly."""
    is_continuation: NDArray[np.bool_]
    """(V,)"""


def make_mask_rule(config: BuildConfig, vocabulary: MaskVocabulary) -> MaskRule:
    """Return the rule that settings ask for.

    Raises:
        ConfigError: `masked_lm_prob` is 0.
        TokenizerError: Random tokens are asked for and the vocabulary has no ordinary ones, or
            whole words and the tokenizer does not tell where words start.
    """
    if config.masked_lm_prob == 0.0:
        raise ConfigError(
            "masked_lm_prob is 0, which leaves nothing to predict, neither in stored masks nor in "
            "those drawn on the fly; give a share above 0, such as 0.15."
        )
    is_special = np.zeros(vocabulary.size, np.bool_)
    is_special[vocabulary.special_ids] = True
    max_predictions = config.max_predictions_per_seq
    if max_predictions is None:
        max_predictions = default_max_predictions(config.max_seq_length, config.masked_lm_prob)
    return MaskRule(
        seed=np.uint64(config.seed),
        max_seq_length=config.max_seq_length,
        masked_lm_prob=float(config.masked_lm_prob),
        max_predictions=max_predictions,
        is_stochastic=config.mask_count == "stochastic",
        is_word=config.mask_unit == "word",
        mask_threshold=_threshold(config.mask_token_prob),
        random_threshold=_threshold(config.mask_token_prob + config.random_token_prob),
        mask_id=int(vocabulary.mask_id),
        is_special=is_special,
        random_ids=_random_ids(config, vocabulary),
        is_continuation=_continuations(config, vocabulary),
    )


def _continuations(config: BuildConfig, vocabulary: MaskVocabulary) -> NDArray[np.bool_]:
    if vocabulary.is_continuation is not None:
        return np.ascontiguousarray(vocabulary.is_continuation, np.bool_)
    if config.mask_unit == "word":
        raise TokenizerError(
            f"mask_unit is 'word', but the tokenizer {config.tokenizer} does not say where words "
            "start; use mask_unit token, or a WordPiece, byte-level BPE or Unigram tokenizer."
        )
    return np.zeros(vocabulary.size, np.bool_)


def _threshold(probability: float) -> int:
    """Return the integer with: `draws.uniform` < probability if and only if its bits are less."""
    return math.ceil(probability * 2.0**53)


def _random_ids(config: BuildConfig, vocabulary: MaskVocabulary) -> NDArray[np.int64]:
    if config.random_tokens == "all":
        return np.arange(vocabulary.size, dtype=np.int64)
    ordinary = np.ascontiguousarray(vocabulary.ordinary_ids, np.int64)
    if len(ordinary) == 0 and config.random_token_prob > 0.0:
        raise TokenizerError(
            f"the tokenizer {config.tokenizer} has no ordinary tokens among its {vocabulary.size} "
            "to draw random ones from; use another tokenizer, or 0 for random_token_prob."
        )
    return ordinary


def default_max_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """Return a cap on selected tokens that never bites: what the share asks for at most.

    >>> default_max_predictions(128, 0.15), default_max_predictions(512, 0.15)
    (20, 77)
    """
    return max(1, math.ceil(max_seq_length * masked_lm_prob))


def num_selected(
    length: int, num_maskable: int, masked_lm_prob: float, max_predictions: int
) -> int:
    """Return BERT's number of selected tokens: the rounded share of the length, at least 1.

    `length` counts the specials; halves round to even (`create_pretraining_data.py:365`).

    >>> [num_selected(n, n - 3, 0.15, 99) for n in (5, 7, 10, 17, 30, 50, 64, 128, 512)]
    [1, 1, 2, 3, 4, 8, 10, 19, 77]
    >>> num_selected(512, 509, 0.15, 20)
    20
    """
    rounded = int(np.rint(length * masked_lm_prob))
    return min(max_predictions, num_maskable, max(1, rounded))


_num_selected = njit(num_selected)


def draw_masks(
    batch: TokenBatch,
    instance_ids: NDArray[np.uint64],
    variants: NDArray[np.int64],
    rule: MaskRule,
) -> MaskBatch:
    """Return the overlays of every instance and variant, instance by instance.

    Args:
        batch: N instances.
        instance_ids: uint64 (N, 2), the 16-byte ids as two little-endian words.
        variants: (K,) numbers of the maskings wanted, in any order.
        rule: from `make_mask_rule`.

    Returns:
        N * K overlays. Positions are uint8 where `max_seq_length` is at most 256, else uint16;
        token ids have the type of `batch.input_ids`.

    Raises:
        DatasetError: A token id or a length that the rule's tokenizer and settings exclude.
    """
    _check_batch(batch, rule)
    variants = np.ascontiguousarray(variants, np.int64)
    num_overlays = (len(batch.starts) - 1) * len(variants)
    room = _mask_room(batch, rule) * len(variants)
    position_type = np.uint8 if rule.max_seq_length <= 256 else np.uint16
    out = MaskBatch(
        positions=np.empty(room, position_type),
        token_ids=np.empty(room, batch.input_ids.dtype),
        starts=np.zeros(num_overlays + 1, np.int64),
    )
    _fill_masks(batch, instance_ids, variants, rule, out)
    end = out.starts[-1]
    return MaskBatch(out.positions[:end], out.token_ids[:end], out.starts)


def draw_variants(
    batch: TokenBatch, instance_ids: NDArray[np.uint8], num_variants: int, rule: MaskRule
) -> MaskBatch:
    """Return the stored maskings 0 to K - 1 of instances with these (N, 16) ids."""
    ids = np.ascontiguousarray(instance_ids).view(np.uint64)
    return draw_masks(batch, ids, np.arange(num_variants), rule)


def mask_counts(
    batch: TokenBatch, masks: MaskBatch | None, num_variants: int, rule: MaskRule
) -> dict[str, int]:
    """Return what the ledger says of the masks of instances, by reason.

    Maskable and selected positions are counted once per variant, tokens once.
    """
    return {
        "maskable": num_maskable(batch, rule) * num_variants,
        "selected": len(masks.positions) if masks is not None else 0,
        "tokens": len(batch.input_ids),
    }


def num_maskable(batch: TokenBatch, rule: MaskRule) -> int:
    """Return how many positions of the instances may be selected."""
    return int(np.count_nonzero(~rule.is_special[batch.input_ids]))


def _check_batch(batch: TokenBatch, rule: MaskRule) -> None:
    """Refuse what the kernel would read or write out of bounds for."""
    largest_id = int(batch.input_ids.max(initial=0))
    if largest_id >= len(rule.is_special):
        raise DatasetError(
            f"an instance holds token id {largest_id}, but the tokenizer has "
            f"{len(rule.is_special)} tokens; use the tokenizer that the dataset was built with."
        )
    longest = int(np.diff(batch.starts).max(initial=0))
    if longest > rule.max_seq_length:
        raise DatasetError(
            f"an instance has {longest} tokens, but max_seq_length is {rule.max_seq_length}; use "
            "the settings that the dataset was built with."
        )


def _mask_room(batch: TokenBatch, rule: MaskRule) -> int:
    """Return at least the most positions that one variant of all instances can select."""
    # One more, because share + uniform draw can round up to the next whole number.
    asked = np.ceil(np.diff(batch.starts) * rule.masked_lm_prob).astype(np.int64) + 1
    return int(np.clip(asked, 1, rule.max_predictions).sum())


class _Scratch(NamedTuple):
    """Working memory for one instance at a time, as long as the longest."""

    maskable: NDArray[np.int64]
    """Positions that may be selected, ascending."""
    group_starts: NDArray[np.int64]
    """Where each word starts among `maskable`, and where the last one ends."""
    group_order: NDArray[np.int64]
    """Words in the order in which they are tried."""
    chosen: NDArray[np.uint64]
    """One bit for each of `maskable`."""


class _Row(NamedTuple):
    """One instance."""

    tokens: NDArray[Any]
    num_maskable: int
    num_groups: int


class _Keys(NamedTuple):
    """The streams of one variant of one instance."""

    for_count: np.uint64
    for_position: np.uint64
    for_action: np.uint64
    for_replacement: np.uint64


@njit
def _new_scratch(length: int) -> _Scratch:
    return _Scratch(
        np.empty(length, np.int64),
        np.empty(length + 1, np.int64),
        np.empty(length, np.int64),
        np.zeros(length // 64 + 1, np.uint64),
    )


@kernel
def _fill_masks(
    batch: TokenBatch,
    instance_ids: NDArray[np.uint64],
    variants: NDArray[np.int64],
    rule: MaskRule,
    out: MaskBatch,
) -> None:
    longest = 0
    for instance in range(batch.starts.size - 1):
        longest = max(longest, batch.starts[instance + 1] - batch.starts[instance])
    scratch = _new_scratch(longest)
    overlay = 0
    for instance in range(batch.starts.size - 1):
        tokens = batch.input_ids[batch.starts[instance] : batch.starts[instance + 1]]
        num_maskable, num_groups = _find_maskable(tokens, rule, scratch)
        row = _Row(tokens, num_maskable, num_groups)
        low, high = instance_ids[instance]
        identity = draws.identity_key(rule.seed, low, high)
        for variant in variants:
            keys = _variant_keys(identity, variant)
            _choose(row, keys, rule, scratch)
            end = _write_overlay(row, keys, rule, scratch, out, out.starts[overlay])
            overlay += 1
            out.starts[overlay] = end


@njit
def _variant_keys(identity: np.uint64, variant: int) -> _Keys:
    return _Keys(
        draws.stream_key(identity, variant, draws.MASK_COUNT),
        draws.stream_key(identity, variant, draws.MASK_POSITION),
        draws.stream_key(identity, variant, draws.MASK_ACTION),
        draws.stream_key(identity, variant, draws.MASK_REPLACEMENT),
    )


@njit
def _find_maskable(tokens: NDArray[Any], rule: MaskRule, scratch: _Scratch) -> tuple[int, int]:
    """List maskable positions and words of an instance; return how many there are of each."""
    num_maskable = 0
    num_groups = 0
    is_after_special = True
    for position in range(tokens.size):
        token = tokens[position]
        if rule.is_special[token]:
            is_after_special = True
            continue
        if is_after_special or not rule.is_continuation[token]:
            scratch.group_starts[num_groups] = num_maskable
            num_groups += 1
        scratch.maskable[num_maskable] = position
        num_maskable += 1
        is_after_special = False
    scratch.group_starts[num_groups] = num_maskable
    return num_maskable, num_groups


@njit
def _choose(row: _Row, keys: _Keys, rule: MaskRule, scratch: _Scratch) -> None:
    """Set the bits of the positions that a variant selects."""
    if rule.is_stochastic:
        share = rule.masked_lm_prob * row.num_maskable
        asked = int(math.floor(share + draws.uniform(keys.for_count, 0)))
        count = min(rule.max_predictions, row.num_maskable, asked)
    else:
        count = _num_selected(
            row.tokens.size, row.num_maskable, rule.masked_lm_prob, rule.max_predictions
        )
    if rule.is_word:
        _choose_words(keys.for_position, row.num_groups, count, scratch)
    else:
        _choose_tokens(keys.for_position, row.num_maskable, count, scratch.chosen)


@njit
def _set_bit(bits: NDArray[np.uint64], place: int) -> None:
    bits[place >> 6] |= np.uint64(1) << np.uint64(place & 63)


@njit
def _has_bit(bits: NDArray[np.uint64], place: int) -> bool:
    return bool((bits[place >> 6] >> np.uint64(place & 63)) & np.uint64(1))


@njit
def _choose_tokens(
    key: np.uint64, num_maskable: int, count: int, chosen: NDArray[np.uint64]
) -> None:
    """Choose `count` tokens, every subset alike (Floyd's method; Bentley and Floyd 1987)."""
    for i in range(count):
        last = num_maskable - count + i
        place = draws.bounded(key, i, last + 1)
        _set_bit(chosen, last if _has_bit(chosen, place) else place)


@njit
def _choose_words(key: np.uint64, num_groups: int, count: int, scratch: _Scratch) -> None:
    """Try words in random order until `count` tokens are chosen; skip one that overshoots."""
    order = scratch.group_order
    for group in range(num_groups):
        order[group] = group
    num_chosen = 0
    for i in range(num_groups):
        if num_chosen == count:
            return
        other = i + draws.bounded(key, i, num_groups - i)
        group = order[other]
        order[other] = order[i]
        begin = scratch.group_starts[group]
        end = scratch.group_starts[group + 1]
        if num_chosen + end - begin <= count:
            num_chosen += end - begin
            for place in range(begin, end):
                _set_bit(scratch.chosen, place)


@njit
def _write_overlay(
    row: _Row, keys: _Keys, rule: MaskRule, scratch: _Scratch, out: MaskBatch, begin: int
) -> int:
    """Write chosen positions and shown ids, clear the bits; return where the overlay ends."""
    end = begin
    for word in range((row.tokens.size >> 6) + 1):
        bits = scratch.chosen[word]
        scratch.chosen[word] = np.uint64(0)
        while bits != np.uint64(0):
            position = scratch.maskable[(word << 6) + lowest_one(bits)]
            bits &= bits - np.uint64(1)
            action = draws.upper_bits(keys.for_action, end - begin)
            shown = np.int64(row.tokens[position])
            if action < rule.mask_threshold:
                shown = np.int64(rule.mask_id)
            elif action < rule.random_threshold:
                which = draws.bounded(keys.for_replacement, end - begin, rule.random_ids.size)
                shown = rule.random_ids[which]
            out.positions[end] = position
            out.token_ids[end] = shown
            end += 1
    return int(end)
