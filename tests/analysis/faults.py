"""Datasets that are well-formed and wrong: faults of published datasets, planted in sound ones."""

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from tests.pipeline.small_datasets import digest_of, slice_columns

from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.instances import MaskBatch, starts_of
from clozemill.pipeline.manifest import write_manifest
from clozemill.pipeline.mask_rules import MaskRule
from clozemill.pipeline.masks import draw_variants
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.schema import instance_batch
from clozemill.pipeline.shards import Shard, ShardReader, write_shard
from clozemill.pipeline.tokenizer import load_tokenizer

Change: TypeAlias = Callable[[InstanceColumns, Dataset], InstanceColumns]
"""Returns what becomes of the instances of a shard."""


def plant(sound: Path, out: Path, change: Change) -> Path:
    """Write a dataset again with other instances, and a manifest that vouches for them."""
    shutil.copytree(sound, out)
    dataset = open_dataset(sound)
    shards = tuple(_planted(dataset, out, shard, change) for shard in dataset.manifest.shards)
    splits = {}
    for name, entry in dataset.manifest.splits.items():
        own = [shard for shard in shards if shard.split == name]
        digest = digest_of([batch for shard in own for batch in ShardReader(out, shard)])
        splits[name] = dataclasses.replace(
            entry,
            num_instances=digest.instances.count,
            num_tokens=sum(shard.num_tokens for shard in own),
            instances_digest=digest.instances.hexdigest(),
            dataset_digest=digest.dataset.hexdigest(),
        )
    write_manifest(out, dataclasses.replace(dataset.manifest, shards=shards, splits=splits))
    return out


def _planted(dataset: Dataset, out: Path, shard: Shard, change: Change) -> Shard:
    rows = pa.Table.from_batches(dataset.shard_batches(shard)).combine_chunks().to_batches()[0]
    columns = change(read_columns(rows), dataset)
    batches = [
        instance_batch(
            slice_columns(columns, begin, min(begin + shard.batch_rows, rows.num_rows)),
            dataset.schema,
            dataset.source_names,
        )
        for begin in range(0, rows.num_rows, shard.batch_rows)
    ]
    return write_shard(out / shard.path, batches, schema=dataset.schema, split=shard.split)


def rule_of(dataset: Dataset) -> MaskRule:
    """Return how the masks of a dataset should be drawn."""
    return mask_rule(dataset.manifest.build_config(), load_tokenizer(dataset.tokenizer_path))


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
    overlay = np.repeat(np.arange(len(masks.starts) - 1), np.diff(masks.starts))
    is_new = np.ones(len(overlay), np.bool_)
    is_new[1:] = (overlay[1:] != overlay[:-1]) | (masks.positions[1:] != masks.positions[:-1])
    counts = np.bincount(overlay[is_new], minlength=len(masks.starts) - 1)
    kept = MaskBatch(masks.positions[is_new], masks.token_ids[is_new], starts_of(counts))
    return columns._replace(masks=kept)


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
