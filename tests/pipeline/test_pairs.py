"""The pair kernel against a plain re-statement, exactly; then the laws that follow."""

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.pipeline import reference
from tests.pipeline.reference import Lengths, Pair, PairSettings, Segment, corpus_of, pairs_of

from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.instances import Corpus, Instances
from clozemill.pipeline.pairs import PairRule, cut_lengths, draw_pairs

documents_of_any_shape = st.lists(
    st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=2, max_size=6
)


def draw(
    corpus: Corpus, seed: int = 0, length: int = 128, short: float = 0.1, balanced: bool = False
) -> tuple[Instances, np.ndarray]:
    return draw_pairs(corpus, PairRule(length, short, balanced, np.uint64(seed)))


def random_documents(seed: int, count: int, mean_sentences: int = 12) -> Lengths:
    rng = random.Random(seed)
    return [
        [
            min(200, 1 + int(rng.expovariate(1 / 20)))
            for _ in range(1 + rng.randrange(2 * mean_sentences))
        ]
        for _ in range(count)
    ]


def sample_text(corpora: Path) -> Lengths:
    """The original's sample: one sentence a line, a blank line between documents."""
    text = (corpora / "hard" / "reference_bert_sample_text.txt").read_text(encoding="utf-8")
    documents = [block.splitlines() for block in text.strip().split("\n\n")]
    return [[len(line.split()) for line in block if line.strip()] for block in documents]


# Worked by hand


def test_two_documents_of_one_sentence_have_one_outcome() -> None:
    instances, targets = draw(corpus_of([[4], [7]]), short=0.0)
    assert pairs_of(instances) == [
        Pair(Segment(0, 0, 1), Segment(1, 0, 1), 1, 1),
        Pair(Segment(1, 0, 1), Segment(0, 0, 1), 1, 1),
    ]
    assert targets.tolist() == [125, 125]
    assert instances.span_starts.tolist() == [0, 2, 4]


def test_a_document_of_two_sentences_is_next_or_gives_its_second_sentence_back() -> None:
    others = [Segment(1, 0, 1), Segment(2, 0, 1)]
    seen: Counter[str] = Counter()
    for seed in range(300):
        instances, _ = draw(corpus_of([[4, 5], [200], [300]]), seed=seed, short=0.0)
        own = [pair for pair in pairs_of(instances) if pair.a.document == 0]
        if len(own) == 1:
            assert own == [Pair(Segment(0, 0, 1), Segment(0, 1, 1), 0, 2)]
            seen["next"] += 1
            continue
        first, second = own
        assert (first.a, first.label, first.num_chunk_sentences) == (Segment(0, 0, 1), 1, 2)
        assert (second.a, second.label, second.num_chunk_sentences) == (Segment(0, 1, 1), 1, 1)
        for pair, own_tokens in ((first, 4), (second, 5)):
            assert Segment(*pair.b.without_cuts()) in others
            whole = {1: 200, 2: 300}[pair.b.document]
            assert pair.b.cut_front + pair.b.cut_back == whole - (125 - own_tokens)
        seen["random"] += 1
    assert min(seen["next"], seen["random"]) > 150 - 5 * 8.7


def test_a_long_a_still_gets_one_sentence_of_another_document() -> None:
    """A alone fills the room: B wants less than nothing, gets a sentence, and both are cut."""
    instances, _ = draw(corpus_of([[200], [9, 9, 9]]), short=0.0)
    first = pairs_of(instances)[0]
    assert first.b.num_sentences == 1
    assert first.a.cut_front + first.a.cut_back == 200 - (125 - 9)
    assert (first.b.cut_front, first.b.cut_back) == (0, 0)


@pytest.mark.parametrize(
    ("length_a", "length_b", "cap", "cuts"),
    [
        (3, 4, 10, (0, 0)),
        (6, 5, 10, (1, 0)),
        (5, 6, 10, (0, 1)),
        (6, 6, 11, (0, 1)),
        (6, 6, 10, (1, 1)),
        (9, 4, 10, (3, 0)),
        (9, 8, 10, (4, 3)),
        (8, 9, 10, (3, 4)),
        (500, 500, 3, (498, 499)),
    ],
)
def test_the_longer_side_is_cut_and_b_if_they_are_equal(
    length_a: int, length_b: int, cap: int, cuts: tuple[int, int]
) -> None:
    assert cut_lengths(length_a, length_b, cap) == cuts


@given(st.integers(1, 90), st.integers(1, 90), st.integers(2, 90))
def test_closed_form_of_the_cuts_is_the_loop(length_a: int, length_b: int, cap: int) -> None:
    choices = reference.RandomChoices(random.Random(0))
    documents = [[length_a], [length_b]]
    a, b = reference.truncate(documents, Segment(0, 0, 1), Segment(1, 0, 1), cap, choices, 0)
    assert cut_lengths(length_a, length_b, cap) == (
        a.cut_front + a.cut_back,
        b.cut_front + b.cut_back,
    )


# Exact equality with the re-statement


@pytest.mark.parametrize("length", [5, 16, 64, 128, 512])
@pytest.mark.parametrize("balanced", [False, True])
def test_pairs_equal_the_plain_restatement(length: int, balanced: bool) -> None:
    for seed in range(3):
        documents = random_documents(seed, count=12)
        corpus = corpus_of(documents, num_passes=3)
        instances, targets = draw(corpus, seed=seed, length=length, short=0.3, balanced=balanced)
        expected, expected_targets = reference.corpus_pairs(
            corpus, documents, PairSettings(length, 0.3, balanced), seed
        )
        assert len(expected) > 36
        assert pairs_of(instances) == expected
        assert targets.tolist() == expected_targets


@settings(max_examples=60, deadline=None)
@given(documents_of_any_shape, st.integers(5, 90), st.integers(0, 2**64 - 1))
def test_pairs_of_any_documents_equal_the_restatement(
    documents: Lengths, length: int, seed: int
) -> None:
    corpus = corpus_of(documents, num_passes=2)
    instances, _ = draw(corpus, seed=seed, length=length, short=0.5)
    expected, _ = reference.corpus_pairs(corpus, documents, PairSettings(length, 0.5), seed)
    assert pairs_of(instances) == expected


@settings(max_examples=60, deadline=None)
@given(documents_of_any_shape, st.data())
def test_pairs_among_copies_equal_the_restatement_and_are_of_two_texts(
    documents: Lengths, data: st.DataObject
) -> None:
    groups = data.draw(
        st.lists(st.integers(0, 3), min_size=len(documents), max_size=len(documents)).filter(
            lambda groups: len(set(groups)) > 1
        )
    )
    corpus = corpus_of(documents, num_passes=2)._replace(text_groups=np.array(groups, np.int64))
    instances, _ = draw(corpus, length=32)
    drawn = pairs_of(instances)
    rule = PairSettings(32, 0.1, text_groups=tuple(groups))
    assert drawn == reference.corpus_pairs(corpus, documents, rule, 0)[0]
    assert all((groups[p.a.document] != groups[p.b.document]) == (p.label == 1) for p in drawn)


def test_pairs_of_the_original_sample_are_among_the_reachable(corpora: Path) -> None:
    documents = sample_text(corpora)
    assert len(documents) >= 3
    corpus = corpus_of(documents)
    reachable: dict[tuple[int, int], set[object]] = {}
    seen: dict[tuple[int, int], set[object]] = {}
    for seed in range(200):
        instances, targets = draw(corpus, seed=seed)
        for pair in pairs_of(instances):
            place = (pair.a.document, int(targets[pair.a.document]))
            if place not in reachable:
                reachable[place] = set(reference.reachable_pairs(documents, *place, 125))
            outcome = (
                pair.a.without_cuts(),
                pair.b.without_cuts(),
                pair.label,
                pair.num_chunk_sentences,
                pair.a.cut_front + pair.a.cut_back,
                pair.b.cut_front + pair.b.cut_back,
            )
            assert outcome in reachable[place]
            seen.setdefault(place, set()).add(outcome)
    # With the usual target, every "next" outcome of the first document turns up.
    next_outcomes = {outcome for outcome in reachable[0, 125] if outcome[2] == 0}  # type: ignore[index]
    assert next_outcomes
    assert next_outcomes <= seen[0, 125]


# Invariants


@settings(max_examples=60, deadline=None)
@given(documents_of_any_shape, st.integers(5, 90), st.integers(0, 2**64 - 1), st.booleans())
def test_every_sentence_is_used_once_as_the_documents_own(
    documents: Lengths, length: int, seed: int, balanced: bool
) -> None:
    corpus = corpus_of(documents, num_passes=2)
    instances, _ = draw(corpus, seed=seed, length=length, balanced=balanced)
    used: Counter[tuple[int, int, int]] = Counter()
    for pair, number in zip(pairs_of(instances), instances.pass_number, strict=True):
        own = [pair.a] if pair.label == 1 else [pair.a, pair.b]
        for segment in own:
            for i in range(segment.num_sentences):
                used[segment.document, int(number), segment.first_sentence + i] += 1
        in_a = reference.num_tokens(documents, pair.a) - pair.a.cut_front - pair.a.cut_back
        in_b = reference.num_tokens(documents, pair.b) - pair.b.cut_front - pair.b.cut_back
        assert in_a >= 1
        assert in_b >= 1
        assert in_a + in_b <= length - 3
        assert (pair.b.document != pair.a.document) == (pair.label == 1)
        assert pair.label == 1 or pair.num_chunk_sentences >= 2
    expected = {
        (index, number, sentence)
        for index, document in enumerate(documents)
        for number in (0, 1)
        for sentence in range(len(document))
    }
    assert used == Counter(expected)


def test_pairs_depend_on_the_documents_own_passes_alone() -> None:
    documents = random_documents(1, count=10)
    corpus = corpus_of(documents)
    more = corpus._replace(num_passes=np.array([3, 0, 1, 2, 1, 4, 1, 1, 0, 2], np.int64))
    once = group_by_document(draw(corpus, seed=3)[0])
    instances, targets = draw(more, seed=3)
    again = group_by_document(instances)
    assert len(targets) == more.num_passes.sum()
    for index, count in enumerate(more.num_passes):
        assert all(((index, number) in again) == (number < count) for number in range(5))
        if count > 0:
            assert again[index, 0] == once[index, 0]
    assert again[0, 0] != again[0, 1] != again[0, 2]


def group_by_document(instances: Instances) -> dict[tuple[int, int], list[Pair]]:
    groups: dict[tuple[int, int], list[Pair]] = {}
    for pair, number in zip(pairs_of(instances), instances.pass_number, strict=True):
        groups.setdefault((pair.a.document, int(number)), []).append(pair)
    return groups


def test_a_single_document_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"from 1 document: .* roberta-full\.$"):
        draw(corpus_of([[2, 2, 2]]))


def test_copies_of_a_single_document_are_refused() -> None:
    corpus = corpus_of([[2, 2], [2, 2], [2, 2]])._replace(text_groups=np.array([7, 7, 7]))
    with pytest.raises(ConfigError, match=r"from 3 copies of 1 document: "):
        draw(corpus)


def test_no_documents_have_no_pairs() -> None:
    instances, targets = draw(corpus_of([]))
    assert len(instances.pass_number) == len(targets) == 0
    assert instances.span_starts.tolist() == [0]


def test_random_pairs_of_two_documents_come_from_the_other_one() -> None:
    """Case: two documents of two lines, ten passes."""
    instances, _ = draw(corpus_of([[2, 2], [2, 2]], num_passes=10))
    randoms = [pair for pair in pairs_of(instances) if pair.label == 1]
    assert len(randoms) > 10
    assert all(pair.b.document == 1 - pair.a.document for pair in randoms)


def test_documents_of_one_sentence_are_all_random_and_the_same_text_whole_is_not() -> None:
    apart, _ = draw(corpus_of([[8]] * 200))
    assert len(apart.next_sentence_label) == 200
    assert apart.next_sentence_label.all()
    together, _ = draw(corpus_of([[8] * 100] * 2, num_passes=20))
    assert (together.next_sentence_label == 0).mean() > 0.25


# Lengths


def test_next_pairs_fill_the_sequence_unless_they_end_their_document() -> None:
    """Case: 5 documents of 40 sentences of 10 tokens, no short sequences."""
    documents = [[10] * 40] * 5
    instances, _ = draw(corpus_of(documents, num_passes=20), short=0.0)
    lengths: dict[bool, list[int]] = {True: [], False: []}
    for pair in pairs_of(instances):
        cuts = pair.a.cut_front + pair.a.cut_back + pair.b.cut_front + pair.b.cut_back
        total = 10 * (pair.a.num_sentences + pair.b.num_sentences) - cuts + 3
        assert total <= 128
        if pair.label == 0:
            is_last = pair.b.first_sentence + pair.b.num_sentences == 40
            lengths[is_last].append(total)
    assert len(lengths[False]) > 100
    assert set(lengths[False]) == {128}


def test_a_tenth_of_the_documents_aim_for_any_shorter_length() -> None:
    corpus = corpus_of([[10] * 4] * 50, num_passes=400)
    _, targets = draw(corpus)
    short = targets[targets < 125]
    expected = 0.1 * 123 / 124
    sigma = np.sqrt(expected * (1 - expected) / len(targets))
    assert abs(len(short) / len(targets) - expected) < 5 * sigma
    assert set(short.tolist()) == set(range(2, 125))
    assert stats.chisquare(np.bincount(short, minlength=125)[2:]).pvalue > 1e-6


# Laws of chance


def test_the_coin_is_fair_and_a_chunk_of_one_sentence_is_random() -> None:
    """z = (random - next) / sqrt(n) over chunks of two or more: mean 0, sd 1 over 200 seeds."""
    corpus = corpus_of(random_documents(2, count=150))
    scores = []
    for seed in range(200):
        instances, _ = draw(corpus, seed=seed)
        is_coin = instances.num_chunk_sentences >= 2
        labels = instances.next_sentence_label
        assert labels[~is_coin].all()
        assert 100 < is_coin.sum() < len(labels)
        scores.append((2.0 * labels[is_coin].sum() - is_coin.sum()) / np.sqrt(is_coin.sum()))
    assert abs(np.mean(scores)) < 5 / np.sqrt(len(scores))
    assert abs(np.std(scores) - 1) < 5 / np.sqrt(2 * len(scores))


def test_exact_balance_steers_labels_to_one_half() -> None:
    corpus = corpus_of(random_documents(2, count=150), num_passes=2)
    instances, _ = draw(corpus, balanced=True)
    for number in (0, 1):
        is_pass = instances.pass_number == number
        excess = 0
        coins = []
        for label, k in zip(
            instances.next_sentence_label[is_pass],
            instances.num_chunk_sentences[is_pass],
            strict=True,
        ):
            if k == 1:
                assert label == 1
            elif excess == 0:
                coins.append(int(label))
            else:
                assert label == (excess < 0)
            excess += 2 * int(label) - 1
        assert 20 < sum(coins) < len(coins) - 20
    free, _ = draw(corpus, balanced=False)
    steered_share = instances.next_sentence_label.mean()
    assert abs(steered_share - 0.5) < 0.02 < free.next_sentence_label.mean() - 0.5


def test_partners_and_their_first_sentences_are_uniform() -> None:
    documents = [[5] * 8] * 12
    instances, _ = draw(corpus_of(documents, num_passes=600))
    randoms = [pair for pair in pairs_of(instances) if pair.label == 1]
    partners = Counter((pair.b.document - pair.a.document) % 12 for pair in randoms)
    assert set(partners) == set(range(1, 12))
    assert stats.chisquare(list(partners.values())).pvalue > 1e-6
    firsts = Counter(pair.b.first_sentence for pair in randoms)
    assert set(firsts) == set(range(8))
    assert stats.chisquare(list(firsts.values())).pvalue > 1e-6


def test_partners_are_uniform_over_the_documents_that_are_no_copy() -> None:
    groups = np.array([0, 1, 0, 2, 3, 0, 4, 1, 5])
    corpus = corpus_of([[8] * 30] * 9, num_passes=40)._replace(text_groups=groups)
    randoms = [pair for pair in pairs_of(draw(corpus, length=32)[0]) if pair.label == 1]
    for index in range(9):
        partners = Counter(pair.b.document for pair in randoms if pair.a.document == index)
        assert set(partners) == set(np.flatnonzero(groups != groups[index]).tolist())
        assert stats.chisquare(list(partners.values())).pvalue > 1e-6


def test_front_cuts_are_fair_coins_for_any_number_of_tokens() -> None:
    """Cuts of 1 to over 64 tokens: the front share of each cut is Binomial(cut, 1/2)."""
    documents = [[65 + 7 * (i % 20)] for i in range(40)]
    instances, _ = draw(corpus_of(documents, num_passes=200), short=0.0)
    cuts = instances.span_cut_front + instances.span_cut_back
    assert cuts.max() > 64
    assert np.count_nonzero((cuts > 0) & (cuts < 64)) > 1_000
    halves = (2 * instances.span_cut_front - cuts)[cuts > 0] / np.sqrt(cuts[cuts > 0])
    assert len(halves) > 10_000
    assert abs(halves.mean()) < 5 / np.sqrt(len(halves))
    assert abs(halves.var() - 1) < 5 * np.sqrt(2 / len(halves))


# Distributions against the re-statement with Python's generator


def observations(documents: Lengths, pairs: list[Pair]) -> dict[str, list[float]]:
    """Return what is compared, from the pairs of one document and pass."""
    seen: dict[str, list[float]] = {
        "instances": [len(pairs)],
        "random instances": [sum(pair.label for pair in pairs)],
    }
    for pair in pairs:
        kind = "random" if pair.label else "next"
        cut_a = pair.a.cut_front + pair.a.cut_back
        cut_b = pair.b.cut_front + pair.b.cut_back
        for name, value in {
            "tokens of A": reference.num_tokens(documents, pair.a) - cut_a,
            "tokens of B": reference.num_tokens(documents, pair.b) - cut_b,
            "sentences of A": pair.a.num_sentences,
            "sentences of the chunk": pair.num_chunk_sentences,
            "cut of A": cut_a,
            "cut of B": cut_b,
            "front cut of B": pair.b.cut_front,
            "first sentence of B": pair.b.first_sentence,
        }.items():
            seen.setdefault(f"{name}, {kind}", []).append(value)
    return seen


def restated(documents: Lengths, num_passes: int, short: float) -> list[list[Pair]]:
    choices = reference.RandomChoices(random.Random(12))
    rule = PairSettings(128, short)
    return [
        reference.document_pairs(documents, index, rule, choices)[0]
        for index in range(len(documents))
        for _ in range(num_passes)
    ]


def assert_same_distributions(
    documents: Lengths, num_passes: int, short: float, is_by_document: bool
) -> None:
    """Compare by two-sample KS at p > 1e-6.

    By document means where documents are long and targets differ: the instances of a document
    share its target, so they are not independent observations.
    """
    instances, _ = draw(corpus_of(documents, num_passes=num_passes), seed=11, short=short)
    samples: list[dict[str, list[float]]] = []
    for groups in (
        list(group_by_document(instances).values()),
        restated(documents, num_passes, short),
    ):
        assert len(groups) == len(documents) * num_passes
        sample: dict[str, list[float]] = {}
        for pairs in groups:
            for name, values in observations(documents, pairs).items():
                kept = [float(np.mean(values))] if is_by_document else values
                sample.setdefault(name, []).extend(kept)
        samples.append(sample)
    assert set(samples[0]) == set(samples[1])
    assert len(samples[0]) == 18
    for name, drawn in samples[0].items():
        result = stats.ks_2samp(drawn, samples[1][name], method="asymp")
        assert result.pvalue > 1e-6, (name, result)


def test_distributions_equal_the_restatement() -> None:
    """60 documents x 20 passes, about 9,000 instances each."""
    documents = random_documents(5, count=60)
    assert_same_distributions(documents, num_passes=20, short=0.1, is_by_document=False)


@pytest.mark.slow
@pytest.mark.parametrize(("short", "is_by_document"), [(0.0, False), (0.1, True)])
def test_distributions_equal_the_restatement_on_real_text(
    corpora: Path, short: float, is_by_document: bool
) -> None:
    """Every third document of the 50 MB tier, sentences by full stops, tokens by words."""
    documents: Lengths = []
    for path in sorted((corpora / "pretrain").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                text = json.loads(line)["text"].replace("\n", ". ")
                lengths = [len(part.split()) for part in text.split(". ")]
                documents.append([length for length in lengths if length > 0][:2_000])
    documents = [document for document in documents if document][::3]
    assert len(documents) > 1_000
    assert_same_distributions(documents, 1, short, is_by_document)
