"""The benchmark of loaders runs, and both loaders read the same instances."""

import itertools
import json
from pathlib import Path

import pytest
from benchmarks.loader import main
from benchmarks.loader_runs import our_batches, peer_batches, write_peer_columns
from click.testing import CliRunner
from tests.pipeline.small_datasets import build_small

from clozemill.pipeline.dataset import open_dataset

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_small(tmp_path_factory.mktemp("benchmark"))


def test_an_epoch_of_either_holds_the_same_tokens(dataset: Path, tmp_path: Path) -> None:
    entry = open_dataset(dataset).manifest.splits["train"]
    write_peer_columns(dataset, tmp_path / "columns")
    # Micro-batches as large as a global batch, so that an epoch has as many of them in both.
    ours = our_batches(dataset, masking="dynamic", workers=0, batch_size=256)
    peer = peer_batches(dataset, tmp_path / "columns", workers=0, batch_size=256)
    num_batches = -(-entry.num_instances // 256)
    for batches in (ours, peer):
        epoch = list(itertools.islice(batches, num_batches))
        assert sum(len(batch["labels"]) for batch in epoch) == entry.num_instances > 100
        assert sum(int(batch["attention_mask"].sum()) for batch in epoch) == entry.num_tokens
        assert {"input_ids", "token_type_ids", "next_sentence_label"} <= epoch[0].keys()


def test_the_command_prints_a_table_or_one_object(dataset: Path, tmp_path: Path) -> None:
    arguments = ["--data", str(dataset), "--work", str(tmp_path), "--seconds", "0.1"]
    arguments += ["--repeats", "1", "--batch-size", "4", "--save", str(tmp_path / "saved.json")]
    done = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    (case,) = json.loads(done.stdout)["cases"]
    assert json.loads((tmp_path / "saved.json").read_text())["cases"] == [case]
    for runs in (case["ours"], case["peer"]):
        (run,) = runs
        assert run["seconds"] >= 0.1
        assert run["num_batches"] > 1
        assert run["num_tokens"] > run["num_selected"] > 0
        assert run["peak_pss_bytes"] > 10**7
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.stdout.count("\n| clozemill | dynamic | 0 | ") == 1
    assert done.stdout.count("\n| `datasets` | dynamic | 0 | ") == 1
