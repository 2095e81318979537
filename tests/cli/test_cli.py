import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from clozemill.cli import cli

TEXT = "\n".join(
    f"The {word} is cold today. Nobody drinks it. We had {word} before it rained."
    for word in ("tea", "milk", "water", "coffee", "soup", "wine", "juice", "broth")
)


def run(*arguments: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "clozemill", *map(str, arguments)],
        capture_output=True,
        text=True,
        input=stdin,
        timeout=120,
        check=False,
    )


# Each test starts a process of its own, a second or two.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "drinks.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vocab(corpus: Path) -> Path:
    out = corpus.parent / "vocab"
    done = run("vocab", corpus, "--layout", "lines", "--out", out, "--vocab-size", "80", "--quiet")
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def data(corpus: Path, vocab: Path) -> Path:
    out = corpus.parent / "data"
    done = run(
        *("build", corpus, "--layout", "lines", "--tokenizer", vocab, "--out", out),
        *("--max-seq-length", "32", "--mask-variants", "2", "--workers", "1", "--quiet"),
    )
    assert done.returncode == 0, done.stderr
    return out


ALL_HELP = """
import sys
from clozemill.cli import cli

heavy = {"datasets", "duckdb", "numba", "numpy", "pandas", "pyarrow", "rich", "scipy", "torch"}
for verb in [[], *([name] for name in cli.commands)]:
    cli.main([*verb, "--help"], standalone_mode=False)
    assert not heavy & set(sys.modules), (verb, heavy & set(sys.modules))
"""


def test_help_of_every_verb_is_quick_as_it_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", ALL_HELP], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("Usage: ") == 1 + len(cli.commands) > 10


def test_a_built_dataset_verifies(data: Path) -> None:
    done = run("verify", data, "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{data} is sound: ")


def test_a_damaged_dataset_exits_1_and_names_the_shard(data: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    shard = next(copy.glob("train-*.arrow"))
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    done = run("verify", copy, "--quiet")
    assert done.returncode == 1
    assert done.stdout.startswith(f"{shard.name}: ")


def test_building_a_finished_dataset_again_does_nothing(
    data: Path, corpus: Path, vocab: Path
) -> None:
    done = run(
        *("build", corpus, "--layout", "lines", "--tokenizer", vocab, "--out", data),
        *("--max-seq-length", "32", "--mask-variants", "2", "--workers", "2", "--quiet"),
    )
    assert (done.returncode, done.stdout) == (
        0,
        f"{data} already holds this dataset: nothing to do.\n",
    )


def test_json_prints_one_object_and_nothing_else(data: Path) -> None:
    for verb in (["verify", data], ["inspect", data, "-n", "1"]):
        done = run(*verb, "--json")
        assert done.returncode == 0
        assert isinstance(json.loads(done.stdout), dict)


def test_inspect_shows_the_text_that_was_read(data: Path) -> None:
    done = run("inspect", data, "-n", "2", "--variants", "1")
    assert done.returncode == 0, done.stderr
    assert "is cold today." in done.stdout
    assert "[MASK]" in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--first", "9999"], "--first is 9999, but the 9 instances of train in "),
        (["-n", "-1"], "-1 is not in the range x>=1"),
        (["--variants", "-1"], "-1 is not in the range x>=0"),
    ],
)
def test_instances_that_are_not_there_cannot_be_inspected(
    flags: list[str], message: str, data: Path
) -> None:
    done = run("inspect", data, *flags)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr


def test_inspect_says_that_fewer_variants_are_stored(data: Path) -> None:
    done = run("inspect", data, "-n", "1", "--variants", "3")
    assert done.returncode == 0
    assert done.stderr == f"notice: --variants is 3, but {data} stores 2; these are shown.\n"
    assert run("inspect", data, "-n", "1", "--variants", "2").stderr == ""


def test_a_split_that_is_not_there_cannot_be_inspected(
    corpus: Path, vocab: Path, tmp_path: Path
) -> None:
    done = run(
        *("build", corpus, "--layout", "lines", "--tokenizer", vocab, "--out", tmp_path / "d"),
        *("--recipe", "roberta-full", "--validation-fraction", "0", "--workers", "1", "--quiet"),
    )
    assert done.returncode == 0, done.stderr
    done = run("inspect", tmp_path / "d", "--split", "validation")
    assert done.returncode == 2
    assert "has no split 'validation'; it has train." in done.stderr


def test_an_instance_is_found_by_its_id(data: Path) -> None:
    printed = run("inspect", data, "-n", "1", "--json").stdout
    first = json.loads(printed)["instances"][0]
    assert printed == json.dumps({"instances": [first]}, sort_keys=True, indent=2) + "\n"
    again = json.loads(run("inspect", data, "--instance", first["instance_id"], "--json").stdout)
    assert again["instances"] == [first]


def test_convert_and_remask_say_what_stayed(data: Path, tmp_path: Path) -> None:
    tars, more = tmp_path / "tars", tmp_path / "more"
    done = run("convert", data, "--out", tars, "--format", "webdataset", "--quiet")
    assert "instances as before, masks as before" in done.stdout
    done = run("remask", tars, "--out", more, "--mask-variants", "5", "--json", "--quiet")
    splits = json.loads(done.stdout)["splits"]
    assert [split["split"] for split in splits] == ["train", "validation"]
    assert [split["has_same_instances"] for split in splits] == [True] * len(splits)
    assert [split["num_variants"] for split in splits] == [5] * len(splits)


def test_a_manifest_stands_for_its_dataset_and_another_file_for_nothing(
    data: Path, tmp_path: Path
) -> None:
    assert run("verify", data / "manifest.json").returncode == 0
    assert run("remask", data / "manifest.json", "--out", tmp_path / "out").returncode == 0
    shard = next(data.glob("train-*"))
    for verb in ("verify", "inspect", "audit"):
        done = run(verb, shard)
        assert done.returncode == 2
        assert done.stderr == f"clozemill: {shard} is a file; give the dataset's folder.\n"


def test_standard_input_is_read(vocab: Path, tmp_path: Path) -> None:
    done = run(
        *("build", "-", "--layout", "lines", "--tokenizer", vocab, "--out", tmp_path / "d"),
        *("--workers", "1", "--quiet"),
        stdin=TEXT,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "d" / "manifest.json").exists()


def test_flags_win_over_the_configuration_file(corpus: Path, vocab: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(
        f'inputs = ["{corpus}"]\ntokenizer = "{vocab}"\nlayout = "lines"\nworkers = 1\n'
        "max-seq-length = 64\nmask_variants = 3\n"
    )
    out = tmp_path / "d"
    done = run("build", "--config", config, "--out", out, "--mask-variants", "1", "--quiet")
    assert done.returncode == 0, done.stderr
    configuration = json.loads((out / "manifest.json").read_text())["configuration"]
    assert (configuration["max_seq_length"], configuration["mask_variants"]) == (64, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["build"], "INPUT, --tokenizer and --out must be given; first train a vocabulary, "),
        (["build", "x", "--out", "d"], "--tokenizer must be given; first train a vocabulary, of"),
        (["build", "x", "--tokenizer", "v"], "--out must be given; see clozemill build --help."),
        (["build", "x", "--seed", "-1"], "seed is -1; it must be between 0 and"),
        (["build", "x", "--source-weight", "wiki"], "source_weight is 'wiki'; write it as NAME="),
        (
            ["build", "x", "--source-weight", "wiki=1", "--source-weight", "wiki=2"],
            "source_weight names 'wiki' twice; give it one weight.",
        ),
        (["sql", "select 1", "d"], "'select 1' is a query, where the dataset should stand; the"),
        (["build", "x", "--tokenizer", "no-such-folder/", "--out", "d"], "no-such-folder"),
        (["verify", "no-such-folder"], "there is no dataset at no-such-folder"),
        (["inspect", "no-such-folder"], "there is no dataset at no-such-folder"),
        (["vocab", "no-such-file.txt", "--out", "v"], "no-such-file.txt"),
        (["demo", "--out", "/proc/x"], "cannot write /proc/x/speeches.jsonl: "),
    ],
)
def test_a_mistake_is_one_line_and_exit_2(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_wrong_flag_is_explained_and_exit_2() -> None:
    done = run("build", "--recipe", "bart")
    assert done.returncode == 2
    assert "'bart' is not one of 'bert', 'roberta-full', 'roberta-doc'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_dry_run_writes_nothing(corpus: Path, vocab: Path, tmp_path: Path) -> None:
    done = run(
        *("build", corpus, "--layout", "lines", "--tokenizer", vocab, "--out", tmp_path / "d"),
        *("--dry-run", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["num_documents"] == 8
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize("verb", ["verify", "inspect", "--help"])
def test_a_reader_that_leaves_early_is_no_error(verb: str, data: Path) -> None:
    arguments = [verb] if verb == "--help" else [verb, str(data)]
    done = run_into_a_closed_pipe(*arguments)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_verb_keeps_its_exit_code_when_nobody_reads(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data, tmp_path / "copy")
    (tmp_path / "copy" / "stray").touch()
    done = run_into_a_closed_pipe("verify", tmp_path / "copy")
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
def test_a_result_stands_where_progress_cannot_be_told(data: Path, stderr: str) -> None:
    command = f"{shlex.join([sys.executable, '-m', 'clozemill', 'verify', str(data)])} {stderr}"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert f"{data} is sound: " in done.stdout


def test_a_result_that_cannot_be_written_is_one_clear_line(data: Path) -> None:
    command = [sys.executable, "-m", "clozemill", "inspect", str(data)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "clozemill: cannot write to standard output: No space left on device; lead it somewhere "
        "else.\n"
    )


def run_into_a_closed_pipe(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return subprocess.run(
            [sys.executable, "-m", "clozemill", *map(str, arguments)]
            + ["--quiet"] * (arguments[0] == "verify"),
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=120,
        )
    finally:
        os.close(writer)
