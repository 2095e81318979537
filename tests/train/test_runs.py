import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.train.small_runs import (
    environment,
    save_steps,
    small_dataset,
    small_execution,
    small_facts,
)

from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.train.config import PretrainConfig
from clozemill.train.facts import RunFacts, read_run
from clozemill.train.runs import Run, open_run


def config(out: Path, **settings: Any) -> PretrainConfig:
    return PretrainConfig(out=str(out), **{"steps": 10, **settings})


def opened(out: Path, facts: RunFacts | None = None, **settings: Any) -> Run:
    """Open a run folder as a training does, and leave it at once."""
    with open_run(config(out, **settings), facts or small_facts()) as run:
        return run


def run_with_steps(out: Path, *steps: int) -> Run:
    with open_run(config(out), small_facts()) as run:
        run.metrics.write_text("")
        save_steps(run.checkpoints, *steps)
    return run


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_run_writes_what_it_is(tmp_path: Path) -> None:
    run = opened(tmp_path / "new" / "run")
    assert (run.checkpoint, run.step, run.notices) == (None, None, ())
    assert names(run.folder) == ["checkpoints", "run.json"]
    record = read_run(run.folder)
    assert record.facts == small_facts()
    assert record.facts.settings["global_batch_size"] == 128


def test_a_run_is_gone_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5, 12)
    before = (tmp_path / "run" / "run.json").read_bytes()
    run = opened(tmp_path / "run")
    assert run.checkpoint == run.checkpoints / "step-00000012"
    assert run.step == 12
    assert run.notices == ()
    assert (tmp_path / "run" / "run.json").read_bytes() == before


def test_a_skipped_checkpoint_is_said(tmp_path: Path) -> None:
    first = run_with_steps(tmp_path / "run", 5, 12)
    os.truncate(first.checkpoints / "step-00000012" / "model.safetensors", 100)
    run = opened(tmp_path / "run")
    assert run.step == 5
    (notice,) = run.notices
    assert notice.startswith(f"skipped {first.checkpoints / 'step-00000012'}: ")


def test_a_run_without_a_checkpoint_starts_again_and_says_so(tmp_path: Path) -> None:
    opened(tmp_path / "run")
    run = opened(tmp_path / "run")
    assert run.checkpoint is None
    assert "has no checkpoint yet" in run.notices[0]


def test_another_setting_of_training_is_refused_with_both_values(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5)
    with pytest.raises(RunError, match=r"learning_rate is 0.01, but .*run was trained with 0.0005"):
        opened(tmp_path / "run", learning_rate=0.01)


def test_settings_that_train_nothing_may_change(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5)
    assert opened(tmp_path / "run", keep=9, log_every=3, data="moved").notices == ()


@pytest.mark.parametrize(
    ("facts", "texts"),
    [
        (
            {"tokenizer_hash": "55" * 16},
            ["the tokenizer '" + "55" * 16, "trained on '" + "44" * 16],
        ),
        ({"max_seq_length": 64}, ["the max_seq_length 64", "trained on 32"]),
        (
            {"dataset_digests": {"train": "99" * 16, "validation": "12" * 16}},
            ["dataset digest of train '" + "99" * 16, "trained on '" + "11" * 16],
        ),
        (
            {"dataset_digests": {"train": "11" * 16}},
            ["dataset digest of validation None", "trained on '" + "12" * 16],
        ),
    ],
)
def test_another_dataset_is_refused_with_both_values(
    facts: dict[str, Any], texts: list[str], tmp_path: Path
) -> None:
    run_with_steps(tmp_path / "run", 5)
    now = small_facts(dataset=small_dataset(path="other", **facts))
    with pytest.raises(RunError) as error:
        opened(tmp_path / "run", now)
    for text in ["other has ", *texts]:
        assert text in str(error.value)


def test_a_moved_dataset_is_the_same(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5)
    assert opened(tmp_path / "run", small_facts(dataset=small_dataset(path="b"))).notices == ()


def test_another_model_is_refused(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5)
    with pytest.raises(RunError, match=r"hidden_size. of the model is 8, but .* has 4"):
        opened(tmp_path / "run", small_facts(model={"vocab_size": 11, "hidden_size": 8}))


def test_another_machine_is_allowed_and_said(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5)
    execution = small_execution(num_processes=2, cpu_capability="AVX2", python_version="3.12.0")
    run = opened(tmp_path / "run", small_facts(execution=execution), pad_to_multiple_of=8)
    (notice,) = run.notices
    assert notice.startswith(
        "cpu_capability was 'AVX512' and is 'AVX2', num_processes was 1 and is 2, "
        "pad_to_multiple_of was None and is 8: "
    )
    assert "will not be bit-equal" in notice


def test_a_run_is_not_begun_over_another(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5)
    with pytest.raises(RunError, match=r"holds a run, and --resume is never; .*--overwrite"):
        opened(tmp_path / "run", resume="never")
    assert opened(tmp_path / "run").step == 5


@pytest.mark.parametrize("resume", ["never", "auto"])
def test_overwriting_deletes_only_what_a_run_writes(resume: str, tmp_path: Path) -> None:
    run = run_with_steps(tmp_path / "run", 5, 12)
    for foreign in (run.folder / "notes.txt", run.checkpoints / "best.txt"):
        foreign.write_text("mine")
    new = opened(run.folder, resume=resume, overwrite=True, learning_rate=0.1)
    assert new.checkpoint is None
    assert names(run.folder) == ["checkpoints", "notes.txt", "run.json"]
    assert names(run.checkpoints) == ["best.txt"]
    assert read_run(run.folder).facts == small_facts()


def test_a_folder_that_holds_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(RunError, match=r"holds 'thesis.tex' and is not a run of ours"):
            opened(tmp_path, overwrite=overwrite)
        assert names(tmp_path) == ["thesis.tex"]


def test_a_run_is_not_written_into_a_dataset(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "train-00000-000.arrow").write_text("")
    with pytest.raises(ConfigError, match="lies inside the dataset"):
        opened(tmp_path / "run")
    assert names(tmp_path) == ["manifest.json", "train-00000-000.arrow"]


def test_a_new_folder_is_not_left_behind_by_a_run_that_cannot_start(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"absent/state.json"):
        opened(tmp_path / "run", resume=str(tmp_path / "absent"))
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_can_be_named(tmp_path: Path) -> None:
    run = run_with_steps(tmp_path / "run", 5, 12)
    other = opened(tmp_path / "other", resume=str(run.checkpoints / "step-00000005"))
    assert other.step == 5
    assert read_run(other.folder).started_from == str(run.checkpoints / "step-00000005")
    assert opened(tmp_path / "third", resume=str(run.folder)).step == 12


def test_a_run_that_started_elsewhere_starts_there_again(tmp_path: Path) -> None:
    run = run_with_steps(tmp_path / "run", 5)
    opened(tmp_path / "other", resume=str(run.folder))
    assert opened(tmp_path / "other").step == 5
    save_steps(tmp_path / "other" / "checkpoints", 7)
    assert opened(tmp_path / "other").step == 7


def test_going_back_needs_leave_to_delete_what_came_after(tmp_path: Path) -> None:
    run = run_with_steps(tmp_path / "run", 5, 12, 14)
    resume = str(run.checkpoints / "step-00000005")
    with pytest.raises(RunError, match=r"newer checkpoints than .*00005, such as step-00000014"):
        opened(run.folder, resume=resume)
    assert len(names(run.checkpoints)) == 3
    assert opened(run.folder, resume=resume, overwrite=True).step == 5
    assert names(run.checkpoints) == ["step-00000005"]
    assert run.metrics.exists()


def test_a_checkpoint_of_another_run_needs_leave_to_replace_this_one(tmp_path: Path) -> None:
    other = run_with_steps(tmp_path / "other", 3)
    run = run_with_steps(tmp_path / "run", 5)
    with pytest.raises(RunError, match=r"holds a run, and --resume is .*other"):
        opened(run.folder, resume=str(other.folder))
    assert opened(run.folder, resume=str(other.folder), overwrite=True).step == 3
    assert names(run.checkpoints) == []


def test_nothing_is_deleted_for_a_start_that_is_refused(tmp_path: Path) -> None:
    run = run_with_steps(tmp_path / "run", 5)
    with pytest.raises(RunError):
        opened(run.folder, resume=str(tmp_path / "absent"), overwrite=True)
    assert names(run.checkpoints) == ["step-00000005"]


def test_what_a_killed_save_left_is_removed(tmp_path: Path) -> None:
    run = run_with_steps(tmp_path / "run", 5)
    left = run.checkpoints / ".step-00000006.123-00aabbcc.tmp"
    shutil.copytree(run.checkpoints / "step-00000005", left)
    (run.checkpoints / ".notes.tmp").write_text("mine")
    opened(run.folder)
    assert names(run.checkpoints) == [".notes.tmp", "step-00000005"]


def test_two_trainings_cannot_write_one_folder(tmp_path: Path) -> None:
    with (
        open_run(config(tmp_path / "run"), small_facts()),
        pytest.raises(RunError, match="another training is writing"),
    ):
        opened(tmp_path / "run")
    assert opened(tmp_path / "run").folder.exists()


_TRAINING = """
import os, sys, time
from tests.train.small_runs import small_facts
from clozemill.train.config import PretrainConfig
from clozemill.train.runs import open_run
with open_run(PretrainConfig(out=sys.argv[1], steps=10), small_facts()):
    worker = os.fork()
    if worker:
        print(worker, flush=True)
    time.sleep(60)
"""


def test_the_folder_of_a_killed_training_is_free_though_a_worker_lives_on(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _TRAINING, str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        worker = int(process.stdout.readline())
        try:
            with pytest.raises(RunError, match="another training is writing"):
                opened(tmp_path / "run")
            process.kill()
            process.wait()
            assert opened(tmp_path / "run").checkpoint is None
        finally:
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.update(format_version=2), "format version 2"),
        (lambda table: table.pop("facts"), "no key 'facts'"),
        (lambda table: table.update(extra=1), "unknown key 'extra'"),
        (lambda table: table["facts"].update(dataset=3), "dataset is 3; it must be an object"),
        (
            lambda table: table["facts"]["execution"].update(num_threads="2"),
            "num_threads is '2'; it must be a whole number",
        ),
        (
            lambda table: table["facts"]["execution"].update(num_threads=True),
            "num_threads is True; it must be a whole number",
        ),
    ],
)
def test_a_damaged_record_is_one_line(change: Any, message: str, tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    table = json.loads((run.folder / "run.json").read_text())
    change(table)
    (run.folder / "run.json").write_text(json.dumps(table))
    for overwrite in (False, True):
        with pytest.raises(RunError, match=message) as error:
            opened(run.folder, overwrite=overwrite)
        assert "\n" not in str(error.value)


def test_a_folder_without_a_record_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="holds no run.json"):
        read_run(tmp_path)


def test_a_run_can_be_sent_to_other_ranks(tmp_path: Path) -> None:
    run_with_steps(tmp_path / "run", 5)
    run = opened(tmp_path / "run")
    assert pickle.loads(pickle.dumps(run)) == run
