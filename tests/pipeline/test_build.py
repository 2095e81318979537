"""Builds as a whole: what is reported, and what is refused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import small_config, write_json_lines

from clozemill.pipeline.build import build
from clozemill.pipeline.errors import ClozemillError, ConfigError
from clozemill.pipeline.progress import Progress


def test_progress_is_told_from_nothing_to_all(
    corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    events: list[Progress] = []
    build(
        small_config(corpus, syllables, tmp_path / "out", input_split_bytes=5_000),
        on_progress=events.append,
    )
    for stage in ("reading", "writing"):
        done = [event.done for event in events if event.stage == stage]
        assert len(done) > 2
        assert done[0] == 0
        assert done == sorted(done)
        assert done[-1] == [event.total for event in events if event.stage == stage][0] > 0


@pytest.mark.parametrize(
    ("missing", "flag"), [("inputs", "INPUT"), ("tokenizer", "--tokenizer"), ("out", "--out")]
)
def test_what_must_be_given_is_named(
    missing: str, flag: str, corpus: Path, syllables: Path, tmp_path: Path
) -> None:
    config = small_config(corpus, syllables, tmp_path / "out")
    empty: Any = () if missing == "inputs" else ""
    with pytest.raises(ConfigError, match=f"^{flag} must be given; "):
        build(dataclasses.replace(config, **{missing: empty}))


@pytest.mark.parametrize(
    ("stage", "said"),
    [
        ("listing", "absent"),
        ("reading", "a.jsonl:121: not JSON"),
        ("planning", "the train split has 1 document"),
        ("writing", "train-00000-000.arrow"),
        ("finishing", "origins.jsonl"),
    ],
)
def test_an_error_in_any_stage_is_one_of_ours(
    stage: str, said: str, texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    path = write_json_lines(tmp_path / "a.jsonl", texts[:1] if stage == "planning" else texts)
    if stage == "reading":
        path.write_text(path.read_text() + "not JSON\n")
    tokenizer = tmp_path / "absent" if stage == "listing" else syllables
    config = small_config(path, tokenizer, tmp_path / "out")

    def stand_in_the_way(progress: Progress) -> None:
        if progress.stage == "writing" and stage in ("writing", "finishing"):
            (tmp_path / "out" / said).mkdir(exist_ok=True)

    with pytest.raises(ClozemillError, match=said):
        build(config, on_progress=stand_in_the_way)
    assert not (tmp_path / "out" / "manifest.json").exists()
