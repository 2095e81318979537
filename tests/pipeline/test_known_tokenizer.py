"""Tokenizers on their way to workers."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from clozemill.pipeline.errors import TokenizerError
from clozemill.pipeline.known_tokenizer import load_known_tokenizer, save_known_tokenizer
from clozemill.pipeline.tokenizer import PretrainingTokenizer, make_tokenizer
from clozemill.pipeline.tokenizer_files import wordpiece_state

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "tea", "##s", "caf\u00e9", "[unused0]"]


def word_piece() -> PretrainingTokenizer:
    normalizer = normalizers.BertNormalizer(lowercase=False)
    return make_tokenizer(wordpiece_state(PIECES, normalizer), name="test")


def without_words() -> PretrainingTokenizer:
    """Return a tokenizer that does not tell where words start."""
    vocab = {piece: token_id for token_id, piece in enumerate(PIECES)}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return make_tokenizer(json.loads(backend.to_str()), name="test")


@pytest.mark.parametrize("make", [word_piece, without_words])
def test_tokenizer_arrives_as_it_was(make: Callable[[], PretrainingTokenizer], tmp_path: Path):
    before = make()
    save_known_tokenizer(before, tmp_path / "work")
    after = load_known_tokenizer(str(tmp_path / "work"), before.hash)
    fields = [field.name for field in dataclasses.fields(before)]
    assert {"pieces", "backend", "is_continuation"} <= set(fields)
    for name in fields:
        one, two = getattr(before, name), getattr(after, name)
        if name == "backend":
            one, two = one.to_str(), two.to_str()
        if isinstance(one, np.ndarray):
            assert one.dtype == two.dtype
            one, two = one.tolist(), two.tolist()
        assert type(one) is type(two)
        assert one == two, name
    assert (before.is_continuation is None) == (make is without_words)


def test_another_tokenizer_in_the_folder_is_refused(tmp_path: Path):
    save_known_tokenizer(word_piece(), tmp_path)
    with pytest.raises(TokenizerError, match="changed while it was in use"):
        load_known_tokenizer(str(tmp_path), "0" * 32)
