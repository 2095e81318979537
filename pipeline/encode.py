"""Sentences to token ids, as flat arrays."""

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.tokenizer import PretrainingTokenizer


class Encoded(NamedTuple):
    """The tokens of some sentences (S sentences, T tokens)."""

    token_ids: NDArray[np.unsignedinteger]
    """uint16 or uint32 (T,): the ids of all sentences, without specials, end to end."""

    starts: NDArray[np.int64]
    """(S + 1,): where each sentence starts in `token_ids`; some may be empty."""


class Encoder:
    """Encodes sentences with `tokenizers` itself; right for every tokenizer."""

    num_special_in_text: int
    """How often running text gave the id of a special token; each became unk."""

    def __init__(self, tokenizer: PretrainingTokenizer) -> None:
        """Prepare to encode with a tokenizer."""
        self.tokenizer = tokenizer
        self.num_special_in_text = 0
        self._is_reserved = np.zeros(tokenizer.vocab_size, np.bool_)
        self._is_reserved[tokenizer.special_ids] = True
        self._is_reserved[tokenizer.unk_id] = False

    def encode(self, sentences: Sequence[str]) -> Encoded:
        """Return the ids of sentences; a special token found in running text becomes unk."""
        encoded = _encode_plain(self.tokenizer, sentences)
        is_reserved = self._is_reserved[encoded.token_ids]
        self.num_special_in_text += int(np.count_nonzero(is_reserved))
        encoded.token_ids[is_reserved] = self.tokenizer.unk_id
        return encoded


def make_encoder(tokenizer: PretrainingTokenizer, *, is_fast: bool | None = None) -> Encoder:
    """Return the fastest encoder that is known to give the tokenizer's own ids."""
    return Encoder(tokenizer)


def _encode_plain(tokenizer: PretrainingTokenizer, sentences: Sequence[str]) -> Encoded:
    encodings = tokenizer.backend.encode_batch_fast(list(sentences), add_special_tokens=False)
    ids = [encoding.ids for encoding in encodings]
    starts = np.zeros(len(ids) + 1, np.int64)
    np.cumsum([len(each) for each in ids], out=starts[1:])
    flat = chain.from_iterable(ids)
    return Encoded(np.fromiter(flat, tokenizer.token_dtype, int(starts[-1])), starts)
