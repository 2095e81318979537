from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import make_texts, write_json_lines

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError, InputError
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.tokenizer import load_tokenizer
from clozemill.pipeline.vocab_build import build_vocabulary
from clozemill.pipeline.vocab_settings import VocabularySettings


def train(
    inputs: tuple[Path, ...],
    out: Path,
    *,
    vocab_size: int = 300,
    overwrite: bool = False,
    **settings: Any,
) -> None:
    build_vocabulary(
        BuildConfig(inputs=tuple(map(str, inputs)), **settings),
        VocabularySettings(vocab_size=vocab_size),
        out,
        overwrite=overwrite,
        on_progress=lambda progress: None,
    )


def content(folder: Path) -> dict[str, bytes]:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert {"tokenizer.json", "tokenizer_config.json", "vocab.txt"} == set(files)
    return files


def test_one_file_and_many_in_another_order_give_the_same_bytes(
    texts: list[str], tmp_path: Path
) -> None:
    whole = write_json_lines(tmp_path / "whole.jsonl", texts)
    first = write_json_lines(tmp_path / "b.jsonl", texts[60:])
    second = write_json_lines(tmp_path / "a.jsonl", texts[:60])
    train((whole,), tmp_path / "one")
    train((first, second), tmp_path / "two")
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_training_again_into_the_same_folder_is_no_error(corpus: Path, tmp_path: Path) -> None:
    train((corpus,), tmp_path / "v")
    before = content(tmp_path / "v")
    train((corpus,), tmp_path / "v")
    assert content(tmp_path / "v") == before


def test_another_vocabulary_is_not_overwritten(corpus: Path, tmp_path: Path) -> None:
    train((corpus,), tmp_path / "v")
    before = content(tmp_path / "v")
    with pytest.raises(ConfigError, match="is not empty and its .* is not this vocabulary's"):
        train((corpus,), tmp_path / "v", vocab_size=200)
    assert content(tmp_path / "v") == before
    assert [path.name for path in tmp_path.iterdir()] == ["v"]


def test_another_vocabulary_is_replaced_if_asked_for(corpus: Path, tmp_path: Path) -> None:
    train((corpus,), tmp_path / "v")
    train((corpus,), tmp_path / "w", vocab_size=200)
    train((corpus,), tmp_path / "v", vocab_size=200, overwrite=True)
    assert content(tmp_path / "v") == content(tmp_path / "w")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v", "w"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_of_something_else_is_refused_before_anything_is_read(
    overwrite: bool, tmp_path: Path
) -> None:
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "thesis.tex").touch()
    with pytest.raises(ConfigError, match="v holds 'thesis.tex' and is no vocabulary of ours"):
        train((tmp_path / "no-such-file.txt",), tmp_path / "v", overwrite=overwrite)
    with pytest.raises(ConfigError, match="thesis.tex holds 'thesis.tex'"):
        train((tmp_path / "no-such-file.txt",), tmp_path / "v" / "thesis.tex")


def test_a_field_that_no_record_has_is_an_error_and_writes_nothing(
    corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="no record has the field 'body'"):
        train((corpus,), tmp_path / "v", text_field="body")
    assert not (tmp_path / "v").exists()


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    corpus = write_json_lines(tmp_path / "c.jsonl", make_texts(20))
    seen: list[Progress] = []
    build_vocabulary(
        BuildConfig(inputs=(str(corpus),)),
        VocabularySettings(vocab_size=100),
        tmp_path / "v",
        on_progress=seen.append,
    )
    assert (seen[0].done, seen[-1].done) == (0, seen[-1].total)
    assert load_tokenizer(tmp_path / "v").vocab_size == 100
