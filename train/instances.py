"""The instances of a split, masked for any epoch: a map-style dataset for torch.

    dataset = open_dataset("data/wiki")
    instances = PretrainingInstances(dataset, "train", masking="dynamic")
    collate = PretrainingCollator(instances.pad_id)
    batch = collate(instances[[7, 9, len(instances) + 7]])  # 7 twice, as epochs 0 and 1 mask it

Legend: N instances of the split, n of a batch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Dataset as TorchDataset

from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.instances import MaskBatch, TokenBatch, starts_of
from clozemill.train.reader import InstanceReader
from clozemill.train.variants import VariantSchedule, VariantSource


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedInstances:
    """n instances with one masking each, as flat arrays; what `PretrainingCollator` takes."""

    indices: NDArray[np.int64]
    """(n,): virtual indices: epoch * N + number of the instance."""

    instance_ids: NDArray[np.uint64]
    """(n, 2): the 16-byte ids as two little-endian words."""

    tokens: TokenBatch
    """The original token ids."""

    masks: MaskBatch
    """n overlays: what is predicted, and what the input shows there."""

    next_sentence_label: NDArray[np.int8] | None
    """(n,): 0 next, 1 random; None where the recipe has no pairs."""

    def __len__(self) -> int:
        """Return n."""
        return len(self.indices)

    def slice(self, begin: int, end: int) -> "MaskedInstances":
        """Return the instances from `begin` to before `end`, as views."""
        tokens, masks, labels = self.tokens, self.masks, self.next_sentence_label
        input_ids, starts = _slice_runs(tokens.starts, begin, end)
        selected, mask_starts = _slice_runs(masks.starts, begin, end)
        return MaskedInstances(
            indices=self.indices[begin:end],
            instance_ids=self.instance_ids[begin:end],
            tokens=TokenBatch(
                tokens.input_ids[input_ids], starts, tokens.segment_b_start[begin:end]
            ),
            masks=MaskBatch(masks.positions[selected], masks.token_ids[selected], mask_starts),
            next_sentence_label=None if labels is None else labels[begin:end],
        )


def _slice_runs(starts: NDArray[np.int64], begin: int, end: int) -> tuple[slice, NDArray[np.int64]]:
    """Return where the values of some runs lie, and where each run starts among them."""
    own = starts[begin : end + 1]
    return slice(int(own[0]), int(own[-1])), own - own[0]


def joined_instances(batches: Sequence[MaskedInstances]) -> MaskedInstances:
    """Return several batches, at least one, of one dataset as one batch."""
    if len(batches) == 1:
        return batches[0]
    labels = [b.next_sentence_label for b in batches if b.next_sentence_label is not None]
    return MaskedInstances(
        indices=np.concatenate([batch.indices for batch in batches]),
        instance_ids=np.concatenate([batch.instance_ids for batch in batches]),
        tokens=TokenBatch(
            input_ids=np.concatenate([batch.tokens.input_ids for batch in batches]),
            starts=_joined_starts([batch.tokens.starts for batch in batches]),
            segment_b_start=np.concatenate([batch.tokens.segment_b_start for batch in batches]),
        ),
        masks=MaskBatch(
            positions=np.concatenate([batch.masks.positions for batch in batches]),
            token_ids=np.concatenate([batch.masks.token_ids for batch in batches]),
            starts=_joined_starts([batch.masks.starts for batch in batches]),
        ),
        next_sentence_label=np.concatenate(labels) if labels else None,
    )


def _joined_starts(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    return starts_of(np.concatenate([np.diff(starts) for starts in parts]))


class PretrainingInstances(TorchDataset[MaskedInstances]):
    """All instances of a split; index epoch * N + i is instance i as the epoch masks it.

    So neither loader workers nor a trainer have to be told the epoch. Any index from 0 on can be
    asked for, while the length is N. A copy may be pickled and sent to workers.
    """

    def __init__(
        self,
        dataset: Dataset,
        split: str = "train",
        *,
        masking: str,
        num_static_variants: int | None = None,
        mask_offset: int = 0,
    ) -> None:
        """Check that the masks can be had; opens no shard yet.

        Args:
            dataset: From `open_dataset`.
            split: `train` or `validation`.
            masking: `static`: epoch e shows variant `mask_offset + e mod num_static_variants`, from
                the file where it is stored, else drawn. `dynamic`: epoch e shows variant
                `mask_offset + e`, drawn. Both show the same where the numbers are the same.
            num_static_variants: By default as many as are stored.
            mask_offset: Variant of epoch 0.

        Raises:
            ConfigError: A setting is out of range.
            DatasetError: There is no such split, or its tokenizer or random generator is not
                that of the build.
        """
        manifest = dataset.manifest
        self.schedule = VariantSchedule.of(
            dataset.num_variants(split),
            masking=masking,
            num_static_variants=num_static_variants,
            mask_offset=mask_offset,
        )
        """Which variant each epoch shows."""
        self.reader = InstanceReader(dataset, split)
        """Reads the instances unmasked."""
        self.pad_id = manifest.tokenizer.special_ids["pad"]
        """Token id that fills rows up."""
        self.has_pairs = self.reader.layout.has_pairs
        """Whether there are segments B, and a label that says if they are next."""
        self._source = VariantSource(dataset.folder, manifest, split, self.schedule)

    def __len__(self) -> int:
        """Return N."""
        return len(self.reader)

    def lengths(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the numbers of tokens of the instances from `begin` to before `end`."""
        return self.reader.lengths(begin, end)

    def __getitem__(self, index: int | ArrayLike) -> MaskedInstances:
        """Return the instance with a virtual index, as a batch of one, or those with several."""
        return self.__getitems__(index)

    def __getitems__(self, indices: ArrayLike) -> MaskedInstances:
        """Return the instances with these virtual indices, in the order asked for.

        Raises:
            IndexError: An index is negative.
            DatasetError: A shard is damaged; the text names it.
        """
        wanted = np.asarray(indices, np.int64).reshape(-1)
        epochs, numbers = np.divmod(wanted, len(self))
        if len(wanted) and epochs.min() < 0:
            raise IndexError(f"virtual indices start at 0; {wanted.min()} does not exist")
        rows = self.reader.read(numbers)
        return MaskedInstances(
            indices=wanted,
            instance_ids=rows.instance_ids,
            tokens=rows.tokens,
            masks=self._source.overlays(
                rows,
                epochs,
                lambda some, variants: self.reader.overlays(numbers[some], variants),
            ),
            next_sentence_label=rows.next_sentence_label if self.has_pairs else None,
        )

    def __iter__(self) -> Iterator[MaskedInstances]:
        """Yield every instance once, in order, as epoch 0 masks it."""
        for index in range(len(self)):
            yield self[index]
