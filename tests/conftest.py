"""What all tests share: the corpora, and tokenizers to build with."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real text; absent outside development, but never under CI."""
    folder = Path(os.environ.get("CLOZEMILL_CORPORA", ROOT.parent / "shared" / "corpora"))
    if not folder.is_dir():
        reason = f"no corpora at {folder}; set CLOZEMILL_CORPORA to the folder that holds them"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return folder
