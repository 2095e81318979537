"""How masks are drawn: settings and a vocabulary become the rule that the kernels follow.

Legend: V vocabulary.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError, TokenizerError


class MaskVocabulary(NamedTuple):
    """What masking has to know about a tokenizer."""

    size: int
    """V: ids are 0 .. V - 1."""

    mask_id: int
    """Id of `[MASK]`."""

    special_ids: NDArray[np.int64]
    """Ids that are never selected: `[CLS]`, `[SEP]`, `[PAD]`, `[MASK]`; not `[UNK]`."""

    ordinary_ids: NDArray[np.int64]
    """Ids that stand for text: not special, not `[UNK]`, not `[unusedN]`."""

    is_continuation: NDArray[np.bool_] | None
    """(V,): whether a token continues the word before it; None where words are unknown."""


class MaskRule(NamedTuple):
    """How masks are drawn: what `make_mask_rule` makes of settings and vocabulary."""

    seed: np.uint64
    """Keys all draws, with the instance's id and the variant."""

    max_seq_length: int
    """Longest instance, in tokens with specials."""

    masked_lm_prob: float
    """Share of tokens to select."""

    max_predictions: int
    """Most selected positions of an instance."""

    is_stochastic: bool
    """Whether counts are rounded at random (RoBERTa) instead of to the nearest (BERT)."""

    is_word: bool
    """Whether all pieces of a word are selected together."""

    mask_threshold: int
    """A selected position shows `[MASK]` if the upper 53 bits of its draw are below this."""

    random_threshold: int
    """Else a random token if they are below this, else the token itself."""

    mask_id: int
    """Id of `[MASK]`."""

    is_special: NDArray[np.bool_]
    """(V,): whether a token is never selected."""

    random_ids: NDArray[np.int64]
    """What random replacements are drawn from, uniformly."""

    is_continuation: NDArray[np.bool_]
    """(V,): whether a token continues the word before it."""


def make_mask_rule(config: BuildConfig, vocabulary: MaskVocabulary) -> MaskRule:
    """Return the rule that settings ask for.

    Raises:
        ConfigError: `masked_lm_prob` is 0.
        TokenizerError: Random tokens are asked for and the vocabulary has no ordinary ones, or
            whole words and the tokenizer does not tell where words start.
    """
    if config.masked_lm_prob == 0.0:
        raise ConfigError(
            "masked_lm_prob is 0, which leaves nothing to predict, neither in stored masks nor in "
            "those drawn on the fly; give a share above 0, such as 0.15."
        )
    is_special = np.zeros(vocabulary.size, np.bool_)
    is_special[vocabulary.special_ids] = True
    max_predictions = config.max_predictions_per_seq
    if max_predictions is None:
        max_predictions = default_max_predictions(config.max_seq_length, config.masked_lm_prob)
    return MaskRule(
        seed=np.uint64(config.seed),
        max_seq_length=config.max_seq_length,
        masked_lm_prob=float(config.masked_lm_prob),
        max_predictions=max_predictions,
        is_stochastic=config.mask_count == "stochastic",
        is_word=config.mask_unit == "word",
        mask_threshold=_threshold(config.mask_token_prob),
        random_threshold=_threshold(config.mask_token_prob + config.random_token_prob),
        mask_id=int(vocabulary.mask_id),
        is_special=is_special,
        random_ids=_random_ids(config, vocabulary),
        is_continuation=_continuations(config, vocabulary),
    )


def _continuations(config: BuildConfig, vocabulary: MaskVocabulary) -> NDArray[np.bool_]:
    if vocabulary.is_continuation is not None:
        return np.ascontiguousarray(vocabulary.is_continuation, np.bool_)
    if config.mask_unit == "word":
        raise TokenizerError(
            f"mask_unit is 'word', but the tokenizer {config.tokenizer} does not say where words "
            "start; use mask_unit token, or a WordPiece, byte-level BPE or Unigram tokenizer."
        )
    return np.zeros(vocabulary.size, np.bool_)


def _threshold(probability: float) -> int:
    """Return the integer with: `draws.uniform` < probability if and only if its bits are less."""
    return math.ceil(probability * 2.0**53)


def _random_ids(config: BuildConfig, vocabulary: MaskVocabulary) -> NDArray[np.int64]:
    if config.random_tokens == "all":
        return np.arange(vocabulary.size, dtype=np.int64)
    ordinary = np.ascontiguousarray(vocabulary.ordinary_ids, np.int64)
    if len(ordinary) == 0 and config.random_token_prob > 0.0:
        raise TokenizerError(
            f"the tokenizer {config.tokenizer} has no ordinary tokens among its {vocabulary.size} "
            "to draw random ones from; use another tokenizer, or 0 for random_token_prob."
        )
    return ordinary


def default_max_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """Return a cap on selected tokens that never bites: what the share asks for at most.

    >>> default_max_predictions(128, 0.15), default_max_predictions(512, 0.15)
    (20, 77)
    """
    return max(1, math.ceil(max_seq_length * masked_lm_prob))
