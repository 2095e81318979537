"""Where a page may be written: nothing but a page of ours is ever replaced."""

from collections.abc import Sequence
from pathlib import Path

from clozemill.pipeline.dataset_names import MANIFEST_NAME
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.files import bytes_spelled_out, has_utf8_name

MARK = '<meta name="generator" content="clozemill">'
"""Stands among the first bytes of every page, by which one is known as ours."""

_FIRST_BYTES = 400
_PAGE_SUFFIX = ".html"


def check_page(page: Path, *, dataset: Path, studies: Sequence[Path] = ()) -> None:
    """Make sure, before any work, that a page can be written and replaces nothing else.

    Args:
        page: The file.
        dataset: A dataset's folder, which can hold nothing else.
        studies: Folders of studies; a page may stand among their files, as `NAME.html`.

    Raises:
        ConfigError: It cannot, or would.
    """
    name = bytes_spelled_out(str(page))
    if not has_utf8_name(page):
        raise ConfigError(f"--html {name} is not UTF-8; choose another --html.")
    try:
        _check_folder(page.resolve(), name, dataset, [study.resolve() for study in studies])
        _check_file(page, name)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"cannot write {name}: {reason}; choose another --html.") from error


def _check_folder(path: Path, name: str, dataset: Path, studies: Sequence[Path]) -> None:
    for folder in path.parents:
        if folder == dataset.resolve() or _is_dataset(folder):
            raise ConfigError(
                f"{name} lies inside the dataset {folder}, which can hold nothing else; choose "
                "another --html."
            )
        if folder in studies and not (path.parent == folder and path.suffix == _PAGE_SUFFIX):
            raise ConfigError(
                f"{name} lies among the files of the study {folder}; name a page in it "
                f"{folder / 'NAME'}{_PAGE_SUFFIX}, or choose another --html."
            )
    if path.parent not in studies and not path.parent.is_dir():  # a study makes its own
        raise ConfigError(
            f"there is no folder {path.parent} for {name}; make it, or choose another --html."
        )


def _is_dataset(folder: Path) -> bool:
    is_named = (folder / MANIFEST_NAME).is_file()
    return is_named and any(folder.glob("train-*"))


def _check_file(page: Path, name: str) -> None:
    if page.is_dir():
        raise ConfigError(f"{name} is a folder; name a file, such as {page / 'page.html'}.")
    if page.exists() and not _is_ours(page):
        raise ConfigError(
            f"{name} exists and is no page of clozemill; remove it, or choose another --html."
        )


def _is_ours(page: Path) -> bool:
    if not page.is_file():
        return False  # a pipe or a device, which reading might wait for
    with page.open("rb") as file:
        return MARK.encode() in file.read(_FIRST_BYTES)
