"""An encoder measured on a dataset: the run's own number, the right lines, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from tests.model.small_models import small_model
from tests.pipeline.small_corpora import (
    make_texts,
    small_dataset,
    vocabulary,
    write_json_lines,
    write_tokenizer,
)
from tests.train.small_readings import BuiltDataset
from tests.train.trained_runs import train_briefly

from clozemill.model.convert import save_pretrained
from clozemill.pipeline.errors import ConfigError, DatasetError, ModelError
from clozemill.pipeline.progress import Progress
from clozemill.train.baselines import measure_baselines
from clozemill.train.evaluation import Evaluation, evaluate_encoder
from clozemill.train.evaluation_settings import EvaluationSettings
from clozemill.train.export import export_run
from clozemill.train.metrics import EvaluationRow, exact_columns, read_metrics

EVALUATED = 30


@pytest.fixture(scope="module")
def run(built: BuiltDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train_briefly(built().folder, out, eval_instances=EVALUATED)
    return out


def evaluated(path: Path, data: Path, **settings: Any) -> Evaluation:
    settings = {"precision": "fp32", "threads": 1, **settings}
    return evaluate_encoder(path, data, EvaluationSettings(**settings))


def save_small(folder: Path, **sizes: Any) -> Path:
    """Save a model without a tokenizer."""
    sizes = {"vocab_size": len(vocabulary()), "max_position_embeddings": 48, **sizes}
    save_pretrained(small_model(**sizes), folder)
    return folder


def test_the_number_is_the_one_that_the_run_has_logged(
    built: BuiltDataset, run: Path, tmp_path: Path
) -> None:
    rows = read_metrics(run / "metrics.jsonl")
    logged = [row for row in rows if isinstance(row, EvaluationRow)][-1]
    assert logged.step == 9
    found = evaluated(run, built().folder, num_instances=EVALUATED, micro_batch_size=16)
    assert exact_columns(found.row) == exact_columns(logged)
    assert found.is_tokenizer_known
    # An export has the weights, but does not say a step.
    export_run(run, tmp_path / "model")
    other = evaluated(
        tmp_path / "model", built().folder, num_instances=EVALUATED, micro_batch_size=16
    )
    assert exact_columns(other.row) == {**exact_columns(logged), "step": 0}
    assert other.is_tokenizer_known


def test_the_lines_are_those_of_the_run_and_of_the_same_positions(
    built: BuiltDataset, run: Path
) -> None:
    start = read_metrics(run / "metrics.jsonl")[0]
    found = evaluated(run, built().folder, num_instances=EVALUATED)
    assert found.baselines.context_free_loss == start.context_free_loss  # type: ignore[union-attr]
    lines = set()
    # Three variants of train are stored, one of validation; others are drawn.
    for split, variant in (("validation", 0), ("validation", 4), ("train", 2), ("train", 3)):
        found = evaluated(run, built().folder, split=split, variant=variant)
        assert found.row.split == found.baselines.split == split
        assert found.row.selected == found.baselines.num_selected > 0
        assert found.row.instances == built().num_instances(split)
        entry = built().manifest.splits[split]
        assert found.dataset_digest == entry.dataset_digest
        lines.add(found.baselines.context_free_loss)
    assert len(lines) == 4


def test_a_stored_variant_is_the_one_that_is_drawn(built: BuiltDataset) -> None:
    few, many = built(mask_variants=1), built(mask_variants=3)
    for variant in (1, 2):
        lines = [measure_baselines(d, split="train", variant=variant) for d in (few, many)]
        assert lines[0] == lines[1]
        assert lines[0] != measure_baselines(many, split="train", variant=0)


def test_heads_that_one_of_both_lacks_are_left_out(
    built: BuiltDataset, run: Path, tmp_path: Path
) -> None:
    blocks = built(recipe="roberta-full")
    found = evaluated(run, blocks.folder)
    assert (found.row.pairs, found.row.nsp_loss, found.baselines.nsp_length_loss) == (0, None, None)
    assert found.row.mlm_loss is not None
    without_head = save_small(tmp_path / "mlm", next_sentence=False)
    found = evaluated(without_head, built().folder)
    assert (found.row.pairs, found.row.nsp_loss) == (0, None)
    assert not found.is_tokenizer_known


def test_progress_ends_where_all_is_done(built: BuiltDataset, run: Path) -> None:
    for num_instances in (None, 20):
        told: list[Progress] = []
        settings = EvaluationSettings(
            precision="fp32", threads=1, num_instances=num_instances, micro_batch_size=8
        )
        evaluate_encoder(run, built().folder, settings, on_progress=told.append)
        assert (told[0].done, told[-1].done) == (0, told[-1].total)
        done = [progress.done for progress in told]
        assert done == sorted(done)
        assert len(set(done)) > 3


def test_a_dataset_of_another_tokenizer_is_refused_with_both_hashes(
    built: BuiltDataset, run: Path, tmp_path: Path
) -> None:
    """Case P32."""
    pieces = vocabulary()
    tokenizer = write_tokenizer(tmp_path / "other", [*pieces[:-2], pieces[-1], pieces[-2]])
    corpus = write_json_lines(tmp_path / "texts.jsonl", make_texts(20))
    other = small_dataset(corpus, tokenizer, tmp_path / "data")
    ours, theirs = built().manifest.tokenizer.hash, other.manifest.tokenizer.hash
    export_run(run, tmp_path / "model")
    for model in (run, tmp_path / "model"):
        with pytest.raises(ModelError, match=f"with the tokenizer {ours}, but .* with {theirs}; "):
            evaluated(model, other.folder)


def test_a_model_that_is_too_small_is_refused(built: BuiltDataset, tmp_path: Path) -> None:
    """Case P43."""
    short = save_small(tmp_path / "short", max_position_embeddings=47)
    with pytest.raises(ModelError, match="max_position_embeddings is 47, but the data has 48 tok"):
        evaluated(short, built().folder)
    for size in (len(vocabulary()) - 1, len(vocabulary()) + 1):
        other = save_small(tmp_path / f"size-{size}", vocab_size=size)
        with pytest.raises(ModelError, match=rf"a vocabulary of {size} tokens, but that of .* has"):
            evaluated(other, built().folder)
    one_segment = save_small(tmp_path / "segments", type_vocab_size=1)
    with pytest.raises(ModelError, match="type_vocab_size is 1, but the data has 2 segments"):
        evaluated(one_segment, built().folder)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("variant", -1, "between 0 and 2147483648"),
        ("num_instances", 0, "between 1 and 4611686018427387904"),
        ("threads", 0, "between 1 and 4096"),
        ("micro_batch_size", 0, "between 1 and 1000000"),
        ("split", "test", "one of train, validation"),
        ("precision", "int8", "one of auto, fp32, bf16, fp16"),
    ],
)
def test_a_setting_out_of_its_range_is_refused(name: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value!r}; it must be {allowed}."):
        EvaluationSettings(**{name: value})


def test_a_split_that_is_not_there_is_refused(built: BuiltDataset, run: Path) -> None:
    dataset = built(validation_fraction=0.0)
    with pytest.raises(DatasetError, match="has no split 'validation'; it has train"):
        evaluated(run, dataset.folder)


def test_other_precision_in_the_same_process_is_other_arithmetic(
    built: BuiltDataset, run: Path
) -> None:
    found = {
        precision: evaluated(run, built().folder, precision=precision, num_instances=8)
        for precision in ("fp32", "bf16", "fp32")
    }
    assert [e.precision for e in found.values()] == ["fp32", "bf16"]
    exact, rounded = (found[name].row.mlm_loss for name in ("fp32", "bf16"))
    assert exact is not None
    assert rounded is not None
    assert 0 < abs(exact - rounded) < 0.05 * exact
