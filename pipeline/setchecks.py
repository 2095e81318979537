"""What must hold between rows: ids are unique, and spans agree with the documents they name.

Sets are looked at one range of ids at a time, so memory does not grow with the dataset.

Legend: D documents, N instances, P spans, Q ids asked for.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clozemill.pipeline.columns import InstanceColumns, binary16_array
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.recount import pair_tokens
from clozemill.pipeline.shards import Shard

_IDS_PER_RANGE = 4_000_000

Problem = tuple[str, str]
"""A file (or the folder) and what is wrong with it."""


class IdRange(NamedTuple):
    """Every id whose first two bytes fall into one of equal parts of their values."""

    number: int
    total: int

    def holds(self, ids: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of the (Q, 16) ids are in the range."""
        prefix = ids[:, 0].astype(np.int64) << 8 | ids[:, 1]
        return np.asarray((prefix * self.total) >> 16 == self.number, np.bool_)


def id_ranges(dataset: Dataset) -> list[IdRange]:
    """Return ranges that hold a bounded number of the dataset's instances and documents each."""
    num_instances = sum(dataset.num_instances(split) for split in dataset.splits)
    num_documents = sum(file.num_documents for file in dataset.manifest.documents)
    total = 1 + max(num_instances, num_documents) // _IDS_PER_RANGE
    return [IdRange(number, total) for number in range(total)]


class SetChecker:
    """Takes every instance of a dataset once, and says what is wrong with the ids of a range."""

    def __init__(self, dataset: Dataset, part: IdRange) -> None:
        """Read the documents of the range."""
        self._part = part
        self._documents = _Documents(dataset, part)
        self._ids = [np.empty((0, 16), np.uint8)]
        self._broken: Counter[Problem] = Counter()
        self._has_pairs = dataset.manifest.has_pairs

    def add(self, columns: InstanceColumns, shard: Shard) -> None:
        """Take the instances of a batch."""
        self._ids.append(columns.instance_ids[self._part.holds(columns.instance_ids)])
        for text, count in self._documents.match(columns, shard.split).items():
            self._broken[shard.path, text] += count

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong, once all instances were taken."""
        yield from self._repeated_ids()
        yield from self._documents.problems()
        for (path, text), count in self._broken.items():
            yield path, f"{count} spans {text}"
        if self._has_pairs:
            yield from self._documents.unspent()

    def _repeated_ids(self) -> Iterator[Problem]:
        keys = _keys(np.concatenate(self._ids))
        keys = keys[np.lexsort(keys.T)]
        is_repeat = (keys[1:] == keys[:-1]).all(axis=1)
        if is_repeat.any():
            first = keys[1:][is_repeat][0].tobytes().hex()
            yield "", f"{int(is_repeat.sum())} instance ids occur twice, the first is {first}"


def _keys(ids: NDArray[np.uint8]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(ids).view("<u8").reshape(-1, 2)


class _Documents:
    """The documents of a range, sorted for look-up, and what instances took from them."""

    def __init__(self, dataset: Dataset, part: IdRange) -> None:
        self.part = part
        self.splits = dataset.splits
        ids, facts = [np.empty((0, 16), np.uint8)], [np.empty((0, 5), np.int64)]
        for batch in dataset.documents():
            document_ids = binary16_array(batch.column("document_id"))
            chosen = part.holds(document_ids)
            ids.append(document_ids[chosen])
            facts.append(self._facts(batch)[chosen])
        keys = _keys(np.concatenate(ids))
        order = np.lexsort((keys[:, 1], keys[:, 0]))
        self.keys = keys[order]
        self.split, self.is_kept, self.num_sentences, self.num_tokens, self.num_passes = (
            np.concatenate(facts)[order].T
        )
        self.used = np.zeros((2, len(order)), np.int64)

    def _facts(self, batch: Any) -> NDArray[np.int64]:
        names = pa.array(self.splits, pa.string())
        split = pc.index_in(batch.column("split"), names).fill_null(-1).to_numpy()
        is_kept = pc.equal(batch.column("fate"), "kept").to_numpy(zero_copy_only=False)
        counts = [
            batch.column(name).to_numpy() for name in ("num_sentences", "num_tokens", "num_passes")
        ]
        return np.stack([split, is_kept, *counts], axis=1)

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the documents themselves."""
        repeats = int((self.keys[1:] == self.keys[:-1]).all(axis=1).sum())
        if repeats:
            yield "", f"{repeats} documents have a row twice in the documents files"
        if ((self.num_passes > 0) != (self.is_kept == 1)).any():
            yield "", "documents are kept without a pass, or drawn without being kept"

    def find(self, ids: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the place of each id among the documents, (Q,), or -1."""
        keys = _keys(ids)
        places = np.full(len(keys), -1)
        candidate = np.searchsorted(self.keys[:, 0], keys[:, 0])
        pending = np.arange(len(keys))
        # Ids that share their first half stand side by side; more than one step is rare.
        while len(pending):
            pending = pending[candidate[pending] < len(self.keys)]
            here = self.keys[candidate[pending]]
            pending, here = (x[here[:, 0] == keys[pending, 0]] for x in (pending, here))
            is_found = here[:, 1] == keys[pending, 1]
            places[pending[is_found]] = candidate[pending[is_found]]
            pending = pending[~is_found]
            candidate[pending] += 1
        return places

    def match(self, columns: InstanceColumns, split: str) -> dict[str, int]:
        """Add up what the spans took from their documents; return what is wrong by count."""
        spans = columns.spans
        chosen = np.flatnonzero(self.part.holds(spans.document_ids))
        places = self.find(spans.document_ids[chosen])
        last = spans.first_sentence.astype(np.int64) + spans.num_sentences
        known, at = places >= 0, np.maximum(places, 0)
        if not len(self.keys):
            return {"name a document that has no row": len(chosen)} if len(chosen) else {}
        broken = {
            "name a document that has no row": ~known,
            "name a document of another split": known
            & (self.split[at] != self.splits.index(split)),
            "name a document that was left out": known & (self.is_kept[at] == 0),
            "end after their document does": known & (last[chosen] > self.num_sentences[at]),
        }
        self._spend(columns, chosen[known], places[known])
        return {text: int(flags.sum()) for text, flags in broken.items() if flags.any()}

    def _spend(
        self, columns: InstanceColumns, chosen: NDArray[np.int64], places: NDArray[np.int64]
    ) -> None:
        """Add the sentences and tokens of own spans of pairs."""
        pairs = pair_tokens(columns)
        if pairs is None:
            return
        tokens = (pairs.in_instance + pairs.cut)[chosen]
        is_own = pairs.is_own[chosen]
        sentences = columns.spans.num_sentences[chosen][is_own].astype(np.int64)
        np.add.at(self.used[0], places[is_own], sentences)
        np.add.at(self.used[1], places[is_own], tokens[is_own])

    def unspent(self) -> Iterator[Problem]:
        """Yield documents whose sentences or tokens are not all in instances, once per pass."""
        for what, used, own in (
            ("sentences", self.used[0], self.num_sentences),
            ("tokens", self.used[1], self.num_tokens),
        ):
            differs = used != own * self.num_passes * self.is_kept
            if differs.any():
                place = int(np.flatnonzero(differs)[0])
                yield (
                    "",
                    f"{int(differs.sum())} documents do not have each of their {what} in instances "
                    f"once per pass, the first is {self.keys[place].tobytes().hex()}",
                )
