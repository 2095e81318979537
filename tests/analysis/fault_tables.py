"""Fault -> the audits that must notice it, and no other may.

`FAULTS` are of masks, `PAIR_FAULTS` of pairs and documents, `PACKED_FAULTS` of rows without pairs.
"""

from typing import Any, NamedTuple

from tests.analysis import faults, pair_faults
from tests.analysis.faults import Change

SOUND: dict[str, dict[str, Any]] = {
    "tokens": {"max_seq_length": 64, "bucket_tokens": 20_000},
    "words": {"max_seq_length": 64, "bucket_tokens": 20_000, "mask_unit": "word"},
    "rounded at random": {
        "max_seq_length": 64,
        "bucket_tokens": 20_000,
        "mask_count": "stochastic",
    },
    "long": {"max_seq_length": 512, "bucket_tokens": 20_000},
    "long, cap 20": {
        "max_seq_length": 512,
        "bucket_tokens": 20_000,
        "max_predictions_per_seq": 20,
    },
}
"""Settings of sound datasets, by name."""


class Fault(NamedTuple):
    sound: str
    """The dataset it is planted in."""

    change: Change

    fails: set[str]
    """Audits that must fail."""

    may_fail: tuple[str, ...] = ()
    """Beginnings of the names of others that may."""


FAULTS = {
    "cap 20 at length 512": Fault("long", faults.cap_of_20, {"selected_per_instance"}),
    "cap 20 at length 512, as asked for": Fault(
        "long, cap 20", faults.unchanged, {"cap_on_selected"}
    ),
    "an id that no token has": Fault(
        "tokens",
        faults.shown_beyond_the_vocabulary,
        {"random_tokens_special", "shown_in_vocabulary"},
    ),
    "specials drawn as random tokens": Fault(
        "tokens", faults.special_random_tokens, {"random_tokens_special"}
    ),
    "[SEP] selected": Fault("tokens", faults.separators_selected, {"special_tokens_selected"}),
    "one seed for every row": Fault(
        "tokens",
        faults.one_seed_for_every_row,
        {"repeated_masks", "selected_by_position"},
        # Every row shows the same few random tokens, two of them or not.
        may_fail=("selected_by_", "overlap_", "actions", "random_tokens_by_", "repeated_random"),
    ),
    "one seed for every shard": Fault(
        "tokens", faults.one_seed_for_every_shard, {"repeated_masks", "repeated_random_tokens"}
    ),
    "one seed for every shard after variant 0": Fault(
        "tokens",
        faults.one_seed_for_every_shard_after_variant_0,
        {"repeated_masks", "repeated_random_tokens"},
    ),
    "one seed for every shard of whole words": Fault(
        "words", faults.one_seed_for_every_shard, {"repeated_random_tokens"}
    ),
    "the full stop is selected half as often": Fault(
        "tokens",
        faults.one_token_half_as_often,
        {"selected_by_frequency", "selected_by_token"},
        may_fail=("selected_by_",),
    ),
    "B is selected half as often": Fault(
        "tokens",
        faults.b_half_as_often,
        {"selected_by_segment"},
        may_fail=("selected_by_position", "overlap_"),
    ),
    "continuations are selected half as often": Fault(
        "tokens",
        faults.continuations_half_as_often,
        {"selected_by_word_length"},
        may_fail=("selected_by_", "overlap_"),
    ),
    "the last tenth of the vocabulary is never drawn": Fault(
        "tokens",
        faults.last_random_tokens_left_out,
        {"random_tokens_by_band"},
    ),
    "one random token is drawn tenfold": Fault(
        "tokens",
        faults.one_random_token_drawn_tenfold,
        {"random_tokens_by_id"},
        may_fail=("random_tokens_by_band",),
    ),
    "numbers are always rounded down": Fault(
        "rounded at random", faults.rounded_down, {"random_rounding"}
    ),
    "tokens are selected for whole words": Fault(
        "words", faults.tokens_under_word_masks, {"words_whole"}
    ),
    "100 % [MASK]": Fault("tokens", faults.only_mask_tokens, {"actions"}),
    "masks drawn with replacement": Fault(
        "tokens", faults.drawn_with_replacement, {"repeated_positions", "overlap_of_variants"}
    ),
    "masks drawn with replacement, repeats left out": Fault(
        "tokens", faults.repeats_left_out, {"selected_per_instance"}
    ),
    "variants all equal": Fault(
        "tokens", faults.equal_variants, {"equal_variants", "overlap_of_variants"}
    ),
    "variants of whole words all equal": Fault(
        "words", faults.equal_variants, {"equal_variants_of_words"}
    ),
    "whole words across [SEP]": Fault(
        "words", faults.words_across_separators, {"words_across_special", "words_per_instance"}
    ),
}

PAIR_FAULTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "labels are shifted by one row": (
        {"rows": pair_faults.of_train(pair_faults.shift_labels)},
        {
            "chunk_sentences",
            "documents_in_pairs",
            "forced_pairs",
            "label_coin",
            "ledger_pairs",
            "next_pairs_adjacent",
            "random_pairs_elsewhere",
        },
    ),
    "random partners are of the same document": (
        {"rows": pair_faults.of_train(pair_faults.draw_random_from_a)},
        {"random_pairs_elsewhere"},
    ),
    "the rows of a tenth of the documents are dropped": (
        {"rows": pair_faults.of_train(pair_faults.drop_tenth_of_documents)},
        {"documents_in_pairs", "ledger_pairs"},
    ),
    "a tenth of the documents is dropped with its rows": (
        {
            "rows": pair_faults.of_train(pair_faults.drop_tenth_of_documents),
            "documents": pair_faults.drop_tenth_of_document_rows,
        },
        {"label_expectations", "ledger_documents", "ledger_pairs", "spans_in_documents"},
    ),
    "a validation document is in train": (
        {"rows": pair_faults.move_validation_document},
        {"ledger_pairs", "shared_documents", "spans_in_documents"},
    ),
    "a validation document is in train too": (
        {"rows": pair_faults.copy_validation_document},
        {
            "distinct_instances",
            "documents_in_pairs",
            "ledger_pairs",
            "shared_documents",
            "spans_in_documents",
        },
    ),
    "every shard holds the same rows": (
        {"rows": pair_faults.of_train(pair_faults.repeat_first_shard)},
        # Every coin counts seven times, so that even a small excess of one side is too large.
        {"distinct_instances", "documents_in_pairs", "label_coin", "ledger_pairs"},
    ),
    "a document is listed twice": (
        {"documents": pair_faults.list_a_document_twice},
        {"distinct_documents", "label_expectations", "ledger_documents"},
    ),
    "documents expect half as many next pairs": (
        {"documents": pair_faults.halve_expected_next},
        {"label_expectations"},
    ),
    "a variant is lost": (
        {"rows": pair_faults.of_train(pair_faults.lose_variants)},
        {"variants_stored"},
    ),
    "tokens are lost": (
        {"rows": pair_faults.of_train(pair_faults.lose_tokens)},
        {"documents_in_pairs", "ledger_pairs", "pair_segments", "separators"},
    ),
    "B begins where the row does": (
        {"rows": pair_faults.of_train(pair_faults.empty_borders)},
        {"documents_in_pairs", "ledger_pairs", "pair_segments"},
    ),
    "a [SEP] is missing": (
        {"rows": pair_faults.of_train(pair_faults.lose_separators)},
        {"separators"},
    ),
    "A is empty": (
        {"rows": pair_faults.of_train(pair_faults.empty_first_segments)},
        {"documents_in_pairs", "ledger_pairs", "pair_segments"},
    ),
    "a third was to be held out": ({"validation_fraction": 0.33}, {"validation_share"}),
    "half of a source was to be left out": (
        {"source_weight": [["news", 0.5]]},
        {"sampled_passes"},
    ),
    "a source was to be drawn twice": ({"source_weight": [["news", 2.0]]}, {"document_passes"}),
}

PACKED_FAULTS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "the rows of a tenth of the documents are dropped": (
        {"rows": pair_faults.of_train(pair_faults.drop_tenth_of_documents)},
        {"documents_in_rows", "ledger_packed"},
    ),
    "every shard holds the same rows": (
        {"rows": pair_faults.of_train(pair_faults.repeat_first_shard)},
        {"distinct_instances", "documents_in_rows", "ledger_packed"},
    ),
    "rows have a label": (
        {"rows": pair_faults.of_train(pair_faults.label_packed_rows)},
        {"packed_rows"},
    ),
}
