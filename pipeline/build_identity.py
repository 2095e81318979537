"""What a build is: the fingerprints of what was asked for, and the inputs it is of."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.fingerprints import Fingerprints, make_fingerprints
from clozemill.pipeline.inputs import InputFile
from clozemill.pipeline.sentences import sentence_rule
from clozemill.pipeline.tokenizer import PretrainingTokenizer

_DECIDING_LIBRARIES = ("sentencex", "tokenizers")


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
