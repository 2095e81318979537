"""The shape of an encoder: one record with Hugging Face's field names, and the published sizes."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from clozemill.pipeline.errors import ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class BertConfig:
    """Everything that decides which tensors a model has and what it computes from them.

    >>> BertConfig(vocab_size=100, hidden_size=64, num_attention_heads=6)
    Traceback (most recent call last):
    ...
    clozemill.pipeline.errors.ModelError: hidden_size is 64 and num_attention_heads is 6; \
the heads must divide the features evenly.
    """

    vocab_size: int
    """Token ids the model knows, V: the tokenizer's highest id + 1."""

    hidden_size: int = 768
    """Features of a token between layers, H."""

    num_hidden_layers: int = 12
    """Transformer layers, L."""

    num_attention_heads: int = 12
    """Attention heads of a layer, N; each sees H / N features."""

    intermediate_size: int = 3072
    """Features inside the feed-forward network, I; 4 H in all published sizes."""

    hidden_act: str = "gelu"
    """`gelu` is the exact GELU; `gelu_new` its tanh approximation, as in google-research/bert."""

    hidden_dropout_prob: float = 0.1
    """Dropout after the embeddings, and of each residual branch."""

    attention_probs_dropout_prob: float = 0.1
    """Dropout of attention probabilities."""

    max_position_embeddings: int = 512
    """Longest row, in tokens with specials."""

    type_vocab_size: int = 2
    """Segments that `token_type_ids` can tell apart."""

    initializer_range: float = 0.02
    """Standard deviation of the normal that weights are drawn from, before it is cut off at two."""

    layer_norm_eps: float = 1e-12
    """Added to the variance in layer normalization."""

    pad_token_id: int = 0
    """Id of `[PAD]`. The forward pass asks the attention mask; readers of an export ask this."""

    next_sentence: bool = True
    """Whether there are a pooler and a next-sentence head. Without the head nothing would train
    the pooler, so neither exists: these are the tensors of Hugging Face's BertForMaskedLM."""

    causal: bool = False
    """Whether a token sees itself and what is left of it only: the decoder twin."""

    def __post_init__(self) -> None:
        """Raise `ModelError` for the first field that cannot be used."""
        for item in dataclasses.fields(self):
            _check_type(item.name, getattr(self, item.name), item.type)
        for name in _SIZES:
            _check_range(name, getattr(self, name), 1, 2**31 - 1)
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            _check_range(name, getattr(self, name), 0.0, 0.99)
        _check_range("initializer_range", self.initializer_range, 1e-6, 1.0)
        _check_range("layer_norm_eps", self.layer_norm_eps, 0.0, 1e-3)
        _check_range("pad_token_id", self.pad_token_id, 0, self.vocab_size - 1)
        if self.hidden_act not in ("gelu", "gelu_new"):
            raise ModelError(f"hidden_act is {self.hidden_act!r}; it must be gelu or gelu_new.")
        if self.hidden_size % self.num_attention_heads:
            raise ModelError(
                f"hidden_size is {self.hidden_size} and num_attention_heads is "
                f"{self.num_attention_heads}; the heads must divide the features evenly."
            )

    @property
    def head_size(self) -> int:
        """Features of one attention head, D = H / N."""
        return self.hidden_size // self.num_attention_heads


_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)

_TYPES: dict[Any, str] = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    str: "text",
}
"""The types of fields, as an error names them."""


def _check_type(name: str, value: Any, kind: Any) -> None:
    """Raise `ModelError` unless the value is of the field's type; `bool` is no number here."""
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise ModelError(f"{name} is {value!r}; it must be {_TYPES[kind]}.")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # so that NaN is refused too
        raise ModelError(f"{name} is {value!r}; it must be between {low} and {high}.")


PresetName = Literal["tiny", "mini", "small", "medium", "base", "large"]

PRESETS: Mapping[PresetName, tuple[int, int, int]] = MappingProxyType(
    {
        "tiny": (2, 128, 2),
        "mini": (4, 256, 4),
        "small": (4, 512, 8),
        "medium": (8, 512, 8),
        "base": (12, 768, 12),
        "large": (24, 1024, 16),
    }
)
"""Layers, hidden size and heads by name; the feed-forward network is four times as wide.

Sources: Devlin et al. 2019, section 3, for base and large; Turc et al. 2019, table 1, for the
others.
"""


def preset(name: PresetName, *, vocab_size: int, **changes: Any) -> BertConfig:
    """Return a published size for a vocabulary, with other fields as asked.

    Raises:
        ModelError: There is no such preset or field, or a value cannot be used.

    >>> preset("tiny", vocab_size=8000, max_position_embeddings=128).hidden_size
    128
    """
    if name not in PRESETS:
        raise ModelError(f"there is no model {name!r}; choose one of {', '.join(PRESETS)}.")
    unknown = sorted(set(changes) - {item.name for item in dataclasses.fields(BertConfig)})
    if unknown:
        raise ModelError(f"a model has no setting {unknown[0]!r}; see docs/model.md.")
    layers, hidden, heads = PRESETS[name]
    sizes = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    return BertConfig(vocab_size=vocab_size, **(sizes | changes))


def check_fits(
    config: BertConfig, *, vocab_size: int, max_seq_length: int, num_segments: int = 2
) -> None:
    """Raise `ModelError` unless a model can read what a tokenizer and a dataset hold.

    Called before the first step: inside it, a number too large is a bare index error, and on a
    GPU an error that ends the process.

    Args:
        config: of the model.
        vocab_size: the tokenizer's highest id + 1, not the size that was asked of its training.
        max_seq_length: longest row, in tokens with specials.
        num_segments: highest token type + 1.
    """
    _check_size("vocab_size", config.vocab_size, "token ids", vocab_size)
    _check_size("max_position_embeddings", config.max_position_embeddings, "tokens", max_seq_length)
    _check_size("type_vocab_size", config.type_vocab_size, "segments", num_segments)


def _check_size(name: str, size: int, what: str, needed: int) -> None:
    if needed > size:
        raise ModelError(
            f"the model's {name} is {size}, but the data has {needed} {what}; use a model with at "
            f"least {needed}, or data made for this one."
        )
