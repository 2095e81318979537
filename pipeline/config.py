"""The configuration of a build: one record from which flags, TOML keys and docs are made."""

import dataclasses
import re
import tomllib
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.files import has_utf8_name, printable

Kind = Literal["input", "instances", "masks", "layout", "execution", "vocabulary"]
"""What a field decides.

input: which documents are read; compared with the finished folder by its inventory.
instances: the instances made from those documents; enters the instance fingerprint.
masks: the variants laid over the instances; enters the dataset fingerprint with the above.
layout: how the files hold them; changes bytes, never the dataset digest.
execution: how the work is done; changes nothing that is written.
vocabulary: which pieces a vocabulary has; of `VocabularySettings`, not of a build.
"""


SPLITS = ("train", "validation")
"""The splits a dataset can have, in the order they are listed."""


def setting(default: Any, kind: Kind, text: str, choices: tuple[str, ...] = ()) -> Any:
    """Return a field of a record of settings, with what its flag and the docs say of it."""
    return field(default=default, metadata={"kind": kind, "help": text, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildConfig:
    """Everything `clozemill build` can be told. The help text of a field is its meaning."""

    inputs: tuple[str, ...] = setting((), "input", "Files, folders, globs, URLs or hf:NAME.")
    tokenizer: str = setting(
        "", "execution", "Tokenizer folder, vocab.txt, tokenizer.json or hub name."
    )
    out: str = setting("", "execution", "The dataset folder to write.")

    recipe: str = setting(
        "bert",
        "instances",
        "How instances are made: sentence pairs (bert) or packed sentences (roberta-*).",
        ("bert", "roberta-full", "roberta-doc"),
    )
    max_seq_length: int = setting(128, "instances", "Longest instance, in tokens with specials.")
    dupe_factor: int = setting(1, "instances", "How often the pairs of a document are re-drawn.")
    short_seq_prob: float = setting(
        0.1, "instances", "Share of documents that aim for a random shorter length."
    )
    nsp_balance: str = setting(
        "original",
        "instances",
        "Labels by the original's coin, or steered towards one half.",
        ("original", "exact"),
    )
    long_sentences: str = setting(
        "split",
        "instances",
        "Packed recipes: what becomes of a sentence longer than an instance.",
        ("split", "truncate", "drop"),
    )
    mask_variants: int = setting(10, "masks", "Static maskings stored per instance; 0 is none.")
    masked_lm_prob: float = setting(0.15, "masks", "Share of tokens selected for prediction.")
    max_predictions_per_seq: int | None = setting(
        None, "masks", "Cap on selected tokens of an instance; by default what the share asks for."
    )
    mask_unit: str = setting(
        "token", "masks", "Select single tokens, or all pieces of a word.", ("token", "word")
    )
    mask_count: str = setting(
        "rounded",
        "masks",
        "Selected tokens per instance: BERT's rounded share, or RoBERTa's random rounding.",
        ("rounded", "stochastic"),
    )
    mask_token_prob: float = setting(0.8, "masks", "Share of selected shown as [MASK].")
    random_token_prob: float = setting(0.1, "masks", "Share of selected shown as a random token.")
    random_tokens: str = setting(
        "ordinary",
        "masks",
        "Draw random tokens from ordinary ones, or from the whole vocabulary as the original.",
        ("ordinary", "all"),
    )
    seed: int = setting(0, "instances", "Seed of pairs and masks.")
    split_seed: int = setting(0, "instances", "Seed of the train/validation split alone.")
    validation_fraction: float = setting(
        0.01, "instances", "Share of documents held out for validation."
    )
    validation: tuple[str, ...] = setting(
        (), "input", "Inputs to use as the validation split instead of a share."
    )
    duplicates: str = setting(
        "drop", "instances", "What becomes of a document whose text was seen.", ("drop", "keep")
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
    layout: str = setting(
        "prose",
        "input",
        "In .txt files: a file is a document (prose), a line is a sentence and a blank line ends "
        "a document (sentences), or a line is a document (lines).",
        ("prose", "sentences", "lines"),
    )
    input_format: str | None = setting(
        None,
        "input",
        "Format of standard input and of files with other endings.",
        ("txt", "jsonl", "parquet", "arrow"),
    )
    on_bad_input: str = setting(
        "error",
        "input",
        "Stop at bytes or records that cannot be read, skip them, or replace bad bytes.",
        ("error", "skip", "replace"),
    )
    limit_documents: int | None = setting(None, "input", "Read only the first N documents.")
    bucket_tokens: int = setting(
        4_000_000, "instances", "Documents are shuffled and paired within buckets of this size."
    )

    format: str = setting("arrow", "layout", "File format of the shards.", ("arrow", "webdataset"))
    compression: str = setting(
        "none", "layout", "Compression inside the shards.", ("none", "lz4", "zstd")
    )
    shard_size: int = setting(65_536, "layout", "Most instances in one shard.")

    input_split_bytes: int = setting(
        32 << 20, "execution", "About how much of the inputs one task reads, in bytes as stored."
    )
    workers: int | None = setting(None, "execution", "Worker processes; by default all cores.")
    engine: str = setting("local", "execution", "Where the tasks run.", ("local", "ray"))
    ray_address: str | None = setting(None, "execution", "Address of a running Ray cluster.")
    overwrite: bool = setting(False, "execution", "Replace a finished dataset in the folder.")

    def __post_init__(self) -> None:
        """Raise `ConfigError` for the first setting that cannot be used."""
        for item in dataclasses.fields(self):
            _check_type(item, getattr(self, item.name))
            _check_choice(item, getattr(self, item.name))
            _check_utf8(item.name, getattr(self, item.name))
        for name in _PROBABILITIES:
            _check_range(name, getattr(self, name), 0.0, 1.0)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None:
                _check_range(name, value, low, high)
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
        for name, weight in self.source_weight:
            _check_range(f"source_weight {name}", weight, 0.0, 1000.0)
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
        chosen = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.metadata["kind"] in kinds
        }
        return {name: list(v) if isinstance(v, tuple) else v for name, v in chosen.items()}


_LANGUAGE_CODE = re.compile("[a-z]{2,3}(-[a-z0-9]{2,8})*")
"""The form of all codes of `sentencex`, which cannot be asked for them."""

_PROBABILITIES = (
    "short_seq_prob",
    "masked_lm_prob",
    "mask_token_prob",
    "random_token_prob",
    "validation_fraction",
)
_RANGES: dict[str, tuple[int, int]] = {
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


_TYPES: dict[Any, str] = {
    bool: "true or false",
    float: "a number",
    int: "a whole number",
    int | None: "a whole number",
    str: "text",
    str | None: "text",
    tuple[str, ...]: "a list of texts",
    tuple[tuple[str, float], ...]: "a table of numbers",
}
"""The types of fields, as an error names them."""


def _check_type(item: "dataclasses.Field[Any]", value: Any) -> None:
    """Raise `ConfigError` unless the value is of the field's type; TOML and callers err."""
    if not _is_of_type(value, item.type):
        raise ConfigError(f"{item.name} is {value!r}; it must be {_TYPES[item.type]}.")


def _is_of_type(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type that a field has; `bool` is no number here.

    >>> _is_of_type((("wiki", 2),), tuple[tuple[str, float], ...]), _is_of_type(True, int | None)
    (True, False)
    """
    members = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, tuple):
            return False
        if members[-1] is Ellipsis:
            members = members[:1] * len(value)
        return len(value) == len(members) and all(map(_is_of_type, value, members))
    if members:
        return any(_is_of_type(value, member) for member in members)
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _check_utf8(name: str, value: Any) -> None:
    """Raise `ConfigError` for a text that no file can hold: arguments may be any bytes."""
    if isinstance(value, tuple):
        for member in value:
            _check_utf8(name, member)
    elif isinstance(value, str) and not has_utf8_name(value):
        raise ConfigError(f"{name} is {printable(value)}, which is not UTF-8; spell it otherwise.")


def _check_choice(item: "dataclasses.Field[Any]", value: Any) -> None:
    choices = item.metadata["choices"]
    if choices and value is not None and value not in choices:
        raise ConfigError(f"{item.name} is {value!r}; it must be one of {', '.join(choices)}.")


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # so that NaN is refused too
        raise ConfigError(f"{name} is {value!r}; it must be between {low} and {high}.")


def read_config_file(path: str | Path) -> dict[str, Any]:
    """Return the settings of a TOML file; keys may be spelled like flags or like fields.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has an unknown key.
    """
    try:
        with open(path, "rb") as stream:
            table = tomllib.load(stream)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except ValueError as error:  # bytes that are not UTF-8 included
        raise ConfigError(f"{path} is not TOML: {error}.") from error
    known = {item.name for item in dataclasses.fields(BuildConfig)}
    settings = {key.replace("-", "_"): value for key, value in table.items()}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise ConfigError(f"{path} has the unknown key {unknown[0]!r}; see clozemill build --help.")
    if isinstance(settings.get("source_weight"), dict):
        settings["source_weight"] = tuple(sorted(settings["source_weight"].items()))
    return {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
