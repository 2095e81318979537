"""Which fingerprint each setting of a build enters."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from clozemill.pipeline.build_identity import identify
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.fingerprints import Fingerprints, fingerprint, make_fingerprints
from clozemill.pipeline.tokenizer import load_tokenizer

INSTANCES, MASKS, LAYOUT, NONE = {"instances", "dataset"}, {"dataset"}, {"layout"}, set[str]()
"""The fingerprints that change with a setting; that of the dataset is of its instances too."""

CHANGES: dict[str, tuple[Any, set[str]]] = {
    "inputs": (("a.txt",), NONE),
    "tokenizer": ("words/", NONE),  # what it does enters, not what it is called
    "out": ("data/", NONE),
    "recipe": ("roberta-full", INSTANCES),
    "max_seq_length": (64, INSTANCES),
    "dupe_factor": (2, INSTANCES),
    "short_seq_prob": (0.2, INSTANCES),
    "nsp_balance": ("exact", INSTANCES),
    "long_sentences": ("drop", INSTANCES),
    "mask_variants": (4, MASKS),
    "masked_lm_prob": (0.2, MASKS),
    "max_predictions_per_seq": (20, MASKS),
    "mask_unit": ("word", MASKS),
    "mask_count": ("stochastic", MASKS),
    "mask_token_prob": (0.7, MASKS),
    "random_token_prob": (0.2, MASKS),
    "random_tokens": ("all", MASKS),
    "seed": (1, INSTANCES),
    "split_seed": (1, INSTANCES),
    "validation_fraction": (0.1, INSTANCES),
    "validation": (("b.txt",), INSTANCES),  # that there are any
    "duplicates": ("keep", INSTANCES),
    "source": ("wiki", NONE),
    "source_field": ("source", NONE),
    "source_weight": ((("wiki", 2.0),), INSTANCES),
    "id_field": ("id", NONE),
    "text_field": ("body", NONE),
    "min_document_sentences": (2, INSTANCES),
    "language": ("de", INSTANCES),
    "layout": ("sentences", INSTANCES),  # no splitter finds them then
    "input_format": ("txt", NONE),
    "on_bad_input": ("skip", NONE),
    "limit_documents": (9, NONE),
    "bucket_tokens": (2_000, INSTANCES),
    "format": ("webdataset", LAYOUT),
    "compression": ("zstd", LAYOUT),
    "shard_size": (9, LAYOUT),
    "input_split_bytes": (2_000, NONE),
    "workers": (2, NONE),
    "engine": ("ray", NONE),
    "ray_address": ("ray://head", NONE),
    "overwrite": (True, NONE),
}
NAMES = [item.name for item in dataclasses.fields(BuildConfig)]


def different(one: Fingerprints, other: Fingerprints) -> set[str]:
    names = [item.name for item in dataclasses.fields(Fingerprints)]
    assert len(names) == 3
    return {name for name in names if getattr(one, name) != getattr(other, name)}


def of_config(config: BuildConfig, tokenizer: Path) -> Fingerprints:
    return identify(config, load_tokenizer(str(tokenizer)), []).fingerprints


@pytest.mark.parametrize("name", NAMES)
def test_a_setting_changes_the_fingerprints_that_it_belongs_to(name: str, syllables: Path) -> None:
    value, expected = CHANGES[name]
    plain = BuildConfig()
    changed = dataclasses.replace(plain, **{name: value})
    assert changed != plain
    found = different(of_config(plain, syllables), of_config(changed, syllables))
    assert found == expected


@pytest.mark.parametrize(
    "changes", [{"tokenizer_hash": "1"}, {"generator_version": 2}, {"libraries": {"a": "2"}}]
)
def test_tokenizer_and_versions_change_the_fingerprints_of_content(changes: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"tokenizer_hash": "0", "generator_version": 1, "libraries": {"a": "1"}}
    configuration = BuildConfig().settings("instances", "masks", "layout")
    one, other = (make_fingerprints(configuration, **{**plain, **c}) for c in ({}, changes))
    assert different(one, other) == INSTANCES


def test_the_order_of_settings_changes_no_fingerprint() -> None:
    settings = BuildConfig().settings("instances")
    assert len(settings) > 5
    assert fingerprint(settings) == fingerprint(dict(reversed(settings.items())))
