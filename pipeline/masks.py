"""Masks: which positions of an instance are predicted, and what the input shows there.

A masking is a pure function of (seed, instance id, variant), so it is the same wherever,
whenever and beside whatever else it is computed.

Legend: N instances, K variants, T tokens.

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
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.instances import MaskBatch, TokenBatch, position_dtype
from clozemill.pipeline.jit import kernel, lowest_one, njit
from clozemill.pipeline.mask_rules import MaskRule


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
        rule: from `mask_rules.make_mask_rule`.

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
    out = MaskBatch(
        positions=np.empty(room, position_dtype(rule.max_seq_length)),
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
    return _num_maskable(batch.input_ids, rule.is_special)


@kernel
def _num_maskable(tokens: NDArray[Any], is_special: NDArray[np.bool_]) -> int:
    count = 0
    for token in tokens:
        count += not is_special[token]
    return count


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
        num_maskable = _find_maskable(tokens, rule.is_special, scratch.maskable)
        num_groups = _find_words(tokens, rule, scratch) if rule.is_word else 0
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
def _find_maskable(
    tokens: NDArray[Any], is_special: NDArray[np.bool_], maskable: NDArray[np.int64]
) -> int:
    """List the maskable positions of an instance; return how many there are."""
    num_maskable = 0
    for position in range(tokens.size):
        maskable[num_maskable] = position
        num_maskable += not is_special[tokens[position]]
    return num_maskable


@njit
def _find_words(tokens: NDArray[Any], rule: MaskRule, scratch: _Scratch) -> int:
    """List where words start among the maskable positions; return how many there are."""
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
        num_maskable += 1
        is_after_special = False
    scratch.group_starts[num_groups] = num_maskable
    return num_groups


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
