import contextlib
import dataclasses
import math
import random
import re
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from tests.train.processes import run_module, start_module
from tests.train.small_readings import BuiltDataset

from clozemill.model.convert import save_pretrained
from clozemill.pipeline.errors import ConfigError, ModelError, RunError
from clozemill.train.checkpoints import MODEL_NAME, list_checkpoints
from clozemill.train.config import PretrainConfig
from clozemill.train.encoders import find_encoder
from clozemill.train.metrics import (
    EvaluationRow,
    Row,
    StartRow,
    TrainRow,
    exact_columns,
    read_metrics,
)
from clozemill.train.pretrain import PretrainReport, pretrain
from clozemill.train.replay import replay_step
from clozemill.train.reporting import NOTES_NAME

MODULE = "clozemill.train.pretrain"
FLAGS = {
    "model": "tiny",
    "precision": "fp32",
    "global-batch-size": 16,
    "micro-batch-size": 4,
    "learning-rate": 2e-3,
    "threads": 1,
    "log-every": 3,
    "eval-every": 10,
    "eval-instances": 16,
}


def small_config(data: Path, out: Path, **changes: Any) -> PretrainConfig:
    named = {name.replace("-", "_"): value for name, value in FLAGS.items()}
    return PretrainConfig(data=str(data), out=str(out), **{**named, **changes})


def arguments(data: Path, out: Path, **changes: Any) -> list[Any]:
    flags = {**FLAGS, **{name.replace("_", "-"): value for name, value in changes.items()}}
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    return [data, "--out", out, "--quiet", *words]


def final_weights(run: Path) -> bytes:
    newest = max((run / "checkpoints").iterdir())
    return (newest / MODEL_NAME).read_bytes()


def exact_rows(run: Path) -> list[dict[str, Any]]:
    rows = read_metrics(run / "metrics.jsonl")
    assert len(rows) > 3
    return [exact_columns(row) for row in rows]


def rows_of(report: PretrainReport, kind: type[Row]) -> list[Any]:
    found = [row for row in report.rows if isinstance(row, kind)]
    assert found
    return found


def test_a_run_learns_and_says_so(built: BuiltDataset, tmp_path: Path) -> None:
    report = pretrain(small_config(built().folder, tmp_path / "run", epochs=2))
    assert report.is_finished
    assert report.step == 2 * math.ceil(built().num_instances("train") / 16)
    first, *_, last = rows_of(report, EvaluationRow)
    assert last.mlm_loss < first.mlm_loss
    assert last.step == report.step
    (start,) = rows_of(report, StartRow)
    assert start.even_loss == math.log(built().manifest.tokenizer.vocab_size)
    trained = rows_of(report, TrainRow)
    assert sum(row.instances for row in trained) == 2 * built().num_instances("train")
    assert all(row.tokens_per_second > 0 and 0 < row.mfu < 1 for row in trained)


def test_notes_say_what_decays_and_which_precision_wins(
    built: BuiltDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    pretrain(small_config(built().folder, tmp_path / "run", steps=1))
    notes = (tmp_path / "run" / "train.log").read_text()
    assert "from step 0 to 1 on 1 x cpu, 1 threads each" in notes
    assert "precision fp32 (fp32 was asked for); accelerate's configuration says bf16" in notes
    (exempt,) = re.findall(r"no weight decay on \d+: (.*)", notes)
    (decayed,) = re.findall(r"\d weight decay 0.01 on \d+: (.*)", notes)
    assert "bert.embeddings.LayerNorm.weight" in exempt
    assert "cls.predictions.bias" in exempt
    assert "bert.embeddings.word_embeddings.weight" in decayed
    assert "LayerNorm" not in decayed


def test_evaluation_is_the_same_number_whatever_masks_are_trained_on(
    built: BuiltDataset, tmp_path: Path
) -> None:
    found = []
    for masking in ("static", "dynamic"):
        config = small_config(
            built().folder,
            tmp_path / masking,
            masking=masking,
            steps=4,
            learning_rate=0.0,
            eval_every=2,
        )
        rows = rows_of(pretrain(config), EvaluationRow)
        found += [(row.mlm_loss, row.nsp_loss, row.selected) for row in rows]
    assert len(found) == 4
    assert len(set(found)) == 1


def test_static_and_dynamic_are_one_until_a_variant_returns(
    built: BuiltDataset, tmp_path: Path
) -> None:
    data = built(limit_documents=25)
    per_epoch = math.ceil(data.num_instances("train") / 16)
    runs = {}
    for masking in ("static", "dynamic"):
        config = small_config(
            data.folder,
            tmp_path / masking,
            masking=masking,
            epochs=4,
            log_every=per_epoch,
            eval_every=0,
        )
        runs[masking] = [row.mlm_loss for row in rows_of(pretrain(config), TrainRow)]
    assert len(runs["static"]) == 4
    assert runs["static"][:3] == runs["dynamic"][:3]  # three variants are stored
    assert runs["static"][3] != runs["dynamic"][3]


def test_resumed_run_is_the_unbroken_one_to_the_last_byte(
    built: BuiltDataset, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"steps": 40, "checkpoint_every": 7, "masking": "dynamic"}
    pretrain(small_config(built().folder, tmp_path / "whole", **settings))
    config = small_config(built().folder, tmp_path / "broken", **settings)
    with pytest.raises(_Broken):
        pretrain(config, on_row=_break_at(18))
    report = pretrain(config)
    assert report.is_finished
    assert final_weights(tmp_path / "broken") == final_weights(tmp_path / "whole")
    assert exact_rows(tmp_path / "broken") == exact_rows(tmp_path / "whole")


class _Broken(Exception):
    pass


def _break_at(step: int) -> Any:
    def on_row(row: Row) -> None:
        if row.step >= step:
            raise _Broken

    return on_row


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_run_goes_on_to_the_same_bytes(
    built: BuiltDataset, tmp_path: Path, ranks: int
) -> None:
    settings: dict[str, Any] = {"steps": 60, "checkpoint_every": 5, "loader_workers": ranks - 1}
    command = arguments(built().folder, tmp_path / "whole", **settings)
    whole = run_module(MODULE, *command, ranks=ranks)
    assert whole.returncode == 0, whole.stderr
    command = arguments(built().folder, tmp_path / "run", **settings)
    for num_saved in (1, 2):
        process = start_module(MODULE, *command, ranks=ranks)
        wait_for_checkpoint(tmp_path / "run", step=5 * num_saved)
        time.sleep(random.random())
        kill_tree(process)
    done = run_module(MODULE, *command, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert final_weights(tmp_path / "run") == final_weights(tmp_path / "whole")
    assert exact_rows(tmp_path / "run") == exact_rows(tmp_path / "whole")


def wait_for_checkpoint(run: Path, *, step: int = 1) -> None:
    for _ in range(1200):
        if any(number >= step for number, _ in list_checkpoints(run / "checkpoints")):
            return
        time.sleep(0.05)
    raise AssertionError("no checkpoint within a minute")


def kill_tree(process: Any) -> None:
    for child in psutil.Process(process.pid).children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ends with the one before
            child.kill()
    process.kill()
    process.communicate()


@pytest.mark.slow
def test_signal_saves_and_the_same_command_goes_on(built: BuiltDataset, tmp_path: Path) -> None:
    # Many more than are waited for, or the last signal may come after the last step.
    settings = {"steps": 240, "checkpoint_every": 0}
    pretrain(small_config(built().folder, tmp_path / "whole", **settings))
    command = arguments(built().folder, tmp_path / "run", **settings)
    for number, num_rows in ((signal.SIGTERM, 3), (signal.SIGHUP, 8), (signal.SIGINT, 12)):
        # Under nohup the signal is ignored, and a run that is started so goes on, rightly.
        heeded = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        process = start_module(MODULE, *command)
        signal.signal(signal.SIGHUP, heeded)
        wait_for_rows(tmp_path / "run", num_rows)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "goes on from there" in out
    done = run_module(MODULE, *command)
    assert done.returncode == 0, done.stderr
    assert final_weights(tmp_path / "run") == final_weights(tmp_path / "whole")
    assert exact_rows(tmp_path / "run") == exact_rows(tmp_path / "whole")


def wait_for_rows(run: Path, count: int) -> None:
    path = run / "metrics.jsonl"
    for _ in range(1200):
        if path.exists() and len(path.read_bytes().splitlines()) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no rows within a minute")


@pytest.mark.slow
def test_ranks_share_batches_rates_and_losses(built: BuiltDataset, tmp_path: Path) -> None:
    settings = {
        "steps": 20,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "log_every": 1,
    }
    one = pretrain(small_config(built().folder, tmp_path / "one", **settings))
    done = run_module(MODULE, *arguments(built().folder, tmp_path / "two", **settings), ranks=2)
    assert done.returncode == 0, done.stderr
    two = read_metrics(tmp_path / "two" / "metrics.jsonl")
    pairs = list(
        zip(rows_of(one, TrainRow), [r for r in two if isinstance(r, TrainRow)], strict=True)
    )
    assert len(pairs) == 20
    for alone, together in pairs:
        assert (alone.learning_rate, alone.selected, alone.tokens, alone.epoch) == (
            together.learning_rate,
            together.selected,
            together.tokens,
            together.epoch,
        )
        assert abs(alone.mlm_loss - together.mlm_loss) < 1e-3


@pytest.mark.slow
def test_other_number_of_ranks_goes_on_with_the_same_batches_and_says_so(
    built: BuiltDataset, tmp_path: Path
) -> None:
    settings = {
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "log_every": 1,
        "steps": 30,
    }
    whole = pretrain(small_config(built().folder, tmp_path / "whole", **settings))
    command = arguments(built().folder, tmp_path / "run", checkpoint_every=4, **settings)
    process = start_module(MODULE, *command, ranks=2)
    wait_for_checkpoint(tmp_path / "run")
    kill_tree(process)
    done = run_module(MODULE, *command)
    assert done.returncode == 0, done.stderr
    assert "num_processes was 2 and is 1" in done.stderr
    found = [r for r in read_metrics(tmp_path / "run" / "metrics.jsonl") if isinstance(r, TrainRow)]
    counts = [(row.step, row.selected, row.tokens) for row in found]
    assert counts == [(row.step, row.selected, row.tokens) for row in rows_of(whole, TrainRow)]


@pytest.mark.slow
def test_small_set_is_learnt_by_heart(built: BuiltDataset, tmp_path: Path) -> None:
    dataset = built(mask_variants=1, limit_documents=8, validation_fraction=0.0)
    assert 20 <= dataset.num_instances("train") <= 60
    config = small_config(
        dataset.folder,
        tmp_path / "run",
        steps=400,
        num_static_variants=1,
        global_batch_size=32,
        micro_batch_size=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        learning_rate=3e-3,
        weight_decay=0.0,
        eval_every=0,
        log_every=20,
    )
    last = rows_of(pretrain(config), TrainRow)[-1]
    assert last.mlm_loss < 0.1
    assert last.nsp_loss < 0.1


def test_loss_that_is_not_finite_names_step_and_instances_and_can_be_replayed(
    built: BuiltDataset, tmp_path: Path
) -> None:
    report = pretrain(small_config(built().folder, tmp_path / "first", steps=1))
    model = find_encoder(report.folder).model
    with torch.no_grad():
        model.cls.predictions.bias[7] = torch.inf
    save_pretrained(model, tmp_path / "spoiled")
    config = small_config(
        built().folder, tmp_path / "run", steps=9, init_from=str(tmp_path / "spoiled")
    )
    text = r"the loss of step 1 is not finite .* epoch 0, variant 0\); 16 instances alone"
    with pytest.raises(RunError, match=text) as caught:
        pretrain(config)
    replay = replay_step(config, 1)
    assert not replay.result.is_finite
    assert replay.instances[0].instance_id in str(caught.value)
    assert not any(instance.is_finite for instance in replay.instances)


def test_replay_repeats_what_the_log_says(built: BuiltDataset, tmp_path: Path) -> None:
    config = small_config(
        built().folder, tmp_path / "run", steps=10, checkpoint_every=4, log_every=1, keep=3
    )
    rows = {row.step: row for row in rows_of(pretrain(config), TrainRow)}
    before = sorted(path.name for path in (tmp_path / "run").rglob("*"))
    replay = replay_step(config, 7)
    window = replay.result.window
    assert window.mlm_loss_sum / window.selected == rows[7].mlm_loss
    assert replay.result.gradient_norm == rows[7].gradient_norm
    assert len(replay.instances) == 16
    assert sum(i.num_selected for i in replay.instances) == rows[7].selected
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == before
    with pytest.raises(RunError, match="no complete checkpoint before step 3"):
        replay_step(config, 3)


def test_replay_refuses_steps_and_settings_that_the_run_does_not_have(
    built: BuiltDataset, tmp_path: Path
) -> None:
    config = small_config(built().folder, tmp_path / "run", steps=2, checkpoint_every=1)
    with pytest.raises(RunError, match=r"run holds no run\.json"):
        replay_step(config, 2)
    pretrain(config)
    for step in (0, 3):
        with pytest.raises(RunError, match=f"step {step} cannot be replayed: .* 1 to 2"):
            replay_step(config, step)
    with pytest.raises(RunError, match="seed is 4, but .*step-00000001 was trained with 0"):
        replay_step(dataclasses.replace(config, seed=4), 2)


def test_padding_beyond_the_positions_of_the_encoder_is_refused_before_anything_is_written(
    built: BuiltDataset, tmp_path: Path
) -> None:
    config = small_config(built().folder, tmp_path / "run", steps=1, pad_to_multiple_of=32)
    with pytest.raises(ConfigError, match="pads the longest rows to 64 tokens, .* is 48"):
        pretrain(config)
    assert not (tmp_path / "run").exists()
    report = pretrain(dataclasses.replace(config, max_position_embeddings=64))
    assert report.is_finished


def test_weights_of_a_run_are_not_taken_for_those_of_a_model(
    built: BuiltDataset, tmp_path: Path
) -> None:
    report = pretrain(small_config(built().folder, tmp_path / "first", steps=1))
    for folder in (report.folder, report.folder / "checkpoints" / "step-00000001"):
        config = small_config(built().folder, tmp_path / "run", steps=1, init_from=str(folder))
        with pytest.raises(ModelError, match="belongs to a run, .*give the run as continue_from"):
            pretrain(config)


def test_what_the_run_to_continue_from_cannot_be_is_said_with_its_remedy(
    built: BuiltDataset, tmp_path: Path
) -> None:
    data = built(validation_fraction=0.2).folder
    first = pretrain(small_config(data, tmp_path / "first", steps=1)).folder
    base: dict[str, Any] = {"steps": 1, "continue_from": str(first)}
    longer = built(validation_fraction=0.2, max_seq_length=64).folder
    with pytest.raises(ModelError, match="train the first phase with --max-position-embeddings 64"):
        pretrain(small_config(longer, tmp_path / "run", **base))
    for changes in ({"max_position_embeddings": 64}, {"next_sentence": False}):
        with pytest.raises(ConfigError, match="which the run continues from, has .*; leave it out"):
            pretrain(small_config(data, tmp_path / "run", **base, **changes))
    same = {"max_position_embeddings": 48, "next_sentence": True}
    assert pretrain(small_config(data, tmp_path / "run", **base, **same)).is_finished


def test_a_disk_that_is_full_at_the_notes_is_told_in_a_line(
    built: BuiltDataset, tmp_path: Path
) -> None:
    config = small_config(built().folder, tmp_path / "run", steps=1)
    notes = pretrain(config).folder / NOTES_NAME
    notes.unlink()
    notes.symlink_to("/dev/full")
    with pytest.raises(RunError, match=r"cannot write .*train\.log: No space left on device; free"):
        pretrain(config)


def test_a_run_needs_a_folder(built: BuiltDataset) -> None:
    with pytest.raises(ConfigError, match="out is empty; name the run folder"):
        pretrain(dataclasses.replace(small_config(built().folder, Path(), steps=1), out=""))
