from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import make_texts, write_json_lines

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError, InputError
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.tokenizer import load_tokenizer
from clozemill.pipeline.vocab_build import build_vocabulary, vocabulary_notices
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


def notices(texts: list[str], folder: Path, **settings: Any) -> str:
    corpus = write_json_lines(folder / "c.jsonl", texts)
    chosen = VocabularySettings(**settings)
    _, report = build_vocabulary(
        BuildConfig(inputs=(str(corpus),)), chosen, folder / "v", on_progress=lambda progress: None
    )
    return "\n".join(vocabulary_notices(chosen, report))


HINDI = "\u0938\u092d\u0940 \u092e\u0928\u0941\u0937\u094d\u092f\u094b\u0902 \u0915\u094b"
JAPANESE = "\u3059\u3079\u3066\u306e\u4eba\u9593\u306f \u81ea\u7531\u3067\u3042\u308b"


@pytest.mark.parametrize("text", [HINDI, JAPANESE])
def test_a_text_that_would_lose_its_vowel_signs_is_reported(text: str, tmp_path: Path) -> None:
    assert "of the letters lose a mark" in notices([text], tmp_path, vocab_size=50)


@pytest.mark.parametrize("settings", [{"strip_accents": False}, {"is_cased": True}])
def test_marks_that_are_kept_are_no_loss(settings: dict[str, bool], tmp_path: Path) -> None:
    assert "lose a mark" not in notices([HINDI], tmp_path, vocab_size=50, **settings)


def test_accents_are_dropped_on_purpose(tmp_path: Path) -> None:
    text = "Un caf\u00e9 \u00e0 No\u00ebl, \u0439\u043e\u0433, \u03ac\u03bd\u03b5\u03c5"
    assert "lose a mark" not in notices([text], tmp_path, vocab_size=100)


def test_a_vocabulary_that_fell_short_is_reported(tmp_path: Path) -> None:
    said = notices(["tea and milk"], tmp_path, vocab_size=500)
    assert said == "asked for 500 tokens; the text gives 28, and more text would give more."


def test_a_vocabulary_that_cannot_spell_its_own_text_is_reported(tmp_path: Path) -> None:
    said = notices(make_texts(20), tmp_path, vocab_size=20)
    assert "of the tokens of the text are [UNK]: --vocab-size has no room" in said


def test_words_that_are_too_long_are_reported(tmp_path: Path) -> None:
    said = notices([f"tea {'x' * 101}"], tmp_path, vocab_size=12)
    assert "are [UNK]: words of more than 100 characters are" in said


def test_an_ordinary_vocabulary_has_nothing_to_say(tmp_path: Path) -> None:
    assert notices(make_texts(20), tmp_path, vocab_size=100) == ""
