"""A trained vocabulary is a function of the words alone, and says what it cannot spell."""

import gzip
import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from clozemill.pipeline.encode import make_encoder
from clozemill.pipeline.errors import ConfigError, TokenizerError
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer
from clozemill.pipeline.tokenizer_saving import save_tokenizer
from clozemill.pipeline.vocab import train_vocabulary
from clozemill.pipeline.vocab_settings import VocabularySettings

TIES = "Wel come to the Tok en izers libr ary."

TRAIN_ELSEWHERE = """
import json, sys
from clozemill.pipeline.vocab import train_vocabulary
from clozemill.pipeline.vocab_settings import VocabularySettings
texts = json.load(sys.stdin)
settings = VocabularySettings(vocab_size=int(sys.argv[1]))
tokenizer, report = train_vocabulary(texts, settings)
json.dump([tokenizer.pieces, tokenizer.hash, report.num_distinct_words], sys.stdout)
"""


def trained_elsewhere(texts: list[str], vocab_size: int, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TRAIN_ELSEWHERE, str(vocab_size)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(*texts: str, vocab_size: int = 200, **settings: object) -> PretrainingTokenizer:
    return train_vocabulary(texts, VocabularySettings(vocab_size=vocab_size, **settings))[0]


def documents(corpora: Path, name: str) -> list[str]:
    with gzip.open(corpora / "pretrain" / name, "rt", encoding="utf-8") as stream:
        return [json.loads(line)["text"] for line in stream]


def test_ties_are_broken_the_same_way_every_time() -> None:
    results = {train(TIES).pieces for _ in range(10)}
    assert len(results) == 1
    pieces = results.pop()
    assert pieces[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    assert {"welcome", "wel"} & set(pieces) == {"wel"}
    assert train(*TIES.split()[::-1]).pieces == pieces


@pytest.mark.slow
def test_processes_threads_and_order_play_no_part(corpora: Path) -> None:
    texts = documents(corpora, "mixed_gum.jsonl.gz")
    assert len(texts) == 138
    results = set()
    for number in range(4):
        random.Random(number).shuffle(texts)
        results.add(
            trained_elsewhere(
                texts,
                8_000,
                PYTHONHASHSEED=str(number),
                RAYON_NUM_THREADS=str(1 + number % 2),
                TOKENIZERS_PARALLELISM="true",
            )
        )
    assert len(results) == 1
    pieces, _, num_distinct_words = json.loads(results.pop())
    assert len(pieces) == 8_000
    assert num_distinct_words > 10_000


@pytest.mark.slow
def test_processes_break_ties_the_same_way() -> None:
    results = {trained_elsewhere([TIES], 200, PYTHONHASHSEED=str(n)) for n in range(5)}
    assert len(results) == 1


def test_frequent_pieces_have_small_ids() -> None:
    tokenizer = train("tea tea tea cup cup pot", vocab_size=60)
    assert tokenizer.pieces[5:8] == ("tea", "cup", "pot")


def test_merges_follow_the_counts() -> None:
    pieces = train("ab " * 10 + "cd " * 9 + "xy", vocab_size=5 + 9 + 2).pieces
    assert "ab" in pieces
    assert "cd" in pieces
    assert "xy" not in pieces


@pytest.mark.parametrize(
    ("strips", "expected"),
    [
        (False, ["caf\u00e9", "\u304b\u304e", "\u304b\u304d", "\u0915\u0941", "\u00f6l\u00fc"]),
        (True, ["cafe", "\u304b\u304d", "\u304b\u304d", "\u0915", "olu"]),
    ],
)
def test_accents_have_their_own_switch_and_it_survives_saving(
    tmp_path: Path, strips: bool, expected: list[str]
) -> None:
    text = "CAF\u00c9 \u304b\u304e \u304b\u304d \u0915\u0941 \u00d6l\u00fc"
    save_tokenizer(train(text, strip_accents=strips), tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    for word, normal in zip(text.split(), expected, strict=True):
        assert tokenizer.backend.normalizer.normalize_str(word) == normal
        ids = make_encoder(tokenizer).encode([word]).token_ids
        assert "".join(tokenizer.pieces[i].removeprefix("##") for i in ids) == normal


def test_accents_go_with_capitals_unless_told_otherwise() -> None:
    assert train("CAF\u00c9").backend.normalizer.normalize_str("\u00c9") == "e"
    assert train("CAF\u00c9", is_cased=True).backend.normalizer.normalize_str("\u00c9") == "\u00c9"


def test_composing_makes_both_spellings_of_an_accent_one(tmp_path: Path) -> None:
    for unicode_form, is_one in (("nfc", True), ("none", False)):
        save_tokenizer(train("caf\u00e9", strip_accents=False, unicode_form=unicode_form), tmp_path)
        encoder = make_encoder(load_tokenizer(tmp_path))
        encoded = encoder.encode(["caf\u00e9", "cafe\u0301"]).token_ids.tolist()
        half = len(encoded) // 2
        assert (encoded[:half] == encoded[half:]) == is_one


def test_an_alphabet_too_large_is_cut_and_reported_never_exceeded() -> None:
    common = [chr(0x4E00 + number) for number in range(1_500)]
    text = "".join(character * (2 if place < 495 else 1) for place, character in enumerate(common))
    tokenizer, report = train_vocabulary([text], VocabularySettings(vocab_size=500))
    assert tokenizer.vocab_size == 500
    assert set(tokenizer.pieces[5:]) == set(common[:495])
    assert report.alphabet_size == 1_500
    assert len(report.left_out) == 1_005
    assert report.left_out[0] == (common[495], 1)
    assert report.unk_share == pytest.approx(1_005 / 1_995)


def test_the_report_counts() -> None:
    long_word = "x" * 101
    tokenizer, report = train_vocabulary(
        ["The tea, the\ttea.", "", long_word], VocabularySettings(vocab_size=40)
    )
    assert report.num_texts == 3
    assert report.num_words == 7
    assert report.num_distinct_words == 5
    assert report.num_characters == 3 + 3 + 1 + 3 + 3 + 1 + 101
    assert report.alphabet_size == 6
    assert report.left_out == ()
    assert report.num_long_words == 1
    assert report.unk_share == pytest.approx(1 / 7)
    assert "x" not in tokenizer.pieces


def test_what_cannot_be_trained_is_refused() -> None:
    for texts in ([], ["", " \n"], ["\u200b"]):
        with pytest.raises(TokenizerError, match="no word in . texts; a vocabulary needs text"):
            train_vocabulary(texts, VocabularySettings())
    for vocab_size in (9, 10_000_001, 99_999_999_999_999_999_999):
        with pytest.raises(ConfigError) as caught:
            VocabularySettings(vocab_size=vocab_size)
        assert str(caught.value) == (
            f"vocab_size is {vocab_size}; it must be at least 10, as five are special tokens and "
            "a character takes two, as a word's start and inside, and at most 10,000,000."
        )
    with pytest.raises(ConfigError, match="unicode_form is 'nfd'"):
        VocabularySettings(unicode_form="nfd")  # type: ignore[arg-type]


def test_saved_files_are_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for texts in ([TIES, "the tea"], ["the tea", TIES]):
        save_tokenizer(train(*texts), tmp_path, model_max_length=128)
        content = b"".join(path.read_bytes() for path in sorted(tmp_path.iterdir()))
        digests.add(hashlib.sha256(content).hexdigest())
    assert len(digests) == 1
