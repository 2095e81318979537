import numpy as np
import pytest
from scipy import stats
from tests.pipeline import reference

from clozemill.pipeline import draws
from clozemill.pipeline.jit import kernel

# Values that the generator must keep, or its version goes up. They are not those of docs/format.md,
# which tests/docs/test_format.py reads from there. The id is the bytes 00 01 02 ... 0f.
SEED = 20_190_524
ID_LOW = 0x0706050403020100
ID_HIGH = 0x0F0E0D0C0B0A0908
VECTORS = [
    # variant, purpose, key, draw 0, draw 1, uniform 0, bounded(100) 0 .. 7
    (
        0,
        draws.PAIR_TARGET,
        0x3C5DF4C2189D1CBC,
        0x8FB7E0BB41BDEA02,
        0x31319A0FC08D3E56,
        0.5613995034379894,
        [56, 19, 6, 34, 84, 12, 68, 65],
    ),
    (
        0,
        draws.MASK_POSITION,
        0x111D9DB288D223F3,
        0x9F45883A16DCC46A,
        0x96FFAE4E3EBF5B28,
        0.6221547262019724,
        [62, 58, 34, 56, 42, 50, 88, 31],
    ),
    (
        9,
        draws.MASK_POSITION,
        0xB411391F11E35C1F,
        0x8FDDA124E0D3E2E0,
        0x3FF7E55708DA685B,
        0.561975547317004,
        [56, 24, 10, 39, 17, 99, 18, 33],
    ),
]
# At this bound a quarter of all candidates is rejected; of the second key, that of draw 3 is.
REJECTING_BOUND = 2**62 + 2**61 + 1
REJECTING_DRAWS = [
    4303773378186234280,
    4080227578437681711,
    2366714706116555898,
    3506471909694801218,
]


@kernel
def _many_bounded(key, count, bound):  # type: ignore[no-untyped-def]
    values = np.empty(count, np.int64)
    for j in range(count):
        values[j] = draws.bounded(key, j, bound)
    return values


@kernel
def _many_keys(seed, ids, variant, purpose):  # type: ignore[no-untyped-def]
    keys = np.empty(len(ids), np.uint64)
    for i in range(len(ids)):
        keys[i] = draws.stream_key(draws.identity_key(seed, ids[i, 0], ids[i, 1]), variant, purpose)
    return keys


@kernel
def _many_uniform(keys):  # type: ignore[no-untyped-def]
    values = np.empty((len(keys), 4), np.float64)
    for i in range(len(keys)):
        for j in range(4):
            values[i, j] = draws.uniform(keys[i], j)
    return values


def many_bounded(key: int, count: int, bound: int) -> list[int]:
    return [int(value) for value in _many_bounded(np.uint64(key), count, bound)]


def key_of(seed: int, id_low: int, id_high: int, variant: int, purpose: int) -> int:
    ids = np.array([[id_low, id_high]], np.uint64)
    return int(_many_keys(np.uint64(seed), ids, variant, purpose)[0])


def test_the_finaliser_is_that_of_splitmix64() -> None:
    # The first outputs of splitmix64 from state 0, as published with it.
    outputs = [int(draws.draw(np.uint64(0), j)) for j in range(3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@pytest.mark.parametrize(
    ("variant", "purpose", "key", "draw_0", "draw_1", "uniform_0", "bounded_100"), VECTORS
)
def test_the_draws_of_this_version_stay_what_they_are(
    variant: int,
    purpose: int,
    key: int,
    draw_0: int,
    draw_1: int,
    uniform_0: float,
    bounded_100: list[int],
) -> None:
    assert draws.GENERATOR_VERSION == 1
    assert key_of(SEED, ID_LOW, ID_HIGH, variant, purpose) == key
    assert [int(draws.draw(np.uint64(key), j)) for j in (0, 1)] == [draw_0, draw_1]
    assert draws.uniform(np.uint64(key), 0) == uniform_0
    assert many_bounded(key, 8, 100) == bounded_100
    assert reference.hash64(SEED, ID_LOW, ID_HIGH, variant, purpose) == key
    assert [reference.bounded(key, j, 100) for j in range(8)] == bounded_100


def test_vector_with_a_rejected_candidate() -> None:
    key = VECTORS[1][2]
    assert many_bounded(key, 4, REJECTING_BOUND) == REJECTING_DRAWS
    plain = [reference.draw(key, j) * REJECTING_BOUND >> 64 for j in range(4)]
    assert plain[:3] == REJECTING_DRAWS[:3]
    assert plain[3] != REJECTING_DRAWS[3], "the vector must hold a rejected candidate"


def test_words_of_all_sizes_agree_with_whole_numbers() -> None:
    top = 2**64 - 1
    for words in [(0, 0, 0, 0, 0), (top, top, top, 2**62, 33), (2**63, 1, 2**53 + 1, 7, 5)]:
        assert key_of(*words) == reference.hash64(*words)
    for bound in (1, 2, 3, 2**31, 2**32 + 1, 2**53 + 1, REJECTING_BOUND, 2**63 - 1):
        expected = [reference.bounded(top, j, bound) for j in range(50)]
        assert many_bounded(top, 50, bound) == expected


def test_no_two_purposes_are_the_same() -> None:
    purposes = {
        name: value
        for name, value in vars(draws).items()
        if name.isupper() and name[0] != "_" and isinstance(value, int)
    }
    del purposes["GENERATOR_VERSION"]
    assert len(purposes) >= 20
    assert len(set(purposes.values())) == len(purposes)


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 100, 1000])
def test_bounded_is_uniform(bound: int) -> None:
    values = np.array(many_bounded(VECTORS[0][2], 200_000, bound))
    counts = np.bincount(values, minlength=bound)
    assert len(counts) == bound
    assert bound == 1 or stats.chisquare(counts).pvalue > 1e-6


def test_bounded_stays_uniform_where_it_rejects() -> None:
    values = np.array(many_bounded(VECTORS[0][2], 200_000, REJECTING_BOUND), np.float64)
    result = stats.kstest(values / REJECTING_BOUND, "uniform")
    assert result.pvalue > 1e-6


def test_neighbouring_words_give_independent_draws() -> None:
    """Ids, seeds and variants that differ by one bit: uniform, and uncorrelated with each other."""
    ids = np.stack([np.arange(50_000), np.zeros(50_000)], axis=1).astype(np.uint64)
    streams = [
        _many_uniform(_many_keys(np.uint64(seed), ids, variant, purpose))
        for seed, variant, purpose in [(0, 0, 1), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    ]
    columns = np.concatenate(streams, axis=1)
    for column in columns.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-6
    correlations = np.corrcoef(columns.T)[np.triu_indices(columns.shape[1], 1)]
    assert len(correlations) == 120
    assert np.abs(correlations).max() < 5.5 / np.sqrt(len(ids))


def test_uniform_lies_in_the_half_open_interval() -> None:
    values = _many_uniform(np.arange(100_000, dtype=np.uint64))
    assert values.min() >= 0.0
    assert values.max() < 1.0
