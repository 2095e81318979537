"""A dataset as DuckDB views over its files: nothing is copied, and nothing can be written.

with open_database("data") as connection:
    connection.sql("select split, count(*) from instances group by split").show()
"""

import os
import shutil
import tempfile
import weakref
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from clozemill.analysis.defaults import MEMORY_LIMIT
from clozemill.analysis.rows import document_rows, instance_rows, vocabulary_table
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.mask_rules import default_max_predictions
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer

MOST_THREADS = 1_024
"""DuckDB would start any number."""


def open_database(
    data: str | os.PathLike[str] | Dataset,
    runs: Sequence[str | os.PathLike[str]] = (),
    *,
    threads: int | None = None,
    memory_limit: str = MEMORY_LIMIT,
    sample: int | None = None,
) -> duckdb.DuckDBPyConnection:
    """Return a connection with the views of docs/sql.md; it can read what they are of, no more.

    Args:
        data: The folder of a dataset, of either format, or a dataset that is open.
        runs: The folders of training runs on it.
        threads: Threads of a query; by default one per core.
        memory_limit: What a query may take before it spills to a temporary folder.
        sample: Show only about so many instances, by whole record batches over all shards.

    Raises:
        DatasetError: The dataset cannot be read.
        RunError: A run cannot be read, or is one on another dataset.
        ConfigError: The memory limit or the number of threads is none.
    """
    dataset = data if isinstance(data, Dataset) else open_dataset(data)
    # Queries would stumble over settings that are none, or pass what they know nothing of.
    dataset.manifest.build_config()
    dataset.manifest.require("instances", "masks")
    tokenizer = load_tokenizer(dataset.tokenizer_dir)
    connection = duckdb.connect(":memory:")
    connection.register("instance_rows", instance_rows(dataset, tokenizer, sample))
    connection.register("document_rows", document_rows(dataset))
    connection.register("vocab", vocabulary_table(tokenizer))
    connection.register("splits", _splits_table(dataset.manifest))
    connection.register("sources", _sources_table(dataset.manifest))
    connection.register("ledger", _ledger_table(dataset.manifest))
    connection.register("label_expectations", _expectations_table(dataset.manifest))
    if runs:
        _register_runs(connection, runs, dataset)
    for name, value in _variables(dataset, tokenizer).items():
        connection.execute(f"set variable {name} = ?", [value])
    connection.execute(read_sql("views"))
    _set_resources(connection, threads, memory_limit)
    _lock(connection)
    return connection


def _register_runs(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[str | os.PathLike[str]],
    dataset: Dataset,
) -> None:
    # Here, as only who asks for runs needs the code of training.
    from clozemill.analysis.run_tables import run_tables
    from clozemill.analysis.runs import read_training_run

    _check_distinct(runs)
    found = [read_training_run(run, dataset) for run in runs]
    for name, table in run_tables(found, dataset).items():
        connection.register(name, table)


def _check_distinct(runs: Sequence[str | os.PathLike[str]]) -> None:
    """Refuse a run that is given twice: its steps would count twice.

    Raises:
        RunError: One is.
    """
    places = [Path(run).resolve() for run in runs]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise RunError(f"the run {runs[number]} is given twice; give it once.")


def read_sql(name: str) -> str:
    """Return the text of `analysis/sql/NAME.sql`."""
    return resources.files("clozemill.analysis").joinpath("sql", f"{name}.sql").read_text("utf-8")


def _set_resources(
    connection: duckdb.DuckDBPyConnection, threads: int | None, memory_limit: str
) -> None:
    """Say what queries may take; what does not fit goes to a folder that ends with the session."""
    # DuckDB takes a stream for a single row, and would hold all masks in memory to join them with
    # the vocabulary. Joined as it is written, the right side is held.
    connection.execute("set disabled_optimizers = 'join_order,build_side_probe_side'")
    if threads is not None:
        if not 1 <= threads <= MOST_THREADS:
            raise ConfigError(f"threads is {threads}; it must be between 1 and {MOST_THREADS:,}.")
        connection.execute("set threads = ?", [threads])
    try:
        # DuckDB takes a negative limit for none.
        if memory_limit.strip().startswith("-"):
            raise duckdb.ParserException("negative")
        connection.execute("set memory_limit = ?", [memory_limit])
    except duckdb.Error as error:
        raise ConfigError(
            f"memory_limit is {memory_limit!r}; write it like 500MB or 4GB."
        ) from error
    spilled = tempfile.mkdtemp(prefix="clozemill-sql-")
    weakref.finalize(connection, shutil.rmtree, spilled, ignore_errors=True)
    connection.execute("set temp_directory = ?", [spilled])


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Leave nothing to the connection but to read: no files, extensions, network or settings."""
    connection.execute("set python_enable_replacements = false")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")


def _variables(dataset: Dataset, tokenizer: PretrainingTokenizer) -> dict[str, Any]:
    """Return the settings of the build, the ids of special tokens, and the vocabulary's pieces."""
    settings = dataset.manifest.configuration
    most = settings["max_predictions_per_seq"] or default_max_predictions(
        settings["max_seq_length"], settings["masked_lm_prob"]
    )
    ids = {f"{role}_id": token for role, token in dataset.manifest.tokenizer.special_ids.items()}
    return {
        **{name: value for name, value in settings.items() if not isinstance(value, list)},
        **ids,
        "max_predictions": most,
        "pieces": list(tokenizer.pieces),
    }


def _splits_table(manifest: Manifest) -> pa.Table:
    """Return the splits, each with what the manifest says of it."""
    rows = [
        {
            "split": name,
            "num_instances": entry.num_instances,
            "num_tokens": entry.num_tokens,
            "num_variants": entry.num_variants,
        }
        for name, entry in manifest.splits.items()
    ]
    numbers = dict.fromkeys(("num_instances", "num_tokens", "num_variants"), pa.int64())
    return pa.Table.from_pylist(rows, pa.schema({"split": pa.string(), **numbers}))


def _sources_table(manifest: Manifest) -> pa.Table:
    """Return the corpora, each with how often a pass is made over it."""
    weight_of = dict(manifest.configuration.get("source_weight", ()))
    rows = [
        {"source": source, "weight": float(weight_of.get(source, 1.0))}
        for source in manifest.sources
    ]
    fields = {"source": pa.string(), "weight": pa.float64()}
    return pa.Table.from_pylist(rows, pa.schema(fields))


def _ledger_table(manifest: Manifest) -> pa.Table:
    """Return the ledger, a row per section, split and reason."""
    rows = [
        {"section": section, "split": split, "reason": reason, "count": count}
        for section, splits in manifest.ledger.items()
        for split, reasons in splits.items()
        for reason, count in reasons.items()
    ]
    return pa.Table.from_pylist(
        rows,
        pa.schema(
            {
                "section": pa.string(),
                "split": pa.string(),
                "reason": pa.string(),
                "count": pa.int64(),
            }
        ),
    )


def _expectations_table(manifest: Manifest) -> pa.Table:
    """Return the exact expectation of next-sentence labels, a row per split and source."""
    rows = [
        {"split": split, "source": source, **expected}
        for split, sources in manifest.label_expectations.items()
        for source, expected in sources.items()
    ]
    fields = {
        "split": pa.string(),
        "source": pa.string(),
        "random": pa.float64(),
        "next": pa.float64(),
    }
    return pa.Table.from_pylist(rows, pa.schema(fields))
