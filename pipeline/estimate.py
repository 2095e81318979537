"""What a build would cost, from a real build of a small sample in a temporary folder."""

import dataclasses
import json
import math
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import fsspec
import pyarrow as pa

from clozemill.pipeline.build import BuildReport, build
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import Document
from clozemill.pipeline.engine import usable_cores
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.input_splits import InputSplit
from clozemill.pipeline.inputs import Inputs, Listing, list_config_inputs
from clozemill.pipeline.notices import build_notices, input_notices
from clozemill.pipeline.read import ReadOptions, ReadTally, read_documents

SAMPLE_SPLITS = 8
MOST_SAMPLE_SPLITS = 250
"""Splits read where they are small, so that as much text is read; each has to be opened."""

SAMPLE_CHARACTERS = 1 << 20
"""Text read from each sampled split."""

SAMPLE_DOCUMENTS = 4
"""Documents read from each sampled split at least."""

_EXPANDED_BYTES = 4 << 20
"""Read of a compressed file to learn how far it expands."""

_WORK_BYTES_PER_TEXT_BYTE = 0.6
"""Token ids of two bytes at about four characters a token, lengths and ids of documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildEstimate:
    """What a build is expected to read, write and take."""

    num_files: int
    num_input_bytes: int
    num_text_bytes: int
    num_documents: int
    num_instances: int
    num_dataset_bytes: int
    num_work_bytes: int
    """Disk for tokenized documents while the build runs, on top of the dataset."""

    num_free_bytes: int
    """Free space where the dataset is to go."""

    num_seconds: float
    workers: int
    num_sampled_bytes: int
    """Text that the estimate rests on."""

    notices: tuple[str, ...]
    """What the user may not expect of the inputs and of the sample's instances, a line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    documents: list[Document]
    num_bytes: int
    """Stored bytes of what the sample stands for: a split, or all inputs."""

    num_text_bytes: float
    """About how many bytes of text that holds."""

    num_documents: float
    """About how many documents that holds."""


def estimate_build(config: BuildConfig) -> BuildEstimate:
    """Return what a build of this configuration would cost, writing nothing to its folder.

    Raises:
        ClozemillError: The build would fail on the sample.
    """
    with tempfile.TemporaryDirectory() as folder:
        inputs = list_config_inputs(config, Path(folder))
        training = _sample(inputs.training, config)
        validation = _sample(inputs.validation, config)
        if not training.documents:
            raise InputError("no documents in the sample; check the inputs and --text-field.")
        report = _build_sample(training, validation, config, Path(folder))
    return _scaled(report, config, inputs, (training, validation))


def _sample(listing: Listing, config: BuildConfig) -> _Sample:
    """Return documents from all over some inputs."""
    samples = [_split_sample(split, config) for split in _spread(listing.splits)]
    documents = [document for sample in samples for document in sample.documents]
    num_bytes = sum(split.num_bytes for split in listing.splits)
    # Each split stands for as much of the inputs as it is large.
    represented = num_bytes / max(sum(sample.num_bytes for sample in samples), 1)
    num_documents = represented * sum(sample.num_documents for sample in samples)
    if config.layout == "prose" and all(split.format == "txt" for split in listing.splits):
        # Each file is a document, whatever its size, unless it is empty.
        num_documents = len(listing.splits) * len(documents) / max(len(samples), 1)
    return _Sample(
        documents=documents[: config.limit_documents],
        num_bytes=num_bytes,
        num_text_bytes=represented * sum(sample.num_text_bytes for sample in samples),
        num_documents=num_documents,
    )


def _spread(splits: Sequence[InputSplit]) -> list[InputSplit]:
    """Return some splits from all over the inputs: a few large ones, or more small ones."""
    mean_bytes = max(sum(split.num_bytes for split in splits) / max(len(splits), 1), 1)
    wanted = math.ceil(SAMPLE_SPLITS * SAMPLE_CHARACTERS / mean_bytes)
    count = min(max(wanted, SAMPLE_SPLITS), MOST_SAMPLE_SPLITS, len(splits))
    return [splits[i * len(splits) // count] for i in range(count)]


def _split_sample(split: InputSplit, config: BuildConfig) -> _Sample:
    documents: list[Document] = []
    num_characters = 0
    is_whole = True
    for document in read_documents(split, ReadOptions.from_config(config), ReadTally()):
        if num_characters >= SAMPLE_CHARACTERS and len(documents) >= SAMPLE_DOCUMENTS:
            is_whole = False
            break
        documents.append(document)
        num_characters += len(document.text)
    if is_whole or split.format not in ("txt", "jsonl"):
        text_bytes, stored_bytes = _text_bytes(documents), float(split.num_bytes)
    else:
        text_bytes = _text_bytes(documents[:-1])
        stored_bytes = (documents[-1].origin_offset - split.start) / _expansion(split)
    share = max(stored_bytes / max(split.num_bytes, 1), 1e-9)
    num_text_bytes = text_bytes / share
    return _Sample(
        documents=documents,
        num_bytes=split.num_bytes,
        num_text_bytes=num_text_bytes,
        num_documents=len(documents) * num_text_bytes / max(_text_bytes(documents), 1),
    )


def _text_bytes(documents: Sequence[Document]) -> int:
    return sum(len(document.text.encode()) for document in documents)


def _expansion(split: InputSplit) -> float:
    """Return how many bytes a stored byte of the file becomes, from its beginning."""
    if split.compression is None:
        return 1.0
    with (
        fsspec.open(split.path, "rb") as stored,
        pa.CompressedInputStream(pa.PythonFile(stored), split.compression) as stream,
    ):
        text_bytes = len(stream.read(_EXPANDED_BYTES))
        return float(text_bytes / max(stored.tell(), 1))


def _build_sample(
    training: _Sample, validation: _Sample, config: BuildConfig, folder: Path
) -> BuildReport:
    """Return the report of a build of the samples as one task after the other."""
    sample = dataclasses.replace(
        config,
        inputs=(str(_write(training, folder / "training.jsonl")),),
        validation=tuple(
            str(_write(validation, folder / "validation.jsonl")) for _ in config.validation[:1]
        ),
        source_field="source",
        id_field=None,
        text_field="text",
        limit_documents=None,
        workers=1,
        engine="local",
    )
    # The first build compiles what is not yet compiled, so that the second one is timed.
    build(dataclasses.replace(sample, out=str(folder / "warm-up")))
    return build(dataclasses.replace(sample, out=str(folder / "sample")))


def _write(sample: _Sample, path: Path) -> Path:
    with path.open("w", encoding="utf-8") as stream:
        for document in sample.documents:
            record = {"text": document.text, "source": document.source}
            stream.write(json.dumps(record) + "\n")
    return path


def _scaled(
    report: BuildReport, config: BuildConfig, inputs: Inputs, samples: Sequence[_Sample]
) -> BuildEstimate:
    manifest = report.manifest
    records = manifest.ledger["records"][""]
    num_documents = max(sum(sample.num_documents for sample in samples), records["documents_read"])
    num_text_bytes = sum(sample.num_text_bytes for sample in samples)
    scale = max(num_text_bytes / records["text_bytes"], 1.0)
    if config.limit_documents and config.limit_documents < num_documents:
        scale *= config.limit_documents / num_documents
        num_documents = config.limit_documents
    workers = config.workers or usable_cores()
    instances = sum(entry.num_instances for entry in manifest.splits.values())
    return BuildEstimate(
        num_files=len(inputs.files),
        num_input_bytes=sum(sample.num_bytes for sample in samples),
        num_text_bytes=round(scale * records["text_bytes"]),
        num_documents=round(num_documents),
        num_instances=round(scale * instances),
        num_dataset_bytes=round(scale * sum(file.num_bytes for file in manifest.files)),
        num_work_bytes=round(scale * records["text_bytes"] * _WORK_BYTES_PER_TEXT_BYTE),
        num_free_bytes=shutil.disk_usage(_existing(Path(config.out or "."))).free,
        num_seconds=_seconds(report.seconds, scale, workers),
        workers=workers,
        num_sampled_bytes=records["text_bytes"],
        notices=(
            *input_notices(config, inputs),
            *build_notices(config, manifest, num_special_in_text=0),
        ),
    )


def _seconds(seconds: Mapping[str, float], scale: float, workers: int) -> float:
    """Return the time of all stages; two of them are shared by the workers."""
    shared = sum(seconds[stage] for stage in ("reading", "writing"))
    return scale * (shared / workers + seconds["planning"] + seconds["finishing"])


def _existing(path: Path) -> Path:
    """Return the nearest folder of a path that exists."""
    path = path.absolute()
    while not path.is_dir():
        path = path.parent
    return path
