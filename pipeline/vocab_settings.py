"""The settings of a vocabulary: one record from which the flags of `clozemill vocab` are made."""

from dataclasses import dataclass
from typing import Literal

from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.settings import check_fields, setting

MIN_VOCABULARY = 10
"""Five special tokens, and room for some text: a character takes two, as a word's start and
inside a word."""

MAX_VOCABULARY = 10_000_000
"""The trainer reserves memory for as many; published vocabularies have up to some 500,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularySettings:
    """How a vocabulary is trained. The help text of a field is its meaning."""

    vocab_size: int = setting(
        30_522, "vocabulary", "Most tokens, with specials; fewer when the text gives out."
    )
    is_cased: bool = setting(False, "vocabulary", "Keep `The` and `the` apart.")
    strip_accents: bool | None = setting(
        None,
        "vocabulary",
        "Drop accents (and vowel signs of many scripts); by default unless --cased.",
    )
    unicode_form: Literal["none", "nfc"] = setting(
        "none",
        "vocabulary",
        "Compose characters first (nfc), so that both spellings of an accent are one.",
    )

    def __post_init__(self) -> None:
        """Raise `ConfigError` for a setting that cannot be used."""
        check_fields(self)
        if not MIN_VOCABULARY <= self.vocab_size <= MAX_VOCABULARY:
            raise ConfigError(
                f"vocab_size is {self.vocab_size}; it must be at least {MIN_VOCABULARY}, as five "
                "are special tokens and a character takes two, as a word's start and inside, and "
                f"at most {MAX_VOCABULARY:,}."
            )

    @property
    def drops_accents(self) -> bool:
        """Whether accents and other marks that combine are dropped."""
        return not self.is_cased if self.strip_accents is None else self.strip_accents
