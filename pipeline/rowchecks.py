"""What must hold for every instance, whatever drew it: rules over the columns of a batch.

Each rule is restated from docs/format.md and does not call the code that makes instances.

Legend: N instances, K variants, P spans, M selected positions.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.instances import MaskBatch, starts_of
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.mask_rules import default_max_predictions

Flags = NDArray[np.bool_]


class RowRules(NamedTuple):
    """What a manifest says about every row of a split."""

    config: BuildConfig
    """The settings of the build."""

    vocab_size: int
    """All token ids are below it."""

    num_variants: int
    """Maskings stored with every instance."""

    cls_id: int
    """Opens every instance."""

    sep_id: int
    """Ends every span."""

    mask_id: int
    """What most selected positions show."""

    unmaskable: NDArray[np.int64]
    """Ids that are never selected: `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`."""

    unk_id: int
    """May be selected, but is no random replacement."""


def row_rules(manifest: Manifest, config: BuildConfig, split: str) -> RowRules:
    """Return the rules for one split of a dataset."""
    special = manifest.tokenizer.special_ids
    return RowRules(
        config=config,
        vocab_size=manifest.tokenizer.vocab_size,
        num_variants=manifest.splits[split].num_variants,
        cls_id=special["cls"],
        sep_id=special["sep"],
        mask_id=special["mask"],
        unmaskable=np.array([special[role] for role in ("cls", "sep", "pad", "mask")]),
        unk_id=special["unk"],
    )


def broken_rules(columns: InstanceColumns, rules: RowRules) -> Iterator[tuple[str, Flags]]:
    """Yield each rule that some instance breaks, and which instances (N,) break it.

    Rules that would read past a row's end are asked only once the groups before them hold.
    """
    for group in (_SHAPE_RULES, _TOKEN_RULES):
        found = [(text, rule(columns, rules)) for text, rule in group]
        broken = [(text, breaks) for text, breaks in found if breaks.any()]
        yield from broken
        if broken:
            return
    if columns.masks is None:
        return
    selected = _selected(columns, columns.masks)
    for text, mask_rule in _MASK_RULES:
        breaks = mask_rule(columns, rules, selected)
        if breaks.any():
            yield text, breaks


def _lengths(columns: InstanceColumns) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = np.diff(columns.tokens.starts)
    return lengths


def _count(flags: Flags, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many flags are set in each run; runs may be empty."""
    sums = starts_of(flags)
    return np.asarray(sums[starts[1:]] - sums[starts[:-1]], np.int64)


def _bad_length(columns: InstanceColumns, rules: RowRules) -> Flags:
    lengths = _lengths(columns)
    shortest = 5 if rules.config.has_pairs else 3
    return (lengths < shortest) | (lengths > rules.config.max_seq_length)


def _bad_number_of_spans(columns: InstanceColumns, rules: RowRules) -> Flags:
    num_spans = np.diff(columns.spans.starts)
    return num_spans != 2 if rules.config.has_pairs else num_spans < 1


def _bad_border(columns: InstanceColumns, rules: RowRules) -> Flags:
    border, lengths = columns.tokens.segment_b_start, _lengths(columns)
    if rules.config.has_pairs:
        return (border < 3) | (border > lengths - 2)
    return np.asarray(border != lengths, np.bool_)


def _bad_label(columns: InstanceColumns, rules: RowRules) -> Flags:
    label = columns.next_sentence_label
    return ~np.isin(label, [0, 1] if rules.config.has_pairs else [-1])


def _bad_number_of_variants(columns: InstanceColumns, rules: RowRules) -> Flags:
    return np.full(len(columns.instance_ids), columns.num_variants != rules.num_variants)


def _bad_ids(columns: InstanceColumns, rules: RowRules) -> Flags:
    return _count(columns.tokens.input_ids >= rules.vocab_size, columns.tokens.starts) > 0


def _bad_specials(columns: InstanceColumns, rules: RowRules) -> Flags:
    ids, starts = columns.tokens.input_ids, columns.tokens.starts
    breaks = (ids[starts[:-1]] != rules.cls_id) | (ids[starts[1:] - 1] != rules.sep_id)
    if rules.config.has_pairs:
        breaks |= ids[starts[:-1] + columns.tokens.segment_b_start - 1] != rules.sep_id
    num_spans = np.diff(columns.spans.starts)
    breaks |= _count(ids == rules.sep_id, starts) != num_spans
    # One [CLS] and a [SEP] per span are all there is: no [PAD], no [MASK] in what was read.
    return np.asarray(
        breaks | (_count(np.isin(ids, rules.unmaskable), starts) != num_spans + 1), np.bool_
    )


def _bad_spans(columns: InstanceColumns, rules: RowRules) -> Flags:
    return _count(columns.spans.num_sentences == 0, columns.spans.starts) > 0


class _Pairs(NamedTuple):
    """The spans of pairs, side by side; all (N,)."""

    same_document: Flags
    a_first: NDArray[np.int64]
    a_count: NDArray[np.int64]
    b_first: NDArray[np.int64]
    b_count: NDArray[np.int64]


def _pairs(columns: InstanceColumns) -> _Pairs:
    spans = columns.spans
    ids = np.ascontiguousarray(spans.document_ids).reshape(-1, 2, 16)
    first = spans.first_sentence.astype(np.int64).reshape(-1, 2)
    count = spans.num_sentences.astype(np.int64).reshape(-1, 2)
    same = (ids[:, 0] == ids[:, 1]).all(axis=1)
    return _Pairs(same, first[:, 0], count[:, 0], first[:, 1], count[:, 1])


def _bad_next(columns: InstanceColumns, rules: RowRules) -> Flags:
    if not rules.config.has_pairs:
        return np.zeros(len(columns.instance_ids), np.bool_)
    pairs = _pairs(columns)
    follows = pairs.same_document & (pairs.b_first == pairs.a_first + pairs.a_count)
    return np.asarray((columns.next_sentence_label == 0) & ~follows, np.bool_)


def _bad_random(columns: InstanceColumns, rules: RowRules) -> Flags:
    if not rules.config.has_pairs:
        return np.zeros(len(columns.instance_ids), np.bool_)
    return np.asarray((columns.next_sentence_label == 1) & _pairs(columns).same_document, np.bool_)


def _bad_chunk(columns: InstanceColumns, rules: RowRules) -> Flags:
    chunk = columns.num_chunk_sentences.astype(np.int64)
    if not rules.config.has_pairs:
        return np.asarray(chunk != 0, np.bool_)
    pairs = _pairs(columns)
    is_next = columns.next_sentence_label == 0
    a_fits = (pairs.a_count < chunk) | ((chunk == 1) & (pairs.a_count == 1))
    return np.asarray(np.where(is_next, pairs.a_count + pairs.b_count != chunk, ~a_fits), np.bool_)


class _Selected(NamedTuple):
    """Every selected position of a batch; all (M,)."""

    instance: NDArray[np.int64]
    """The row it is of."""

    overlay: NDArray[np.int64]
    """The variant of the row, counted over the batch."""

    position: NDArray[np.int64]
    """Where in the instance, whether there is such a position or not."""

    original: NDArray[np.int64]
    """The token there; the last one for positions outside."""

    shown: NDArray[np.int64]
    """What the input shows there."""


def _selected(columns: InstanceColumns, masks: MaskBatch) -> _Selected:
    counts = np.diff(masks.starts)
    overlay = np.repeat(np.arange(len(counts)), counts)
    instance = overlay // columns.num_variants
    position = masks.positions.astype(np.int64)
    tokens = columns.tokens
    places = np.minimum(tokens.starts[instance] + position, tokens.starts[instance + 1] - 1)
    return _Selected(
        instance=instance,
        overlay=overlay,
        position=position,
        original=tokens.input_ids[places].astype(np.int64),
        shown=masks.token_ids.astype(np.int64),
    )


def _rows_of(flags: Any, selected: _Selected, columns: InstanceColumns) -> Flags:
    return np.bincount(selected.instance[flags], minlength=len(columns.instance_ids)) > 0


def _bad_positions(columns: InstanceColumns, rules: RowRules, selected: _Selected) -> Flags:
    breaks: Flags = selected.position >= _lengths(columns)[selected.instance]
    same = selected.overlay[1:] == selected.overlay[:-1]
    breaks[1:] |= same & (selected.position[1:] <= selected.position[:-1])
    return _rows_of(breaks, selected, columns)


def _bad_selected(columns: InstanceColumns, rules: RowRules, selected: _Selected) -> Flags:
    return _rows_of(np.isin(selected.original, rules.unmaskable), selected, columns)


def _bad_shown(columns: InstanceColumns, rules: RowRules, selected: _Selected) -> Flags:
    breaks = selected.shown >= rules.vocab_size
    if rules.config.random_tokens == "ordinary":
        is_odd = np.isin(selected.shown, [*rules.unmaskable, rules.unk_id])
        is_kept = selected.shown == selected.original
        breaks |= is_odd & ~is_kept & (selected.shown != rules.mask_id)
    return _rows_of(breaks, selected, columns)


def _bad_mask_counts(columns: InstanceColumns, rules: RowRules, selected: _Selected) -> Flags:
    low, high = _mask_count_bounds(columns, rules)
    num_overlays = len(columns.instance_ids) * columns.num_variants
    counts = np.bincount(selected.overlay, minlength=num_overlays)
    counts = counts.reshape(-1, columns.num_variants)
    is_outside = (counts < low[:, None]) | (counts > high[:, None])
    return np.asarray(is_outside.any(axis=1), np.bool_)


def _mask_count_bounds(
    columns: InstanceColumns, rules: RowRules
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the fewest and most selected positions of a variant, (N,) each."""
    config, lengths = rules.config, _lengths(columns)
    is_special = np.isin(columns.tokens.input_ids, rules.unmaskable)
    num_maskable = lengths - _count(is_special, columns.tokens.starts)
    cap = config.max_predictions_per_seq
    if cap is None:
        cap = default_max_predictions(config.max_seq_length, config.masked_lm_prob)
    most = np.minimum(cap, num_maskable)
    if config.mask_count == "stochastic":
        low = np.floor(config.masked_lm_prob * num_maskable)
        high = low + 1
    else:
        low = high = np.maximum(1, np.rint(lengths * config.masked_lm_prob))
    low, high = (np.minimum(most, bound.astype(np.int64)) for bound in (low, high))
    # A whole word that would overshoot is skipped, so fewer can be selected, even none.
    return (np.zeros_like(low) if config.mask_unit == "word" else low), high


_Rule = Callable[[InstanceColumns, RowRules], Flags]
_MaskRule = Callable[[InstanceColumns, RowRules, _Selected], Flags]

_SHAPE_RULES: tuple[tuple[str, _Rule], ...] = (
    ("have a length outside what max_seq_length allows", _bad_length),
    ("have a number of spans that their recipe does not make", _bad_number_of_spans),
    ("have a segment_b_start that their recipe does not make", _bad_border),
    ("have a next_sentence_label that their recipe does not give", _bad_label),
    ("store another number of variants than the manifest says", _bad_number_of_variants),
)
_TOKEN_RULES: tuple[tuple[str, _Rule], ...] = (
    ("hold token ids outside the vocabulary", _bad_ids),
    ("do not have their special tokens where they belong", _bad_specials),
    ("have a span without sentences", _bad_spans),
    ("are labelled next, but B does not follow A", _bad_next),
    ("are labelled random, but A and B are of one document", _bad_random),
    ("have a num_chunk_sentences that does not fit their spans", _bad_chunk),
)
_MASK_RULES: tuple[tuple[str, _MaskRule], ...] = (
    ("select positions that do not ascend or lie outside the instance", _bad_positions),
    ("select special tokens", _bad_selected),
    ("show tokens that no masking shows", _bad_shown),
    ("select another number of positions than the settings ask for", _bad_mask_counts),
)
