"""What a GPU alone can show: a whole training in each precision, and over two of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.train.processes import run_module
from tests.train.small_readings import BuiltDataset
from tests.train.test_pretrain import MODULE, arguments, exact_rows, rows_of, small_config

from clozemill.train.metrics import EvaluationRow, TrainRow, read_metrics
from clozemill.train.pretrain import pretrain

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

# Without dropout of attention, 16-bit precisions take padding out.
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@pytest.mark.parametrize("optimizer", ["adamw", "bert-adam", "lamb"])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_a_training_learns_and_goes_on_from_its_checkpoint(
    built: BuiltDataset, tmp_path: Path, precision: str, optimizer: str
) -> None:
    settings: dict[str, Any] = {"steps": 40, "precision": precision, "optimizer": optimizer}
    config = small_config(built().folder, tmp_path / "run", **settings, stop_after=20)
    assert not pretrain(config).is_finished
    report = pretrain(small_config(built().folder, tmp_path / "run", **settings))
    assert report.is_finished
    first, *_, last = rows_of(report, EvaluationRow)
    assert last.mlm_loss < first.mlm_loss
    assert all(row.peak_memory_bytes > 0 and row.mfu > 0 for row in rows_of(report, TrainRow))


@pytest.mark.parametrize("more", [NO_DROPOUT, {**NO_DROPOUT, "compile": True}])
def test_bf16_on_a_gpu_follows_fp32_on_it(
    built: BuiltDataset, tmp_path: Path, more: dict[str, Any]
) -> None:
    losses = []
    for name, precision, others in (("one", "fp32", NO_DROPOUT), ("two", "bf16", more)):
        config = small_config(
            built().folder, tmp_path / name, steps=20, precision=precision, log_every=1, **others
        )
        losses.append([row.mlm_loss for row in rows_of(pretrain(config), TrainRow)])
    assert len(losses[0]) == 20
    assert losses[1] == pytest.approx(losses[0], rel=0.03)


def test_loader_workers_hand_over_pinned_batches(built: BuiltDataset, tmp_path: Path) -> None:
    for name, workers in (("none", 0), ("one", 1)):
        pretrain(small_config(built().folder, tmp_path / name, steps=8, loader_workers=workers))
    counts = [
        [(row["step"], row.get("selected")) for row in exact_rows(tmp_path / name)]
        for name in ("none", "one")
    ]
    assert counts[0] == counts[1]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_gpus_go_through_an_epoch_with_a_rank_without_rows(
    built: BuiltDataset, tmp_path: Path, precision: str
) -> None:
    data = built(limit_documents=25)
    # All but one instance in a step, so that the last one has rows for one rank alone.
    size = data.num_instances("train") - 1
    command = arguments(
        data.folder, tmp_path / "run", epochs=2, global_batch_size=size, precision=precision
    )
    done = run_module(MODULE, *command, ranks=2)
    assert done.returncode == 0, done.stderr
    rows = [row for row in read_metrics(tmp_path / "run" / "metrics.jsonl")]
    seen = sum(row.instances for row in rows if isinstance(row, TrainRow))
    assert seen == 2 * data.num_instances("train")
