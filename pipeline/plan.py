"""The step between the stages: the split, and buckets of documents that are worked on together.

Everything here is a function of the set of documents. A document's *cell* is the first 16 bits
of its id; a bucket is a run of cells that holds about `bucket_tokens` tokens (by default, see
`_tokens_of_bucket`), each counted as often as it is drawn. Train and validation have buckets of
their own.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clozemill.pipeline.census import Counts, count_documents, documents_needed
from clozemill.pipeline.config import SPLITS, BuildConfig
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.figures import count
from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.parts import NUM_CELLS, open_part
from clozemill.pipeline.splits import MAX_HASH

_BUCKET_TOKENS = 4_000_000
_FEWEST_BUCKETS = 8
_LEAST_TOKENS = 2_000_000
"""A bucket of fewer would leave a random pair too few documents to choose from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A run of cells of one split: the unit of the second stage."""

    split: str
    """`train` or `validation`."""

    number: int
    """Its place among the buckets of its split."""

    first_cell: int
    """Its first cell."""

    stop_cell: int
    """The cell after its last."""

    num_documents: int
    """Distinct documents that make instances."""

    num_tokens: int
    """Tokens of those documents, once per pass and kept copy: what the second stage works on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the second stage needs to know of the whole corpus."""

    buckets: tuple[Bucket, ...]
    """Those of training, then those of validation."""

    sources: tuple[str, ...]
    """The names of all sources, sorted: the one dictionary of every shard."""

    validation_threshold: int
    """A document whose split hash is below it is a validation document."""

    most_span_value: int
    """No number of a span is larger: sentences of a document, or tokens cut from a span.

    A span ends with the sentence that makes it long enough, so a cut is within the longest
    sentence and an instance's length.
    """

    notices: tuple[str, ...]
    """What the user may not expect of the split, a line each."""


def make_plan(map_dir: Path, parts: Sequence[str], config: BuildConfig) -> Plan:
    """Return the plan for the documents in the parts.

    Raises:
        InputError: There are no documents, or too few for the recipe.
    """
    paths = [map_dir / part for part in parts]
    sources = sorted({name for path in paths for name in _distinct(open_part(path)["source"])})
    asked = 0 if config.validation else round(config.validation_fraction * MAX_HASH)
    counts = count_documents(paths, sources, config, asked)
    threshold, notices = _settle_threshold(counts, config, asked)
    if threshold != asked:
        counts = count_documents(paths, sources, config, threshold)
    _check_enough(counts, config)
    buckets = [
        bucket
        for side, split in enumerate(SPLITS)
        for bucket in _join_cells(split, counts.tokens[side], counts.documents[side], config)
    ]
    return Plan(
        buckets=tuple(buckets),
        sources=tuple(sources),
        validation_threshold=threshold,
        most_span_value=max(counts.most_sentences, counts.longest_sentence + config.max_seq_length),
        notices=(*notices, *_held_out_notices(counts)),
    )


def _held_out_notices(counts: Counts) -> Iterator[str]:
    if counts.num_held_out:
        yield (
            "documents of the training inputs that are also in the validation inputs, and so held "
            f"out of training: {counts.num_held_out:,}."
        )


def no_sentence_fits(config: BuildConfig) -> InputError:
    """Return the error of a build that would drop every sentence."""
    return InputError(
        f"no instances: long_sentences is {config.long_sentences!r} and no sentence fits "
        f"max_seq_length {config.max_seq_length}; raise it, or split long sentences."
    )


def _distinct(column: pa.Array) -> list[str]:
    names: list[str] = pc.unique(column).to_pylist()
    return names


def _settle_threshold(
    counts: Counts, config: BuildConfig, asked: int
) -> tuple[int, tuple[str, ...]]:
    """Return the threshold, moved so that either split has the documents that the recipe needs.

    A share of a small corpus may hold fewer validation documents than a pair takes, or leave
    fewer for training.
    """
    needed = documents_needed(config)
    num_documents = int(counts.documents.sum())
    if config.validation or config.validation_fraction == 0.0 or num_documents == 0:
        return asked, ()
    if num_documents < 2 * needed:
        return 0, (
            f"{num_documents} documents are too few for a validation split; all are for training.",
        )
    threshold = min(max(asked, int(counts.smallest[-1]) + 1), int(counts.largest[0]))
    if threshold == asked:
        return threshold, ()
    split, num_held_out = (
        ("validation", needed) if threshold > asked else ("train", num_documents - needed)
    )
    return threshold, (
        f"validation_fraction {config.validation_fraction} of {num_documents} documents leaves "
        f"{split} fewer than the {needed} that the recipe needs; validation has {num_held_out}.",
    )


def _check_enough(counts: Counts, config: BuildConfig) -> None:
    num_train, num_validation = (int(of_split.sum()) for of_split in counts.documents)
    if num_train < documents_needed(config) and counts.num_held_out:
        raise InputError(
            f"the train split has {count(num_train, 'document')}, as validation inputs hold "
            f"documents out that are also in training inputs, here {counts.num_held_out:,}; name "
            "other validation inputs, or none for a share of the documents."
        )
    if num_train == 0 and num_validation == 0:
        by_weight = "--source-weight, " if any(w < 1 for _, w in config.source_weight) else ""
        raise InputError(
            f"no documents: every record was empty, or left out by {by_weight}"
            f"min_document_sentences {config.min_document_sentences}; check the inputs and "
            "--text-field."
        )
    for split, num_documents in (("train", num_train), ("validation", num_validation)):
        is_wanted = split == "train" or config.validation
        if is_wanted and num_documents < documents_needed(config):
            raise InputError(
                f"the {split} split has {count(num_documents, 'document')}, and a random B must "
                "come from another document; add documents (with --layout lines or sentences one "
                "file can hold many), or use --recipe roberta-full, which makes no pairs."
                if config.has_pairs
                else f"the {split} split has no documents; add some."
            )
    is_each_too_long = counts.shortest_train_sentence > config.max_seq_length - 2
    if config.long_sentences == "drop" and not config.has_pairs and is_each_too_long:
        raise no_sentence_fits(config)


def _tokens_of_bucket(num_tokens: int, config: BuildConfig) -> int:
    """Return about how many tokens a bucket holds; a small split is cut finer, for more cores."""
    if config.bucket_tokens is not None:
        return config.bucket_tokens
    return min(_BUCKET_TOKENS, max(num_tokens // _FEWEST_BUCKETS, _LEAST_TOKENS))


def _join_cells(
    split: str,
    tokens: NDArray[np.int64],
    documents: NDArray[np.int64],
    config: BuildConfig,
) -> list[Bucket]:
    """Return buckets of neighbouring cells; together they cover every cell."""
    needed = documents_needed(config)
    if documents.sum() == 0 and split == "validation":
        return []
    token_sums = starts_of(tokens)
    bucket_tokens = _tokens_of_bucket(int(token_sums[-1]), config)
    document_sums = starts_of(documents)
    borders = [0]
    while True:
        wanted = token_sums[borders[-1]] + bucket_tokens
        wanted_documents = document_sums[borders[-1]] + needed
        stop = max(
            int(np.searchsorted(token_sums, wanted)),
            int(np.searchsorted(document_sums, wanted_documents)),
        )
        # A remainder under half a bucket joins the last one: no bucket is small.
        rest = token_sums[-1] - token_sums[min(stop, NUM_CELLS)]
        spare = document_sums[-1] - document_sums[min(stop, NUM_CELLS)]
        if stop >= NUM_CELLS or rest < bucket_tokens / 2 or spare < needed:
            borders.append(NUM_CELLS)
            break
        borders.append(stop)
    return [
        Bucket(
            split=split,
            number=number,
            first_cell=first,
            stop_cell=stop,
            num_documents=int(document_sums[stop] - document_sums[first]),
            num_tokens=int(token_sums[stop] - token_sums[first]),
        )
        for number, (first, stop) in enumerate(zip(borders, borders[1:], strict=False))
    ]
