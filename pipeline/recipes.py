"""From a configuration to instances and masks: which rule each recipe uses."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.instances import Corpus, Instances
from clozemill.pipeline.mask_rules import MaskRule, MaskVocabulary, make_mask_rule
from clozemill.pipeline.packing import LONG_SENTENCES, PackLoss, PackRule, pack_sentences
from clozemill.pipeline.pairs import PairRule, draw_pairs
from clozemill.pipeline.tokenizer import PretrainingTokenizer


class Drawn(NamedTuple):
    """The instances of a bucket, and what was decided on the way."""

    instances: Instances
    targets: NDArray[np.int64]
    """(sum of passes,): length each document aimed for in each pass; empty without pairs."""

    loss: PackLoss | None
    """Tokens that packing left out; None for pairs, whose cuts stand in the spans."""


def draw_instances(corpus: Corpus, config: BuildConfig) -> Drawn:
    """Return the instances of a bucket's documents by the configured recipe."""
    if config.has_pairs:
        rule = PairRule(
            max_seq_length=config.max_seq_length,
            short_seq_prob=config.short_seq_prob,
            is_balanced=config.nsp_balance == "exact",
            seed=np.uint64(config.seed),
        )
        instances, targets = draw_pairs(corpus, rule)
        return Drawn(instances, targets, None)
    pack_rule = PackRule(
        max_seq_length=config.max_seq_length,
        is_document_bound=config.recipe == "roberta-doc",
        long_sentences=LONG_SENTENCES.index(config.long_sentences),
    )
    instances, loss = pack_sentences(corpus, pack_rule)
    return Drawn(instances, np.empty(0, np.int64), loss)


def mask_rule(config: BuildConfig, tokenizer: PretrainingTokenizer) -> MaskRule:
    """Return the rule of the configured masks over the tokenizer's vocabulary."""
    vocabulary = MaskVocabulary(
        size=tokenizer.vocab_size,
        mask_id=tokenizer.mask_id,
        special_ids=tokenizer.unmaskable_ids,
        ordinary_ids=tokenizer.ordinary_ids,
        is_continuation=tokenizer.is_continuation,
    )
    return make_mask_rule(config, vocabulary)
