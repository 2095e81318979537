"""A tokenizer on its way to the workers of a build: as it is, where a folder has to be understood.

That takes a quarter of the time, and every worker waits for it before it reads its first document.
"""

import dataclasses
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from clozemill.pipeline.errors import TokenizerError
from clozemill.pipeline.files import write_json
from clozemill.pipeline.tokenizer import PretrainingTokenizer

_NAME = "known.json"
_ARRAYS = {"special_ids": "int64", "ordinary_ids": "int64", "is_continuation": "bool"}


def save_known_tokenizer(tokenizer: PretrainingTokenizer, folder: Path) -> None:
    """Write the file from which `load_known_tokenizer` makes an equal tokenizer."""
    names = [field.name for field in dataclasses.fields(tokenizer)]
    state = {name: getattr(tokenizer, name) for name in names}
    state["backend"] = tokenizer.backend.to_str()
    state |= {n: state[n].tolist() for n in _ARRAYS if state[n] is not None}
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / _NAME, state)


@lru_cache(maxsize=1)
def load_known_tokenizer(folder: str, tokenizer_hash: str) -> PretrainingTokenizer:
    """Return the tokenizer of this hash in a folder, kept from task to task of a process.

    Raises:
        TokenizerError: The folder holds another one.
    """
    state = json.loads((Path(folder) / _NAME).read_text(encoding="utf-8"))
    if state["hash"] != tokenizer_hash:
        raise TokenizerError(
            f"{folder} holds the tokenizer {state['hash']} and not {tokenizer_hash}; it was "
            "changed while it was in use: run the same command again."
        )
    arrays = {n: np.array(state[n], kind) for n, kind in _ARRAYS.items() if state[n] is not None}
    backend = Tokenizer.from_str(state["backend"])
    return PretrainingTokenizer(
        **{**state, **arrays, "backend": backend, "pieces": tuple(state["pieces"])}
    )
