"""How the files of a dataset are called, and how a folder of ours is known by its names."""

import re
from collections.abc import Collection

MANIFEST_NAME = "manifest.json"
LOG_NAME = "build.log.jsonl"
ORIGINS_NAME = "origins.jsonl"

TOKENIZER_FOLDER = "tokenizer"
"""Folder of the dataset's own tokenizer, beside its shards."""

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
"""What a tokenizer folder of ours holds."""

WORK_NAME = ".build"
"""Folder of an unfinished build, in the dataset's."""

OWN_FILES = (LOG_NAME, ORIGINS_NAME, *(f"{TOKENIZER_FOLDER}/{name}" for name in TOKENIZER_FILES))
"""Files beside the shards that every dataset has."""

_OUTPUT_NAME = re.compile(
    r"(train|validation)-\d{5}-\d{3,}\.(arrow|tar)|documents-(train|validation)-\d{5}\.arrow"
)


def bucket_name(split: str, number: int) -> str:
    """Return the start of the names of a bucket's files, such as `train-00003`."""
    return f"{split}-{number:05d}"


def shard_name(bucket: str, number: int, suffix: str) -> str:
    """Return the name of a shard of a bucket.

    >>> shard_name(bucket_name("train", 3), 0, ".arrow")
    'train-00003-000.arrow'
    """
    return f"{bucket}-{number:03d}{suffix}"


def documents_name(bucket: str) -> str:
    """Return the name of the file with a bucket's documents."""
    return f"documents-{bucket}.arrow"


def bucket_of_shard(path: str) -> str:
    """Return the name of the bucket that a shard is of.

    >>> bucket_of_shard("train-00003-000.arrow")
    'train-00003'
    """
    return path.rpartition("-")[0]


def is_output_name(name: str) -> bool:
    """Return whether the second stage writes files of such a name."""
    return _OUTPUT_NAME.fullmatch(name) is not None


def is_dataset(names: Collection[str]) -> bool:
    """Return whether a folder that holds these names is a finished dataset."""
    return MANIFEST_NAME in names and any(name.startswith("train-") for name in names)
