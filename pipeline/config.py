"""The configuration of a build: one record from which flags, TOML keys and docs are made."""

import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.settings import (
    check_fields,
    check_range,
    check_ranges,
    setting,
    settings_of,
    take_plain_values,
)

Kind = Literal["input", "instances", "masks", "layout", "execution"]
"""What a field of a build decides.

input: which documents are read; compared with the finished folder by its inventory.
instances: the instances made from those documents; enters the instance fingerprint.
masks: the variants laid over the instances; enters the dataset fingerprint with the above.
layout: how the files hold them; changes bytes, never the dataset digest.
execution: how the work is done; changes nothing that is written.
"""


Split = Literal["train", "validation"]
SPLITS = get_args(Split)
"""The splits a dataset can have, in the order they are listed."""

LongSentences = Literal["split", "truncate", "drop"]
"""What becomes of a sentence longer than a packed instance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """Everything `clozemill build` can be told. The help text of a field is its meaning."""

    inputs: tuple[str, ...] = setting((), "input", "Files, folders, globs, URLs or hf:NAME.")
    tokenizer: str = setting(
        "", "execution", "Tokenizer folder, vocab.txt, tokenizer.json or hub name."
    )
    out: str = setting("", "execution", "The dataset folder to write.")

    recipe: Literal["bert", "roberta-full", "roberta-doc"] = setting(
        "bert",
        "instances",
        "How instances are made: sentence pairs (bert) or packed sentences (roberta-*).",
    )
    max_seq_length: int = setting(128, "instances", "Longest instance, in tokens with specials.")
    dupe_factor: int = setting(1, "instances", "How often the pairs of a document are re-drawn.")
    short_seq_prob: float = setting(
        0.1, "instances", "Share of documents that aim for a random shorter length."
    )
    nsp_balance: Literal["original", "exact"] = setting(
        "original",
        "instances",
        "Labels by the original's coin, or steered towards one half.",
    )
    long_sentences: LongSentences = setting(
        "split",
        "instances",
        "Packed recipes: what becomes of a sentence longer than an instance.",
    )
    mask_variants: int = setting(
        10,
        "masks",
        "Static maskings stored per instance; 0 is none, but validation keeps one, so that an "
        "evaluation can be repeated.",
    )
    masked_lm_prob: float = setting(0.15, "masks", "Share of tokens selected for prediction.")
    max_predictions_per_seq: int | None = setting(
        None, "masks", "Cap on selected tokens of an instance; by default what the share asks for."
    )
    mask_unit: Literal["token", "word"] = setting(
        "token", "masks", "Select single tokens, or all pieces of a word."
    )
    mask_count: Literal["rounded", "stochastic"] = setting(
        "rounded",
        "masks",
        "Selected tokens per instance: BERT's rounded share, or RoBERTa's random rounding.",
    )
    mask_token_prob: float = setting(0.8, "masks", "Share of selected shown as [MASK].")
    random_token_prob: float = setting(0.1, "masks", "Share of selected shown as a random token.")
    random_tokens: Literal["ordinary", "all"] = setting(
        "ordinary",
        "masks",
        "Draw random tokens from ordinary ones, or from the whole vocabulary as the original.",
    )
    seed: int = setting(0, "instances", "Seed of pairs and masks.")
    split_seed: int = setting(0, "instances", "Seed of the train/validation split alone.")
    validation_fraction: float = setting(
        0.01, "instances", "Share of documents held out for validation."
    )
    validation: tuple[str, ...] = setting(
        (),
        "input",
        "Input to use as the validation split instead of a share; may be repeated, and globs are "
        "to be quoted, or the shell makes all but the first file training text.",
    )
    duplicates: Literal["drop", "keep"] = setting(
        "drop", "instances", "What becomes of a document whose text was seen."
    )
    source: str = setting("", "input", "Name of the corpus these inputs are.")
    source_field: str | None = setting(
        None, "input", "Record field that names the corpus of a document."
    )
    source_weight: tuple[tuple[str, float], ...] = setting(
        (), "instances", "NAME=2.0: repeat a source's documents that often; fractions are drawn."
    )
    id_field: str | None = setting(None, "input", "Record field with your own document id.")
    text_field: str = setting("text", "input", "Record field with the document's text.")
    min_document_sentences: int = setting(
        1, "instances", "Leave out documents with fewer sentences."
    )
    language: str = setting(
        "en",
        "instances",
        "Language code of the sentence splitter, such as en, de or zh-hant; what it has no rules "
        "for, an unknown code or a region such as de-de, it splits like English.",
    )
    layout: Literal["prose", "sentences", "lines"] = setting(
        "prose",
        "input",
        "In .txt files: a file is a document (prose), a line is a sentence and a blank line ends "
        "a document (sentences), or a line is a document (lines).",
    )
    input_format: Literal["txt", "jsonl", "parquet", "arrow"] | None = setting(
        None,
        "input",
        "Format of standard input and of files with other endings.",
    )
    on_bad_input: Literal["error", "skip", "replace"] = setting(
        "error",
        "input",
        "Stop at bytes or records that cannot be read, skip them, or replace bad bytes.",
    )
    limit_documents: int | None = setting(None, "input", "Read only the first N documents.")
    bucket_tokens: int | None = setting(
        None,
        "instances",
        "Documents are shuffled and paired within buckets of this size; by default an eighth of "
        "the split, but 2 million at least and 4 million at most.",
    )

    format: Literal["arrow", "webdataset"] = setting(
        "arrow", "layout", "File format of the shards."
    )
    compression: Literal["none", "lz4", "zstd"] = setting(
        "none", "layout", "Compression inside the shards."
    )
    shard_size: int = setting(65_536, "layout", "Most instances in one shard.")

    input_split_bytes: int = setting(
        32 << 20, "execution", "About how much of the inputs one task reads, in bytes as stored."
    )
    workers: int | None = setting(None, "execution", "Worker processes; by default all cores.")
    engine: Literal["local", "ray"] = setting("local", "execution", "Where the tasks run.")
    ray_address: str | None = setting(None, "execution", "Address of a running Ray cluster.")
    overwrite: bool = setting(False, "execution", "Replace a finished dataset in the folder.")

    def __post_init__(self) -> None:
        """Raise `ConfigError` for the first setting that cannot be used."""
        take_plain_values(self)
        check_fields(self)
        check_ranges(self, _RANGES)
        if not _LANGUAGE_CODE.fullmatch(self.language):
            raise ConfigError(
                f"language is {self.language!r}; it must be a code in lower case, such as en or "
                "zh-hant (sentencex would split like English)."
            )
        if self.mask_token_prob + self.random_token_prob > 1.0 + 1e-12:
            raise ConfigError(
                f"mask_token_prob {self.mask_token_prob} and random_token_prob "
                f"{self.random_token_prob} add up to more than 1; lower one of them."
            )
        if self.validation_fraction == 1.0:
            raise ConfigError(
                "validation_fraction is 1.0, which leaves nothing for training; it must be below 1."
            )
        for name, weight in self.source_weight:
            check_range(f"source_weight {name}", weight, 0.0, 1000.0)
        if self.validation and self.limit_documents is not None:
            raise ConfigError(
                "limit_documents and validation inputs exclude each other; drop one of them."
            )

    @property
    def has_pairs(self) -> bool:
        """Whether the recipe makes A/B pairs with a next-sentence label."""
        return self.recipe == "bert"

    def num_variants(self, split: str) -> int:
        """Return the variants stored for a split; validation has one at least.

        So an evaluation is repeatable even where training masks are drawn on the fly.
        """
        return max(self.mask_variants, 1) if split == "validation" else self.mask_variants

    def settings(self, *kinds: Kind) -> dict[str, Any]:
        """Return the fields of the given kinds, by name, ready for JSON."""
        return settings_of(self, *kinds)


_LANGUAGE_CODE = re.compile("[a-z]{2,3}(-[a-z0-9]{2,8})*")
"""The form of all codes of `sentencex`, which cannot be asked for them."""

_RANGES: dict[str, tuple[float, float]] = {
    "short_seq_prob": (0.0, 1.0),
    "masked_lm_prob": (0.0, 1.0),
    "mask_token_prob": (0.0, 1.0),
    "random_token_prob": (0.0, 1.0),
    "validation_fraction": (0.0, 1.0),
    "max_seq_length": (5, 65_535),
    "dupe_factor": (1, 1_000),
    "mask_variants": (0, 10_000),
    "max_predictions_per_seq": (1, 65_535),
    "min_document_sentences": (1, 1_000_000),
    "limit_documents": (1, 2**62),
    "bucket_tokens": (1_000, 100_000_000),
    "shard_size": (1, 10_000_000),
    "input_split_bytes": (1_000, 2**40),
    "workers": (1, 4_096),
    "seed": (0, 2**64 - 1),
    "split_seed": (0, 2**64 - 1),
}
