"""The fast encoder gives the ids of `tokenizers`, whatever the text."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import normalizers

from clozemill.pipeline.encode import Encoder, make_encoder
from clozemill.pipeline.tokenizer import PretrainingTokenizer, make_tokenizer
from clozemill.pipeline.tokenizer_files import wordpiece_state
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
    return {
        name: (make_encoder(each, is_fast=True), make_encoder(each, is_fast=False))
        for name, each in tokenizers.items()
    }


@settings(max_examples=150, deadline=None)
@given(sentences=st.lists(st.lists(NASTY, max_size=12).map("".join), max_size=4))
@example(sentences=["c\x0cd", "a-\u0301b \u0301c", "<\u0338 =\u0338", "\u039f\u03a3 \u039f\u03a3."])
def test_nasty_text_has_the_ids_of_tokenizers(
    sentences: list[str], encoders: dict[str, tuple[Encoder, Encoder]]
) -> None:
    assert len(encoders) == len(NORMALIZERS)
    for fast, plain in encoders.values():
        same(fast, plain, sentences)


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=30))
def test_any_text_has_the_ids_of_tokenizers(
    text: str, encoders: dict[str, tuple[Encoder, Encoder]]
) -> None:
    for fast, plain in encoders.values():
        same(fast, plain, [text])


@pytest.mark.parametrize("name", [name for name in NORMALIZERS if name != "none"])
def test_every_word_end_is_cut_on_both_sides_whatever_stands_beside_it(name: str) -> None:
    tokenizer = wordpiece(NORMALIZERS[name])
    splitting = make_splitting(word_rules(tokenizer))
    ends = [chr(i) for i in np.flatnonzero(splitting.stands_alone)]
    ends += [chr(i) for i in range(128) if splitting.byte_kinds[i]]
    assert len(ends) > 50
    backend = tokenizer.backend
    for beside in ("a", "\u0301", "\u0338", "\u3099"):
        text = "".join(f" {beside}{end}{beside} " for end in ends)
        cut = [part for part, _ in backend.pre_tokenizer.pre_tokenize_str(
            backend.normalizer.normalize_str(text)
        )]  # fmt: skip
        alone = [
            part
            for end in ends
            for piece in (beside, end, beside)
            for part, _ in backend.pre_tokenizer.pre_tokenize_str(
                backend.normalizer.normalize_str(piece)
            )
        ]
        assert cut == alone
