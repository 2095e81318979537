"""A document read again where `origins.jsonl` says it was, if it is safe to look there.

A dataset may be a stranger's, and naming a file in it must not make this machine call another,
nor wait for ever at a pipe or read a device without an end.
"""

import os
import stat

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import Document
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.read import ReadOptions, read_document_at
from clozemill.pipeline.read_bytes import is_url, one_line
from clozemill.pipeline.read_hub import is_hub_name


def read_origin(
    file: str, offset: int, settings: BuildConfig, *, follows_remote: bool = False
) -> Document:
    """Return the document at this place.

    Args:
        file: The input file, as `origins.jsonl` names it.
        offset: Where in it the document starts.
        settings: How inputs were read.
        follows_remote: Whether URLs and `hf:` names are opened as well as files on this machine.

    Raises:
        InputError: It must not be looked for there, cannot be read, or is no longer there.
    """
    if not 0 <= offset < 2**63:
        raise InputError(f"{offset} is no place in a file; origins.jsonl is damaged.")
    if is_hub_name(file) or is_url(file):
        if not follows_remote:
            raise InputError(f"{file} is not on this machine; --follow-origins reads it there.")
    else:
        _check_regular(file)
    return read_document_at(
        file,
        offset,
        ReadOptions.from_config(settings),
        input_format=settings.input_format,
    )


def _check_regular(file: str) -> None:
    try:
        mode = os.stat(file).st_mode
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {file}: {one_line(error)}.") from error
    if not stat.S_ISREG(mode):
        raise InputError(f"{file} is not a regular file, so it is not read.")
