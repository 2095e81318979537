from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.train.small_readings import (
    BuiltDataset,
    ReadRow,
    rows_expected,
    rows_of,
    with_shards,
)
from torch.utils.data import DataLoader

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.train.collate import PretrainingCollator
from clozemill.train.instances import MaskedInstances, PretrainingInstances
from clozemill.train.stream import InstanceStream, StreamPlan

TARS = [("webdataset", "none"), ("webdataset", "lz4")]


def batches_of(
    folder: Path, consumer: int = 0, of: int = 1, **settings: Any
) -> list[MaskedInstances]:
    plan = StreamPlan(**{"batch_size": 16, "rank": consumer, "world_size": of, **settings})
    stream = InstanceStream(folder, plan, masking="dynamic")
    batches = list(stream)
    assert len(batches) == stream.num_batches() * len(plan.epochs)
    return batches


def numbered(batches: Iterable[MaskedInstances]) -> list[tuple[int, ReadRow]]:
    return [
        pair
        for batch in batches
        for pair in zip(batch.indices.tolist(), rows_expected(batch), strict=True)
    ]


def everything(dataset: Dataset, epochs: range) -> list[tuple[int, ReadRow]]:
    """Return what the reader in place says, epoch after epoch."""
    instances = PretrainingInstances(dataset, masking="dynamic")
    indices = range(epochs.start * len(instances), epochs.stop * len(instances))
    rows = numbered([instances.__getitems__(indices)])
    assert len(rows) > 400
    return rows


@pytest.mark.parametrize("layout", TARS)
@pytest.mark.parametrize("of", [1, 2, 3, 7, 40])
def test_consumers_together_see_each_instance_once_an_epoch(
    built: BuiltDataset, layout: tuple[str, str], of: int
) -> None:
    dataset = built(*layout)
    shares = [batches_of(dataset.folder, number, of, epochs=range(2)) for number in range(of)]
    assert len({len(batches) for batches in shares}) == 1
    assert max(len(batch) for batches in shares for batch in batches) <= 16
    rows = sorted(numbered(batch for batches in shares for batch in batches), key=lambda r: r[0])
    assert rows == everything(dataset, range(2))


def test_epochs_come_one_after_the_other_in_orders_of_their_own(built: BuiltDataset) -> None:
    folder = built("webdataset").folder
    both = [index for batch in batches_of(folder, epochs=range(2)) for index in batch.indices]
    one, two = (
        [i for b in batches_of(folder, epochs=range(e, e + 1)) for i in b.indices] for e in (0, 1)
    )
    assert both == one + two
    total = len(one)
    assert sorted(one) == list(range(total))
    assert sorted(two) == list(range(total, 2 * total))
    assert [index - total for index in two] != one
    other = [index for batch in batches_of(folder, seed=1) for index in batch.indices]
    assert sorted(other) == sorted(one)
    assert other != one


@pytest.mark.slow
def test_loader_workers_are_consumers(built: BuiltDataset) -> None:
    dataset = built("webdataset")
    plans = [StreamPlan(batch_size=16, rank=rank, world_size=2) for rank in range(2)]
    rows = []
    for plan in plans:
        stream = InstanceStream(dataset.folder, plan, masking="dynamic")
        collate = PretrainingCollator(stream.pad_id)
        loader: DataLoader[Any] = DataLoader(
            stream,
            batch_size=None,
            collate_fn=collate,
            num_workers=2,
            multiprocessing_context="forkserver",
        )
        batches = list(loader)
        assert len(batches) == stream.num_batches(num_workers=2)
        rows += [row for batch in batches for row in rows_of(batch)]
    expected = [row for _, row in everything(dataset, range(1))]
    assert sorted(map(str, rows)) == sorted(map(str, expected))


def test_few_uneven_shards_feed_any_number_of_consumers(
    built: BuiltDataset, tmp_path: Path
) -> None:
    """Case: 3 shards of 5, 5 and 1 for 2 ranks x 2 workers; 4 shards for 6 workers."""
    for sizes, of in (((5, 5, 1), 4), ((7, 3, 2, 8), 6), ((2,), 5)):
        folder = tmp_path / f"data-{of}"
        with_shards(built("webdataset"), folder, sizes)
        shares = [batches_of(folder, number, of, batch_size=2) for number in range(of)]
        assert len({len(batches) for batches in shares}) == 1
        seen = [index for batches in shares for batch in batches for index in batch.indices]
        assert sorted(seen) == list(range(sum(sizes)))


@pytest.mark.parametrize(
    "location", ["{folder}/{path}", "file://{folder}/{path}", "pipe:cat '{folder}'/{path}"]
)
def test_tars_are_read_from_paths_urls_and_commands(built: BuiltDataset, location: str) -> None:
    dataset = built("webdataset")
    place = location.replace("{folder}", str(dataset.folder))
    for consumer in range(3):
        here = batches_of(dataset.folder, consumer, 3)
        there = batches_of(dataset.folder, consumer, 3, location=place)
        assert numbered(here) == numbered(there)
        assert len(numbered(here)) > 100


def test_packed_blocks_and_static_variants_are_streamed_too(built: BuiltDataset) -> None:
    dataset = built("webdataset", recipe="roberta-full")
    plan = StreamPlan(batch_size=50, epochs=range(2, 5))
    batches = list(InstanceStream(dataset.folder, plan, masking="static", num_static_variants=2))
    instances = PretrainingInstances(dataset, masking="static", num_static_variants=2)
    found = numbered(batches)
    assert len(found) == 3 * len(instances) > 300
    assert all(batch.next_sentence_label is None for batch in batches)
    assert [row for _, row in found] == rows_expected(
        instances.__getitems__([index for index, _ in found])
    )


# Faults


def first_fault(folder: Path, location: str) -> str:
    with pytest.raises(DatasetError) as caught:
        batches_of(folder, location=location)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_source_that_ends_early_is_named(built: BuiltDataset) -> None:
    folder = built("webdataset").folder
    short = f"pipe:head -c 3000 {folder}/{{path}}"
    text = first_fault(folder, short)
    assert text.startswith(f"pipe:head -c 3000 {folder}/train-")
    assert "cannot be read: it ends too early, and the command ended with 0; check" in text
    failing = first_fault(folder, "pipe:exit 3 # {path}")
    assert "it ends too early, and the command ended with 3; check" in failing
    absent = first_fault(folder, f"{folder}/absent/{{path}}")
    assert "cannot be read: No such file or directory; check" in absent
    unknown = first_fault(folder, "gopher://host/{path}")
    assert unknown.startswith("gopher://host/train-")
    assert "cannot be read: " in unknown


def test_a_damaged_tar_is_named(built: BuiltDataset, tmp_path: Path) -> None:
    copy = with_shards(built("webdataset"), tmp_path / "data", [20, 20])
    shard = copy.manifest.shards[1]
    path = copy.folder / shard.path
    data = bytearray(path.read_bytes())
    data[shard.members[0][0]] ^= 0xFF
    path.write_bytes(data)
    assert first_fault(copy.folder, f"{copy.folder}/{{path}}").startswith(f"{path} cannot be ")


def test_a_tar_of_another_dataset_is_named(built: BuiltDataset, tmp_path: Path) -> None:
    """Positions of two bytes where the manifest promises one."""
    wide = built("webdataset", max_seq_length=300)
    copy = with_shards(wide, tmp_path / "data", [5])
    text = (copy.folder / "manifest.json").read_text()
    (copy.folder / "manifest.json").write_text(
        text.replace('"max_seq_length": 300', '"max_seq_length": 200')
    )
    fault = first_fault(copy.folder, f"{copy.folder}/{{path}}")
    assert fault.startswith(f"record batch 0 of {copy.folder}/train-000000.tar does not have the ")


def test_arrow_files_are_not_streamed(built: BuiltDataset) -> None:
    folder = built().folder
    with pytest.raises(ConfigError, match=r"holds Arrow files, .* clozemill convert --format web"):
        InstanceStream(folder, StreamPlan(batch_size=4), masking="dynamic")


def test_an_absent_split_is_refused(built: BuiltDataset) -> None:
    folder = built("webdataset").folder
    with pytest.raises(DatasetError, match=r"no split 'test'; it has train and validation\.$"):
        InstanceStream(folder, StreamPlan(batch_size=4), split="test", masking="dynamic")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"batch_size": 0}, r"batch_size is 0; it must be at least 1\."),
        ({"seed": -1}, r"seed is -1; it must be at least 0"),
        ({"rank": 1}, r"rank is 1; with world_size 1 .* at most 0\."),
        ({"location": "s3://b/x.tar"}, r"location is 's3://b/x\.tar'; put \{path\} where"),
    ],
)
def test_plans_that_cannot_be_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=f"^{said}"):
        StreamPlan(**{"batch_size": 4, **settings})
