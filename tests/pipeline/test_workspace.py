"""What an output folder may hold when a build meets it."""

import dataclasses
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import (
    Stopped,
    command,
    environment,
    file_hashes,
    has_written,
    make_texts,
    only_line,
    run_command,
    small_build,
    small_config,
    stop_when,
    vocabulary,
    write_json_lines,
    write_tokenizer,
)

from clozemill.pipeline.build import build
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.convert import convert_dataset
from clozemill.pipeline.errors import ClozemillError, ConfigError, DatasetError, InputError
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.vocab import VocabularySettings
from clozemill.pipeline.vocab_build import build_vocabulary
from clozemill.pipeline.workspace import open_workspace


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents for a build that takes little time."""
    return write_json_lines(tmp_path_factory.mktemp("few") / "few.jsonl", make_texts(12, seed=3))


def everything_in(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leave_unfinished(config: BuildConfig) -> None:
    """Build until the first shards are there, and no further."""
    with pytest.raises(Stopped):
        build(config, on_progress=stop_when(has_written))
    assert list(Path(config.out).glob("*.arrow"))


def finish(config: BuildConfig) -> None:
    assert not build(config).was_finished


STATES: list[Callable[[BuildConfig], None]] = [leave_unfinished, finish]


def test_the_same_command_again_has_nothing_to_do(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(few, syllables, tmp_path / "out")
    finish(config)
    before = everything_in(tmp_path / "out")
    again = run_command(small_config(few, syllables, tmp_path / "out", workers=2))
    assert again.returncode == 0
    assert again.stdout == f"{tmp_path / 'out'} already holds this dataset: nothing to do.\n"
    assert everything_in(tmp_path / "out") == before


def test_weights_of_sources_are_met_again_as_the_same(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(few, syllables, tmp_path / "out", source_weight=(("", 1.5),))
    leave_unfinished(config)
    finish(config)
    assert build(config).was_finished


@pytest.mark.parametrize(
    ("setting", "verb"),
    [
        ({"mask_variants": 3, "masked_lm_prob": 0.2}, "remask"),
        ({"format": "webdataset"}, "convert"),
        ({"format": "webdataset", "mask_variants": 3}, None),
        ({"seed": 1}, None),
    ],
)
def test_a_dataset_that_needs_no_rebuild_is_refused_with_the_verb_that_makes_it(
    setting: dict[str, Any], verb: str | None, few: Path, syllables: Path, tmp_path: Path
) -> None:
    finish(small_config(few, syllables, tmp_path / "out"))
    with pytest.raises(ConfigError) as refused:
        small_build(few, syllables, tmp_path / "out", **setting)
    way_out = f"make another of it with clozemill {verb} {tmp_path / 'out'} --out DIR, " * bool(
        verb
    )
    assert f"; {way_out}use --overwrite to replace it" in str(refused.value)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"seed": 1}, "seed (0 there, 1 now)"),
        ({"mask_variants": 3}, "mask_variants (2 there, 3 now)"),
        ({"format": "webdataset"}, "format ('arrow' there, 'webdataset' now)"),
        ({"source": "books"}, "source ('' there, 'books' now)"),
        ({"limit_documents": 9}, "limit_documents (None there, 9 now)"),
    ],
)
def test_another_configuration_is_refused_by_name(
    state: Callable[[BuildConfig], None],
    setting: dict[str, Any],
    said: str,
    few: Path,
    syllables: Path,
    tmp_path: Path,
) -> None:
    state(small_config(few, syllables, tmp_path / "out"))
    before = everything_in(tmp_path / "out")
    with pytest.raises(ConfigError) as refused:
        small_build(few, syllables, tmp_path / "out", **setting)
    assert said in str(refused.value)
    assert "use --overwrite to replace it, or another --out." in str(refused.value)
    assert everything_in(tmp_path / "out") == before


@pytest.mark.parametrize("state", STATES)
def test_another_tokenizer_of_the_same_name_is_refused(
    state: Callable[[BuildConfig], None], few: Path, tmp_path: Path
) -> None:
    folder = write_tokenizer(tmp_path / "vocab")
    state(small_config(few, folder, tmp_path / "out"))
    pieces = vocabulary()
    pieces[-1], pieces[-2] = pieces[-2], pieces[-1]
    (folder / "vocab.txt").write_text("\n".join(pieces))
    with pytest.raises(ConfigError, match=r"differs in tokenizer \('\w{32}' there, '\w{32}' now\)"):
        small_build(few, folder, tmp_path / "out")


def test_another_inventory_of_a_dataset_is_refused_in_one_line(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    shutil.copy(few, inputs / "a.jsonl")
    config = small_config(inputs, syllables, tmp_path / "out")
    finish(config)
    write_json_lines(inputs / "b.jsonl", ["Ba."])
    done = run_command(config)
    assert done.returncode == 2
    assert f"differs in inputs (1 new, such as {inputs / 'b.jsonl'});" in only_line(done.stderr)


def test_an_unfinished_build_takes_up_inputs_that_were_changed_added_or_taken_away(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    """What was read of other files is kept, and of what was written nothing is left."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    parts = {"a": texts[:30], "b": texts[30:60], "c": texts[60:90]}
    for name, part in parts.items():
        write_json_lines(inputs / f"{name}.jsonl", part)
    config = small_config(inputs, syllables, tmp_path / "out", input_split_bytes=5_000)
    leave_unfinished(config)
    (inputs / "a.jsonl").unlink()
    write_json_lines(inputs / "b.jsonl", texts[31:40])
    write_json_lines(inputs / "d.jsonl", texts[90:])
    read = tmp_path / "out" / ".build" / "map"
    of_c = {p: p.stat().st_mtime_ns for p in read.glob("*.json") if "c.jsonl" in p.read_text()}
    assert of_c
    with pytest.raises(Stopped):
        build(config, on_progress=stop_when(lambda progress: progress.stage == "writing"))
    assert any(path.stat().st_mtime_ns == time for path, time in of_c.items() if path.exists())
    finish(config)
    small_build(inputs, syllables, tmp_path / "fresh")
    assert file_hashes(tmp_path / "out") == file_hashes(tmp_path / "fresh")


def test_inputs_in_another_order_are_the_same_inventory_unless_only_some_are_read(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    inputs = [few, write_json_lines(tmp_path / "b.jsonl", make_texts(3, seed=9))]
    small_build(inputs, syllables, tmp_path / "all")
    assert small_build(inputs[::-1], syllables, tmp_path / "all").was_finished
    small_build(inputs, syllables, tmp_path / "some", limit_documents=9)
    with pytest.raises(ConfigError, match="differs in input_order"):
        small_build(inputs[::-1], syllables, tmp_path / "some", limit_documents=9)


@pytest.mark.parametrize("state", STATES)
def test_overwrite_replaces_what_is_ours_and_leaves_the_rest(
    state: Callable[[BuildConfig], None], few: Path, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    """The first dataset is the larger one, so that a shard of it could be left behind."""
    out = tmp_path / "out"
    state(small_config(corpus, syllables, out, format="webdataset", shard_size=20))
    (out / "notes.txt").write_text("mine")
    (out / "tokenizer").mkdir(exist_ok=True)
    (out / "tokenizer" / "mine.txt").write_text("mine")
    small_build(few, syllables, out, overwrite=True)
    small_build(few, syllables, tmp_path / "fresh")
    found = file_hashes(out)
    del found["notes.txt"], found["tokenizer/mine.txt"]
    assert found == file_hashes(tmp_path / "fresh")


def test_overwrite_does_not_touch_a_folder_that_is_not_ours(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    write_tokenizer(out / "tokenizer")
    for name in ("build.log.jsonl", "origins.jsonl", "train-00000-000.arrow"):
        (out / name).write_text("precious")
    before = everything_in(out)
    with pytest.raises(ConfigError, match="is not a dataset of ours; choose an empty or new"):
        small_build(few, syllables, out, overwrite=True)
    assert everything_in(out) == before
    assert not (out / ".build").exists()


def test_a_clearing_that_was_killed_is_not_mistaken_for_anything(
    few: Path, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    small_build(corpus, syllables, out)
    (out / ".build").mkdir()
    (out / ".build" / "build.json").write_text("{}\n")
    (out / "manifest.json").unlink()
    with pytest.raises(ConfigError, match="holds an unfinished build that differs"):
        small_build(few, syllables, out)
    small_build(few, syllables, out, overwrite=True)
    small_build(few, syllables, tmp_path / "fresh")
    assert file_hashes(out) == file_hashes(tmp_path / "fresh")


def test_overwrite_replaces_a_dataset_whose_manifest_is_damaged(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    finish(small_config(few, syllables, tmp_path / "out"))
    expected = file_hashes(tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_text("{")
    small_build(few, syllables, tmp_path / "out", overwrite=True)
    assert file_hashes(tmp_path / "out") == expected


def test_overwrite_with_the_tokenizer_of_the_dataset_itself(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    finish(small_config(few, syllables, out))
    expected = file_hashes(out)
    small_build(few, out / "tokenizer", out, overwrite=True)
    assert file_hashes(out) == expected


def test_another_tokenizer_in_the_same_process_and_folder_is_taken_up(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    other = write_tokenizer(tmp_path / "other", sorted(vocabulary()))
    finish(small_config(few, syllables, tmp_path / "out"))
    small_build(few, other, tmp_path / "out", overwrite=True)
    small_build(few, other, tmp_path / "fresh")
    assert file_hashes(tmp_path / "out") == file_hashes(tmp_path / "fresh")


def test_a_dataset_without_its_log_is_refused(few: Path, syllables: Path, tmp_path: Path) -> None:
    config = small_config(few, syllables, tmp_path / "out")
    finish(config)
    (tmp_path / "out" / "build.log.jsonl").unlink()
    with pytest.raises(ConfigError, match="without a readable build.log.jsonl"):
        build(config)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("\n\n", "no documents"),
        ('{"text": ""}\n{"text": null}\n', "no documents"),
        ('{"other": "Ba."}\n', "no record has the field 'text'"),
        ('{"text": "Ba."}\nnot JSON\n', "a.jsonl:2: not JSON"),
        ('{"text": "Ba."}\n', "the train split has 1 document,"),
    ],
)
def test_an_input_that_cannot_make_a_dataset_leaves_nothing_behind(
    lines: str, said: str, syllables: Path, tmp_path: Path
) -> None:
    (tmp_path / "a.jsonl").write_text(lines)
    with pytest.raises(InputError) as refused:
        small_build(tmp_path / "a.jsonl", syllables, tmp_path / "out")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_a_mended_input_is_built_by_the_same_command(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(few.read_text() + "{\n")
    config = small_config(path, syllables, tmp_path / "out")
    with pytest.raises(ClozemillError, match=r"a\.jsonl:13: not JSON"):
        build(config)
    shutil.copy(few, path)
    finish(config)


def test_a_folder_of_the_user_outlasts_a_failure(syllables: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ClozemillError, match="does not exist; check the path"):
        small_build(tmp_path / "absent.jsonl", syllables, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_what_was_read_is_kept_when_another_input_fails(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{\n")
    config = small_config(few, syllables, tmp_path / "out", validation=[bad])
    with pytest.raises(ClozemillError, match="not JSON"):
        build(config)
    assert list((tmp_path / "out" / ".build" / "map").glob("*.json"))
    write_json_lines(bad, ["Ba. Be.", "Bi. Bo."])
    finish(config)
    small_build(few, syllables, tmp_path / "fresh", validation=[bad])
    assert file_hashes(tmp_path / "out") == file_hashes(tmp_path / "fresh")


def test_standard_input_can_replace_a_dataset(few: Path, syllables: Path, tmp_path: Path) -> None:
    config = small_config("-", syllables, tmp_path / "out", input_format="jsonl", overwrite=True)
    small_build(few, syllables, tmp_path / "out")
    expected = file_hashes(tmp_path / "out")
    with few.open("rb") as stream:
        subprocess.run(command(config), env=environment(), stdin=stream, check=True)
    assert file_hashes(tmp_path / "out") == expected
    assert not (tmp_path / "out" / ".build").exists()


def test_two_builds_of_one_folder_exclude_each_other(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with (
        open_workspace(out),
        pytest.raises(ConfigError, match="another build is writing"),
        open_workspace(out),
    ):
        pass
    assert not out.exists()
    with open_workspace(out):
        assert (out / ".build" / "lock").exists()


def test_what_a_lost_worker_left_half_written_is_gone_at_the_end(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    half_written = tmp_path / "out" / ".train-00000-000.arrow.4711-0123abcd.tmp"

    def lose_a_worker(progress: Progress) -> None:
        if progress.stage == "writing":
            half_written.write_bytes(b"ARROW1")

    build(small_config(few, syllables, tmp_path / "out"), on_progress=lose_a_worker)
    assert not half_written.exists()
    assert (tmp_path / "out" / "manifest.json").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 300, "cannot write to {}: File name too long; choose another --out."),
        ("x/" * 3000, "cannot write to {}: File name too long; choose another --out."),
        ("a\0b", "cannot write to {}: embedded null byte; choose another --out."),
    ],
)
def test_an_output_whose_name_cannot_be_used_is_said(
    tmp_path: Path, name: str, message: str
) -> None:
    out = tmp_path / name
    with pytest.raises(ConfigError) as caught, open_workspace(out):
        pass
    assert str(caught.value) == message.format(out)


def test_an_output_whose_name_is_no_text_is_said() -> None:
    with (
        pytest.raises(ConfigError, match=r"^--out a\\xff is not UTF-8; choose another --out\.$"),
        open_workspace(Path("a\udcff")),
    ):
        pass


def test_nothing_is_written_into_a_dataset(few: Path, syllables: Path, tmp_path: Path) -> None:
    small_build(few, syllables, tmp_path / "data")
    before = everything_in(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for out in (tmp_path / "data" / "sub", tmp_path / "link" / "tokenizer" / "sub"):
        message = f"{out} lies inside the dataset {tmp_path / 'data'}, which can hold nothing "
        with pytest.raises(ConfigError, match=f"^{message}else; choose another --out.$"):
            convert_dataset(tmp_path / "data", out)
        with pytest.raises(ConfigError, match=f"^{message}"):
            build_vocabulary(
                BuildConfig(inputs=(str(few),)),
                VocabularySettings(),
                out,
                on_progress=lambda progress: None,
            )
    (tmp_path / "link").unlink()
    assert everything_in(tmp_path) == before


def test_an_output_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ConfigError, match="cannot write to .*file/out: Not a directory"),
        open_workspace(tmp_path / "file" / "out"),
    ):
        pass


def test_errors_of_the_system_are_one_line(tmp_path: Path) -> None:
    with (
        pytest.raises(DatasetError, match="No space left on device; mend that"),
        open_workspace(tmp_path / "out"),
    ):
        raise OSError(28, "No space left on device", str(tmp_path / "out" / "x"))


def test_an_unfinished_build_of_other_inputs_altogether_is_refused(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(few, syllables, tmp_path / "out")
    leave_unfinished(config)
    other = write_json_lines(tmp_path / "other.jsonl", ["Ba. Bo.", "Da. Do."])
    with pytest.raises(ConfigError, match=r"differs in inputs \(1 new, .*; 1 no longer named, "):
        build(dataclasses.replace(config, inputs=(str(other),)))


@pytest.mark.parametrize(
    "content", ['{"text": "Ba."}\nnot JSON\n', '{"text": "Ba."}\n', '{"other": "Ba."}\n']
)
def test_a_dataset_outlives_an_overwriting_build_that_comes_to_nothing(
    few: Path, syllables: Path, tmp_path: Path, content: str
) -> None:
    config = small_config(few, syllables, tmp_path / "out")
    finish(config)
    before = {path: path.read_bytes() for path in Path(config.out).rglob("*") if path.is_file()}
    (tmp_path / "bad.jsonl").write_text(content)
    bad = dataclasses.replace(config, inputs=(str(tmp_path / "bad.jsonl"),), overwrite=True)
    with pytest.raises(ClozemillError):
        build(bad)
    after = {path: path.read_bytes() for path in Path(config.out).rglob("*") if path.is_file()}
    assert after == before


def test_a_dataset_that_lost_a_shard_is_not_nothing_to_do(
    few: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(few, syllables, tmp_path / "out")
    finish(config)
    shard = next(Path(config.out).glob("train-*.arrow"))
    shard.unlink()
    with pytest.raises(DatasetError, match=shard.name):
        build(config)


@pytest.mark.parametrize("tolerance", ["skip", "replace"])
def test_bad_input_is_tolerated_in_the_folder_where_it_stopped_a_build(
    tolerance: str, few: Path, syllables: Path, tmp_path: Path
) -> None:
    """With what was read before, and with the bytes of a build that was tolerant at once."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    shutil.copy(few, inputs / "a.jsonl")
    (inputs / "b.jsonl").write_bytes(b'{"text": "Ba b\xff."}\n')
    # Many tasks, of which the smallest is last.
    config = small_config(inputs, syllables, tmp_path / "out", input_split_bytes=1_000)
    with pytest.raises(InputError, match="pass --on-bad-input skip or replace"):
        build(config)
    assert list((tmp_path / "out" / ".build" / "map").glob("*.json"))
    with pytest.raises(ConfigError, match=r"differs in seed \(0 there, 1 now\); use --overwrite"):
        build(dataclasses.replace(config, on_bad_input=tolerance, seed=1))
    finish(dataclasses.replace(config, on_bad_input=tolerance))
    small_build(inputs, syllables, tmp_path / "at-once", on_bad_input=tolerance)
    assert file_hashes(tmp_path / "out") == file_hashes(tmp_path / "at-once")
    with pytest.raises(ConfigError, match="differs in on_bad_input"):
        build(config)
