import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import Stopped, has_written, stop_when
from tests.pipeline.small_datasets import build_small, config_of_small, make_dataset, tree

from clozemill.pipeline.build import build
from clozemill.pipeline.convert import convert_dataset
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.manifest import read_manifest
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.remask import remask_dataset
from clozemill.pipeline.verify import verify_dataset

OTHER = {"format": "webdataset", "compression": "zstd", "shard_size": 41}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("arrow"))


def test_converted_dataset_is_what_a_build_in_that_format_writes(built: Path, tmp_path: Path):
    seen: list[Progress] = []
    manifest = convert_dataset(built, tmp_path / "out", **OTHER, on_progress=seen.append)
    direct = tree(build_small(tmp_path / "other", **OTHER))
    assert len(direct) > 8
    assert tree(tmp_path / "out") == direct
    assert len(seen) == len(manifest.shards) + 1
    assert (seen[0].done, seen[-1].done) == (0, seen[-1].total)
    assert manifest == read_manifest(tmp_path / "out")


def test_there_and_back_gives_the_same_bytes(built: Path, tmp_path: Path):
    there = convert_dataset(built, tmp_path / "there", **OTHER)
    back = convert_dataset(
        tmp_path / "there", tmp_path / "back", format="arrow", compression="none", shard_size=30
    )
    assert tree(tmp_path / "back") == tree(built)
    assert there.splits == back.splits
    assert there.fingerprints.layout != back.fingerprints.layout


def test_build_with_the_new_settings_finds_nothing_to_do(built: Path, tmp_path: Path):
    convert_dataset(built, tmp_path / "out", **OTHER)
    before = tree(tmp_path / "out")
    asked = dataclasses.replace(config_of_small(built.parent, **OTHER), out=str(tmp_path / "out"))
    assert build(asked).was_finished
    assert tree(tmp_path / "out") == before
    with pytest.raises(ConfigError, match="holds a dataset that differs in "):
        build(dataclasses.replace(asked, shard_size=30))


def test_converted_dataset_is_sound(built: Path, tmp_path: Path):
    convert_dataset(built, tmp_path / "out", format="webdataset")
    assert verify_dataset(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"format": "parquet"}, "format is 'parquet'"),
        ({"compression": "gzip"}, "compression is 'gzip'"),
        ({"shard_size": 0}, "shard_size is 0"),
    ],
)
def test_unknown_settings_are_refused(
    built: Path, tmp_path: Path, settings: dict[str, Any], problem: str
):
    with pytest.raises(ConfigError, match=problem):
        convert_dataset(built, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_own_folder_and_other_files_are_never_written_over(built: Path, tmp_path: Path):
    before = tree(built)
    with pytest.raises(ConfigError, match="is the dataset itself"):
        convert_dataset(built, built, format="webdataset", overwrite=True)
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"holds 'thesis.txt'"):
        convert_dataset(built, tmp_path, format="webdataset")
    assert tree(built) == before
    assert tree(tmp_path) == {"thesis.txt": b"mine"}


def test_finished_dataset_is_replaced_only_when_asked(built: Path, tmp_path: Path):
    manifest = convert_dataset(built, tmp_path / "out", format="webdataset")
    before = tree(tmp_path / "out")
    assert convert_dataset(built, tmp_path / "out", format="webdataset") == manifest
    with pytest.raises(ConfigError, match="already holds another dataset; use --overwrite"):
        convert_dataset(built, tmp_path / "out", format="arrow")
    other = remask_dataset(built, tmp_path / "other", {"masked_lm_prob": 0.2})
    assert other.splits.keys() == manifest.splits.keys()
    with pytest.raises(ConfigError, match="already holds another dataset; use --overwrite"):
        convert_dataset(tmp_path / "other", tmp_path / "out", format="webdataset")
    assert tree(tmp_path / "out") == before
    convert_dataset(built, tmp_path / "out", format="arrow", overwrite=True)
    assert tree(tmp_path / "out") == tree(built)


def test_interrupted_conversion_is_no_dataset_and_resumes(built: Path, tmp_path: Path):
    with pytest.raises(Stopped):
        convert_dataset(built, tmp_path / "out", **OTHER, on_progress=stop_when(has_written))
    with pytest.raises(DatasetError, match="not a finished dataset"):
        verify_dataset(tmp_path / "out")
    with pytest.raises(ConfigError, match="an unfinished build that differs in"):
        convert_dataset(built, tmp_path / "out", format="arrow")
    convert_dataset(built, tmp_path / "out", **OTHER)
    assert tree(tmp_path / "out") == tree(build_small(tmp_path / "other", **OTHER))


def test_damaged_dataset_is_refused(tmp_path: Path):
    manifest = make_dataset(tmp_path / "in")
    path = tmp_path / "in" / manifest.shards[0].path
    data = bytearray(path.read_bytes())
    place = data.find(b"\x66\x00")  # the first [SEP]
    assert place >= 0
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(DatasetError, match="find the damaged shard with clozemill verify"):
        convert_dataset(tmp_path / "in", tmp_path / "out", format="webdataset")
    assert not (tmp_path / "out" / "manifest.json").exists()
