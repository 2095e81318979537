"""The tasks of a build: every split in one of them, in order, and not too many or few."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import small_config

from clozemill.pipeline.build_identity import identify
from clozemill.pipeline.input_splits import InputSplit
from clozemill.pipeline.inputs import Inputs, Listing
from clozemill.pipeline.tasks import Job, map_tasks
from clozemill.pipeline.tokenizer import load_tokenizer
from clozemill.pipeline.workspace import Workspace

MEGABYTE = 1 << 20


def listing(name: str, *sizes: int) -> Listing:
    splits = tuple(
        InputSplit(
            path=f"{name}{i}", format="txt", compression=None, start=0, stop=None, num_bytes=size
        )
        for i, size in enumerate(sizes)
    )
    return Listing(files=(), splits=splits, ignored=())


def job(tokenizer: Path, out: Path, inputs: Inputs, **settings: Any) -> Job:
    config = small_config("unread", tokenizer, out, **settings)
    loaded = load_tokenizer(str(tokenizer))
    return Job(
        config=config,
        tokenizer=loaded,
        inputs=inputs,
        identity=identify(config, loaded, ()),
        workspace=Workspace(out),
    )


def sizes_of(
    tokenizer: Path, out: Path, *sizes: int, validation: tuple[int, ...] = (), **settings: Any
) -> list[list[int]]:
    """Return the sizes of the splits of each task, once names and order are checked."""
    inputs = Inputs(training=listing("t", *sizes), validation=listing("v", *validation))
    tasks = map_tasks(job(tokenizer, out, inputs, **settings))
    assert len({task.name for task in tasks}) == len(tasks)
    assert tuple(split for task in tasks for split in task.splits) == inputs.splits
    for task in tasks:
        assert all(split.path.startswith("v") == task.is_validation for split in task.splits)
    return [[split.num_bytes for split in task.splits] for task in tasks]


def test_small_neighbours_share_a_task_up_to_the_size_asked_for(
    syllables: Path, tmp_path: Path
) -> None:
    sizes = [MEGABYTE] * 64
    found = sizes_of(syllables, tmp_path, *sizes, input_split_bytes=2 * MEGABYTE)
    assert found == [[MEGABYTE] * 2] * 32


def test_a_small_corpus_is_cut_into_about_sixteen_tasks(syllables: Path, tmp_path: Path) -> None:
    sizes = [MEGABYTE] * 64
    assert sizes_of(syllables, tmp_path, *sizes) == [[MEGABYTE] * 4] * 16


def test_a_tiny_corpus_is_one_task(syllables: Path, tmp_path: Path) -> None:
    assert sizes_of(syllables, tmp_path, *[100] * 50) == [[100] * 50]


def test_a_large_split_is_a_task_of_its_own(syllables: Path, tmp_path: Path) -> None:
    large = 100 * MEGABYTE
    assert sizes_of(syllables, tmp_path, 10, large, 10) == [[10], [large], [10]]


def test_validation_inputs_have_their_own_tasks(syllables: Path, tmp_path: Path) -> None:
    assert sizes_of(syllables, tmp_path, 10, 20, validation=(30,)) == [[10, 20], [30]]


@pytest.mark.parametrize("sizes", [(10,), (100 * MEGABYTE,) * 3])
def test_a_limit_on_documents_makes_one_task_of_all(
    sizes: tuple[int, ...], syllables: Path, tmp_path: Path
) -> None:
    assert sizes_of(syllables, tmp_path, *sizes, limit_documents=5) == [list(sizes)]


def test_a_task_is_named_alike_in_every_run(syllables: Path, tmp_path: Path) -> None:
    inputs = Inputs(training=listing("t", 10), validation=listing("v", 10))
    one = map_tasks(job(syllables, tmp_path, inputs))
    two = map_tasks(job(syllables, tmp_path, inputs, workers=7, mask_variants=3))
    assert [task.name for task in one] == ["input-000000", "validation-000000"]
    assert [dataclasses.asdict(task) for task in one] == [dataclasses.asdict(task) for task in two]
