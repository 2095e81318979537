"""What must hold between documents of one text (`--duplicates keep`): no random pair of two."""

from collections.abc import Iterator

import numpy as np

from clozemill.pipeline.columns import InstanceColumns, read_columns
from clozemill.pipeline.dataset import Dataset, read_document_rows
from clozemill.pipeline.dataset_names import bucket_of_shard, documents_name
from clozemill.pipeline.documents import copy_id
from clozemill.pipeline.shards import DocumentsFile, Shard


def pairs_of_copies(dataset: Dataset) -> Iterator[tuple[Shard, str]]:
    """Yield the shards in which the B of a random pair comes from a copy of A's text.

    Ids of copies tell nothing by themselves, but are hashes of the original's id. All copies of
    a text and the partners of its pairs are in one bucket, so memory holds the ids of a bucket.
    """
    manifest = dataset.manifest
    if manifest.configuration.get("duplicates") != "keep" or not manifest.has_pairs:
        return
    for file in manifest.documents:
        originals = _originals(dataset, file)
        shards = [
            shard
            for shard in manifest.shards
            if documents_name(bucket_of_shard(shard.path)) == file.path
        ]
        for shard in shards if originals else ():
            batches = map(read_columns, dataset.shard_batches(shard))
            count = sum(_count_pairs(columns, originals) for columns in batches)
            if count:
                yield shard, f"{count} random pairs draw B from a copy of A's text"


def _originals(dataset: Dataset, file: DocumentsFile) -> dict[bytes, bytes]:
    """Return the id of the original of every document that has a copy, its own included."""
    ids: set[bytes] = set()
    for batch in read_document_rows(dataset.folder, file):
        ids.update(batch.column("document_id").to_pylist())
    originals = {}
    for original in ids:
        occurrence = 1
        while (copy := copy_id(original, occurrence)) in ids:
            originals[copy] = originals[original] = original
            occurrence += 1
    return originals


def _count_pairs(columns: InstanceColumns, originals: dict[bytes, bytes]) -> int:
    """Return how many random pairs of a batch are of two copies; of one document is not asked."""
    spans = columns.spans
    if not (np.diff(spans.starts) == 2).all():
        return 0
    ids = spans.document_ids.reshape(-1, 2, 16)[columns.next_sentence_label == 1]
    count = 0
    for a, b in ids:
        original = originals.get(a.tobytes())
        count += original is not None and original == originals.get(b.tobytes())
    return count
