"""What a document's id decides by itself: its split, and how often it is drawn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.draws import (
    DOCUMENT_PASSES,
    DOCUMENT_SPLIT,
    draw,
    identity_key,
    stream_key,
    uniform,
)
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.jit import kernel

MAX_HASH = 1 << 64
"""One more than the largest split hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRule:
    """How a document's split follows from its id or its input."""

    split_seed: int
    """Keys the hashes of documents."""

    validation_threshold: int
    """A document whose hash is below it is a validation document."""

    is_by_input: bool
    """Whether validation inputs were named, which settles it without the threshold."""

    def is_validation(
        self, ids: NDArray[np.uint64], is_held_out: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return for each document (D,) whether it is a validation document.

        Args:
            ids: (D, 2).
            is_held_out: (D,), whether its text is among the validation inputs.
        """
        if self.is_by_input:
            return is_held_out
        return split_hashes(ids, np.uint64(self.split_seed)) < np.uint64(self.validation_threshold)


def split_rule(config: BuildConfig, validation_threshold: int) -> SplitRule:
    """Return the rule that settles a document's split."""
    return SplitRule(
        split_seed=config.split_seed,
        validation_threshold=validation_threshold,
        is_by_input=bool(config.validation),
    )


def source_weights(sources: Sequence[str], config: BuildConfig) -> NDArray[np.float64]:
    """Return the weight of each source; 1 where none was asked for."""
    weight_of = dict(config.source_weight)
    return np.array([weight_of.get(source, 1.0) for source in sources], np.float64)


def num_passes(
    ids: NDArray[np.uint64], weights: NDArray[np.float64], config: BuildConfig
) -> NDArray[np.int64]:
    """Return how often each document's instances are drawn, (D,): dupe_factor x weight.

    A fraction is a chance: at 1.5 half of the documents are drawn twice.

    Args:
        ids: (D, 2), the documents.
        weights: (D,), the weight of each document's source.
        config: The settings.
    """
    drawn = np.floor(config.dupe_factor * weights + pass_uniforms(ids, np.uint64(config.seed)))
    return drawn.astype(np.int64)


def check_weights(config: BuildConfig, sources: Sequence[str]) -> None:
    """Raise `InputError` for a weight of a source that no document has."""
    for name, _ in config.source_weight:
        if name not in sources:
            known = ", ".join(repr(source) for source in sources[:10])
            raise InputError(
                f"source_weight names {name!r}, but the sources of these documents are {known}; "
                "spell it so, or name them with --source-field."
            )


@kernel
def split_hashes(ids: NDArray[np.uint64], split_seed: np.uint64) -> NDArray[np.uint64]:
    """Return a uniform 64-bit hash of each document (D,), keyed by `--split-seed` alone.

    Never by `--seed`: the validation text of one seed is not training text of another.
    """
    hashes = np.empty(len(ids), np.uint64)
    for i in range(len(ids)):
        identity = identity_key(split_seed, ids[i, 0], ids[i, 1])
        hashes[i] = draw(stream_key(identity, 0, DOCUMENT_SPLIT), 0)
    return hashes


@kernel
def pass_uniforms(ids: NDArray[np.uint64], seed: np.uint64) -> NDArray[np.float64]:
    """Return a uniform number in [0, 1) for each document (D,), which settles its fraction."""
    uniforms = np.empty(len(ids))
    for i in range(len(ids)):
        identity = identity_key(seed, ids[i, 0], ids[i, 1])
        uniforms[i] = uniform(stream_key(identity, 0, DOCUMENT_PASSES), 0)
    return uniforms
