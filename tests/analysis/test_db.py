"""Views over a dataset, against a plain recount of its rows; and what a session cannot do."""

import gc
import json
import shutil
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from tests.analysis.plain_dataset import PlainDataset
from tests.analysis.readings import rows
from tests.pipeline.small_datasets import build_small, spoil

from clozemill.analysis.db import open_database
from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.instances import MaskBatch, starts_of

FORMATS = [
    ("arrow", "none"),
    ("arrow", "lz4"),
    ("arrow", "zstd"),
    ("webdataset", "none"),
    ("webdataset", "zstd"),
]

Built = Callable[..., Path]
VIEWS = ("instances", "spans", "pairs", "documents", "tokens", "variants", "masks", "vocab")


@pytest.fixture(scope="module")
def build_data(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Return a function that builds about 340 pairs from three sources, once per settings."""
    folder = tmp_path_factory.mktemp("built")
    found: dict[str, Path] = {}

    def build(**settings: Any) -> Path:
        key = repr(sorted(settings.items()))
        if key not in found:
            found[key] = build_small(folder, f"data-{len(found)}", **settings)
        return found[key]

    return build


@pytest.fixture(scope="module")
def data(build_data: Built) -> Path:
    return build_data()


@pytest.fixture(scope="module")
def plain(data: Path) -> PlainDataset:
    return PlainDataset(open_dataset(data))


@pytest.fixture
def session(data: Path) -> duckdb.DuckDBPyConnection:
    return open_database(data)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("view", VIEWS)
def test_view_has_the_rows_of_a_plain_recount(
    data: Path, plain: PlainDataset, view: str, threads: int
) -> None:
    expected = plain.rows_of(view)
    assert expected
    connection = open_database(data, threads=threads, memory_limit="1GB")
    found = rows(connection, f"from {view}")
    assert found == expected
    assert rows(connection, f"from {view}") == found


def test_small_tables_are_those_of_the_manifest(
    data: Path, session: duckdb.DuckDBPyConnection
) -> None:
    manifest = open_dataset(data).manifest
    ledger = [
        (section, split, reason, count)
        for section, splits in manifest.ledger.items()
        for split, reasons in splits.items()
        for reason, count in reasons.items()
    ]
    labels = [
        (split, source, expected["random"], expected["next"])
        for split, sources in manifest.label_expectations.items()
        for source, expected in sources.items()
    ]
    assert ledger
    assert labels
    splits = [
        (name, entry.num_instances, entry.num_tokens, entry.num_variants)
        for name, entry in manifest.splits.items()
    ]
    assert rows(session, "from splits") == splits
    assert rows(session, "from ledger") == ledger
    assert rows(session, "from label_expectations") == labels


@pytest.mark.parametrize(("format", "compression"), FORMATS)
def test_formats_and_compressions_give_the_same_numbers(
    build_data: Built, plain: PlainDataset, format: str, compression: str
) -> None:
    connection = open_database(build_data(format=format, compression=compression), threads=1)
    for view in ("instances", "spans", "pairs", "tokens", "variants", "masks"):
        assert rows(connection, f"from {view}") == plain.rows_of(view)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_query_may_scan_twice(data: Path, plain: PlainDataset, threads: int) -> None:
    connection = open_database(data, threads=threads, memory_limit="1GB")
    query = """
        select
            (select count(*) from masks),
            (select count(*) from masks as one inner join masks as other
                using (split, instance, variant, position)),
            (select count(*) from instances as one, instances as other)
    """
    num_masks, num_instances = len(plain.mask_rows()), len(plain.instances)
    expected = [(num_masks, num_masks, num_instances**2)]
    assert rows(connection, query) == expected
    assert rows(connection, query) == expected


def test_rate_counts_instances_with_nothing_selected(build_data: Built, tmp_path: Path) -> None:
    folder = build_small(tmp_path)
    spoil(folder, without_every_second_overlay)
    plain = PlainDataset(open_dataset(folder))
    counts = [(len(row[-1]), row[5]) for row in plain.variant_rows()]
    assert sum(selected == 0 for selected, _ in counts) > 10
    selected, maskable = (sum(column) for column in zip(*counts, strict=True))
    connection = open_database(folder)
    found = rows(
        connection,
        "select count(*), sum(num_selected), sum(num_maskable), "
        "sum(num_selected) / sum(num_maskable) from variants",
    )
    assert found == [(len(counts), selected, maskable, selected / maskable)]
    assert rows(connection, "select count(*) from masks") == [(selected,)]


def without_every_second_overlay(columns: InstanceColumns) -> InstanceColumns:
    masks = columns.masks
    assert masks is not None
    sizes = np.diff(masks.starts)
    sizes[::2] = 0
    kept = [np.arange(begin, end) for begin, end in pairwise(masks.starts.tolist())]
    places = np.concatenate(kept[1::2])
    return columns._replace(
        masks=MaskBatch(masks.positions[places], masks.token_ids[places], starts_of(sizes))
    )


def test_dataset_without_stored_variants_has_instances_and_no_masks(build_data: Built) -> None:
    connection = open_database(build_data(mask_variants=0))
    train = "where split = 'train'"
    found = rows(connection, f"select count(*) > 250, max(num_variants) from instances {train}")
    assert found == [(True, 0)]
    assert rows(connection, f"select count(*) from variants {train}") == [(0,)]
    assert rows(connection, f"select count(*) from masks {train}") == [(0,)]


def test_packed_blocks_are_of_segment_a_alone(build_data: Built) -> None:
    connection = open_database(build_data(recipe="roberta-full"))
    found = rows(connection, "select distinct segment from masks")
    assert found == [("A",)]
    assert rows(connection, "select distinct next_sentence_label from instances") == [(None,)]


def test_variables_hold_the_settings_and_the_special_ids(
    session: duckdb.DuckDBPyConnection,
) -> None:
    names = ("masked_lm_prob", "max_predictions", "recipe", "mask_id")
    values = ", ".join(f"getvariable('{name}')" for name in names)
    assert rows(session, f"select {values}, getvariable('pieces')[3]") == [
        (0.15, 8, "bert", 4, "[CLS]")
    ]


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to '{folder}/new.csv'",
        "copy vocab to '/dev/stdout'",
        "export database '{folder}/new'",
        "import database '{folder}'",
        "attach '{folder}/new.db'",
        "install httpfs",
        "load httpfs",
        "create secret (type s3)",
        "from read_csv('{folder}/file.csv')",
        "from read_text('{folder}/file.csv')",
        "from read_blob('{folder}/*')",
        "from read_json('{folder}/file.csv')",
        "from read_parquet('{folder}/*.parquet')",
        "from glob('{folder}/*')",
        "from '{folder}/file.csv'",
        "from read_csv('https://example.org/file.csv')",
        "from 'https://example.org/file.parquet'",
        "set enable_external_access = true",
        "set lock_configuration = false",
        "set threads = 3",
        "set memory_limit = '1TB'",
        "set temp_directory = '{folder}'",
        "reset memory_limit",
        "pragma threads = 3",
        "pragma profiling_output = '{folder}/new.json'",
        "call enable_logging(storage = 'file', storage_path = '{folder}')",
        "from secret_rows",
    ],
)
def test_a_session_reaches_nothing_else(
    session: duckdb.DuckDBPyConnection, tmp_path: Path, sql: str
) -> None:
    secret_rows = plain_rows = [{"a": 1}]
    assert secret_rows is plain_rows  # a local variable that a replacement scan would find
    (tmp_path / "file.csv").write_text("a\n1\n")
    with pytest.raises(duckdb.Error, match=r"disabled|locked|does not exist"):
        session.sql(sql.format(folder=tmp_path)).fetchall()
    assert [path.name for path in tmp_path.iterdir()] == ["file.csv"]
    assert rows(session, "select count(*) > 300 from instances") == [(True,)]


def test_large_sorts_spill_to_a_private_folder_that_ends_with_the_session(data: Path) -> None:
    connection = open_database(data, threads=1, memory_limit="60MB")
    ((name,),) = rows(connection, "select current_setting('temp_directory')")
    folder = Path(name)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    query = "select count(*) from (from range(8000000) order by hash(range) limit 7000000)"
    assert rows(connection, query) == [(7_000_000,)]
    del connection
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize("limit", ["lots", "-5", "-1GB"])
def test_memory_limit_that_is_none_is_refused(data: Path, limit: str) -> None:
    with pytest.raises(ConfigError) as caught:
        open_database(data, memory_limit=limit)
    assert str(caught.value) == f"memory_limit is {limit!r}; write it like 500MB or 4GB."


@pytest.mark.parametrize("threads", [0, 1_025, 10**20])
def test_number_of_threads_that_is_none_is_refused(data: Path, threads: int) -> None:
    with pytest.raises(ConfigError, match=rf"threads is {threads}; it must be between 1 and 1,024"):
        open_database(data, threads=threads)


@pytest.mark.parametrize(
    ("changes", "text"),
    [({"masked_lm_prob": "x"}, "masked_lm_prob is 'x'"), ({"mask_unit": None}, "has no mask_unit")],
)
def test_settings_that_are_none_are_refused(
    data: Path, tmp_path: Path, changes: dict[str, Any], text: str
) -> None:
    shutil.copytree(data, tmp_path / "data")
    path = tmp_path / "data" / "manifest.json"
    manifest = json.loads(path.read_text())
    changed = {**manifest["configuration"], **changes}
    manifest["configuration"] = {k: v for k, v in changed.items() if k not in changes or v}
    path.write_text(json.dumps(manifest))
    with pytest.raises(DatasetError, match=text):
        open_database(tmp_path / "data")


def test_folder_without_a_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="is empty; build a dataset into it"):
        open_database(tmp_path)
