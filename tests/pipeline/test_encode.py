"""The fast encoder gives the ids of `tokenizers`, whatever the text."""

import gzip
import itertools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from clozemill.pipeline.encode import Encoder, WordEncoder, make_encoder
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer, make_tokenizer
from clozemill.pipeline.tokenizer_files import Json, wordpiece_state
from clozemill.pipeline.words import make_splitting, word_rules

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdefghijklmnopqrstuvwxyz0123456789", *"ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
LONG_PIECES = ["the", "tea", "cold", "co", "##ld", "un", "##un", "The"]
BEYOND_ASCII = [*"\u00e9\u00c9\u0130\u03c3\u03c2\u03a3\u0301\u0307\u0338\u4e2d\u3042\u304b\u3099"]
BEYOND_ASCII += [*"\u0915\u0941\uac00\u1100\u1161\u11a8\u2019\u2014\u2260\u3002\uff0c\U0001f600"]
PUNCTUATION = [chr(i) for i in range(33, 127) if not chr(i).isalnum()]

NORMALIZERS: dict[str, normalizers.Normalizer | None] = {
    "none": None,
    "lowercase": normalizers.Lowercase(),
    "uncased": normalizers.BertNormalizer(),
    "cased": normalizers.BertNormalizer(lowercase=False),
    "keeps accents": normalizers.BertNormalizer(strip_accents=False),
    "cased, strips accents": normalizers.BertNormalizer(lowercase=False, strip_accents=True),
    "not cleaned": normalizers.BertNormalizer(clean_text=False),
    "ideographs joined": normalizers.BertNormalizer(handle_chinese_chars=False),
    "composed": normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer()]),
    "composed, keeps accents": normalizers.Sequence(
        [normalizers.NFC(), normalizers.BertNormalizer(strip_accents=False)]
    ),
}

NASTY = st.sampled_from(
    [
        *" \t\n\r\x0b\x0c\x00\x01\x1c\x1f\x7f\x80\x85\xa0\xad",
        *"-'.,<=>`^[]#@aAbBzZ09",
        *"\u00c9\u00df\u0130\u0131\u0149\u01c5\u0301\u0327\u0338\u0345\u0390\u03a3\u03c2\u0483",
        *"\u05b0\u0600\u064b\u0915\u0941\u09cb\u0e33\u0f71\u1100\u1161\u11a8\u1680\u1e9e\u1fb7",
        *"\u200b\u200d\u2010\u2019\u2027\u2028\u2029\u202e\u202f\u2044\u2060\u212a\u2260\u226e",
        *"\u3000\u3001\u3002\u3008\u3042\u304b\u3099\u309b\u3400\u4db5\u4db6\u4e00\u4e2d\u9fcc",
        *"\u9fcd\u9fff\uac00\uac01\ud7a3\ue000\uf900\ufb01\ufe0f\ufeff\uff0c\uff21\ufffd\uffff",
        *"\U0001d15e\U0001f600\U00020000\U0002f800\U000e0001\U0010ffff",
        "the",
        "tea",
        "cold",
        "zzz",
        "x" * 101,
        "[SEP]",
        "[MASK]",
    ]
)


def wordpiece(normalizer: normalizers.Normalizer | None, *more: str) -> PretrainingTokenizer:
    inside = [f"##{c}" for c in LETTERS + BEYOND_ASCII]
    pieces = SPECIALS + LETTERS + inside + LONG_PIECES + BEYOND_ASCII + PUNCTUATION + list(more)
    state = wordpiece_state(pieces, normalizer or normalizers.BertNormalizer())
    state["normalizer"] = state["normalizer"] if normalizer else None
    return make_tokenizer(state, name="test")


def same(fast: Encoder, plain: Encoder, sentences: list[str]) -> None:
    ours, theirs = fast.encode(sentences), plain.encode(sentences)
    assert ours.token_ids.dtype == theirs.token_ids.dtype
    np.testing.assert_array_equal(ours.starts, theirs.starts)
    np.testing.assert_array_equal(ours.token_ids, theirs.token_ids)
    assert fast.num_special_in_text == plain.num_special_in_text


@pytest.fixture(scope="module")
def encoders() -> dict[str, tuple[Encoder, Encoder]]:
    tokenizers = {name: wordpiece(step) for name, step in NORMALIZERS.items()}
    return {name: (WordEncoder(each), Encoder(each)) for name, each in tokenizers.items()}


@settings(max_examples=30, deadline=None)
@given(sentences=st.lists(st.lists(NASTY, max_size=12).map("".join), max_size=4))
@example(sentences=["c\x0cd", "a-\u0301b \u0301c", "<\u0338 =\u0338", "\u039f\u03a3 \u039f\u03a3."])
def test_nasty_text_has_the_ids_of_tokenizers(
    sentences: list[str], encoders: dict[str, tuple[Encoder, Encoder]]
) -> None:
    assert len(encoders) == len(NORMALIZERS)
    for fast, plain in encoders.values():
        same(fast, plain, sentences)


@settings(max_examples=40, deadline=None)
@given(text=st.text(max_size=30))
def test_any_text_has_the_ids_of_tokenizers(
    text: str, encoders: dict[str, tuple[Encoder, Encoder]]
) -> None:
    for fast, plain in encoders.values():
        same(fast, plain, [text])


@pytest.mark.parametrize("name", ["uncased", "not cleaned", "composed, keeps accents"])
def test_every_word_end_is_cut_on_both_sides_whatever_stands_beside_it(name: str) -> None:
    tokenizer = wordpiece(NORMALIZERS[name])
    splitting = make_splitting(word_rules(tokenizer))
    ends = [chr(i) for i in np.flatnonzero(splitting.stands_alone)]
    ends += [chr(i) for i in range(128) if splitting.byte_kinds[i]]
    assert len(ends) > 27_000
    for beside in "a\u0301\u0338\u3099":
        together = "".join(f" {beside}{end}{beside}" for end in ends)
        apart = "".join(f" {beside} {end} {beside}" for end in ends)
        assert cut(tokenizer, together) == cut(tokenizer, apart)


def cut(tokenizer: PretrainingTokenizer, text: str) -> list[str]:
    backend = tokenizer.backend
    normal = backend.normalizer.normalize_str(text)
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normal)]


def test_a_full_table_starts_afresh_and_ids_stay_right() -> None:
    tokenizer = wordpiece(normalizers.BertNormalizer())
    small, plain = WordEncoder(tokenizer, max_words=16), Encoder(tokenizer)
    words = ["".join(letters) for letters in itertools.product("abtez\u00e9", repeat=3)]
    sentences = [" ".join(words[first : first + 7]) for first in range(0, len(words), 7)]
    assert len(words) > 10 * 16
    for _ in range(2):
        same(small, plain, sentences)


def test_a_sentence_that_alone_fills_the_table_is_encoded_by_tokenizers() -> None:
    tokenizer = wordpiece(normalizers.BertNormalizer())
    small, plain = WordEncoder(tokenizer, max_words=16), Encoder(tokenizer)
    many = " ".join(f"a{number}" for number in range(40))
    same(small, plain, ["the tea", many, "a" * 300, "", "cold tea"])
    same(small, plain, [many])


def test_words_with_more_pieces_than_bytes_fit() -> None:
    tokenizer = wordpiece(normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer()]))
    small, plain = WordEncoder(tokenizer, max_words=16), Encoder(tokenizer)
    same(small, plain, ["\uac01" * 30, "\u0130" * 60, "zz" * 40])


def test_special_tokens_in_text_are_text() -> None:
    tokenizer = wordpiece(normalizers.BertNormalizer(lowercase=False))
    for encoder in (make_encoder(tokenizer), Encoder(tokenizer)):
        encoded = encoder.encode(["the [MASK] tea[SEP]"])
        pieces = [tokenizer.pieces[i] for i in encoded.token_ids]
        assert " ".join(pieces) == "the [ M ##A ##S ##K ] tea [ S ##E ##P ]"
        assert encoder.num_special_in_text == 0


def test_a_special_id_that_comes_out_of_text_becomes_unk_and_is_counted() -> None:
    state = wordpiece_state([*SPECIALS, "tea", "gap", "##gap"], normalizers.BertNormalizer())
    state["added_tokens"] = [
        {"id": i, "content": text, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for i, text in ((6, "gap"), (7, "##gap"))
    ]  # fmt: skip
    tokenizer = make_tokenizer(state, name="test")
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4, 6, 7]
    for encoder in (make_encoder(tokenizer), Encoder(tokenizer)):
        encoded = encoder.encode(["tea \u00adgap", "gap", "", "tea gapgap oops"])
        assert encoded.token_ids.tolist() == [5, 1, 1, 5, 1, 1, 1]
        assert encoded.starts.tolist() == [0, 2, 3, 3, 7]
        assert encoder.num_special_in_text == 4


def test_long_words_are_one_unk() -> None:
    tokenizer = wordpiece(normalizers.BertNormalizer())
    for encoder in (make_encoder(tokenizer), Encoder(tokenizer)):
        encoded = encoder.encode(["a" * 100, "a" * 101])
        assert np.diff(encoded.starts).tolist() == [100, 1]
        assert encoded.token_ids[-1] == tokenizer.unk_id


def test_no_sentences_and_empty_sentences_have_no_tokens() -> None:
    tokenizer = wordpiece(normalizers.BertNormalizer())
    for encoder in (make_encoder(tokenizer), Encoder(tokenizer)):
        assert encoder.encode([]).starts.tolist() == [0]
        encoded = encoder.encode(["", " \t", "\u200b"])
        assert encoded.starts.tolist() == [0, 0, 0, 0]
        assert encoded.token_ids.dtype == np.uint16


def test_only_tokenizers_known_to_be_word_local_are_looked_up() -> None:
    local = wordpiece(normalizers.BertNormalizer())
    other = wordpiece(normalizers.NFKC())
    assert isinstance(make_encoder(local), WordEncoder)
    assert not isinstance(make_encoder(other), WordEncoder)


def hard_lines(corpora: Path) -> Iterator[str]:
    for path in sorted((corpora / "hard").rglob("*")):
        if path.is_file() and "utf16" not in path.name:
            content = path.read_bytes()
            content = gzip.decompress(content) if path.suffix == ".gz" else content
            yield from content.decode("utf-8", "replace").split("\n")


def pretrain_lines(corpora: Path, name: str) -> Iterator[str]:
    with gzip.open(corpora / "pretrain" / name, "rt", encoding="utf-8") as stream:
        for line in stream:
            record: Json = json.loads(line)
            yield from record["text"].split("\n")


def test_real_text_has_the_ids_of_tokenizers(corpora: Path) -> None:
    tokenizer = load_tokenizer(corpora / "vocab" / "bert-base-uncased-vocab.txt")
    lines = list(pretrain_lines(corpora, "mixed_gum.jsonl.gz"))
    lines += itertools.islice(hard_lines(corpora), 0, None, 25)
    assert len(lines) > 5_000
    same(WordEncoder(tokenizer), Encoder(tokenizer), lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese"])
def test_all_hard_text_has_the_ids_of_tokenizers(corpora: Path, name: str) -> None:
    tokenizer = load_tokenizer(corpora / "vocab" / f"bert-base-{name}-vocab.txt")
    lines = list(hard_lines(corpora))
    assert len(lines) > 50_000
    same(WordEncoder(tokenizer), Encoder(tokenizer), lines)


@pytest.mark.slow
def test_all_pretraining_text_has_the_ids_of_tokenizers(corpora: Path) -> None:
    tokenizer = load_tokenizer(corpora / "vocab" / "bert-base-uncased-vocab.txt")
    fast, plain = WordEncoder(tokenizer), Encoder(tokenizer)
    names = sorted(path.name for path in (corpora / "pretrain").iterdir())
    assert len(names) == 8
    for name in names:
        same(fast, plain, list(pretrain_lines(corpora, name)))


def test_a_sentence_begins_a_word_in_byte_level_bpe(tmp_path: Path, corpora: Path) -> None:
    for kind, name in (("vocab.json", "vocab.json"), ("merges.txt", "merges.txt")):
        source = corpora / "vocab" / f"roberta-base-{kind}"
        (tmp_path / name).write_bytes(source.read_bytes())
    tokenizer = load_tokenizer(tmp_path)
    encoded = make_encoder(tokenizer).encode(["The tea is cold. ", " It rains.\n\n", " \n"])
    pieces = [tokenizer.pieces[token_id] for token_id in encoded.token_ids]
    assert " ".join(pieces) == "ĠThe Ġtea Ġis Ġcold . ĠIt Ġrains ."
    assert encoded.starts.tolist() == [0, 5, 8, 8]
    assert tokenizer.is_continuation is not None
    assert not tokenizer.is_continuation[encoded.token_ids[[0, 5]]].any()
