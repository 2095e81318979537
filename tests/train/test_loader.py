import torch
from tests.train.small_readings import BuiltDataset

from clozemill.train.instances import PretrainingInstances
from clozemill.train.loader import LoaderSettings, evaluation_batches, micro_batches
from clozemill.train.order import BatchOrder


def test_a_loop_over_two_epochs(built: BuiltDataset) -> None:
    instances = PretrainingInstances(built(), "train", masking="dynamic")
    order = BatchOrder(instances, global_batch_size=64)
    settings = LoaderSettings(micro_batch_size=16)
    batches = micro_batches(instances, order, settings, steps=range(2 * order.steps_per_epoch))
    shapes = [batch["input_ids"].shape for batch in batches]
    assert len(shapes) == len(batches) == 2 * order.steps_per_epoch * settings.turns(64)
    assert sum(shape[0] for shape in shapes) == 2 * len(instances)


def test_evaluation_is_the_same_twice(built: BuiltDataset) -> None:
    batches = evaluation_batches(built(), LoaderSettings(micro_batch_size=16))
    first, second = list(batches), list(batches)
    assert len(first) == len(second) > 3
    for one, two in zip(first, second, strict=True):
        assert all(torch.equal(one[key], two[key]) for key in one)
