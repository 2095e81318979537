"""The ledger once more, counted from the rows and documents of a finished dataset.

What a build counted on its way is compared with what its files hold. Only counts of records, of
which nothing is left in the files, cannot be counted again.

Legend: N instances, P spans, D documents.
"""

from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.ledger import Ledger, total
from clozemill.pipeline.mask_rules import MaskRule
from clozemill.pipeline.masks import mask_counts
from clozemill.pipeline.read_records import DOCUMENTS_READ


class PairTokens(NamedTuple):
    """The tokens of A and B of pairs, one after the other; all (2N,)."""

    in_instance: NDArray[np.int64]
    """Tokens that are there, without specials."""

    cut: NDArray[np.int64]
    """Tokens of the named sentences that are not."""

    is_own: NDArray[np.bool_]
    """Whether they count for their document: A always, B where it is next."""


def pair_tokens(columns: InstanceColumns) -> PairTokens | None:
    """Return the tokens of A and B; None where some instance is no pair."""
    if not (np.diff(columns.spans.starts) == 2).all():
        return None
    border = columns.tokens.segment_b_start.astype(np.int64)
    lengths = np.diff(columns.tokens.starts)
    is_next = columns.next_sentence_label == 0
    return PairTokens(
        in_instance=np.stack([border - 2, lengths - border - 1], axis=1).reshape(-1),
        cut=columns.spans.cut_front.astype(np.int64) + columns.spans.cut_back,
        is_own=np.stack([np.ones_like(is_next), is_next], axis=1).reshape(-1),
    )


class Recount:
    """Sums over all rows and documents, under the names of the manifest."""

    def __init__(self, config: BuildConfig, rule: MaskRule) -> None:
        """Start with nothing counted."""
        self.config = config
        self.rule = rule
        self.expected: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        """Expected labels by split, source and label."""

        self._ledger: Ledger = Counter()
        self._split_sentences: Counter[str] = Counter()
        self._sentences: Counter[str] = Counter()

    def add_instances(self, columns: InstanceColumns, split: str) -> None:
        """Count rows."""
        label, chunk = columns.next_sentence_label, columns.num_chunk_sentences
        for reason, number in (
            ("all", len(label)),
            ("next", (label == 0).sum()),
            ("random", (label == 1).sum()),
            ("forced_random", (chunk == 1).sum()),
        ):
            self._ledger["instances", split, reason] += int(number)
        counts = mask_counts(columns.tokens, columns.masks, columns.num_variants, self.rule)
        for reason, number in counts.items():
            self._ledger["masks", split, reason] += number
        if self.config.has_pairs:
            self._add_pairs(columns, split)
        else:
            self._add_packed(columns, split)

    def _add_pairs(self, columns: InstanceColumns, split: str) -> None:
        pairs = pair_tokens(columns)
        if pairs is None:
            return
        for reason, number in (
            ("in_instances", pairs.in_instance[pairs.is_own].sum()),
            ("cut", pairs.cut[pairs.is_own].sum()),
            ("borrowed", pairs.in_instance[~pairs.is_own].sum()),
            ("borrowed_cut", pairs.cut[~pairs.is_own].sum()),
        ):
            self._ledger["pass_tokens", split, reason] += int(number)

    def _add_packed(self, columns: InstanceColumns, split: str) -> None:
        spans = columns.spans
        num_specials = len(columns.instance_ids) + len(spans.num_sentences)
        num_tokens = int(columns.tokens.starts[-1]) - num_specials
        self._ledger["pass_tokens", split, "in_instances"] += num_tokens
        self._sentences[split] -= int(spans.num_sentences.sum(dtype=np.int64))
        # Where a long sentence begins it fills a row alone, and something of it is missing behind.
        is_begin = (spans.cut_front == 0) & (spans.cut_back > 0)
        self._split_sentences[split] += int(is_begin.sum())

    def add_documents(self, batch: pa.RecordBatch) -> None:
        """Count documents."""
        columns = {name: batch.column(name) for name in batch.schema.names}
        tokens, unknown, duplicates, passes, sentences = (
            columns[name].to_numpy()
            for name in (
                "num_tokens", "num_unknown", "num_duplicates", "num_passes", "num_sentences"
            )
        )  # fmt: skip
        splits, fates = (columns[name].dictionary_encode() for name in ("split", "fate"))
        for code, split in enumerate(splits.dictionary.to_pylist()):
            chosen = splits.indices.to_numpy() == code
            self._add_fates(split, "duplicate", chosen, duplicates, tokens, unknown)
            for fate_code, fate in enumerate(fates.dictionary.to_pylist()):
                of_fate = chosen & (fates.indices.to_numpy() == fate_code)
                self._add_fates(split, fate, of_fate, np.ones_like(tokens), tokens, unknown)
            self._ledger["pass_tokens", split, "own"] += int((tokens * passes)[chosen].sum())
            self._sentences[split] += int((sentences * passes)[chosen].sum())
        for name in ("random", "next"):
            self._add_expected(columns, name)

    def _add_fates(
        self,
        split: str,
        fate: str,
        chosen: NDArray[np.bool_],
        times: NDArray[np.int64],
        tokens: NDArray[np.int64],
        unknown: NDArray[np.int64],
    ) -> None:
        for section, values in (
            ("documents", times),
            ("document_tokens", tokens * times),
            ("unknown_tokens", unknown * times),
        ):
            self._ledger[section, split, fate] += int(values[chosen].sum())

    def _add_expected(self, columns: dict[str, pa.Array], label: str) -> None:
        sums = pa.table(
            {"split": columns["split"], "source": columns["source"]}
            | {"expected": columns[f"expected_{label}"]}
        )
        for row in sums.group_by(["split", "source"]).aggregate([("expected", "sum")]).to_pylist():
            self.expected[row["split"], row["source"], label] += row["expected_sum"]

    def ledger(self) -> Ledger:
        """Return all counts, once every row and document was added."""
        ledger = self._ledger.copy()
        ledger["tokens", "", "read"] = total(ledger, "document_tokens")
        ledger["records", "", DOCUMENTS_READ] = total(ledger, "documents")
        if self.config.has_pairs:
            return ledger
        rule = self.config.long_sentences
        for split in {split for section, split, _ in ledger if section == "documents"}:
            lost = (
                ledger["pass_tokens", split, "own"] - ledger["pass_tokens", split, "in_instances"]
            )
            begun, absent = self._split_sentences[split], self._sentences[split]
            ledger["pass_tokens", split, "truncated"] = lost * (rule == "truncate")
            ledger["pass_tokens", split, "dropped"] = lost * (rule == "drop")
            ledger["long_sentences", split, "split"] = begun * (rule == "split")
            ledger["long_sentences", split, "truncated"] = begun * (rule == "truncate")
            ledger["long_sentences", split, "dropped"] = absent * (rule == "drop")
        return ledger
