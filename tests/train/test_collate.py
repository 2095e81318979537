from typing import Any

import numpy as np
import pytest
import torch
from tests.train.small_readings import BuiltDataset, rows_expected, rows_of

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.instances import MaskBatch, TokenBatch, starts_of
from clozemill.pipeline.mask_rules import MaskVocabulary, make_mask_rule
from clozemill.pipeline.masks import draw_masks
from clozemill.train.collate import PretrainingCollator
from clozemill.train.instances import MaskedInstances, PretrainingInstances

PAD, CLS, SEP, MASK = 0, 2, 3, 4
KEYS = ["input_ids", "attention_mask", "token_type_ids", "labels", "next_sentence_label"]


def two_pairs(prob: float, unit: str, seed: int) -> tuple[list[list[int]], MaskedInstances]:
    """Return pairs of 9 and 20 tokens, as rows and masked."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(5, 60, length).tolist() for length in (9, 20)]
    for row, border in zip(rows, (5, 12), strict=True):
        row[0], row[border - 1], row[-1] = CLS, SEP, SEP
    tokens = TokenBatch(
        np.concatenate(rows).astype(np.uint16), starts_of([9, 20]), np.array([5, 12])
    )
    vocabulary = MaskVocabulary(
        60, MASK, np.array([PAD, CLS, SEP, MASK]), np.arange(5, 60), np.arange(60) >= 40
    )
    rule = make_mask_rule(BuildConfig(masked_lm_prob=prob, mask_unit=unit, seed=seed), vocabulary)
    ids = np.arange(4, dtype=np.uint64).reshape(2, 2)
    return rows, MaskedInstances(
        indices=np.arange(2),
        instance_ids=ids,
        tokens=tokens,
        masks=draw_masks(tokens, ids, np.array([0]), rule),
        next_sentence_label=np.array([1, 0], np.int8),
    )


@pytest.mark.parametrize("unit", ["token", "word"])
@pytest.mark.parametrize("prob", [0.5, 1.0])
def test_padding_and_specials_are_never_predicted(prob: float, unit: str) -> None:
    """Case: two pairs with 9 and 20 real tokens, padded to 20."""
    num_kept = 0
    for seed in range(20):
        rows, found = two_pairs(prob, unit, seed)
        batch = PretrainingCollator(PAD)(found)
        assert list(batch) == KEYS
        assert all(values.dtype == torch.int64 for values in batch.values())
        assert batch["input_ids"].shape == (2, 20)
        assert batch["attention_mask"].sum(dim=1).tolist() == [9, 20]
        assert batch["attention_mask"][0].tolist() == [1] * 9 + [0] * 11
        assert batch["token_type_ids"].tolist() == [
            [0] * 5 + [1] * 4 + [0] * 11,
            [0] * 12 + [1] * 8,
        ]
        assert batch["next_sentence_label"].tolist() == [1, 0]
        padded = torch.tensor([row + [PAD] * (20 - len(row)) for row in rows])
        labels, is_selected = batch["labels"], batch["labels"] != -100
        assert not is_selected[torch.isin(padded, torch.tensor([PAD, CLS, SEP]))].any()
        assert (labels[is_selected] == padded[is_selected]).all()
        assert (batch["input_ids"] == padded)[~is_selected].all()
        num_kept += int((batch["input_ids"] == padded)[is_selected].sum())
        counts = is_selected.sum(dim=1).tolist()
        assert counts == [6, 17] if prob == 1.0 else 0 < counts[0] < 6 < 17
    assert num_kept > 10


def test_worked_example() -> None:
    """`[CLS] the tea [SEP] is cold [SEP]` with `tea` masked and `cold` kept, beside a shorter."""
    found = MaskedInstances(
        indices=np.array([0, 1]),
        instance_ids=np.zeros((2, 2), np.uint64),
        tokens=TokenBatch(
            np.array([2, 10, 11, 3, 12, 13, 3, 2, 10, 3, 13, 3], np.uint16),
            np.array([0, 7, 12]),
            np.array([4, 3]),
        ),
        masks=MaskBatch(
            np.array([2, 5, 1], np.uint8), np.array([4, 13, 17], np.uint16), np.array([0, 2, 3])
        ),
        next_sentence_label=np.array([0, 1], np.int8),
    )
    batch = PretrainingCollator(PAD, pad_to_multiple_of=8)(found)
    assert {key: values.tolist() for key, values in batch.items()} == {
        "input_ids": [[2, 10, 4, 3, 12, 13, 3, 0], [2, 17, 3, 13, 3, 0, 0, 0]],
        "attention_mask": [[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0, 0]],
        "token_type_ids": [[0, 0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0, 0]],
        "labels": [
            [-100, -100, 11, -100, -100, 13, -100, -100],
            [-100, 10, -100, -100, -100, -100, -100, -100],
        ],
        "next_sentence_label": [0, 1],
    }


@pytest.mark.parametrize("masking", ["static", "dynamic"])
@pytest.mark.parametrize("unit", ["token", "word"])
def test_all_rows_of_a_dataset_come_out_as_they_are_stored(
    built: BuiltDataset, masking: str, unit: str
) -> None:
    instances = PretrainingInstances(built(mask_unit=unit), masking=masking)
    collate = PretrainingCollator(instances.pad_id)
    num_rows = 0
    for begin in range(0, 2 * len(instances), 50):
        found = instances.__getitems__(range(begin, begin + 50))
        rows = rows_of(collate(found))
        assert rows == rows_expected(found)
        num_rows += len(rows)
        for row in rows:
            assert row.labels[0] == row.labels[-1] == -100
            assert any(label != -100 for label in row.labels)
    assert num_rows > 800


def test_single_instances_become_the_same_batch(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(), masking="dynamic")
    collate = PretrainingCollator(instances.pad_id)
    indices = [5, 600, 17]
    one, other = collate([instances[i] for i in indices]), collate(instances.__getitems__(indices))
    assert list(one) == list(other) == KEYS
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("multiple", [1, 8])
def test_no_rows_make_empty_tensors(built: BuiltDataset, multiple: int) -> None:
    instances = PretrainingInstances(built(), masking="dynamic")
    collate = PretrainingCollator(instances.pad_id, pad_to_multiple_of=multiple)
    batch = collate(instances.__getitems__([]))
    shapes: dict[str, Any] = {key: tuple(values.shape) for key, values in batch.items()}
    assert shapes == {**dict.fromkeys(KEYS[:4], (0, multiple)), "next_sentence_label": (0,)}


def test_blocks_without_pairs_have_four_keys(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(recipe="roberta-full"), masking="dynamic")
    batch = PretrainingCollator(instances.pad_id)(instances.__getitems__(range(5)))
    assert list(batch) == KEYS[:4]
    assert not batch["token_type_ids"].any()


def test_a_multiple_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^pad_to_multiple_of is 0; it must be at least 1\.$"):
        PretrainingCollator(PAD, pad_to_multiple_of=0)
