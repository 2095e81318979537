"""Convert: the same dataset in other files."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.fingerprints import layout_fingerprint
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.progress import OnProgress
from clozemill.pipeline.rewrite import Rewrite, rewrite_dataset


def convert_dataset(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    format: str | None = None,
    compression: str | None = None,
    shard_size: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Write a dataset in another format, compression or shard size; return the new manifest.

    Instances and masks stay, and so do both digests. The files are byte for byte those that a
    build with these settings writes.

    Args:
        folder: The dataset.
        out: An empty or new folder, or one that holds the result already.
        format: `arrow` or `webdataset`; by default as it is.
        compression: `none`, `lz4` or `zstd`; by default as it is.
        shard_size: Most instances in a shard; by default as it is.
        overwrite: Replace a dataset in `out`.
        on_progress: Called after each shard written.

    Raises:
        ConfigError: A setting cannot be used, or `out` holds something already.
        DatasetError: The dataset is damaged.
    """
    dataset = open_dataset(folder)
    asked: dict[str, Any] = {"format": format, "compression": compression, "shard_size": shard_size}
    changes = {name: value for name, value in asked.items() if value is not None}
    config: BuildConfig = dataclasses.replace(dataset.manifest.build_config(), **changes)

    def finish(manifest: Manifest) -> Manifest:
        layout = layout_fingerprint(config)
        fingerprints = dataclasses.replace(manifest.fingerprints, layout=layout)
        return dataclasses.replace(manifest, fingerprints=fingerprints)

    rewrite = Rewrite(verb="convert", config=config, finish=finish)
    return rewrite_dataset(
        dataset, Path(out), rewrite, overwrite=overwrite, on_progress=on_progress
    )
