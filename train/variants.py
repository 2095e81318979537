"""Which masking of an instance an epoch shows, and what it looks like.

Variant v of an instance is one overlay, wherever it comes from: where the dataset stores it, the
file holds what `draw_masks` draws. So static and dynamic masking differ in the numbers of the
variants alone, and not at all in the epochs in which the numbers are equal.

Legend: n instances.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.dataset_names import TOKENIZER_FOLDER
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.instances import MaskBatch, starts_of, take_runs
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.mask_rules import MaskRule
from clozemill.pipeline.masks import draw_masks
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer
from clozemill.train.gather import InstanceRows

MASKINGS = ("static", "dynamic")

ReadStored: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], MaskBatch]


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantSchedule:
    """The variant of each epoch."""

    masking: str
    """`static`: variants return after some epochs. `dynamic`: every epoch has its own."""

    num_static_variants: int
    """How many variants static masking goes round."""

    mask_offset: int = 0
    """Variant of epoch 0; runs with other offsets see other masks."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for what cannot be."""
        if self.masking not in MASKINGS:
            raise ConfigError(f"masking is {self.masking!r}; it must be {' or '.join(MASKINGS)}.")
        if self.masking == "static" and self.num_static_variants < 1:
            raise ConfigError(
                f"num_static_variants is {self.num_static_variants}; static masking needs at least "
                "1: use dynamic masking, or store variants with clozemill remask."
            )
        if self.mask_offset < 0:
            raise ConfigError(f"mask_offset is {self.mask_offset}; it must be at least 0.")

    @classmethod
    def of(
        cls,
        num_stored: int,
        *,
        masking: str,
        num_static_variants: int | None = None,
        mask_offset: int = 0,
    ) -> "VariantSchedule":
        """Return what settings ask for of a split; by default all that it stores go round.

        >>> VariantSchedule.of(10, masking="static").num_static_variants
        10
        """
        return cls(
            masking=masking,
            num_static_variants=num_stored if num_static_variants is None else num_static_variants,
            mask_offset=mask_offset,
        )

    def variants_of(self, epochs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the variant of each of some epochs.

        >>> schedule = VariantSchedule(masking="static", num_static_variants=3, mask_offset=1)
        >>> schedule.variants_of(np.arange(7))
        array([1, 2, 3, 1, 2, 3, 1])
        """
        turns = epochs % self.num_static_variants if self.masking == "static" else epochs
        return turns + self.mask_offset

    def is_stored(self, num_stored: int) -> bool:
        """Return whether every epoch's variant is read from the file, and none is drawn."""
        return (
            self.masking == "static" and self.mask_offset + self.num_static_variants <= num_stored
        )


class VariantSource:
    """The overlays of a split for any epoch: read where that is asked for and possible."""

    def __init__(self, folder: Path, manifest: Manifest, split: str, schedule: VariantSchedule):
        """Check that all variants can be had.

        Raises:
            ConfigError: The dataset's settings leave nothing to mask.
            DatasetError: The tokenizer is not that of the build, or variants have to be drawn and
                the random generator is not.
        """
        tokenizer = checked_tokenizer(folder, manifest)
        self._schedule = schedule
        self._num_stored = manifest.splits[split].num_variants
        self._rule: MaskRule | None = None
        if not schedule.is_stored(self._num_stored):
            self._rule = checked_mask_rule(folder, manifest, tokenizer)

    def overlays(
        self, rows: InstanceRows, epochs: NDArray[np.int64], read_stored: ReadStored
    ) -> MaskBatch:
        """Return an overlay of each instance.

        Args:
            rows: n instances.
            epochs: (n,) the epoch of each.
            read_stored: Returns overlays from the file, given (m,) places among the instances and
                the numbers of m stored variants.
        """
        variants = self._schedule.variants_of(epochs)
        if self._rule is None:
            return read_stored(np.arange(len(variants)), variants)
        if self._schedule.masking == "dynamic":
            return drawn_overlays(rows, variants, self._rule)
        is_stored = variants < self._num_stored
        stored, others = np.flatnonzero(is_stored), np.flatnonzero(~is_stored)
        read = read_stored(stored, variants[stored])
        drawn = drawn_overlays(rows.take(others), variants[others], self._rule)
        return joined_overlays([(stored, read), (others, drawn)])


def checked_tokenizer(folder: Path, manifest: Manifest) -> PretrainingTokenizer:
    """Return a dataset's own tokenizer.

    Raises:
        DatasetError: It is not the one that made the instances.
    """
    path = folder / TOKENIZER_FOLDER
    tokenizer, expected = load_tokenizer(path), manifest.tokenizer
    if (tokenizer.hash, tokenizer.vocab_size) != (expected.hash, expected.vocab_size):
        raise DatasetError(
            f"{path} holds the tokenizer {tokenizer.hash}, but the instances are made with "
            f"{expected.hash}; copy the folder again, or rebuild the dataset with the new "
            "tokenizer."
        )
    return tokenizer


def checked_mask_rule(
    folder: Path, manifest: Manifest, tokenizer: PretrainingTokenizer
) -> MaskRule:
    """Return the rule by which a dataset's masks are drawn, stored or not.

    Raises:
        DatasetError: The random generator is not that of the build.
    """
    if manifest.generator_version != GENERATOR_VERSION:
        raise DatasetError(
            f"{folder} was drawn by version {manifest.generator_version} of the random generator "
            f"and this clozemill has {GENERATOR_VERSION}; use static masking with its stored "
            "variants, or rebuild it."
        )
    return mask_rule(manifest.build_config(), tokenizer)


def drawn_overlays(rows: InstanceRows, variants: NDArray[np.int64], rule: MaskRule) -> MaskBatch:
    """Return one overlay of each instance, drawn now; `variants` (n,) has one number for each."""
    parts = []
    for variant, chosen in _groups(variants):
        part = rows if len(chosen) == len(variants) else rows.take(chosen)
        masks = draw_masks(part.tokens, part.instance_ids, np.array([variant]), rule)
        parts.append((chosen, masks))
    return parts[0][1] if len(parts) == 1 else joined_overlays(parts)


def _groups(variants: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Yield each number once, and where it stands."""
    if len(variants) == 0 or (variants == variants[0]).all():
        yield (int(variants[0]) if len(variants) else 0), np.arange(len(variants))
        return
    for variant in np.unique(variants):
        yield int(variant), np.flatnonzero(variants == variant)


def joined_overlays(parts: list[tuple[NDArray[np.int64], MaskBatch]]) -> MaskBatch:
    """Return the overlays of instances whose places stand beside them, in the order of places.

    >>> one = MaskBatch(np.array([4, 5]), np.array([7, 8]), np.array([0, 2]))
    >>> two = MaskBatch(np.array([1]), np.array([9]), np.array([0, 1, 1]))
    >>> joined_overlays([(np.array([1]), one), (np.array([0, 2]), two)])
    MaskBatch(positions=array([1, 4, 5]), token_ids=array([9, 7, 8]), starts=array([0, 1, 3, 3]))
    """
    starts = starts_of(np.concatenate([np.diff(masks.starts) for _, masks in parts]))
    back = np.argsort(np.concatenate([places for places, _ in parts]))
    own_starts, values = take_runs(starts, back)
    positions, token_ids = (
        np.concatenate([masks[column] for _, masks in parts])[values] for column in (0, 1)
    )
    return MaskBatch(positions, token_ids, own_starts)
