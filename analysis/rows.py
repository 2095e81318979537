"""The rows of a dataset and its small tables, as DuckDB reads them: mapped, a batch at a time.

Legend: N instances of a batch, T tokens of all of them, V vocabulary.
"""

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.pipeline.columns import list_parts
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.jit import kernel
from clozemill.pipeline.schema import document_schema
from clozemill.pipeline.tokenizer import PretrainingTokenizer

BEGINS, CONTINUES, SPECIAL = 0, 1, 2
"""Kinds of token ids. `[UNK]` begins a word: it is text."""


class Rows:
    """Record batches as an Arrow stream that may be read any number of times (PyCapsule)."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        """Take the schema of all batches, and what yields them from the first one on."""
        self._schema = schema
        self._batches = batches

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a new stream over all rows."""
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)


def instance_rows(
    dataset: Dataset, tokenizer: PretrainingTokenizer, sample: int | None = None
) -> Rows:
    """Return the instances of a dataset, of either format, where they lie.

    With `sample` only about so many: whole record batches, evenly over all of them.

    The columns are those of docs/format.md, and before them:

    `split`: string.
    `instance`: int64, number of the instance in its split, from 0.
    `num_maskable`: int32, tokens that are not special.
    `word_lengths`: list of uint16, for each token the pieces of its word; 0 for special tokens.
    """
    added = [
        pa.field("split", pa.dictionary(pa.int8(), pa.string())),
        pa.field("instance", pa.int64()),
        pa.field("num_maskable", pa.int32()),
        pa.field("word_lengths", pa.list_(pa.uint16())),
    ]
    schema = pa.schema([*added, *dataset.schema])
    kinds = token_kinds(tokenizer)
    names = pa.array(dataset.splits, pa.string())
    num_instances = sum(entry.num_instances for entry in dataset.manifest.splits.values())
    share = Fraction(min(sample or num_instances, num_instances), num_instances)

    def batches() -> Iterator[pa.RecordBatch]:
        for number, split in enumerate(dataset.splits):
            end = 0
            for place, batch in enumerate(dataset.batches(split)):
                begin, end = end, end + batch.num_rows
                if math.ceil(share * (place + 1)) == math.ceil(share * place):
                    continue
                number_of_split = pa.array(np.full(batch.num_rows, number, np.int8))
                columns = [
                    pa.DictionaryArray.from_arrays(number_of_split, names),
                    pa.array(np.arange(begin, end)),
                    *_token_facts(batch.column("input_ids"), kinds),
                    *batch.columns,
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return Rows(schema, batches)


def _token_facts(input_ids: pa.Array, kinds: NDArray[np.uint8]) -> tuple[pa.Array, pa.Array]:
    """Return the columns `num_maskable` and `word_lengths` of N instances."""
    starts, values = list_parts(input_ids)
    tokens = values.to_numpy()
    if len(tokens) and tokens.max() >= len(kinds):
        raise DatasetError(
            f"a shard holds the token id {tokens.max()}, but the vocabulary has {len(kinds)}; "
            "clozemill verify lists every damaged file."
        )
    num_maskable, lengths = token_facts(tokens, starts, kinds)
    return (
        pa.array(num_maskable),
        pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pa.array(lengths)),
    )


@kernel
def token_facts(
    tokens: NDArray[Any], starts: NDArray[np.int64], kinds: NDArray[np.uint8]
) -> tuple[NDArray[np.int32], NDArray[np.uint16]]:
    """Return how many tokens of each row are not special, and how many pieces each word has.

    A piece that continues joins the piece before it, but never a special token: after one, a word
    begins. The pieces of a word all have its length; special tokens have 0.

    Args:
        tokens: (T,) ids of all rows, all below V.
        starts: int64 (N + 1,).
        kinds: uint8 (V,), what `token_kinds` returns.

    Returns:
        int32 (N,) and uint16 (T,).

    >>> kinds = np.array([BEGINS, CONTINUES, SPECIAL], np.uint8)
    >>> token_facts(np.array([2, 0, 1, 1, 0, 2, 2, 1]), np.array([0, 6, 8]), kinds)
    (array([4, 1], dtype=int32), array([0, 3, 3, 3, 1, 0, 0, 1], dtype=uint16))
    """
    num_maskable = np.empty(len(starts) - 1, np.int32)
    lengths = np.empty(len(tokens), np.uint16)
    for row in range(len(num_maskable)):
        begin, end, count = starts[row], starts[row + 1], 0
        while begin < end:
            if kinds[tokens[begin]] == SPECIAL:
                lengths[begin] = 0
                begin += 1
                continue
            stop = begin + 1
            while stop < end and kinds[tokens[stop]] == CONTINUES:
                stop += 1
            lengths[begin:stop] = stop - begin
            count += stop - begin
            begin = stop
        num_maskable[row] = count
    return num_maskable, lengths


def token_kinds(tokenizer: PretrainingTokenizer) -> NDArray[np.uint8]:
    """Return for each id (V,) whether it begins a word, continues one, or is special."""
    kinds = np.full(tokenizer.vocab_size, BEGINS, np.uint8)
    if tokenizer.is_continuation is not None:
        kinds[tokenizer.is_continuation] = CONTINUES
    kinds[tokenizer.unmaskable_ids] = SPECIAL
    return kinds


def document_rows(dataset: Dataset) -> Rows:
    """Return all documents of a dataset; the columns are those of docs/format.md."""
    return Rows(document_schema(), dataset.documents)


def vocabulary_table(tokenizer: PretrainingTokenizer) -> pa.Table:
    """Return the vocabulary, a row per token id."""
    size = tokenizer.vocab_size
    continues = tokenizer.is_continuation
    return pa.table(
        {
            "token_id": pa.array(np.arange(size, dtype=np.int32)),
            "piece": pa.array(tokenizer.pieces, pa.string()),
            "is_special": pa.array(_members(tokenizer.unmaskable_ids, size)),
            "is_unknown": pa.array(np.arange(size) == tokenizer.unk_id),
            "is_ordinary": pa.array(_members(tokenizer.ordinary_ids, size)),
            "is_continuation": pa.nulls(size, pa.bool_()) if continues is None else continues,
        }
    )


def _members(ids: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    found = np.zeros(size, np.bool_)
    found[ids] = True
    return found
