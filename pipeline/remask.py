"""Remask: the same instances with more, fewer or other masks."""

import dataclasses
import os
from collections import Counter
from pathlib import Path
from typing import Any

from clozemill.pipeline.columns import InstanceColumns
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.draws import GENERATOR_VERSION
from clozemill.pipeline.errors import ConfigError, DatasetError
from clozemill.pipeline.fingerprints import dataset_fingerprint
from clozemill.pipeline.ledger import from_json, to_json
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.masks import draw_variants, mask_counts
from clozemill.pipeline.progress import OnProgress
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.rewrite import Rewrite, rewrite_dataset
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer


def remask_dataset(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str],
    settings: dict[str, Any],
    *,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
) -> Manifest:
    """Write a dataset with its masks drawn anew; return the new manifest.

    The instances stay, and so does their digest. Variant k under the old settings is variant k
    of any number of variants. The files are byte for byte those that a build with these settings
    writes.

    Args:
        folder: The dataset.
        out: An empty or new folder, or one that holds the result already.
        settings: Mask settings by name, such as `{"mask_variants": 4}`; the others stay.
        overwrite: Replace a dataset in `out`.
        on_progress: Called after each shard written.

    Raises:
        ConfigError: A setting is not one of masks or cannot be used, or `out` holds something.
        DatasetError: The dataset is damaged, or its draws are those of another version.
    """
    dataset = open_dataset(folder)
    manifest = dataset.manifest
    if manifest.generator_version != GENERATOR_VERSION:
        raise DatasetError(
            f"{folder} was drawn by version {manifest.generator_version} of the random generator "
            f"and this clozemill has {GENERATOR_VERSION}; rebuild it to change its masks."
        )
    config = _changed(manifest.build_config(), settings)
    tokenizer = load_tokenizer(dataset.tokenizer_dir)
    remasker = _Remasker(config, tokenizer)
    rewrite = Rewrite(
        verb="remask",
        config=config,
        change=remasker.change,
        finish=remasker.finish,
        is_same_dataset=False,
    )
    return rewrite_dataset(
        dataset, Path(out), rewrite, overwrite=overwrite, on_progress=on_progress
    )


def _changed(config: BuildConfig, settings: dict[str, Any]) -> BuildConfig:
    foreign = sorted(settings.keys() - config.settings("masks").keys())
    if foreign:
        raise ConfigError(
            f"{foreign[0]} does not decide masks alone; build the dataset again to change it."
        )
    return dataclasses.replace(config, **settings)


class _Remasker:
    """Draws the masks of every batch, and counts them for the ledger."""

    def __init__(self, config: BuildConfig, tokenizer: PretrainingTokenizer) -> None:
        self.config = config
        self.rule = mask_rule(config, tokenizer)
        self.vocab_size = tokenizer.vocab_size
        self.counts: Counter[tuple[str, str]] = Counter()

    def change(self, columns: InstanceColumns, split: str) -> InstanceColumns:
        """Return the instances with new masks."""
        if int(columns.tokens.input_ids.max()) >= self.vocab_size:
            # The kernel looks ids up without asking.
            raise DatasetError(
                f"the dataset holds token ids of {self.vocab_size} and above, which its tokenizer "
                "does not have; find the damaged shard with clozemill verify."
            )
        num_variants = self.config.num_variants(split)
        masks = draw_variants(columns.tokens, columns.instance_ids, num_variants, self.rule)
        counts = mask_counts(columns.tokens, masks, num_variants, self.rule)
        self.counts.update({(split, reason): count for reason, count in counts.items()})
        return columns._replace(masks=masks, num_variants=num_variants)

    def finish(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the new fingerprint and the new counts of masks."""
        try:
            ledger = from_json(manifest.ledger)
        except (AttributeError, TypeError, ValueError) as error:
            raise DatasetError(
                "the ledger of the dataset is not made of counts; copy its manifest again."
            ) from error
        for (split, reason), count in self.counts.items():
            ledger["masks", split, reason] = count
        key = dataset_fingerprint(manifest.fingerprints.instances, self.config)
        fingerprints = dataclasses.replace(manifest.fingerprints, dataset=key)
        return dataclasses.replace(manifest, fingerprints=fingerprints, ledger=to_json(ledger))
