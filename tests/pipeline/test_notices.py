"""Cases P02 and the cap that bites: nothing is wrong with the build, but its user must hear."""

from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import make_texts, small_build, write_json_lines

from clozemill.pipeline.errors import InputError


def notices(texts: list[str], tokenizer: Path, folder: Path, **settings: object) -> str:
    corpus = write_json_lines(folder / "corpus.jsonl", texts)
    return "\n".join(small_build(corpus, tokenizer, folder / "data", **settings).notices)


def test_an_ordinary_build_has_nothing_to_say(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    assert notices(texts, syllables, tmp_path, validation_fraction=0.1) == ""


def test_how_a_bare_vocabulary_was_understood_is_said(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "vocab.txt"
    bare.write_bytes((syllables / "vocab.txt").read_bytes())
    said = notices(texts, bare, tmp_path, validation_fraction=0.1)
    assert said.startswith("the vocabulary was read as uncased, accents dropped, as its pieces are")


def test_documents_of_one_sentence_are_a_loud_warning(syllables: Path, tmp_path: Path) -> None:
    said = notices(make_texts(200, most_sentences=1), syllables, tmp_path)
    assert "WARNING: only 0.0% of the pairs are next sentences, as 100.0% come from" in said
    assert "--layout" in said


def test_the_same_text_as_one_document_can_be_learnt_from(syllables: Path, tmp_path: Path) -> None:
    sentences = make_texts(200, most_sentences=1)
    halves = [" ".join(sentences[:100]), " ".join(sentences[100:])]
    corpus = write_json_lines(tmp_path / "corpus.jsonl", halves)
    report = small_build(corpus, syllables, tmp_path / "data", validation_fraction=0.0)
    counts = report.manifest.ledger["instances"]["train"]
    assert counts["next"] > 0.25 * counts["all"]
    assert not any("WARNING" in notice for notice in report.notices)


def test_a_cap_that_bites_is_reported_with_the_rate_it_leaves(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    said = notices(
        texts, syllables, tmp_path, max_seq_length=512, max_predictions_per_seq=20, short_seq_prob=0
    )
    assert "max_predictions_per_seq 20 is below the 77 that masked_lm_prob 0.15 asks for" in said


def test_a_text_the_tokenizer_cannot_spell_is_reported(syllables: Path, tmp_path: Path) -> None:
    said = notices(["Ба бо бу. Ба."] * 1 + ["Ро ру ра. Ра ро."] * 1, syllables, tmp_path)
    assert "of the tokens are [UNK]: the tokenizer does not know this text's" in said


def test_files_that_were_not_read_are_named(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write_json_lines(folder / "a.jsonl", texts)
    (folder / "deep").mkdir()
    for name in ("deep/notes.docx", "more.docx", "README"):
        (folder / name).write_bytes(b"x")
    for inputs in (folder, f"{folder}/*"):
        said = small_build(inputs, syllables, tmp_path / "data", overwrite=True).notices
        assert [notice for notice in said if "not read" in notice] == [
            "not read, for their endings, as they are hidden or because clozemill wrote them: "
            "2 .docx, 1 without ending; such as README, deep/notes.docx, more.docx."
        ]


def test_what_is_hidden_is_named_as_such(texts: list[str], syllables: Path, tmp_path: Path) -> None:
    (tmp_path / "in" / ".git").mkdir(parents=True)
    write_json_lines(tmp_path / "in" / "a.jsonl", texts)
    for name in (".git/b.jsonl", "._a.jsonl"):
        (tmp_path / "in" / name).write_bytes(b"x")
    (said,) = small_build(tmp_path / "in", syllables, tmp_path / "data").notices
    assert "as they are hidden or because clozemill wrote them: 2 hidden; such as " in said


def test_records_left_out_are_reported(texts: list[str], syllables: Path, tmp_path: Path) -> None:
    corpus = write_json_lines(tmp_path / "corpus.jsonl", texts)
    with corpus.open("a") as stream:
        stream.write('{"text": null}\n{"body": "x"}\n{"text": ""}\nnot JSON\n')
    report = small_build(corpus, syllables, tmp_path / "data", on_bad_input="skip")
    said = "\n".join(report.notices)
    assert (
        "4 of 124 records are in no document: 1 with a null text, 1 without the text field, "
        "1 with an empty text, 1 not JSON."
    ) in said


def test_a_weight_of_a_source_that_no_document_has_is_refused(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="source_weight names 'wiki', but the sources of these"):
        notices(texts, syllables, tmp_path, source="enwiki", source_weight=(("wiki", 2.0),))


def test_tokens_lost_with_long_sentences_are_reported(syllables: Path, tmp_path: Path) -> None:
    said = notices(
        make_texts(50),
        syllables,
        tmp_path,
        recipe="roberta-doc",
        long_sentences="drop",
        max_seq_length=24,
    )
    assert "of the tokens are in no instance: sentences too long for one were dropped" in said


def test_the_files_of_either_side_are_counted_where_validation_is_named(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    """As where a shell expands `--validation val/*.jsonl`, which takes the first file only."""
    names = [write_json_lines(tmp_path / f"{i}.jsonl", texts[i::3]) for i in range(3)]
    settings: dict[str, Any] = {"validation": names[2:], "recipe": "roberta-full"}
    said = "2 files read for training and 1 file for validation"
    for fraction, more in ((0.01, "."), (0.1, "; validation_fraction 0.1 is not used.")):
        out = tmp_path / str(fraction)
        report = small_build(names[:2], syllables, out, validation_fraction=fraction, **settings)
        assert report.notices == (said + more,)


def test_tokens_cut_from_pairs_are_reported_where_they_are_many(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    said = notices(texts, syllables, tmp_path, max_seq_length=16, validation_fraction=0.1)
    assert "% of the tokens are in no instance, as sentences are long for max_seq_length 16" in said
    assert "check --layout and --language, or use --recipe roberta-full." in said


def test_weights_that_leave_no_document_are_named(
    texts: list[str], syllables: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"or left out by --source-weight, min_document_sentences"):
        notices(texts, syllables, tmp_path, source="masc", source_weight=(("masc", 0.0),))
