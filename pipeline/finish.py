"""What a build is, by its fingerprints, and the manifest that closes it."""

import importlib.metadata
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from clozemill import __version__
from clozemill.pipeline.config import BuildConfig, dataset_fingerprint, fingerprint
from clozemill.pipeline.digest import Digest
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.files import atomic_file, file_checksum
from clozemill.pipeline.inputs import InputFile
from clozemill.pipeline.ledger import Ledger, close_ledger, merge_ledgers, to_json
from clozemill.pipeline.manifest import (
    SPLITS,
    Fingerprints,
    Manifest,
    SplitEntry,
    TokenizerEntry,
    write_manifest,
)
from clozemill.pipeline.plan import Plan
from clozemill.pipeline.reduce import ReduceReceipt
from clozemill.pipeline.sentences import sentence_rule
from clozemill.pipeline.tokenizer import PretrainingTokenizer
from clozemill.pipeline.workspace import LOG_NAME, ORIGINS_NAME, TOKENIZER_FILES, Workspace

_DECIDING_LIBRARIES = ("sentencex", "tokenizers")


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildIdentity:
    """What tells one build from another."""

    fingerprints: Fingerprints
    tokenizer_hash: str
    libraries: dict[str, str]
    """Versions of the libraries that decide content."""

    record: dict[str, Any]
    """Everything compared when a folder is met again: settings, tokenizer, versions, inputs."""


def identify(
    config: BuildConfig, tokenizer: PretrainingTokenizer, files: Sequence[InputFile]
) -> BuildIdentity:
    """Return the identity of a build of these files."""
    libraries = {name: importlib.metadata.version(name) for name in _DECIDING_LIBRARIES}
    instances = {
        **config.settings("instances"),
        "sentences": sentence_rule(config),
        "has_validation_inputs": bool(config.validation),
        "tokenizer": tokenizer.hash,
        "generator_version": GENERATOR_VERSION,
        "libraries": libraries,
    }
    masks, layout = config.settings("masks"), config.settings("layout")
    inventory = {file.path: [file.num_bytes, file.version] for file in files}
    reading = {k: v for k, v in config.settings("input").items() if k != "inputs"}
    if config.limit_documents is not None:
        reading["input_order"] = [file.path for file in files]
    return BuildIdentity(
        fingerprints=Fingerprints(
            instances=fingerprint(instances),
            dataset=dataset_fingerprint(fingerprint(instances), config),
            layout=fingerprint(layout),
        ),
        tokenizer_hash=tokenizer.hash,
        libraries=libraries,
        record={**instances, **masks, **layout, **reading, "inputs": inventory},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the two stages gave."""

    tally: Ledger
    """Records of the inputs by what became of them."""

    plan: Plan
    receipts: Sequence[ReduceReceipt]
    seconds: dict[str, float]


def finish(
    workspace: Workspace,
    config: BuildConfig,
    tokenizer: PretrainingTokenizer,
    identity: BuildIdentity,
    outcome: Outcome,
) -> Manifest:
    """Close the ledger and write origins, log and, last, the manifest."""
    ledger = merge_ledgers([outcome.tally, *(receipt.ledger for receipt in outcome.receipts)])
    close_ledger(ledger)
    if not ledger["instances", "train", "all"]:
        raise InputError(
            f"no instances: long_sentences is {config.long_sentences!r} and no sentence fits "
            f"max_seq_length {config.max_seq_length}; raise it, or split long sentences."
        )
    manifest = Manifest(
        package_version=__version__,
        configuration={
            **config.settings("instances", "masks", "layout"),
            "sentences": sentence_rule(config),
        },
        fingerprints=identity.fingerprints,
        tokenizer=TokenizerEntry(
            hash=tokenizer.hash,
            vocab_size=tokenizer.vocab_size,
            special_ids={
                role: getattr(tokenizer, f"{role}_id")
                for role in ("pad", "unk", "cls", "sep", "mask")
            },
            files=_tokenizer_files(workspace),
        ),
        generator_version=GENERATOR_VERSION,
        libraries=identity.libraries,
        sources=outcome.plan.sources,
        splits={
            split: _split_entry(split, config, outcome.receipts)
            for split in SPLITS
            if any(receipt.split == split and receipt.shards for receipt in outcome.receipts)
        },
        shards=tuple(shard for receipt in outcome.receipts for shard in receipt.shards),
        documents=tuple(receipt.documents for receipt in outcome.receipts),
        ledger=to_json(ledger),
        label_expectations=_label_expectations(outcome.receipts),
    )
    _write_origins(workspace, outcome.receipts)
    _write_log(workspace, config, identity, outcome)
    write_manifest(workspace.out, manifest)
    return manifest


def _tokenizer_files(workspace: Workspace) -> dict[str, str]:
    paths = [workspace.tokenizer_dir / name for name in TOKENIZER_FILES]
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


def _write_origins(workspace: Workspace, receipts: Sequence[ReduceReceipt]) -> None:
    with atomic_file(workspace.out / ORIGINS_NAME) as sink:
        for receipt in receipts:
            with open(workspace.reduce_dir / receipt.origins, "rb") as stream:
                shutil.copyfileobj(stream, sink)


def _write_log(
    workspace: Workspace, config: BuildConfig, identity: BuildIdentity, outcome: Outcome
) -> None:
    lines = [
        {"event": "build", "identity": identity.record, "settings": config.settings("execution")},
        {"event": "done", "seconds": outcome.seconds, "notices": outcome.plan.notices},
    ]
    with atomic_file(workspace.out / LOG_NAME) as sink:
        for line in lines:
            sink.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
