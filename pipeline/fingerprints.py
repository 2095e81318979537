"""Fingerprints: hashes of what was asked for, by which a rerun or a check knows a dataset again."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from clozemill.pipeline.config import BuildConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprints:
    """Hashes of what was asked for, as 32 hex digits."""

    instances: str
    """Of the settings that decide instances, the tokenizer and the library versions."""

    dataset: str
    """Of the above and the settings that decide masks."""

    layout: str
    """Of the settings that decide how files hold them."""


def make_fingerprints(
    configuration: Mapping[str, Any],
    *,
    tokenizer_hash: str,
    generator_version: int,
    libraries: Mapping[str, str],
) -> Fingerprints:
    """Return the fingerprints of a dataset with this configuration.

    Args:
        configuration: As the manifest holds it: the settings that decide instances, masks and
            layout by name, and what else decides instances.
        tokenizer_hash: Hash of what decides token ids.
        generator_version: Version of the random draws.
        libraries: Versions of the libraries that decide content.
    """
    masks, layout = (_chosen(configuration, kind) for kind in ("masks", "layout"))
    instances = fingerprint(
        {
            **{k: v for k, v in configuration.items() if k not in masks and k not in layout},
            "tokenizer": tokenizer_hash,
            "generator_version": generator_version,
            "libraries": dict(libraries),
        }
    )
    return Fingerprints(
        instances=instances,
        dataset=_dataset_fingerprint(instances, masks),
        layout=fingerprint(layout),
    )


def dataset_fingerprint(instance_fingerprint: str, config: BuildConfig) -> str:
    """Return the fingerprint of instances with their masks; only settings of masks are read."""
    return _dataset_fingerprint(instance_fingerprint, config.settings("masks"))


def layout_fingerprint(config: BuildConfig) -> str:
    """Return the fingerprint of how files hold the rows; only settings of layout are read."""
    return fingerprint(config.settings("layout"))


def fingerprint(settings: Mapping[str, Any]) -> str:
    """Return the hex BLAKE2b-128 of settings as canonical JSON.

    >>> fingerprint({"b": 1, "a": 2}) == fingerprint({"a": 2, "b": 1})
    True
    """
    text = json.dumps(settings, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _chosen(configuration: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    names = BuildConfig().settings(kind)
    return {name: value for name, value in configuration.items() if name in names}


def _dataset_fingerprint(instance_fingerprint: str, masks: Mapping[str, Any]) -> str:
    return fingerprint({"instances": instance_fingerprint, "masks": masks})
