"""The end of a build: the ledger is closed, and the manifest makes the files a dataset."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozemill import __version__
from clozemill.pipeline.config import SPLITS, BuildConfig
from clozemill.pipeline.dataset_names import (
    LOG_NAME,
    ORIGINS_NAME,
    TOKENIZER_FILES,
    TOKENIZER_FOLDER,
)
from clozemill.pipeline.digest import Digest
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.files import atomic_file, file_checksum
from clozemill.pipeline.ledger import Ledger, close_ledger, merge_ledgers, to_json
from clozemill.pipeline.manifest import Manifest, SplitEntry, TokenizerEntry, write_manifest
from clozemill.pipeline.origins import join_origins
from clozemill.pipeline.plan import Plan, no_sentence_fits
from clozemill.pipeline.reduce import ReduceReceipt
from clozemill.pipeline.tasks import Job
from clozemill.pipeline.tokenizer import ROLES
from clozemill.pipeline.tokenizer_saving import save_tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the two stages gave."""

    tally: Ledger
    """Records of the inputs by what became of them."""

    plan: Plan
    """What the second stage was told."""

    receipts: Sequence[ReduceReceipt]
    """Those of the second stage, in the order of the buckets."""

    seconds: dict[str, float]
    """How long each stage took."""


def finish(job: Job, outcome: Outcome) -> Manifest:
    """Close the ledger and write origins, log and, last, the manifest."""
    ledger = merge_ledgers([outcome.tally, *(receipt.ledger for receipt in outcome.receipts)])
    close_ledger(ledger)
    if not ledger["instances", "train", "all"]:
        raise no_sentence_fits(job.config)
    manifest = _manifest(job, outcome, ledger)
    join_origins(
        job.workspace.out / ORIGINS_NAME,
        [job.workspace.reduce_dir / receipt.origins for receipt in outcome.receipts],
    )
    _write_log(job, outcome)
    write_manifest(job.workspace.out, manifest)
    return manifest


def _manifest(job: Job, outcome: Outcome, ledger: Ledger) -> Manifest:
    receipts = outcome.receipts
    return Manifest(
        package_version=__version__,
        configuration=job.identity.configuration,
        fingerprints=job.identity.fingerprints,
        tokenizer=_tokenizer_entry(job),
        generator_version=GENERATOR_VERSION,
        libraries=job.identity.libraries,
        sources=outcome.plan.sources,
        splits={
            split: _split_entry(split, job.config, receipts)
            for split in SPLITS
            if any(receipt.split == split and receipt.shards for receipt in receipts)
        },
        shards=tuple(shard for receipt in receipts for shard in receipt.shards),
        documents=tuple(receipt.documents for receipt in receipts),
        ledger=to_json(ledger),
        label_expectations=_label_expectations(receipts),
    )


def _tokenizer_entry(job: Job) -> TokenizerEntry:
    tokenizer, folder = job.tokenizer, job.workspace.out / TOKENIZER_FOLDER
    save_tokenizer(tokenizer, folder, model_max_length=job.config.max_seq_length)
    return TokenizerEntry(
        hash=tokenizer.hash,
        vocab_size=tokenizer.vocab_size,
        special_ids={role: getattr(tokenizer, f"{role}_id") for role in ROLES},
        files=_checksums(folder / name for name in TOKENIZER_FILES),
    )


def _checksums(paths: Iterable[Path]) -> dict[str, str]:
    return {path.name: file_checksum(path) for path in paths if path.exists()}


def _split_entry(split: str, config: BuildConfig, receipts: Sequence[ReduceReceipt]) -> SplitEntry:
    digest = Digest()
    for receipt in receipts:
        if receipt.split == split:
            digest.merge(receipt.digest)
    shards = [shard for receipt in receipts for shard in receipt.shards if shard.split == split]
    return SplitEntry(
        num_instances=sum(shard.num_instances for shard in shards),
        num_tokens=sum(shard.num_tokens for shard in shards),
        num_variants=config.num_variants(split),
        instances_digest=digest.instances.hexdigest(),
        dataset_digest=digest.dataset.hexdigest(),
    )


def _label_expectations(receipts: Sequence[ReduceReceipt]) -> dict[str, Any]:
    """Return the exact expectation of random and next instances, by split and source."""
    sums: dict[str, Any] = {}
    for receipt in receipts:
        for source, (random, following) in sorted(receipt.expected.items()):
            entry = sums.setdefault(receipt.split, {}).setdefault(
                source, {"random": 0.0, "next": 0.0}
            )
            entry["random"] += random
            entry["next"] += following
    return sums


def _write_log(job: Job, outcome: Outcome) -> None:
    settings = job.config.settings("execution")
    lines = [
        {"event": "build", "identity": job.identity.record, "settings": settings},
        {"event": "done", "seconds": outcome.seconds, "notices": outcome.plan.notices},
    ]
    with atomic_file(job.workspace.out / LOG_NAME) as sink:
        for line in lines:
            sink.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
