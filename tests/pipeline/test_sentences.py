import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import sentencex
from hypothesis import given, settings
from hypothesis import strategies as st

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import normalise_text
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.sentences import (
    byte_starts,
    find_sentences,
    is_hard_wrapped,
    sentence_rule,
)


def boundaries(sentences: list[str]) -> set[int]:
    """Where sentences end, counted in characters that are not white space; not the text's end."""
    ends, place = set(), 0
    for sentence in sentences:
        place += len(re.sub(r"\s", "", sentence))
        ends.add(place)
    return ends - {place}


def test_boundaries_agree_with_gold_ones_better_than_over_whole_documents(corpora: Path) -> None:
    found = whole = gold_count = ours_count = whole_count = 0
    for name in ("dev", "test"):
        for line in (corpora / "labelled/sentseg_ewt" / f"{name}.jsonl").read_text().splitlines():
            record = json.loads(line)
            gold = boundaries(record["sentences"])
            ours = boundaries(find_sentences(record["text"], "sentencex:en"))
            plain = boundaries(sentencex.segment("en", record["text"]))
            gold_count += len(gold)
            found, ours_count = found + len(gold & ours), ours_count + len(ours)
            whole, whole_count = whole + len(gold & plain), whole_count + len(plain)
    assert gold_count > 3_000
    f1 = 2 * found / (gold_count + ours_count)
    assert f1 > 0.90
    assert f1 > 2 * whole / (gold_count + whole_count) + 0.05


def test_a_quotation_that_is_never_closed_ends_with_its_paragraph() -> None:
    text = '"Never closed. He said so.\n' + "One more. " * 30
    assert len(find_sentences(text, "sentencex:en")) >= 30


@pytest.mark.parametrize("rule", ["given", "sentencex:en", "sentencex:zh", "sentencex:my"])
def test_joined_sentences_are_the_text(corpora: Path, rule: str) -> None:
    files = [path for path in sorted(corpora.glob("hard/**/*.txt")) if path.is_file()]
    texts = [path.read_bytes().decode(errors="replace") for path in files]
    texts = [normalise_text(text[:200_000]) for text in texts]
    assert sum(is_hard_wrapped(text.split("\n")) for text in texts) >= 3
    assert sum(text.isascii() for text in texts) >= 3
    for text in [*texts, "", "\n\n\nA late start.\n \n", "A first.\n\n  A second? Yes!\n"]:
        assert "".join(find_sentences(text, rule)) == text


def test_text_that_a_splitter_loses_leaves_paragraphs_as_sentences(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sentencex, "segment", lambda language, text: text.split())
    text = "A first. One more.\nA second."
    assert find_sentences(text, "sentencex:en") == ["A first. One more.\n", "A second."]


def test_a_paragraph_on_which_the_splitter_fails_stays_whole() -> None:
    text = "One. Two.\nWe drank vitamin A\u00a0. It was late."
    with pytest.raises(BaseException, match="char boundary") as caught:
        sentencex.segment("en", text.split("\n")[1])
    assert not isinstance(caught.value, Exception)
    assert find_sentences(text, "sentencex:en") == ["One. ", "Two.\n", text.split("\n")[1]]


@settings(deadline=None)  # a kernel may be compiled
@given(st.lists(st.text(), max_size=9))
def test_characters_are_found_among_bytes(runs: list[str]) -> None:
    runs = [run.encode(errors="ignore").decode() for run in runs]  # no lone surrogates
    encoded = [run.encode() for run in runs]
    starts = byte_starts(np.frombuffer(b"".join(encoded), np.uint8), list(map(len, runs)))
    assert starts.tolist() == starts_of(list(map(len, encoded))).tolist()


@pytest.mark.parametrize(
    ("name", "is_wrapped"),
    [
        ("crlf_bom_haggard_mines.txt", True),
        ("formfeed_ford_soldier.txt", True),
        ("rfc2616_formfeeds_headers.txt", True),
        ("reference_bert_sample_text.txt", False),
    ],
)
def test_books_wrapped_by_hand_are_recognised(corpora: Path, name: str, is_wrapped: bool) -> None:
    text = (corpora / "hard" / name).read_text(encoding="utf-8-sig")
    assert is_hard_wrapped(text.split("\n")) == is_wrapped


def test_a_list_of_long_lines_is_no_wrapped_text(corpora: Path) -> None:
    path = corpora / "pretrain" / "encyc_enwiki.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        texts = {record["id"]: record["text"] for record in map(json.loads, stream)}
    rivers = normalise_text(texts["enwiki/Aa River"])
    assert rivers.count("\n") > 20
    assert len(find_sentences(rivers, "sentencex:en")) > rivers.count("\n")


def test_a_wrapped_sentence_stays_whole() -> None:
    line = "It was a bright cold day in April, and the clocks were\nstriking thirteen. He left."
    sentences = find_sentences(line, "sentencex:en")
    assert [s.strip() for s in sentences] == [
        "It was a bright cold day in April, and the clocks were\nstriking thirteen.",
        "He left.",
    ]


def test_given_sentences_are_lines_whatever_they_hold() -> None:
    rule = sentence_rule(BuildConfig(layout="sentences"))
    assert find_sentences("One. Two.\nThree\u2028four.", rule) == [
        "One. Two.\n",
        "Three\u2028four.",
    ]


def test_an_unknown_language_is_split_like_english() -> None:
    """So say `--help` and docs/method.md; should this change, such codes can be refused."""
    text = "Dr. Meier kam am 3. Januar. Er blieb."
    english, german = (find_sentences(text, f"sentencex:{code}") for code in ("en", "de"))
    assert english != german
    for code in ("xx", "de-de"):
        assert find_sentences(text, f"sentencex:{code}") == english
