"""What a build is: the fingerprints of what was asked for, and its inputs; how two differ."""

import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozemill.pipeline.config import BuildConfig, Kind
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.fingerprints import Fingerprints, make_fingerprints
from clozemill.pipeline.input_splits import InputFile
from clozemill.pipeline.sentences import sentence_rule
from clozemill.pipeline.tokenizer import PretrainingTokenizer

_DECIDING_LIBRARIES = ("sentencex", "tokenizers")

_REWRITES: dict[str, Kind] = {"remask": "masks", "convert": "layout"}
"""Verbs that change all settings of a kind, and only those, in a copy of a dataset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildIdentity:
    """What tells one build from another."""

    configuration: dict[str, Any]
    """What the manifest holds as such: all settings that decide a byte of the dataset."""

    fingerprints: Fingerprints
    """Of that configuration with the tokenizer and the versions below."""

    libraries: dict[str, str]
    """Versions of the libraries that decide content."""

    record: dict[str, Any]
    """Everything compared when a folder is met again: settings, tokenizer, versions, inputs."""


def identify(
    config: BuildConfig, tokenizer: PretrainingTokenizer, files: Sequence[InputFile]
) -> BuildIdentity:
    """Return the identity of a build of these files."""
    libraries = {name: importlib.metadata.version(name) for name in _DECIDING_LIBRARIES}
    configuration = {
        **config.settings("instances", "masks", "layout"),
        "sentences": sentence_rule(config),
        "has_validation_inputs": bool(config.validation),
    }
    inventory = {file.path: [file.num_bytes, file.version] for file in files}
    reading = {k: v for k, v in config.settings("input").items() if k != "inputs"}
    if config.limit_documents is not None:
        reading["input_order"] = [file.path for file in files]
    return BuildIdentity(
        configuration=configuration,
        fingerprints=make_fingerprints(
            configuration,
            tokenizer_hash=tokenizer.hash,
            generator_version=GENERATOR_VERSION,
            libraries=libraries,
        ),
        libraries=libraries,
        record={
            **configuration,
            "tokenizer": tokenizer.hash,
            "generator_version": GENERATOR_VERSION,
            "libraries": libraries,
            **reading,
            "inputs": inventory,
        },
    )


def as_json(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record as it will be read back: lists for tuples."""
    plain: dict[str, Any] = json.loads(json.dumps(record))
    return plain


def share_an_input(found: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Return whether a build of mended inputs can be meant, and not one of something else."""
    return not found["inputs"].keys().isdisjoint(asked.get("inputs", {}))


def check_same(
    found: dict[str, Any], asked: dict[str, Any], out: Path, what: str, way_out: str = ""
) -> None:
    """Raise `ConfigError` if what a folder holds differs from what is asked for; it says where."""
    differences = _differences(found, asked)
    if differences:
        raise ConfigError(
            f"{out} holds {what} that differs in {', '.join(differences[:5])}; "
            f"{way_out}use --overwrite to replace it, or another --out."
        )


def rewriting_verb(found: dict[str, Any], asked: dict[str, Any], out: Path) -> str:
    """Return the verb that makes what is asked for of a dataset without a rebuild, if one does."""
    different = {name for name in {*found, *asked} if found.get(name) != asked.get(name)}
    for verb, kind in _REWRITES.items():
        if different <= BuildConfig().settings(kind).keys():
            return f"make another of it with clozemill {verb} {out} --out DIR, "
    return ""


def _differences(found: dict[str, Any], asked: dict[str, Any]) -> list[str]:
    """Return the names of what differs, with both values where they are short."""
    lines = []
    for name in sorted({*found, *asked}):
        old, new = found.get(name), asked.get(name)
        if old == new:
            continue
        if name == "inputs":
            lines.append(_input_differences(old or {}, new or {}))
        else:
            values = f" ({old!r} there, {new!r} now)"
            lines.append(name + values * (len(values) < 120))
    return lines


def _input_differences(found: dict[str, Any], asked: dict[str, Any]) -> str:
    """Return how many inputs came, went and changed, each kind with an example."""
    kinds = {
        "new": sorted(asked.keys() - found.keys()),
        "no longer named": sorted(found.keys() - asked.keys()),
        "of another size": [
            name for name in found if name in asked and found[name][0] != asked[name][0]
        ],
        "changed since, at the same size (a copy by cp -p or rsync -t keeps its time)": [
            name
            for name in found
            if name in asked and found[name][0] == asked[name][0] and found[name] != asked[name]
        ],
    }
    parts = [f"{len(names)} {kind}, such as {names[0]}" for kind, names in kinds.items() if names]
    return f"inputs ({'; '.join(parts)})"
