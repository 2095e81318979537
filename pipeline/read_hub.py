"""Data sets of the Hugging Face hub, or of a local folder, by the name `hf:NAME[:CONFIG][:SPLIT]`.

`datasets` is imported where it is used, because it imports pandas.
"""

import functools
import os
from typing import Any

from clozemill.pipeline.errors import InputError
from clozemill.pipeline.read_bytes import one_line, reading

_HUB_PREFIX = "hf:"
_MOST_SECONDS = 10.0
"""To wait for the hub's first answer."""


def is_hub_name(name: str) -> bool:
    """Whether a name is `hf:NAME`, and not an `hf://` URL, which is a file system's."""
    return name.startswith(_HUB_PREFIX) and not name.startswith(_HUB_PREFIX + "//")


def full_hub_name(name: str) -> str:
    """Return the name with the folder in it, if it names one, made absolute."""
    path, *rest = name.removeprefix(_HUB_PREFIX).split(":")
    path = os.path.abspath(path) if path and os.path.isdir(path) else path
    return _HUB_PREFIX + ":".join([path, *rest])


@functools.lru_cache(maxsize=4)
def load_hub_dataset(name: str) -> Any:
    """Return the `datasets.Dataset` of an `hf:` name; its rows stay on disk.

    One word after NAME is a configuration if the data set has one of this name, else a split.
    Without a split, `train` or the only one there is.

    Raises:
        InputError: There is no such data set, configuration or split, or the hub is out of reach.
    """
    parts = name.removeprefix(_HUB_PREFIX).split(":")
    if not parts[0] or len(parts) > 3:
        raise InputError(f"{name} is no data set; write hf:NAME, hf:NAME:CONFIG or hf:NAME::SPLIT.")
    path, *rest = parts
    if os.path.isfile(path):
        raise InputError(f"{name} names a file on this machine; leave out {_HUB_PREFIX}.")
    if not os.path.exists(path):
        _check_connection(name)
    with reading(name):
        if _is_saved_to_disk(path):
            if len(rest) == 2 and rest[0]:
                raise InputError(f"{name} names a configuration, but {path} has none; leave it.")
            return _choose_split(name, _load_saved(path), rest[-1] if rest else "")
        config, split = _config_and_split(path, rest)
        return _choose_split(name, _load(path, config), split)


def _check_connection(name: str) -> None:
    """Raise `InputError` if the hub does not answer: `datasets` would try for half a minute."""
    from huggingface_hub import constants, get_session

    if constants.HF_HUB_OFFLINE:
        return  # `datasets` looks at what it has loaded before
    try:
        get_session().head(constants.ENDPOINT, timeout=_MOST_SECONDS)
    except Exception as error:  # of the HTTP library, which changes with the version
        raise InputError(
            f"cannot read {name}: the hub does not answer ({one_line(error)}); check the "
            "connection, or set HF_HUB_OFFLINE=1 if it was loaded before."
        ) from error


def _is_saved_to_disk(path: str) -> bool:
    markers = ("dataset_dict.json", "state.json")
    return any(os.path.exists(os.path.join(path, marker)) for marker in markers)


def _load_saved(path: str) -> Any:
    import datasets

    return datasets.load_from_disk(path)


def _load(path: str, config: str) -> Any:
    import datasets

    return datasets.load_dataset(path, config or None)


def _config_and_split(path: str, rest: list[str]) -> tuple[str, str]:
    if len(rest) == 2:
        return rest[0], rest[1]
    if not rest:
        return "", ""
    import datasets

    is_config = rest[0] in datasets.get_dataset_config_names(path)
    return (rest[0], "") if is_config else ("", rest[0])


def _choose_split(name: str, loaded: Any, split: str) -> Any:
    if not isinstance(loaded, dict):
        if split and split != str(loaded.split):
            raise InputError(f"{name} is one table without a split {split!r}; leave it out.")
        return loaded
    names = sorted(map(str, loaded))
    split = split or ("train" if "train" in names else names[0] if len(names) == 1 else "")
    if split not in names:
        what = f"no split {split!r}" if split else "several splits"
        raise InputError(
            f"{name} has {what}; name one of {', '.join(names)} as hf:NAME:CONFIG:SPLIT or "
            "hf:NAME::SPLIT."
        )
    return loaded[split]
