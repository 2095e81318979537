"""Masks against a plain re-statement, exactly; their invariants; their laws."""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.pipeline import reference

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ConfigError, DatasetError, TokenizerError
from clozemill.pipeline.instances import MaskBatch, TokenBatch
from clozemill.pipeline.masks import (
    MaskRule,
    MaskVocabulary,
    default_max_predictions,
    draw_masks,
    make_mask_rule,
    num_selected,
)

PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB_SIZE = 60
FIRST_PIECE = 45  # 45 .. 59 continue a word, 5 .. 44 begin one
CONTINUATION = np.arange(VOCAB_SIZE) >= FIRST_PIECE
SPECIAL = frozenset([PAD, CLS, SEP, MASK])
PIECES = frozenset(range(FIRST_PIECE, VOCAB_SIZE))
VOCABULARY = MaskVocabulary(
    size=VOCAB_SIZE,
    mask_id=MASK,
    special_ids=np.array([PAD, CLS, SEP, MASK]),
    ordinary_ids=np.arange(5, VOCAB_SIZE),
    is_continuation=CONTINUATION,
)


def rule_of(vocabulary: MaskVocabulary = VOCABULARY, **fields: Any) -> MaskRule:
    return make_mask_rule(BuildConfig(**fields), vocabulary)


def batch_of(rows: list[list[int]]) -> TokenBatch:
    lengths = np.array([len(row) for row in rows], np.int64)
    return TokenBatch(
        input_ids=np.array([token for row in rows for token in row], np.uint16),
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        segment_b_start=lengths,
    )


def random_rows(seed: int, lengths: list[int], first_id: int = 5) -> list[list[int]]:
    """Rows `[CLS] A [SEP] B [SEP]` of given lengths, at least 5; `[UNK]` is among their tokens."""
    rng = np.random.default_rng(seed)
    rows = []
    for length in lengths:
        row = np.concatenate([[UNK], rng.integers(first_id, VOCAB_SIZE, length)])
        tokens = rng.permutation(row[:length])
        tokens[0] = CLS
        tokens[[int(rng.integers(2, length - 2)), -1]] = SEP
        rows.append(tokens.tolist())
    return rows


def ids_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, (count, 2), dtype=np.uint64)


def overlays_of(masks: MaskBatch) -> list[list[tuple[int, int]]]:
    pairs = list(zip(masks.positions.tolist(), masks.token_ids.tolist(), strict=True))
    return [pairs[a:b] for a, b in zip(masks.starts, masks.starts[1:], strict=False)]


def drawn(
    rows: list[list[int]], rule: MaskRule, num_variants: int, seed: int = 0
) -> Iterator[tuple[list[int], list[tuple[int, int]]]]:
    """Yield each row with each of its overlays."""
    masks = draw_masks(batch_of(rows), ids_of(len(rows), seed), np.arange(num_variants), rule)
    overlays = overlays_of(masks)
    assert len(overlays) == len(rows) * num_variants > 0
    for i, overlay in enumerate(overlays):
        yield rows[i // num_variants], overlay


RULES = [
    dict(mask_unit=unit, mask_count=count, masked_lm_prob=prob)
    for unit in ("token", "word")
    for count in ("rounded", "stochastic")
    for prob in (0.15, 0.5, 1.0)
]
every_rule = pytest.mark.parametrize("fields", RULES, ids=lambda f: "-".join(map(str, f.values())))


# Exact equality with the re-statement


@every_rule
def test_overlays_equal_the_plain_restatement(fields: dict[str, Any]) -> None:
    rows = random_rows(1, [5, 6, 9, 20, 64, 67, 128])
    ids = ids_of(len(rows))
    rule = rule_of(seed=2**63 + 5, **fields)
    found = overlays_of(draw_masks(batch_of(rows), ids, np.array([0, 1, 7]), rule))
    expected = []
    for row, id_words in zip(rows, ids.tolist(), strict=True):
        count = max(1, round(len(row) * fields["masked_lm_prob"]))
        plain = reference.MaskSettings(
            count=None if fields["mask_count"] == "stochastic" else count,
            probability=fields["masked_lm_prob"],
            max_predictions=999,
            is_word=fields["mask_unit"] == "word",
            special=SPECIAL,
            continuation=PIECES,
            random_ids=list(range(5, VOCAB_SIZE)),
            mask_id=MASK,
        )
        for variant in (0, 1, 7):
            choices = reference.KeyedChoices(2**63 + 5, tuple(id_words), variant)
            expected.append(reference.mask(row, plain, choices))
    assert found == expected


# A masking is a pure function


@every_rule
def test_an_overlay_is_the_same_alone_and_in_any_batch(fields: dict[str, Any]) -> None:
    rows = random_rows(2, [5, 128, 12, 30, 77, 64, 9, 100])
    ids = ids_of(len(rows))
    rule = rule_of(**fields)
    together = overlays_of(draw_masks(batch_of(rows), ids, np.arange(6), rule))
    assert len(together) == 48
    for i, row in enumerate(rows):
        for variant in range(6):
            alone = draw_masks(batch_of([row]), ids[i : i + 1], np.array([variant]), rule)
            assert overlays_of(alone) == [together[6 * i + variant]]
    order = [5, 0, 7, 3]
    some = draw_masks(batch_of([rows[i] for i in order]), ids[order], np.array([4, 1]), rule)
    assert overlays_of(some) == [together[6 * i + variant] for i in order for variant in (4, 1)]


def test_variants_instances_and_seeds_differ() -> None:
    row = random_rows(3, [128])[0]
    rows = [row] * 40
    overlays = overlays_of(draw_masks(batch_of(rows), ids_of(40), np.arange(10), rule_of()))
    overlays += overlays_of(draw_masks(batch_of(rows), ids_of(40), np.arange(10), rule_of(seed=1)))
    assert len({tuple(overlay) for overlay in overlays}) == 800


def test_positions_are_as_narrow_as_the_longest_instance_allows() -> None:
    rows = random_rows(4, [20])
    for length, dtype in ((256, np.uint8), (257, np.uint16)):
        masks = draw_masks(batch_of(rows), ids_of(1), np.arange(2), rule_of(max_seq_length=length))
        assert masks.positions.dtype == dtype
        assert masks.token_ids.dtype == np.uint16
    long = draw_masks(
        batch_of(random_rows(4, [512])), ids_of(1), np.arange(20), rule_of(max_seq_length=512)
    )
    assert long.positions.max() > 255
    wide = batch_of(rows)._replace(input_ids=batch_of(rows).input_ids.astype(np.uint32))
    assert draw_masks(wide, ids_of(1), np.arange(2), rule_of()).token_ids.dtype == np.uint32


def test_no_instances_or_no_variants_make_no_overlays() -> None:
    assert draw_masks(batch_of([]), ids_of(0), np.arange(3), rule_of()).starts.tolist() == [0]
    none = draw_masks(batch_of(random_rows(5, [9])), ids_of(1), np.arange(0), rule_of())
    assert none.starts.tolist() == [0]
    assert len(none.positions) == 0


# Counts


@pytest.mark.parametrize(
    ("length", "count"),
    [(5, 1), (7, 1), (10, 2), (17, 3), (30, 4), (50, 8), (64, 10), (128, 19), (512, 77)],
)
def test_counts_of_the_original_in_every_variant(length: int, count: int) -> None:
    assert num_selected(length, length - 3, 0.15, 512) == count
    rows = random_rows(length, [length] * 20)
    rule = rule_of(max_seq_length=512)
    for _, overlay in drawn(rows, rule, 10):
        assert len(overlay) == count


@given(st.integers(4, 600), st.floats(0.001, 1.0), st.integers(1, 100))
def test_count_is_pythons_rounding_within_its_limits(length: int, prob: float, cap: int) -> None:
    expected = min(cap, length - 3, max(1, round(length * prob)))
    assert num_selected(length, length - 3, prob, cap) == expected
    assert max(1, round(length * prob)) <= default_max_predictions(length, prob)


def test_the_cap_bites_where_it_is_set() -> None:
    rows = random_rows(6, [512] * 5)
    rule = rule_of(max_seq_length=512, max_predictions_per_seq=20)
    assert all(len(overlay) == 20 for _, overlay in drawn(rows, rule, 4))


@pytest.mark.parametrize("unit", ["token", "word"])
def test_probability_one_selects_exactly_all_but_specials(unit: str) -> None:
    """Case: pairs of 9 and 20 tokens: 6 and 17 are selected."""
    rows = random_rows(7, [9, 20])
    for row, overlay in drawn(rows, rule_of(masked_lm_prob=1.0, mask_unit=unit), 5):
        ordinary = [p for p, token in enumerate(row) if token not in (CLS, SEP)]
        assert [position for position, _ in overlay] == ordinary
        assert len(overlay) == {9: 6, 20: 17}[len(row)]


def test_stochastic_count_is_the_share_rounded_up_or_down_at_random() -> None:
    """20 rows of 17 maskable tokens x 2,000 variants: 2 or 3, mean 2.55 within 5 sigma."""
    rows = random_rows(8, [20] * 20)
    rule = rule_of(mask_count="stochastic")
    counts = np.array([len(overlay) for _, overlay in drawn(rows, rule, 2_000)])
    assert set(counts.tolist()) == {2, 3}
    assert abs(counts.mean() - 0.15 * 17) < 5 * np.sqrt(0.55 * 0.45 / len(counts))


def test_stochastic_count_can_be_nothing() -> None:
    rule = rule_of(mask_count="stochastic")
    counts = [len(overlay) for _, overlay in drawn(random_rows(9, [5]), rule, 2_000)]
    assert set(counts) == {0, 1}
    assert abs(np.mean(counts) - 0.3) < 5 * np.sqrt(0.3 * 0.7 / len(counts))


# Invariants


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(5, 150), min_size=1, max_size=6),
    st.sampled_from(RULES),
    st.integers(0, 2**64 - 1),
)
def test_positions_are_ascending_and_never_special(
    lengths: list[int], fields: dict[str, Any], seed: int
) -> None:
    rule = rule_of(seed=seed, max_seq_length=150, **fields)
    for row, overlay in drawn(random_rows(10, lengths), rule, 3):
        positions = [position for position, _ in overlay]
        assert positions == sorted(set(positions))
        for position, shown in overlay:
            assert row[position] not in (PAD, CLS, SEP, MASK)
            assert shown not in (PAD, UNK, CLS, SEP) or shown == row[position]


def test_unknown_tokens_are_predicted_like_others() -> None:
    rows = [[CLS, UNK, UNK, SEP, UNK, SEP]]
    assert all(len(overlay) == 1 for _, overlay in drawn(rows, rule_of(), 50))


def test_an_instance_of_specials_has_nothing_to_select() -> None:
    for unit in ("token", "word"):
        masks = list(drawn([[CLS, SEP, SEP]], rule_of(mask_unit=unit), 3))
        assert [overlay for _, overlay in masks] == [[], [], []]


@pytest.mark.parametrize("prob", [0.05, 0.15, 0.5, 1.0])
@pytest.mark.parametrize("count", ["rounded", "stochastic"])
def test_words_are_whole_and_none_that_fits_is_left_out(prob: float, count: str) -> None:
    """Words of three pieces on average, so that the count is often not reached exactly."""
    rows = random_rows(11, [5, 16, 40, 90, 128] * 5, first_id=FIRST_PIECE - 7)
    rule = rule_of(mask_unit="word", masked_lm_prob=prob, mask_count=count)
    num_short = 0
    for row, overlay in drawn(rows, rule, 8):
        selected = {position for position, _ in overlay}
        groups = reference.word_groups(row, SPECIAL, PIECES)
        inside = [group for group in groups if selected & set(group)]
        assert selected == {position for group in inside for position in group}
        num_maskable = sum(map(len, groups))
        most = num_selected(len(row), num_maskable, prob, 999)
        least = most
        if count == "stochastic":
            least, most = int(prob * num_maskable), int(prob * num_maskable + 1)
        assert len(selected) <= most
        if len(selected) < least:
            num_short += 1
            left_out = [group for group in groups if not selected & set(group)]
            assert all(len(group) > least - len(selected) for group in left_out)
    assert num_short > 0 or (prob, count) != (0.15, "rounded")


def test_a_word_never_reaches_across_a_special() -> None:
    """`##` pieces right after `[CLS]` and `[SEP]` are words of their own."""
    first, piece = 5, FIRST_PIECE
    row = [CLS, piece, first, piece, SEP, piece, piece, SEP]
    seen = Counter(
        tuple(position for position, _ in overlay)
        for _, overlay in drawn([row], rule_of(mask_unit="word", masked_lm_prob=0.25), 500)
    )
    assert set(seen) == {(1,), (2, 3), (5, 6)}


def test_a_word_longer_than_the_count_is_never_selected() -> None:
    row = [CLS, 5, FIRST_PIECE, FIRST_PIECE, SEP, SEP]
    assert all(overlay == [] for _, overlay in drawn([row], rule_of(mask_unit="word"), 20))


def test_worked_example_is_among_the_overlays() -> None:
    """`the tea is cold`: position 2 kept and 4 masked is one of what a half can draw."""
    vocabulary = MaskVocabulary(9, 3, np.array([0, 1, 2, 3]), np.arange(4, 9), None)
    rule = rule_of(vocabulary, masked_lm_prob=0.3)
    row = [1, 4, 5, 6, 7, 2]
    overlays = [overlay for _, overlay in drawn([row], rule, 3_000)]
    assert [(2, 5), (4, 3)] in overlays
    assert all(len(overlay) == 2 for overlay in overlays)


# Laws of chance


def test_actions_are_80_10_10_and_random_tokens_ordinary() -> None:
    """Case: 20,000 rows of 128, 30 tokens of which 5 special; bounds of 5 sigma."""
    vocabulary = MaskVocabulary(30, MASK, np.array([PAD, CLS, SEP, MASK]), np.arange(5, 30), None)
    rng = np.random.default_rng(12)
    tokens = rng.integers(5, 30, (20_000, 128)).astype(np.uint16)
    tokens[:, 0] = CLS
    tokens[:, [60, 127]] = SEP
    starts = np.arange(0, tokens.size + 1, 128)
    batch = TokenBatch(tokens.ravel(), starts, np.full(20_000, 61))
    masks = draw_masks(batch, ids_of(20_000), np.arange(1), rule_of(vocabulary))
    row = np.repeat(np.arange(20_000), np.diff(masks.starts))
    original = tokens[row, masks.positions]
    n = len(original)
    assert n == 20_000 * 19
    is_mask = masks.token_ids == MASK
    is_changed = ~is_mask & (masks.token_ids != original)
    for share, expected in ((is_mask.mean(), 0.8), (is_changed.mean(), 0.1 * 24 / 25)):
        assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / n)
    replacements = np.bincount(masks.token_ids[is_changed], minlength=30)
    assert (replacements[:5] == 0).all()
    assert (replacements[5:] > 0).all()
    assert stats.chisquare(replacements[5:]).pvalue > 1e-6


def test_other_shares_of_actions_are_kept_to() -> None:
    rows = random_rows(13, [128] * 50)
    for mask_prob, random_prob in ((1.0, 0.0), (0.0, 1.0), (0.0, 0.0), (0.3, 0.3)):
        rule = rule_of(mask_token_prob=mask_prob, random_token_prob=random_prob)
        shown = [
            (token == MASK, token != MASK and token != row[position])
            for row, overlay in drawn(rows, rule, 10)
            for position, token in overlay
        ]
        masked, changed = np.mean(shown, axis=0)
        # A random token is the original one in 1 of 55 draws; [UNK] is never drawn.
        for share, expected in ((masked, mask_prob), (changed, random_prob * 54 / 55)):
            assert abs(share - expected) <= 5 * np.sqrt(expected * (1 - expected) / len(shown))


def test_all_tokens_of_the_vocabulary_as_the_original_or_ordinary_ones() -> None:
    rows = random_rows(14, [128] * 100)
    for choice, expected in (("all", range(VOCAB_SIZE)), ("ordinary", range(5, VOCAB_SIZE))):
        rule = rule_of(random_tokens=choice, mask_token_prob=0.0, random_token_prob=1.0)
        shown = {token for _, overlay in drawn(rows, rule, 10) for _, token in overlay}
        assert shown == set(expected)


def test_every_maskable_position_is_as_likely() -> None:
    rows = random_rows(15, [70])
    counts = Counter(
        position for _, overlay in drawn(rows, rule_of(), 20_000) for position, _ in overlay
    )
    assert len(counts) == 67
    # Positions of one overlay exclude each other, which makes the statistic smaller: 57/67.
    statistic = stats.chisquare(list(counts.values())).statistic / (57 / 66)
    assert 1e-6 < stats.chi2.sf(statistic, 66) < 1 - 1e-6


def test_actions_do_not_depend_on_the_position() -> None:
    rows = random_rows(16, [128])
    table = np.zeros((128, 2))
    for _, overlay in drawn(rows, rule_of(), 20_000):
        for position, shown in overlay:
            table[position, int(shown == MASK)] += 1
    used = table[table.sum(axis=1) > 0]
    assert len(used) == 125
    assert stats.chi2_contingency(used).pvalue > 1e-6


def test_overlap_of_two_variants_is_hypergeometric() -> None:
    """2,000 instances x pairs of successive variants: n = 19 of 125, mean 2.888, var 2.096."""
    rows = random_rows(17, [128] * 2_000)
    masks = draw_masks(batch_of(rows), ids_of(2_000), np.arange(8), rule_of())
    selected = np.zeros((16_000, 128), np.bool_)
    selected[np.repeat(np.arange(16_000), np.diff(masks.starts)), masks.positions] = True
    by_instance = selected.reshape(2_000, 8, 128)
    overlaps = (by_instance[:, :-1] & by_instance[:, 1:]).sum(axis=2)
    law = stats.hypergeom(125, 19, 19)
    n = overlaps.size
    assert abs(overlaps.mean() - law.mean()) < 5 * np.sqrt(law.var() / n)
    spread = np.sqrt((law.expect(lambda x: (x - law.mean()) ** 4) - law.var() ** 2) / n)
    assert abs(overlaps.var() - law.var()) < 5 * spread
    # Independent along the chain: neighbouring overlaps share a variant, yet do not correlate.
    pair = np.corrcoef(overlaps[:, :-1].ravel(), overlaps[:, 1:].ravel())[0, 1]
    assert abs(pair) < 5 / np.sqrt(overlaps[:, 1:].size)


def test_word_masks_have_the_rates_of_the_restatement() -> None:
    """Selected share of tokens by word length, against Python's generator, within 5 sigma."""
    rows = random_rows(18, [128] * 100)
    plain = reference.MaskSettings(
        19, 0.15, 999, True, SPECIAL, PIECES, list(range(5, VOCAB_SIZE)), MASK
    )
    choices = reference.RandomChoices(random.Random(1))
    kernel_hits: Counter[int] = Counter()
    plain_hits: Counter[int] = Counter()
    words: Counter[int] = Counter()
    for row, overlay in drawn(rows, rule_of(mask_unit="word"), 20):
        ours = {position for position, _ in overlay}
        theirs = {position for position, _ in reference.mask(row, plain, choices)}
        for group in reference.word_groups(row, SPECIAL, PIECES):
            words[len(group)] += 1
            kernel_hits[len(group)] += group[0] in ours
            plain_hits[len(group)] += group[0] in theirs
    assert len(words) >= 4
    for size, count in words.items():
        share = (kernel_hits[size] + plain_hits[size]) / (2 * count)
        bound = 5 * np.sqrt(2 * share * (1 - share) / count)
        assert abs(kernel_hits[size] - plain_hits[size]) / count <= bound + 1e-12


# Errors


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^masked_lm_prob is 0, .* above 0, such as 0\.15\.$"):
        rule_of(masked_lm_prob=0.0)


def test_whole_words_need_a_tokenizer_that_knows_words() -> None:
    blind = VOCABULARY._replace(is_continuation=None)
    assert not rule_of(blind).is_continuation.any()
    with pytest.raises(TokenizerError, match=r"mask_unit is 'word', .* use mask_unit token"):
        rule_of(blind, mask_unit="word", tokenizer="toy")


def test_random_tokens_need_ordinary_ones() -> None:
    bare = VOCABULARY._replace(ordinary_ids=np.array([], np.int64))
    with pytest.raises(TokenizerError, match=r"toy has no ordinary tokens among its 60 "):
        rule_of(bare, tokenizer="toy")
    assert len(rule_of(bare, random_token_prob=0.0).random_ids) == 0
    assert len(rule_of(bare, random_tokens="all").random_ids) == VOCAB_SIZE


def test_tokens_of_another_vocabulary_are_refused() -> None:
    batch = batch_of([[CLS, VOCAB_SIZE, SEP, 5, SEP]])
    with pytest.raises(DatasetError, match=r"token id 60, but the tokenizer has 60 tokens; use "):
        draw_masks(batch, ids_of(1), np.arange(1), rule_of())


def test_instances_of_longer_settings_are_refused() -> None:
    batch = batch_of(random_rows(19, [129]))
    with pytest.raises(DatasetError, match=r"has 129 tokens, but max_seq_length is 128; use "):
        draw_masks(batch, ids_of(1), np.arange(1), rule_of())
