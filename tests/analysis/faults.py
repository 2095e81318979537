"""Datasets that are well-formed and wrong: faults of published datasets, planted in sound ones."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from tests.pipeline.small_datasets import vouch, write_again

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.instances import MaskBatch, starts_of
from clozemill.pipeline.mask_rules import MaskRule
from clozemill.pipeline.masks import draw_variants
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.tokenizer import load_tokenizer

Change: TypeAlias = Callable[[InstanceColumns, Dataset], InstanceColumns]
"""Returns what becomes of the instances of a shard."""


def plant(sound: Path, out: Path, change: Change) -> Path:
    """Write a dataset again with other instances, and a manifest that vouches for them."""
    shutil.copytree(sound, out)
    dataset = open_dataset(sound)
    shards = [
        write_again(out, dataset, shard, lambda columns: change(columns, dataset))
        for shard in dataset.manifest.shards
    ]
    vouch(out, dataset.manifest, shards)
    return out


def rule_of(dataset: Dataset) -> MaskRule:
    """Return how the masks of a dataset should be drawn."""
    return mask_rule(dataset.manifest.build_config(), load_tokenizer(dataset.tokenizer_dir))


def masks_drawn(columns: InstanceColumns, rule: MaskRule, ids: Any = None) -> InstanceColumns:
    """Return instances with masks by another rule, or under other instance ids."""
    ids = columns.instance_ids if ids is None else ids
    masks = draw_variants(columns.tokens, ids, columns.num_variants, rule)
    return columns._replace(masks=masks)


def ids_of(numbers: Any) -> Any:
    """Return (n, 16) bytes that hold the numbers."""
    ids = np.zeros((len(numbers), 2), np.uint64)
    ids[:, 0] = numbers
    return ids.view(np.uint8)


def unchanged(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """The fault is in the settings."""
    return columns


def cap_of_20(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    return masks_drawn(columns, rule_of(dataset)._replace(max_predictions=20))


def special_random_tokens(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """Every tenth of the random tokens is a special one."""
    rule = rule_of(dataset)
    specials = np.resize(np.flatnonzero(rule.is_special), len(rule.random_ids) // 9)
    return masks_drawn(columns, rule._replace(random_ids=np.append(rule.random_ids, specials)))


def separators_selected(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """In every fiftieth variant, the last selected position is instead that of the last [SEP]."""
    masks = columns.masks
    assert masks is not None
    positions = masks.positions.copy()
    lengths = np.repeat(np.diff(columns.tokens.starts), columns.num_variants)
    positions[masks.starts[1::50] - 1] = lengths[::50] - 1
    return columns._replace(masks=masks._replace(positions=positions))


def one_seed_for_every_row(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    return masks_drawn(columns, rule_of(dataset), ids_of(np.zeros(len(columns.instance_ids))))


def one_seed_for_every_shard(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    return masks_drawn(columns, rule_of(dataset), ids_of(np.arange(len(columns.instance_ids))))


def one_seed_for_every_shard_after_variant_0(
    columns: InstanceColumns, dataset: Dataset
) -> InstanceColumns:
    """Masks repeat in all variants but the first."""
    shared = one_seed_for_every_shard(columns, dataset).masks
    assert columns.masks is not None
    assert shared is not None
    pairs = zip(_overlays(columns.masks), _overlays(shared), strict=True)
    chosen = [
        own if overlay % columns.num_variants == 0 else other
        for overlay, (own, other) in enumerate(pairs)
    ]
    return columns._replace(masks=_joined(chosen, columns.masks))


def shown_beyond_the_vocabulary(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """The first selected position of a shard shows an id that no token has."""
    masks = columns.masks
    assert masks is not None
    shown = masks.token_ids.copy()
    shown[0] = 60_000
    return columns._replace(masks=masks._replace(token_ids=shown))


def only_mask_tokens(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    rule = rule_of(dataset)
    return masks_drawn(columns, rule._replace(mask_threshold=1 << 53))


def drawn_with_replacement(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """The right number of positions, some of them twice."""
    masks, rule, rng = columns.masks, rule_of(dataset), _generator(columns)
    assert masks is not None
    positions = masks.positions.copy()
    for overlay, (begin, end) in enumerate(zip(masks.starts[:-1], masks.starts[1:], strict=True)):
        maskable = _maskable(columns, overlay // columns.num_variants, rule)
        positions[begin:end] = np.sort(rng.choice(maskable, end - begin))
    masks = _acted(columns, masks._replace(positions=positions), rule, rng)
    return columns._replace(masks=masks)


def repeats_left_out(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """Drawn with replacement, each position kept once: too few."""
    masks = drawn_with_replacement(columns, dataset).masks
    assert masks is not None
    overlays = []
    for positions, shown in _overlays(masks):
        kept, first = np.unique(positions, return_index=True)
        overlays.append((kept, shown[first]))
    return columns._replace(masks=_joined(overlays, masks))


def equal_variants(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """Every variant is variant 0."""
    masks = draw_variants(columns.tokens, columns.instance_ids, 1, rule_of(dataset))
    num_variants = columns.num_variants
    counts = np.repeat(np.diff(masks.starts), num_variants)
    places = np.concatenate(
        [
            np.tile(np.arange(begin, end), num_variants)
            for begin, end in zip(masks.starts[:-1], masks.starts[1:], strict=True)
        ]
    )
    repeated = MaskBatch(masks.positions[places], masks.token_ids[places], starts_of(counts))
    return columns._replace(masks=repeated)


def words_across_separators(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """As the original: a piece after [SEP] belongs to the last word before it."""
    rule, rng = rule_of(dataset), _generator(columns)
    assert columns.masks is not None
    overlays = []
    for instance in range(len(columns.instance_ids)):
        tokens = _tokens(columns, instance)
        maskable = np.flatnonzero(~rule.is_special[tokens])
        begins = ~rule.is_continuation[tokens[maskable]]
        begins[0] = True
        words = np.split(maskable, np.flatnonzero(begins)[1:])
        asked = min(rule.max_predictions, len(maskable), max(1, round(len(tokens) * 0.15)))
        for _ in range(columns.num_variants):
            overlays.append(_selected_words(words, asked, rng))
    positions = np.concatenate(overlays).astype(columns.masks.positions.dtype)
    shown = np.full(len(positions), rule.mask_id, columns.tokens.input_ids.dtype)
    starts = starts_of([len(overlay) for overlay in overlays])
    masks = _acted(columns, MaskBatch(positions, shown, starts), rule, rng)
    return columns._replace(masks=masks)


def _selected_words(words: list[Any], asked: int, rng: np.random.Generator) -> Any:
    chosen: list[Any] = []
    for place in rng.permutation(len(words)):
        if len(chosen) + len(words[place]) <= asked:
            chosen.extend(words[place])
    return np.sort(np.array(chosen, np.int64))


Weights: TypeAlias = Callable[[Any, Any, int], Any]
"""Returns how likely each maskable position is selected, from its token ids, positions, border."""


def _selected_by(columns: InstanceColumns, dataset: Dataset, weights: Weights) -> InstanceColumns:
    """Return instances with as many selected positions as before, drawn by weights."""
    masks, rule, rng = columns.masks, rule_of(dataset), _generator(columns)
    assert masks is not None
    positions = masks.positions.copy()
    for overlay, (begin, end) in enumerate(zip(masks.starts[:-1], masks.starts[1:], strict=True)):
        instance = overlay // columns.num_variants
        maskable = _maskable(columns, instance, rule)
        border = columns.tokens.segment_b_start[instance]
        weight = weights(_tokens(columns, instance)[maskable], maskable, border)
        share = weight / weight.sum()
        positions[begin:end] = np.sort(rng.choice(maskable, end - begin, replace=False, p=share))
    masks = _acted(columns, masks._replace(positions=positions), rule, rng)
    return columns._replace(masks=masks)


def one_token_half_as_often(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """The full stop is selected half as often as others."""
    stop = load_tokenizer(dataset.tokenizer_dir).pieces.index(".")
    return _selected_by(columns, dataset, lambda ids, *_: np.where(ids == stop, 0.5, 1.0))


def b_half_as_often(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    def weights(_ids: Any, positions: Any, border: int) -> Any:
        return np.where(positions < border, 1.0, 0.5)

    return _selected_by(columns, dataset, weights)


def continuations_half_as_often(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """Pieces that continue a word are selected half as often."""
    continues = rule_of(dataset).is_continuation
    return _selected_by(columns, dataset, lambda ids, *_: np.where(continues[ids], 0.5, 1.0))


def tokens_under_word_masks(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    return masks_drawn(columns, rule_of(dataset)._replace(is_word=False))


def last_random_tokens_left_out(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """The last tenth of the vocabulary is never drawn."""
    rule = rule_of(dataset)
    size = len(rule.random_ids) * 9 // 10
    return masks_drawn(columns, rule._replace(random_ids=rule.random_ids[:size]))


def one_random_token_drawn_tenfold(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    rule = rule_of(dataset)
    more = np.append(rule.random_ids, [rule.random_ids[7]] * 9)
    return masks_drawn(columns, rule._replace(random_ids=more))


def rounded_down(columns: InstanceColumns, dataset: Dataset) -> InstanceColumns:
    """Of numbers to be rounded at random, the larger ones lose a position."""
    rule, rng = rule_of(dataset), _generator(columns)
    assert columns.masks is not None
    overlays = _overlays(columns.masks)
    for overlay, (positions, shown) in enumerate(overlays):
        num_maskable = len(_maskable(columns, overlay // columns.num_variants, rule))
        if len(positions) > int(rule.masked_lm_prob * num_maskable):
            lost = rng.integers(len(positions))
            overlays[overlay] = np.delete(positions, lost), np.delete(shown, lost)
    return columns._replace(masks=_joined(overlays, columns.masks))


def _overlays(masks: MaskBatch) -> list[tuple[Any, Any]]:
    """Return positions and shown ids of each variant of each instance."""
    ends = masks.starts[1:-1]
    return list(zip(np.split(masks.positions, ends), np.split(masks.token_ids, ends), strict=True))


def _joined(overlays: list[tuple[Any, Any]], masks: MaskBatch) -> MaskBatch:
    """Return the masks of overlays, of the types of others."""
    return MaskBatch(
        np.concatenate([positions for positions, _ in overlays]).astype(masks.positions.dtype),
        np.concatenate([shown for _, shown in overlays]).astype(masks.token_ids.dtype),
        starts_of([len(positions) for positions, _ in overlays]),
    )


def _acted(
    columns: InstanceColumns, masks: MaskBatch, rule: MaskRule, rng: np.random.Generator
) -> MaskBatch:
    """Return masks of which a tenth shows random tokens and a tenth the original ones."""
    overlay = np.repeat(np.arange(len(masks.starts) - 1), np.diff(masks.starts))
    starts = columns.tokens.starts[overlay // columns.num_variants]
    action = rng.random(len(overlay))
    shown = np.where(
        action < 0.1,
        columns.tokens.input_ids[starts + masks.positions],
        np.where(action < 0.2, rng.choice(rule.random_ids, len(overlay)), rule.mask_id),
    )
    return masks._replace(token_ids=shown.astype(masks.token_ids.dtype))


def _generator(columns: InstanceColumns) -> np.random.Generator:
    """Return a generator of the shard's own."""
    return np.random.default_rng(columns.instance_ids[0])


def _tokens(columns: InstanceColumns, instance: int) -> Any:
    tokens = columns.tokens
    return tokens.input_ids[tokens.starts[instance] : tokens.starts[instance + 1]]


def _maskable(columns: InstanceColumns, instance: int, rule: MaskRule) -> Any:
    return np.flatnonzero(~rule.is_special[_tokens(columns, instance)])
