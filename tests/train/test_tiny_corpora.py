"""Corpora so small that batches have nothing to predict, or ask for more rows than there are."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.pipeline.small_datasets import write_vocab

from clozemill.pipeline.build import build
from clozemill.pipeline.config import BuildConfig
from clozemill.train.checkpoints import MODEL_NAME
from clozemill.train.config import PretrainConfig
from clozemill.train.metrics import EvaluationRow, TrainRow
from clozemill.train.pretrain import PretrainReport, pretrain


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten lines, two a document: pairs of one-word sentences, two in three without a target."""
    folder = tmp_path_factory.mktemp("tiny")
    lines = [f"w{number}" for number in range(10)]
    text = "\n\n".join("\n".join(lines[i : i + 2]) for i in range(0, 10, 2))
    (folder / "lines.txt").write_text(text + "\n")
    config = BuildConfig(
        inputs=(str(folder / "lines.txt"),),
        tokenizer=str(write_vocab(folder / "vocab.txt")),
        out=str(folder / "data"),
        layout="sentences",
        max_seq_length=16,
        mask_count="stochastic",
        workers=1,
    )
    build(config)
    return config.out


def train(data: str, out: Path, **settings: Any) -> PretrainReport:
    config = PretrainConfig(
        **{
            "data": data,
            "out": str(out),
            "model": "tiny",
            "precision": "fp32",
            "threads": 1,
            "log_every": 1,
            "learning_rate": 1e-3,
            **settings,
        }
    )
    return pretrain(config)


@pytest.mark.slow
def test_batches_without_a_target_train_pairs_and_leave_every_number_finite(
    data: str, tmp_path: Path
) -> None:
    report = train(data, tmp_path / "run", masking="dynamic", steps=200, global_batch_size=1)
    rows = [row for row in report.rows if isinstance(row, TrainRow)]
    assert [row.step for row in rows] == list(range(1, 201))
    empty = [row for row in rows if row.selected == 0]
    assert len(empty) > 50
    for row in empty:
        assert (row.mlm_loss, row.mask_only_loss, row.mlm_accuracy) == (None, None, None)
        assert row.nsp_loss is not None
        assert row.gradient_norm is not None
        assert row.gradient_norm > 0.0
    assert all(row.mlm_loss is not None for row in rows if row.selected)
    numbers = [v for row in report.rows for v in dataclasses.astuple(row) if isinstance(v, float)]
    assert len(numbers) > 1000
    assert all(map(math.isfinite, numbers))
    weights = load_file(tmp_path / "run" / "checkpoints" / "step-00000200" / MODEL_NAME)
    assert weights
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())


def test_an_evaluation_counts_its_targets_and_is_no_false_zero(data: str, tmp_path: Path) -> None:
    report = train(data, tmp_path / "run", steps=1, global_batch_size=4)
    rows = [row for row in report.rows if isinstance(row, EvaluationRow)]
    assert rows
    assert all((row.mlm_loss is None) == (row.selected == 0) for row in rows)
    assert all(row.nsp_loss is not None for row in rows if row.pairs)


def test_a_batch_larger_than_the_corpus_is_the_corpus(data: str, tmp_path: Path) -> None:
    report = train(data, tmp_path / "run", epochs=3, global_batch_size=1000)
    rows = [row for row in report.rows if isinstance(row, TrainRow)]
    assert [(row.step, row.epoch) for row in rows] == [(1, 0), (2, 1), (3, 2)]
    assert len({row.instances for row in rows}) == 1
