"""The rows of a dataset and its small tables, as DuckDB reads them: mapped, a batch at a time.

Legend: N instances of a batch, T tokens of all of them.
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
from clozemill.pipeline.schema import document_schema
from clozemill.pipeline.tokenizer import PretrainingTokenizer


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
    is_special = _is_special(tokenizer)
    continues = tokenizer.is_continuation
    is_continuation = np.zeros_like(is_special) if continues is None else continues
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
                    *_token_facts(batch.column("input_ids"), is_special, is_continuation),
                    *batch.columns,
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return Rows(schema, batches)


def _token_facts(
    input_ids: pa.Array, is_special: NDArray[np.bool_], is_continuation: NDArray[np.bool_]
) -> tuple[pa.Array, pa.Array]:
    """Return the columns `num_maskable` and `word_lengths` of N instances."""
    starts, values = list_parts(input_ids)
    tokens = values.to_numpy()
    is_special = is_special[tokens]
    lengths = word_lengths(is_special, is_continuation[tokens])
    return (
        pa.array(np.add.reduceat(~is_special, starts[:-1], dtype=np.int32)),
        pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pa.array(lengths)),
    )


def word_lengths(
    is_special: NDArray[np.bool_], is_continuation: NDArray[np.bool_]
) -> NDArray[np.uint16]:
    """Return for each token of a row how many pieces its word has; 0 for special tokens.

    A piece that continues joins the piece before it, but never a special token: after one, a word
    begins. So consecutive rows, which begin with `[CLS]`, may be given as one.

    Args:
        is_special: bool (T,).
        is_continuation: bool (T,).

    Returns:
        uint16 (T,).

    >>> special = np.array([True, False, False, False, True])
    >>> word_lengths(special, np.array([False, True, True, False, False]))
    array([0, 2, 2, 1, 0], dtype=uint16)
    """
    begins = ~is_continuation | is_special
    begins[1:] |= is_special[:-1]
    begins[:1] = True
    word = np.cumsum(begins) - 1
    lengths: NDArray[np.uint16] = np.bincount(word)[word].astype(np.uint16)
    lengths[is_special] = 0
    return lengths


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
            "is_special": pa.array(_is_special(tokenizer)),
            "is_unknown": pa.array(np.arange(size) == tokenizer.unk_id),
            "is_ordinary": pa.array(_members(tokenizer.ordinary_ids, size)),
            "is_continuation": pa.nulls(size, pa.bool_()) if continues is None else continues,
        }
    )


def _is_special(tokenizer: PretrainingTokenizer) -> NDArray[np.bool_]:
    """Return which ids (V,) are never selected: the special ones but `[UNK]`, which is text."""
    is_special = _members(tokenizer.special_ids, tokenizer.vocab_size)
    is_special[tokenizer.unk_id] = False
    return is_special


def _members(ids: NDArray[np.int64], size: int) -> NDArray[np.bool_]:
    found = np.zeros(size, np.bool_)
    found[ids] = True
    return found
