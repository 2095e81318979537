"""Whether a folder can be written at all, before anything is made."""

import os
from pathlib import Path

from clozemill.pipeline.dataset_names import MANIFEST_NAME, is_dataset
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.files import bytes_spelled_out, has_utf8_name


def check_out(out: Path) -> None:
    """Make sure that a folder's name can be used and that it lies in no dataset.

    A dataset holds what its manifest names and nothing else, so `clozemill verify` would find a
    folder inside one.

    Raises:
        ConfigError: It cannot be written there.
    """
    if not has_utf8_name(out):
        raise ConfigError(
            f"--out {bytes_spelled_out(str(out))} is not UTF-8; choose another --out."
        )
    try:
        out.exists()
        parents = out.resolve().parents
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot write to {out}: {reason}; choose another --out.") from error
    for parent in parents:
        if is_dataset(_names_in(parent)):
            raise ConfigError(
                f"{out} lies inside the dataset {parent}, which can hold nothing else; choose "
                "another --out."
            )


def _names_in(folder: Path) -> list[str]:
    """Return what a folder with a manifest holds; others may be too large to be worth a look."""
    try:
        return os.listdir(folder) if (folder / MANIFEST_NAME).is_file() else []
    except OSError:
        return []
