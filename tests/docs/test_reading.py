"""The page about reading is run, so that it cannot be wrong."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.pipeline.small_datasets import build_small

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reading.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def run(mark: str) -> dict[str, Any]:
    """Run the one code block that holds the mark, and return its names."""
    (found,) = [text for text in BLOCKS if mark in text]
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(found, "docs/reading.md", "exec"), names)
    return names


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one dataset in both formats, under the names that the page uses."""
    folder = tmp_path_factory.mktemp("reading")
    build_small(folder, "data")
    build_small(folder, "tars", format="webdataset", shard_size=17)
    return folder


@pytest.fixture(autouse=True)
def work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def test_every_block_has_a_test() -> None:
    source = Path(__file__).read_text()
    marks = re.findall(r'run\("(.*?)"\)', source)
    assert len(set(marks)) == len(BLOCKS) == 6


@pytest.mark.slow
def test_the_plain_loop_learns() -> None:
    names = run("optimizer.zero_grad()")
    losses = names["losses"]
    assert len(losses) == names["order"].steps_per_epoch >= 4
    assert sum(len(turn["labels"]) for turn in names["turns"]) < 64
    assert losses[-1] < losses[0]


def test_one_instance_is_masked_for_two_epochs() -> None:
    names = run("pad_to_multiple_of=8")
    labels = names["batch"]["labels"]
    assert labels.shape[0] == 2
    assert labels.shape[1] % 8 == 0
    assert not torch.equal(labels[0], labels[1])
    assert names["names"][0] == names["names"][1]
    assert re.fullmatch("[0-9a-f]{32}", names["names"][0])


@pytest.mark.slow
def test_the_trainer_of_transformers_sees_our_steps(work: Path) -> None:
    """Four steps; then from its checkpoint after two, the other two once more."""
    names = run("class ShardTrainer")
    trainer, dataset = names["trainer"], names["trainer"].train_dataset
    assert trainer.state.global_step == 4
    seen: list[Any] = []
    original = dataset.__class__.__getitems__

    class Watched(dataset.__class__):  # type: ignore[name-defined,misc]
        def __getitems__(self, indices: Any) -> Any:
            seen.append(list(indices))
            return original(self, indices)

    watched = Watched(names["dataset"], "train", masking="dynamic")
    resumed = names["ShardTrainer"](
        model=names["transformers"].BertForPreTraining(names["config"]),
        args=names["arguments"],
        train_dataset=watched,
    )
    resumed.train(resume_from_checkpoint=str(work / "run" / "checkpoint-2"))
    assert resumed.state.global_step == 4
    order = names["BatchOrder"](watched, global_batch_size=16, seed=names["arguments"].seed)
    assert seen == [order.global_batch(step).tolist() for step in (2, 3)]
    log = json.loads((work / "run" / "checkpoint-4" / "trainer_state.json").read_text())
    assert [row["step"] for row in log["log_history"]] == [1, 2, 3, 4]
    assert all(row["loss"] > 0 for row in log["log_history"])


def test_evaluation_counts_what_is_predicted() -> None:
    names = run("evaluation_batches(")
    dataset = names["open_dataset"]("data")
    rows = [row for b in dataset.batches("validation") for row in b.column("masks").to_pylist()]
    assert names["num_selected"] == sum(len(row[0]) for row in rows) > 50


def test_the_stream_yields_two_epochs() -> None:
    names = run("InstanceStream(")
    assert names["num_rows"] == 2 * names["stream"].num_instances > 200


def test_flat_arrays_are_those_of_the_shards() -> None:
    names = run("reader.overlays")
    rows = names["open_dataset"]("data").take("train", [3, 200, 3]).to_pylist()
    assert names["second"].tolist() == rows[1]["input_ids"]
    masks, third = names["masks"], slice(*names["masks"].starts[2:4])
    assert masks.positions[third].tolist() == [m["position"] for m in rows[2]["masks"][1]]
    assert names["lengths"].sum() == names["reader"].dataset.manifest.splits["train"].num_tokens
