"""The documents of one bucket: gathered from the parts, duplicates settled, in id order."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import ids_of_copies
from clozemill.pipeline.instances import Corpus, starts_of
from clozemill.pipeline.origins import Origins
from clozemill.pipeline.parts import Parts, big_endian, part_ids
from clozemill.pipeline.plan import Bucket
from clozemill.pipeline.splits import SplitRule, num_passes, source_weights

DOCUMENT_FATES = ("kept", "no_tokens", "too_few_sentences", "unsampled")
"""What becomes of a distinct document; its further copies are `duplicate`."""

KEPT, NO_TOKENS, TOO_FEW_SENTENCES, UNSAMPLED = range(len(DOCUMENT_FATES))


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketDocuments:
    """Every document of a bucket that has a row of its own (D,), in id order."""

    table: pa.Table
    """The columns of a part but for the lists: of those, where each stands in which part."""

    ids: NDArray[np.uint64]
    """(D, 2): the ids, as two little-endian words; a kept copy has one of its own."""

    num_duplicates: NDArray[np.int64]
    """(D,): further copies that were dropped."""

    num_passes: NDArray[np.int64]
    """(D,): how often its instances are drawn; 0 unless kept."""

    fates: NDArray[np.int8]
    """(D,): index into `DOCUMENT_FATES`."""

    origins: Origins
    """Where each was read, and the dropped ones too."""

    def numbers(self, name: str) -> NDArray[np.int64]:
        """Return a column of whole numbers, (D,)."""
        column: NDArray[np.int64] = self.table[name].to_numpy()
        return column

    @property
    def kept(self) -> NDArray[np.int64]:
        """The rows of the documents that make instances, ascending."""
        return np.flatnonzero(self.fates == KEPT)

    @property
    def _text_groups(self) -> NDArray[np.int64]:
        """(D,): a number for each text; the table keeps a copy's original id, unlike `ids`."""
        texts = self.table["document_id"].combine_chunks().dictionary_encode()
        groups: NDArray[np.int64] = texts.indices.to_numpy().astype(np.int64)
        return groups

    def corpus(self, parts: Parts) -> Corpus:
        """Return the kept documents as flat arrays, in id order, copied from the parts."""
        kept = self.kept
        tokens, sentence_lengths = parts.gather_lists(self.table, kept)
        return Corpus(
            tokens=tokens,
            sentence_starts=starts_of(sentence_lengths),
            document_starts=starts_of(self.numbers("num_sentences")[kept]),
            document_ids=self.ids[kept],
            num_passes=self.num_passes[kept],
            text_groups=self._text_groups[kept],
        )


def load_bucket(
    bucket: Bucket, parts: Parts, split: SplitRule, config: BuildConfig
) -> BucketDocuments:
    """Return the documents of the bucket from all parts.

    Of equal documents the one with the smallest (source, external id) stands for all.
    """
    table = _occurrences(bucket, parts, split)
    ids = _table_ids(table)
    is_first = np.ones(len(ids), np.bool_)
    is_first[1:] = (ids[1:] != ids[:-1]).any(axis=1)
    firsts = np.flatnonzero(is_first)
    num_copies = np.diff(np.append(firsts, len(ids)))
    copies = np.zeros(len(ids), np.int64)
    if config.duplicates == "keep":
        copies = np.arange(len(ids)) - np.repeat(firsts, num_copies)
        ids = ids_of_copies(ids, copies)
        rows = np.lexsort(big_endian(ids).T[::-1])
        num_duplicates = np.zeros(len(rows), np.int64)
    else:
        rows, num_duplicates = firsts, num_copies - 1
    documents = table.take(rows).combine_chunks()
    fates, passes = _settle(documents, ids[rows], config)
    return BucketDocuments(
        table=documents,
        ids=ids[rows],
        num_duplicates=num_duplicates,
        num_passes=passes,
        fates=fates,
        origins=Origins(
            document_ids=ids,
            copies=copies,
            files=table["origin_path"].to_pylist(),
            offsets=table["origin_offset"].to_pylist(),
        ),
    )


def _occurrences(bucket: Bucket, parts: Parts, split: SplitRule) -> pa.Table:
    """Return the bucket's rows of all parts, duplicates too, by (id, source, external id)."""
    table = parts.rows(bucket.first_cell, bucket.stop_cell)
    is_validation = split.is_validation(_table_ids(table), _held_out(table))
    table = table.filter(pa.array(is_validation == (bucket.split == "validation")))
    keys = [(name, "ascending") for name in ("document_id", "source", "external_id")]
    return table.take(pc.sort_indices(table, sort_keys=keys)).combine_chunks()


def _held_out(table: pa.Table) -> NDArray[np.bool_]:
    """Return the rows whose text is among the validation inputs: it is never training text."""
    texts = pc.unique(table.filter(table["is_validation"])["document_id"])
    is_held_out: NDArray[np.bool_] = pc.is_in(table["document_id"], value_set=texts).to_numpy()
    return is_held_out


def _table_ids(table: pa.Table) -> NDArray[np.uint64]:
    batches = table.to_batches()
    return np.concatenate([np.empty((0, 2), np.uint64), *map(part_ids, batches)])


def _settle(
    documents: pa.Table, ids: NDArray[np.uint64], config: BuildConfig
) -> tuple[NDArray[np.int8], NDArray[np.int64]]:
    """Return each document's fate and its number of passes, (D,) both."""
    num_sentences = documents["num_sentences"].to_numpy()
    sources = documents["source"].combine_chunks().dictionary_encode()
    weights = source_weights(sources.dictionary.to_pylist(), config)[sources.indices.to_numpy()]
    passes = num_passes(ids, weights, config)
    fates = np.where(passes == 0, UNSAMPLED, KEPT).astype(np.int8)
    fates[num_sentences < config.min_document_sentences] = TOO_FEW_SENTENCES
    fates[num_sentences == 0] = NO_TOKENS
    passes[fates != KEPT] = 0
    return fates, passes
