import pickle

import numpy as np
import pytest
from tests.train.small_readings import LAYOUTS, BuiltDataset, rows_expected

from clozemill.pipeline.errors import DatasetError
from clozemill.train.instances import PretrainingInstances, joined_instances


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dynamic_epochs_are_the_static_variants_while_those_last(
    built: BuiltDataset, layout: tuple[str, str]
) -> None:
    dataset = built(*layout)
    static = PretrainingInstances(dataset, masking="static")
    dynamic = PretrainingInstances(dataset, masking="dynamic")
    total = len(static)
    assert total > 400
    for epoch in range(5):
        indices = range(epoch * total, (epoch + 1) * total)
        ours, theirs = (rows_expected(i.__getitems__(indices)) for i in (dynamic, static))
        assert (ours == theirs) == (epoch < 3)
        assert rows_expected(static.__getitems__(range(total))) == theirs or epoch % 3


def test_both_formats_are_masked_alike(built: BuiltDataset) -> None:
    indices = np.random.default_rng(0).permutation(2_000)
    read = [
        rows_expected(PretrainingInstances(built(*layout), masking="dynamic").__getitems__(indices))
        for layout in LAYOUTS
    ]
    assert len(read[0]) == 2_000
    assert all(rows == read[0] for rows in read)


def test_masks_of_epochs_differ_for_every_instance(built: BuiltDataset) -> None:
    """Case: 100 samples, epochs 0 and 1: not one pair alike; the same seed twice: all alike."""
    dataset = built(max_seq_length=128)
    first, again = (PretrainingInstances(dataset, masking="dynamic") for _ in range(2))
    total = len(first)
    lengths = first.lengths(0, total)
    long = np.flatnonzero(lengths > 60)[:100]
    assert len(long) == 100
    epochs = [rows_expected(first.__getitems__(long + epoch * total)) for epoch in (0, 1)]
    assert not any(one == two for one, two in zip(*epochs, strict=True))
    assert [rows_expected(again.__getitems__(long + epoch * total)) for epoch in (0, 1)] == epochs


def test_an_offset_shifts_the_variants(built: BuiltDataset) -> None:
    dataset = built()
    plain = PretrainingInstances(dataset, masking="dynamic")
    shifted = PretrainingInstances(dataset, masking="dynamic", mask_offset=2)
    total = len(plain)
    assert rows_expected(shifted.__getitems__(range(50))) == rows_expected(
        plain.__getitems__(range(2 * total, 2 * total + 50))
    )


def test_one_instance_is_a_batch_of_one(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(), masking="dynamic")
    indices = [700, 3, 3, 12]
    together = instances.__getitems__(indices)
    assert together.indices.tolist() == indices
    joined = joined_instances([instances[index] for index in indices])
    assert rows_expected(joined) == rows_expected(together)
    assert joined.indices.tolist() == indices
    assert (joined.instance_ids == together.instance_ids).all()


def test_a_slice_holds_the_instances_between(built: BuiltDataset) -> None:
    found = PretrainingInstances(built(), masking="static").__getitems__(range(30))
    for begin, end in ((0, 30), (4, 9), (29, 30), (7, 7)):
        part = found.slice(begin, end)
        assert rows_expected(part) == rows_expected(found)[begin:end]
        assert part.indices.tolist() == list(range(begin, end))
        assert part.tokens.starts[0] == part.masks.starts[0] == 0


def test_iterating_yields_every_instance_once(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(), "validation", masking="static")
    numbers = [int(found.indices[0]) for found in instances]
    assert numbers == list(range(len(instances)))
    assert len(numbers) > 50


def test_nothing_can_be_asked_for(built: BuiltDataset) -> None:
    for masking in ("static", "dynamic"):
        found = PretrainingInstances(built(), masking=masking).__getitems__([])
        assert len(found) == len(found.tokens.input_ids) == len(found.masks.positions) == 0


def test_a_copy_in_another_process_reads_the_same(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(), masking="dynamic")
    indices = range(100, 900, 7)
    expected = rows_expected(instances.__getitems__(indices))
    copy = pickle.loads(pickle.dumps(instances))
    assert rows_expected(copy.__getitems__(indices)) == expected
    assert len(pickle.dumps(instances)) < 100_000


def test_packed_blocks_have_no_next_sentence_label(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(recipe="roberta-full"), masking="dynamic")
    found = instances.__getitems__(range(20))
    assert not instances.has_pairs
    assert found.next_sentence_label is None
    assert (found.tokens.segment_b_start == np.diff(found.tokens.starts)).all()
    joined = joined_instances([found, found])
    assert joined.next_sentence_label is None
    assert found.slice(0, 3).next_sentence_label is None


def test_negative_indices_do_not_exist(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(), masking="dynamic")
    with pytest.raises(IndexError, match="virtual indices start at 0; -1 does not exist"):
        instances[-1]


def test_an_absent_split_is_refused(built: BuiltDataset) -> None:
    with pytest.raises(DatasetError, match="has no split 'test'; it has train and validation"):
        PretrainingInstances(built(), "test", masking="static")
