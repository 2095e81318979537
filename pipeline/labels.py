"""The exact share of random pairs that the coin and the putting back lead to.

The share is above one half (algorithm of `pairs`: a chunk of one sentence is random without a
coin, and a random pair gives sentences back that then draw again), and no closed form gives it.
"""

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.instances import Corpus
from clozemill.pipeline.jit import kernel, njit
from clozemill.pipeline.pairs import find_chunk_end


def expected_labels(corpus: Corpus, targets: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return float64 (D, 2): expected random and next instances of each document.

    Expected over coins and splits, given the targets that were drawn, summed over the
    document's passes. Holds for the original's coin, not for `nsp_balance = "exact"`.

    With R(i) random instances expected from sentence i on, e the end of the chunk that starts
    at i, and k its sentences: R(i) = 1 + R(i + 1) if k = 1, else
    R(i) = (1 + mean of R(i + a) over a in 1 .. k - 1) / 2 + R(e) / 2; likewise the next ones.

    Args:
        corpus: The documents.
        targets: (sum of num_passes,), from `draw_pairs`.
    """
    expected = np.zeros((len(corpus.document_starts) - 1, 2), np.float64)
    if len(expected) > 0:
        longest = int(np.diff(corpus.document_starts).max())
        _fill_expected(corpus, targets, np.zeros((longest + 1, 2), np.float64), expected)
    return expected


@kernel
def _fill_expected(
    corpus: Corpus,
    targets: NDArray[np.int64],
    scratch: NDArray[np.float64],
    expected: NDArray[np.float64],
) -> None:
    place = 0
    for document in range(corpus.num_passes.size):
        for _ in range(corpus.num_passes[document]):
            _expect_from_end(corpus, document, targets[place], scratch)
            expected[document] += scratch[0]
            place += 1


@njit
def _expect_from_end(
    corpus: Corpus, document: int, target: int, scratch: NDArray[np.float64]
) -> None:
    """Set row i of scratch to the random and next instances expected from sentence i on."""
    first = corpus.document_starts[document]
    document_end = corpus.document_starts[document + 1]
    scratch[document_end - first] = 0.0
    for start in range(document_end - 1, first - 1, -1):
        chunk_end = find_chunk_end(corpus.sentence_starts, start, document_end, target)
        i = start - first
        num_sentences = chunk_end - start
        if num_sentences == 1:
            scratch[i, 0] = 1.0 + scratch[i + 1, 0]
            scratch[i, 1] = scratch[i + 1, 1]
            continue
        num_random = 0.0
        num_next = 0.0
        for a in range(1, num_sentences):
            num_random += scratch[i + a, 0]
            num_next += scratch[i + a, 1]
        after = scratch[chunk_end - first]
        scratch[i, 0] = (1.0 + num_random / (num_sentences - 1) + after[0]) / 2.0
        scratch[i, 1] = (num_next / (num_sentences - 1) + 1.0 + after[1]) / 2.0
