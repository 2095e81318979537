"""The verbs of training as a person types them: what is printed, where, and the exit code."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Done, Run
from tests.model.small_models import small_model
from tests.pipeline.small_corpora import SPECIALS, write_tokenizer
from tests.train.conftest import built  # noqa: F401 - a fixture
from tests.train.trained_runs import train_briefly

from clozemill.model.convert import save_pretrained
from clozemill.train.export import ExportReport


@pytest.fixture(scope="module")
def data(built: Any) -> Path:  # noqa: F811
    return Path(built().folder)


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    train_briefly(data, out)
    return out


FLAGS = ("--model", "tiny", "--precision", "fp32", "--threads", "1", "--global-batch-size", "16")


def test_pretrain_prints_where_it_stands_and_goes_on(run: Run, data: Path, tmp_path: Path) -> None:
    command = ("pretrain", data, "--out", tmp_path / "run", *FLAGS, "--steps", "4")
    done = run(*command)
    assert done.code == 0
    assert done.out.splitlines()[-1] == f"{tmp_path / 'run'} has all its 4 steps."
    assert "lines to beat: MLM " in done.out
    assert re.search(r"^step 4  validation: MLM ", done.err, re.MULTILINE)
    again = run(*command, "--quiet", "--json")
    assert (again.code, again.err) == (0, "")
    found = json.loads(again.out)
    assert (found["step"], found["is_finished"]) == (4, True)
    assert [row["kind"] for row in found["rows"]] == ["start", "train", "evaluation"]


def test_a_folder_named_like_markup_is_named_as_it_is(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "[bold]run[/bold] :x:"
    done = run("pretrain", data, "--out", out, *FLAGS, "--steps", "1", "--quiet")
    assert "[bold]run[/bold] :x: has all its 1 steps." in done.out.replace("\n", " ")


def test_pretrain_takes_a_step_again(run: Run, data: Path, tmp_path: Path) -> None:
    command = ("pretrain", data, "--out", tmp_path / "run", *FLAGS, "--steps", "3")
    command = (*command, "--checkpoint-every", "1", "--keep", "5", "--quiet")
    assert run(*command).code == 0
    done = run(*command, "--replay", "3")
    assert done.code == 0
    assert done.out.startswith("step 3\n")
    assert done.out.rstrip().endswith("nothing was written.")
    assert len(json.loads(run(*command, "--replay", "2", "--json").out)["instances"]) == 16


def test_pretrain_without_a_folder_to_write_is_refused(run: Run, data: Path) -> None:
    done = run("pretrain", data, "--steps", "4")
    assert done == (2, "", "clozemill: --out is missing; say where the run is to be written.\n")


def test_a_model_that_is_not_the_one_to_continue_from_is_refused(
    run: Run, data: Path, trained: Path, tmp_path: Path
) -> None:
    command = ("pretrain", data, "--out", tmp_path / "run", "--continue-from", trained)
    command = (*command, "--steps", "1", "--precision", "fp32", "--threads", "1")
    done = run(*command, "--model", "small")
    said = (
        f"model is small with the num_hidden_layers 4, but {trained}, which the run continues "
        "from, has 2; leave model out."
    )
    assert done == Done(2, "", f"clozemill: {said}\n")
    (tmp_path / "small.toml").write_text('model = "small"\n')
    assert run(*command, "--config", tmp_path / "small.toml") == done
    assert not (tmp_path / "run").exists()
    # What nobody typed gives way: the default, and the size of a recipe.
    assert run(*command, "--dry-run").code == 0
    assert run(*command, "--recipe", "budget", "--next-sentence", "--dry-run").code == 0
    assert run(*command, "--model", "tiny", "--quiet").code == 0


def test_a_model_that_is_not_the_one_of_the_weights_to_start_from_is_refused(
    run: Run, data: Path, trained: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    assert run("export", trained, "--out", model).code == 0
    command = ("plan", data, "--init-from", model, "--steps", "1")
    done = run(*command, "--model", "small")
    said = (
        f"model is small with the num_hidden_layers 4, but {model}, which the run starts from, "
        "has 2; leave model out."
    )
    assert done == Done(2, "", f"clozemill: {said}\n")
    assert run(*command).code == 0
    assert run(*command, "--recipe", "budget", "--next-sentence").code == 0
    assert run(*command, "--model", "tiny").code == 0
    # What is no model at all is said by who reads it.
    missing = run("plan", data, "--init-from", tmp_path, "--steps", "1", "--model", "tiny")
    assert missing.code == 2
    assert "config.json" in missing.err


def test_a_dataset_that_a_recipe_is_not_for_is_named_beforehand(run: Run, data: Path) -> None:
    flags = ("--recipe", "roberta", "--model", "tiny", "--epochs", "1", "--warmup-share", "0.1")
    notice = (
        "notice: the recipe roberta is for a dataset that was built with --recipe roberta-full, "
        f"but {data} was built with --recipe bert: its pairs are trained on without their labels.\n"
    )
    done = run("plan", data, *flags)
    assert (done.code, done.err) == (0, notice)
    assert run("pretrain", data, *flags, "--dry-run").err == notice
    assert run("plan", data, *flags, "--next-sentence").err == ""


def test_a_run_in_place_of_a_dataset_is_called_a_run(run: Run, data: Path, trained: Path) -> None:
    done = run("evaluate", trained, trained)
    said = f"{trained} is a training run and no dataset; its dataset is '{data}'."
    assert done == Done(2, "", f"clozemill: {said}\n")


# Plans


def test_a_dry_run_is_a_plan_and_writes_nothing(run: Run, data: Path, tmp_path: Path) -> None:
    flags = (*FLAGS, "--epochs", "3", "--out", tmp_path / "run")
    dry, plan = run("pretrain", data, *flags, "--dry-run"), run("plan", data, *flags)
    assert dry == plan
    assert (plan.code, plan.err) == (0, "")
    assert list(tmp_path.iterdir()) == []
    for name in ("parameters", "steps", "maskings of an instance", "memory of a rank"):
        assert re.search(f"^{name} +[0-9]", plan.out, re.MULTILINE)
    assert plan.out.splitlines()[-1].endswith(
        "give clozemill plan --tokens-per-second or --measure"
    )
    found = json.loads(run("plan", data, *flags, "--json").out)
    assert found["length"]["num_epochs"] == 3
    assert found["memory"]["total_bytes"] > found["memory"]["weights_bytes"]
    assert found["hours"] is None


def test_a_plan_has_hours_at_a_rate_that_is_given_or_measured(run: Run, data: Path) -> None:
    flags = ("plan", data, *FLAGS, "--epochs", "2", "--json")
    given = json.loads(run(*flags, "--tokens-per-second", "1000", "--ranks", "2").out)
    assert given["hours"] == pytest.approx(given["length"]["num_tokens"] / 1000 / 3600)
    measured = json.loads(run(*flags, "--measure").out)
    assert measured["tokens_per_second"] > 100
    text = run(*flags[:-1], "--tokens-per-second", "1000").out.splitlines()[-1]
    assert re.fullmatch(r"time +[\d.]+ hours at 1,000 tokens/s, without evaluations", text)


def test_a_rate_is_given_or_measured_but_not_both(run: Run, data: Path) -> None:
    flags = ("plan", data, "--epochs", "1", "--measure")
    done = run(*flags, "--tokens-per-second", "9")
    assert done.code == 2
    assert done.err == "clozemill: --measure is given and --tokens-per-second is 9; drop one.\n"
    done = run(*flags, "--ranks", "2")
    assert "--measure times one process and --ranks is 2; give --tokens-per-second." in done.err


def test_a_plan_of_what_cannot_start_is_refused(run: Run, data: Path) -> None:
    done = run("plan", data, "--epochs", "1", "--max-position-embeddings", "8")
    assert done.code == 2
    assert "max_position_embeddings is 8, but the data has 48 tokens" in done.err


# Exports


def test_export_says_what_it_wrote_and_who_read_it_back(
    run: Run, trained: Path, tmp_path: Path
) -> None:
    out = tmp_path / "model"
    done = run("export", trained, "--out", out)
    assert (done.code, done.err) == (0, "")
    first, second = done.out.splitlines()
    assert first == (
        f"{out} is the BertForPreTraining of {trained}/checkpoints/step-00000009 with its "
        "tokenizer: README.md, config.json, export.json, model.safetensors, tokenizer.json, "
        "tokenizer_config.json, vocab.txt."
    )
    assert re.fullmatch(
        r"Read back by clozemill and transformers [\d.]+: nothing missing, nothing unexpected, "
        "equal logits.",
        second,
    )
    other = trained / "checkpoints" / "step-00000006"
    done = run("export", other, "--out", out)
    assert done.code == 2
    assert done.err == f"clozemill: {out} holds another export; use --overwrite to replace it.\n"
    assert run("export", other, "--out", out, "--overwrite").code == 0
    found = json.loads(run("export", trained, "--out", out, "--overwrite", "--json").out)
    assert set(found) == set(ExportReport.__dataclass_fields__)
    assert (found["step"], found["folder"]) == (9, str(out))


def test_export_tells_its_notices_on_standard_error(
    run: Run, trained: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    shutil.copytree(trained / "checkpoints" / "step-00000009", alone)
    done = run("export", alone, "--out", tmp_path / "model")
    assert done.code == 0
    assert done.err.startswith("notice: no evaluation is logged up to this step, so ")


def test_a_run_whose_dataset_is_gone_names_the_way_out(
    run: Run, data: Path, tmp_path: Path
) -> None:
    shutil.copytree(data, tmp_path / "data")
    train_briefly(tmp_path / "data", tmp_path / "run", steps=1)
    (tmp_path / "data").rename(tmp_path / "moved")
    for command in (
        ("export", tmp_path / "run", "--out", tmp_path / "model"),
        ("fill-mask", tmp_path / "run", "[MASK]"),
    ):
        done = run(*command)
        assert done.code == 2
        assert "give the tokenizer's folder with --tokenizer" in done.err
        assert run(*command, "--tokenizer", tmp_path / "moved" / "tokenizer").code == 0


# Filled masks


def test_fill_mask_prints_a_small_table(run: Run, trained: Path) -> None:
    done = run("fill-mask", trained, "Bala [MASK] dose.", "--top-k", "3")
    assert (done.code, done.err) == (0, "")
    title, *rows = done.out.splitlines()
    assert title.split() == ["token", "probability"]
    assert len(rows) == 3
    found = json.loads(run("fill-mask", trained, "Bala [MASK] dose.", "--json").out)
    assert found["tokens"][0] == "[CLS]"
    (mask,) = found["masks"]
    assert len(mask["candidates"]) == 5
    for row, candidate in zip(rows, mask["candidates"], strict=False):
        assert row.split() == [candidate["token"], f"{candidate['probability']:.2%}"]


def test_several_masks_have_a_table_each(run: Run, trained: Path) -> None:
    done = run("fill-mask", trained, "[MASK] or [MASK]", "--top-k", "1")
    titles = [line for line in done.out.splitlines() if line.startswith("mask ")]
    assert titles == ["mask 1 of 2", "mask 2 of 2"]


def test_a_text_without_a_mask_is_one_line(run: Run, trained: Path) -> None:
    done = run("fill-mask", trained, "Bala dose.")
    assert done == (
        2, "", "clozemill: the text has no [MASK]; write [MASK] in the place of a word.\n"
    )  # fmt: skip
    done = run("fill-mask", trained.parent / "none", "[MASK]")
    assert done.code == 2
    assert "none holds neither a model, a checkpoint nor a run; check the path." in done.err


def test_pieces_of_a_stranger_are_shown_and_not_obeyed(run: Run, tmp_path: Path) -> None:
    pieces = [*SPECIALS, "[/b]", "[red]x", "a\x1b[2J", "\u202eb"]
    folder = write_tokenizer(tmp_path / "model", pieces)
    save_pretrained(small_model(vocab_size=len(pieces)), folder)
    done = run("fill-mask", folder, "[MASK]", "--top-k", "99")
    assert done.code == 0, done.err
    shown = {line.split()[0] for line in done.out.splitlines()[1:]}
    assert shown == {*SPECIALS, "[/b]", "[red]x", "a\\x1b[2J", "\\u202eb"}


# Evaluations


def test_evaluate_prints_losses_beside_the_lines(run: Run, trained: Path, data: Path) -> None:
    flags = ("--precision", "fp32", "--threads", "1")
    done = run("evaluate", trained, data, *flags, "--quiet")
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "validation, variant 0"
    assert lines[1].split() == ["model", "without", "context", "guessing"]
    assert [line[:14].strip() for line in lines[2:7]] == [
        "MLM loss", "at [MASK]", "MLM accuracy", "NSP loss", "NSP accuracy"
    ]  # fmt: skip
    found = json.loads(run("evaluate", trained, data, *flags, "--json").out)
    assert lines[2].split()[2:] == [
        f"{value:.3f}"
        for value in (
            found["mlm_loss"],
            found["baselines"]["context_free_loss"],
            found["baselines"]["even_loss"],
        )
    ]
    assert (found["precision"], found["is_tokenizer_known"], found["step"]) == ("fp32", True, 9)


def test_evaluate_shows_its_progress_elsewhere(run: Run, trained: Path, data: Path) -> None:
    done = run("evaluate", trained, data, "--precision", "fp32", "--split", "train")
    assert done.code == 0
    assert done.out.startswith("train, variant 0\n")
    assert re.fullmatch(r"(evaluating \d+ % .*\n)+", done.err)
    assert done.err.count("evaluating 100 % ") == 1


def test_evaluate_says_where_nothing_names_the_tokenizer(
    run: Run, data: Path, trained: Path, tmp_path: Path
) -> None:
    run("export", trained, "--out", tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (tmp_path / "model" / name).unlink()
    done = run("evaluate", tmp_path / "model", data, "--precision", "fp32", "--quiet")
    assert done.code == 0
    assert "Nothing says the model's tokenizer" in done.out.replace("\n", " ")
