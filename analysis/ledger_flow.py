"""The ledger as a flow: documents and tokens from what was read to what instances hold."""

from clozemill.analysis.charts import Chart
from clozemill.analysis.sankey import Stage, sankey
from clozemill.pipeline.ledger import OWN_FATES
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.read_records import RECORD_FATES

_DOCUMENTS_HEIGHT, _TOKENS_HEIGHT = 90, 190
"""Of the first box, in pixels."""


def document_flow(manifest: Manifest) -> Chart:
    """Return the picture of what became of the documents that were read."""
    root = document_stages(manifest)
    return sankey("Documents, from what was read to what was kept", root, height=_DOCUMENTS_HEIGHT)


def token_flow(manifest: Manifest) -> Chart:
    """Return the picture of what became of the tokens of these documents."""
    root = token_stages(manifest)
    return sankey("Tokens, from documents to instances", root, height=_TOKENS_HEIGHT)


def document_stages(manifest: Manifest) -> Stage:
    """Return what was read, and what became of it: records where some were no document."""
    records = manifest.ledger["records"][""]
    read = records[RECORD_FATES[0]]
    parts = _fates(manifest, "documents")
    documents = Stage(name="documents read", count=read, parts=parts, whole="documents")
    if records["records_read"] == read:
        return documents
    lost = [
        Stage(name=_words(fate), count=records.get(fate, 0), is_lost=True)
        for fate in RECORD_FATES[1:]
    ]
    parts = (documents, *lost)
    return Stage(name="records read", count=records["records_read"], parts=parts, whole="records")


def token_stages(manifest: Manifest) -> Stage:
    """Return the tokens of all documents, and what became of them; kept ones once per pass."""
    count = manifest.ledger["tokens"][""]["read"]
    parts = _fates(manifest, "document_tokens")
    return Stage(name="tokens read", count=count, parts=parts, whole="read")


def _fates(manifest: Manifest, section: str) -> tuple[Stage, ...]:
    """Return what was kept by split, and what was not by reason over all splits."""
    splits = manifest.ledger[section]
    kept = [
        Stage(
            name=f"kept for {split}",
            count=fates["kept"],
            parts=_passes(manifest, split) if section == "document_tokens" else (),
            whole="kept",
        )
        for split, fates in splits.items()
        if fates.get("kept")
    ]
    reasons = sorted({fate for fates in splits.values() for fate in fates} - {"kept"})
    lost = [
        Stage(
            name=_words(reason),
            count=sum(fates.get(reason, 0) for fates in splits.values()),
            is_lost=True,
        )
        for reason in reasons
    ]
    return (*kept, *lost)


def _passes(manifest: Manifest, split: str) -> tuple[Stage, ...]:
    """Return what the passes over a split's documents made of their tokens."""
    fates = manifest.ledger["pass_tokens"].get(split, {})
    return tuple(
        Stage(
            name=f"{split}: {_words(fate)}",
            count=fates.get(fate, 0),
            is_lost=fate != "in_instances",
        )
        for fate in OWN_FATES
    )


def _words(reason: str) -> str:
    return reason.replace("_", " ")
