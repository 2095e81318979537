"""What a build is: fingerprints of what was asked for, and the inputs it is of."""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clozemill.pipeline.config import BuildConfig, dataset_fingerprint, fingerprint
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.inputs import InputFile
from clozemill.pipeline.manifest import (
    Fingerprints,
)
from clozemill.pipeline.sentences import sentence_rule
from clozemill.pipeline.tokenizer import PretrainingTokenizer

_DECIDING_LIBRARIES = ("sentencex", "tokenizers")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildIdentity:
    """What tells one build from another."""

    fingerprints: Fingerprints
    libraries: dict[str, str]
    """Versions of the libraries that decide content."""

    record: dict[str, Any]
    """Everything compared when a folder is met again: settings, tokenizer, versions, inputs."""


def identify(
    config: BuildConfig, tokenizer: PretrainingTokenizer, files: Sequence[InputFile]
) -> BuildIdentity:
    """Return the identity of a build of these files."""
    libraries = {name: importlib.metadata.version(name) for name in _DECIDING_LIBRARIES}
    instances = {
        **config.settings("instances"),
        "sentences": sentence_rule(config),
        "has_validation_inputs": bool(config.validation),
        "tokenizer": tokenizer.hash,
        "generator_version": GENERATOR_VERSION,
        "libraries": libraries,
    }
    masks, layout = config.settings("masks"), config.settings("layout")
    inventory = {file.path: [file.num_bytes, file.version] for file in files}
    reading = {k: v for k, v in config.settings("input").items() if k != "inputs"}
    if config.limit_documents is not None:
        reading["input_order"] = [file.path for file in files]
    return BuildIdentity(
        fingerprints=Fingerprints(
            instances=fingerprint(instances),
            dataset=dataset_fingerprint(fingerprint(instances), config),
            layout=fingerprint(layout),
        ),
        libraries=libraries,
        record={**instances, **masks, **layout, **reading, "inputs": inventory},
    )
