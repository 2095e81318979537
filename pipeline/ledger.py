"""The ledger: every document and token read is kept, cut, dropped or duplicated by a named reason.

A ledger is a flat count of `(section, split, reason)`; `close_ledger` checks that it adds up.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from clozemill.pipeline.assemble import span_tokens
from clozemill.pipeline.bucket import DOCUMENT_FATES, BucketDocuments
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.errors import ClozemillError
from clozemill.pipeline.instances import Corpus
from clozemill.pipeline.read_records import DOCUMENTS_READ, RECORD_FATES, RECORDS_READ, ReadTally
from clozemill.pipeline.recipes import Drawn

Ledger = Counter[tuple[str, str, str]]
"""Counts by section, split and reason.

Sections:
`records`: records of the inputs, by fate and other properties; the split is empty.
`tokens`: tokens of all documents that were `read`; the split is empty.
`documents`, `document_tokens`, `unknown_tokens`: documents, their tokens, and of those `[UNK]`, by
fate: one of `DOCUMENT_FATES`, or `duplicate`.
`pass_tokens`: what became of the tokens of kept documents, once per pass: `own` is the sum of
`OWN_FATES`; `borrowed` and `borrowed_cut` are those of random segments B.
`long_sentences`: sentences longer than a packed instance, once per pass: `split` over several,
`truncated`, `dropped`. Absent with pairs.
`instances`: `all`, by label (`next`, `random`), and `forced_random`, whose chunk had one sentence.
`masks`: `maskable` and `selected` positions, once per variant, and `tokens` of all instances.
"""

OWN_FATES = ("in_instances", "cut", "truncated", "dropped")
"""What becomes of a kept document's own tokens in one pass; they sum to `own`."""


class LedgerError(ClozemillError):
    """A ledger that does not add up: a fault of ours, never of the input."""


def merge_ledgers(ledgers: Iterable[Ledger]) -> Ledger:
    """Return the sum of ledgers, with the counts that are 0: `+` of counters would drop them."""
    merged: Ledger = Counter()
    for ledger in ledgers:
        merged.update(ledger)
    return merged


def to_json(ledger: Ledger) -> dict[str, dict[str, dict[str, int]]]:
    """Return the ledger nested for the manifest: section, split (empty: the whole), reason."""
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for (section, split, reason), count in sorted(ledger.items()):
        nested.setdefault(section, {}).setdefault(split, {})[reason] = count
    return nested


def from_json(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Ledger:
    """Return the ledger that `to_json` nested."""
    return Counter(
        {
            (section, split, reason): count
            for section, splits in nested.items()
            for split, reasons in splits.items()
            for reason, count in reasons.items()
        }
    )


def total(ledger: Ledger, section: str) -> int:
    """Return the sum of a section, over all splits and reasons."""
    return sum(count for (name, _, _), count in ledger.items() if name == section)


def ledger_faults(ledger: Ledger) -> list[str]:
    """Return a line for every sum of the ledger that does not close."""
    faults = []
    for what, read, section in (
        ("documents", ledger["records", "", DOCUMENTS_READ], "documents"),
        ("tokens", ledger["tokens", "", "read"], "document_tokens"),
    ):
        fates = total(ledger, section)
        if read != fates:
            faults.append(f"{read} {what} were read and {fates} have a fate")
    records = ledger["records", "", RECORDS_READ]
    fates = sum(
        count
        for (section, _, reason), count in ledger.items()
        if section == "records" and reason in RECORD_FATES
    )
    if records != fates:
        faults.append(f"{records} records were read and {fates} have a fate")
    for split in {split for section, split, _ in ledger if section == "pass_tokens"}:
        own = ledger["pass_tokens", split, "own"]
        used = sum(ledger["pass_tokens", split, fate] for fate in OWN_FATES)
        if own != used:
            faults.append(f"{split}: {own} own tokens went in and {used} came out")
    return faults


def close_ledger(ledger: Ledger) -> None:
    """Raise `LedgerError` unless every sum closes."""
    faults = ledger_faults(ledger)
    if faults:
        raise LedgerError(
            f"the ledger does not close: {'; '.join(faults)}. This is a fault of clozemill; "
            "please report it with the command and, if you can, the input."
        )


def reading_ledger(
    tallies: Iterable[dict[str, Any]], *, num_tokens: int, config: BuildConfig
) -> Ledger:
    """Return what became of the records, and how many tokens were read.

    Args:
        tallies: What receipts hold.
        num_tokens: Tokens of all documents.
        config: Which fields of records were asked for.

    Raises:
        InputError: No record had one of them.
    """
    merged = ReadTally()
    for tally in tallies:
        merged.merge(ReadTally.from_json(tally))
    merged.raise_if_no_field(config)
    ledger = Ledger({("records", "", reason): count for reason, count in merged.counts.items()})
    ledger["tokens", "", "read"] = num_tokens
    return ledger


def bucket_ledger(split: str, documents: BucketDocuments, corpus: Corpus, drawn: Drawn) -> Ledger:
    """Return what became of a bucket's documents and their tokens."""
    ledger: Ledger = Counter()
    num_tokens, num_unknown = documents.numbers("num_tokens"), documents.numbers("num_unknown")
    for code, fate in enumerate(DOCUMENT_FATES):
        of_fate = documents.fates == code
        ledger["documents", split, fate] += int(of_fate.sum())
        ledger["document_tokens", split, fate] += int(num_tokens[of_fate].sum())
        ledger["unknown_tokens", split, fate] += int(num_unknown[of_fate].sum())
    copies = documents.num_duplicates
    ledger["documents", split, "duplicate"] += int(copies.sum())
    ledger["document_tokens", split, "duplicate"] += int((num_tokens * copies).sum())
    ledger["unknown_tokens", split, "duplicate"] += int((num_unknown * copies).sum())
    own = (num_tokens * documents.num_passes).sum()
    ledger["pass_tokens", split, "own"] += int(own)
    used = _pair_tokens(corpus, drawn) if drawn.loss is None else _packed_tokens(corpus, drawn)
    for fate, count in used.items():
        ledger["pass_tokens", split, fate] += int(count)
    if drawn.loss is not None:
        ledger["long_sentences", split, "split"] += drawn.loss.num_split_sentences
        ledger["long_sentences", split, "truncated"] += drawn.loss.num_truncated_sentences
        ledger["long_sentences", split, "dropped"] += drawn.loss.num_dropped_sentences
    labels, chunks = drawn.instances.next_sentence_label, drawn.instances.num_chunk_sentences
    ledger["instances", split, "all"] += len(labels)
    ledger["instances", split, "next"] += int((labels == 0).sum())
    ledger["instances", split, "random"] += int((labels == 1).sum())
    ledger["instances", split, "forced_random"] += int((chunks == 1).sum())
    return ledger


def _pair_tokens(corpus: Corpus, drawn: Drawn) -> dict[str, int]:
    """Return the tokens of A and B by what became of them; a random B is another's, borrowed."""
    tokens = span_tokens(corpus, drawn.instances)
    cuts = drawn.instances.span_cut_front + drawn.instances.span_cut_back
    is_b = np.arange(len(tokens)) % 2 == 1
    borrowed = is_b & np.repeat(drawn.instances.next_sentence_label == 1, 2)
    return {
        "in_instances": tokens[~borrowed].sum(),
        "cut": cuts[~borrowed].sum(),
        "borrowed": tokens[borrowed].sum(),
        "borrowed_cut": cuts[borrowed].sum(),
    }


def _packed_tokens(corpus: Corpus, drawn: Drawn) -> dict[str, int]:
    assert drawn.loss is not None
    return {
        "in_instances": span_tokens(corpus, drawn.instances).sum(),
        "truncated": drawn.loss.num_truncated_tokens,
        "dropped": drawn.loss.num_dropped_tokens,
    }
