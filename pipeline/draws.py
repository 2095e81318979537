"""The random numbers of the build: a counter-based generator that any language can repeat.

All words are unsigned, 64 bits, and sums and products are taken modulo 2^64.

    GAMMA  = 0x9E3779B97F4A7C15
    mix(z) : z = (z xor (z >> 30)) * 0xBF58476D1CE4E5B9
             z = (z xor (z >> 27)) * 0x94D049BB133111EB
             z xor (z >> 31)

`mix` is the finaliser of splitmix64 (Steele, Lea and Flood 2014; Stafford's variant 13).

A *key* names a stream of draws. It is folded from five words, in this order:

    h = 0
    for word in (seed, id_low, id_high, variant, purpose):
        h = mix((h xor word) + GAMMA)

`id_low` and `id_high` are bytes 0-7 and 8-15 of a document or instance id, read as
little-endian integers. `variant` is the number of the masking, or of the pass for pairs.
`purpose` is one of the constants below, so that no two decisions share a draw.

    draw(key, j)       = mix(key + (j + 1) * GAMMA)            for j = 0, 1, 2, ...
    uniform(key, j)    = (draw(key, j) >> 11) / 2^53           in [0, 1)
    bounded(key, j, n) = a uniform integer in 0 .. n - 1       for 1 <= n < 2^63

`bounded` is Lemire's method (2019): with x = draw(key, j), the product x * n has 128 bits and
its upper half is the result, unless its lower half is below (2^64 - n) mod n. Then x is
rejected and its first value becomes a key of its own: the next candidates are draw(x, 0),
draw(x, 1), ... So draw j + 1 of the stream is the same whether or not draw j was rejected.
"""

import numpy as np

from clozemill.pipeline.jit import mul_high, njit

GENERATOR_VERSION = 1
"""Goes up whenever any draw changes; part of every dataset's fingerprint."""

PAIR_TARGET = 1
"""Draw 0: whether the document aims for a short length; draw 1: which."""
PAIR_SPLIT = 2
"""Draw i: sentences of A in the document's i-th instance of this pass."""
PAIR_LABEL = 3
"""Draw i: the coin of the i-th instance."""
PAIR_PARTNER = 4
"""Draw i: the other document of the i-th instance."""
PAIR_START = 5
"""Draw i: its first sentence."""
PAIR_CUT_A = 6
"""Draw i: a key, whose draws' bits say front or back for each token cut from A."""
PAIR_CUT_B = 7
"""The same for B."""
MASK_COUNT = 16
"""Draw 0: the random rounding of the number of selected tokens."""
MASK_POSITION = 17
"""Draw i: the i-th step of choosing tokens or words."""
MASK_ACTION = 18
"""Draw i: the action at the i-th selected position."""
MASK_REPLACEMENT = 19
"""Draw i: the random token at the i-th selected position, where its action is `random`."""
DOCUMENT_SPLIT = 32
"""Draw 0, under the split seed: the hash that puts a document into train or validation."""
DOCUMENT_PASSES = 33
"""Draw 0: whether a fraction of dupe_factor x source_weight gives one more pass."""
EPOCH_OFFSET = 48
"""Draw 0: how far an epoch's order is rotated. For this and the next, the id is (epoch, 0)."""
EPOCH_BLOCKS = 49
"""Draw i: the i-th step of shuffling an epoch's blocks."""
BLOCK_ROWS = 50
"""Draw i: the i-th step of shuffling a block's instances. For this on, the id is (epoch, block)."""
BLOCK_BATCHES = 51
"""Draw i: the i-th step of shuffling a block's global batches."""
BLOCK_PARTIAL = 52
"""Draw 0: how many global batches of the shortest instances come before the incomplete one's."""
STREAM_OFFSET = 53
"""Draw 0: how far an epoch is rotated for streams. The id is (epoch, 0)."""
STREAM_ROWS = 54
"""Draw i: the i-th step of shuffling a record batch. The id is (epoch, its first instance)."""

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_FIRST_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_MULTIPLIER = np.uint64(0x94D049BB133111EB)
_SHIFT_30 = np.uint64(30)
_SHIFT_27 = np.uint64(27)
_SHIFT_31 = np.uint64(31)
_SHIFT_11 = np.uint64(11)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO_TO_MINUS_53 = 2.0**-53


# Numba makes a float64 of uint64 combined with int64, so every operand here is a uint64.


@njit
def mix(word: np.uint64) -> np.uint64:
    """Return splitmix64's finaliser of a word."""
    word = (word ^ (word >> _SHIFT_30)) * _FIRST_MULTIPLIER
    word = (word ^ (word >> _SHIFT_27)) * _SECOND_MULTIPLIER
    return word ^ (word >> _SHIFT_31)


@njit
def fold(state: np.uint64, word: np.uint64) -> np.uint64:
    """Return a key's state after one more word."""
    return mix((np.uint64(state) ^ np.uint64(word)) + _GAMMA)


@njit
def identity_key(seed: np.uint64, id_low: np.uint64, id_high: np.uint64) -> np.uint64:
    """Return the state that all keys of one document or instance start from."""
    return fold(fold(fold(_ZERO, seed), id_low), id_high)


@njit
def stream_key(identity: np.uint64, variant: int, purpose: int) -> np.uint64:
    """Return the key of one variant (or pass) and purpose of a document or instance."""
    return fold(fold(identity, np.uint64(variant)), np.uint64(purpose))


@njit
def draw(key: np.uint64, j: int) -> np.uint64:
    """Return the j-th 64 random bits of a key."""
    return mix(key + (np.uint64(j) + _ONE) * _GAMMA)


@njit
def upper_bits(key: np.uint64, j: int) -> int:
    """Return the upper 53 bits of the j-th draw of a key."""
    return int(np.int64(draw(key, j) >> _SHIFT_11))


@njit
def uniform(key: np.uint64, j: int) -> float:
    """Return the j-th draw of a key as a multiple of 2^-53 in [0, 1)."""
    return upper_bits(key, j) * _TWO_TO_MINUS_53


@njit
def bounded(key: np.uint64, j: int, bound: int) -> int:
    """Return the j-th draw of a key as a uniform integer in 0 .. bound - 1."""
    n = np.uint64(bound)
    word = draw(key, j)
    low = word * n
    if low < n:
        threshold = (_ZERO - n) % n
        rejected = word
        attempt = 0
        while low < threshold:
            word = draw(rejected, attempt)
            low = word * n
            attempt += 1
    return int(np.int64(mul_high(word, n)))
