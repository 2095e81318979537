"""Some documents of a dataset as their owner knows them: their names, places and sentences."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.dataset_names import LOG_NAME, ORIGINS_NAME
from clozemill.pipeline.documents import copy_id
from clozemill.pipeline.encode import make_encoder
from clozemill.pipeline.errors import ClozemillError
from clozemill.pipeline.files import open_regular
from clozemill.pipeline.origins import find_origins
from clozemill.pipeline.read_origin import read_origin
from clozemill.pipeline.sentences import find_sentences
from clozemill.pipeline.tokenizer import PretrainingTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDocument:
    """A document, as far as it can be found."""

    external_id: str | None
    """Its owner's id for it."""

    num_sentences: int
    """Those with tokens; 0 if the dataset does not have the document."""

    file: str | None
    """Where it was read."""

    offset: int | None
    """Where in the file it starts."""

    sentences: tuple[str, ...]
    """Those with tokens, as they are there now; none if they cannot be read."""

    note: str
    """Why they cannot be read; empty where they can."""


class SourceDocuments:
    """Finds documents of a dataset by their ids, and reads each at most once."""

    def __init__(
        self,
        dataset: Dataset,
        ids: NDArray[np.uint8],
        tokenizer: PretrainingTokenizer,
        *,
        follows_remote: bool,
    ) -> None:
        """Look up where the documents are.

        Args:
            dataset: Of which they are.
            ids: (D, 16), those that will be asked for.
            tokenizer: The dataset's.
            follows_remote: Whether those that were read from other machines are read there again.
        """
        self.tokenizer = tokenizer
        self.follows_remote = follows_remote
        wanted = {row.tobytes() for row in ids}
        self.rows = _document_rows(dataset, wanted)
        self.origins = find_origins(dataset.folder / ORIGINS_NAME, wanted)
        self.settings = _reading_settings(dataset.folder / LOG_NAME)
        self.rule = str(dataset.manifest.configuration.get("sentences", ""))
        self.find = cache(self._find)

    def _find(self, key: bytes) -> SourceDocument:
        external_id, num_sentences = self.rows.get(key, (None, 0))
        origin = self.origins.get(key)
        sentences, note = self._sentences(key)
        return SourceDocument(
            external_id=external_id,
            num_sentences=num_sentences,
            file=origin.file if origin else None,
            offset=origin.offset if origin else None,
            sentences=tuple(sentences),
            note=note,
        )

    def _sentences(self, key: bytes) -> tuple[list[str], str]:
        """Return the document's sentences that have tokens, or why they cannot be read."""
        if key not in self.origins:
            return [], f"{ORIGINS_NAME} does not tell where it was read"
        if self.settings is None or not self.rule:
            return [], f"{LOG_NAME} does not tell how it was read"
        file, offset, copy = self.origins[key]
        try:
            document = read_origin(file, offset, self.settings, follows_remote=self.follows_remote)
        except (ClozemillError, OSError) as error:
            return [], str(error)
        if copy_id(document.id, copy) != key:
            return [], f"{file} has another text at {offset} now"
        sentences = find_sentences(document.text, self.rule)
        num_tokens = np.diff(make_encoder(self.tokenizer).encode(sentences).starts)
        return [text for text, count in zip(sentences, num_tokens, strict=True) if count], ""


def _document_rows(dataset: Dataset, wanted: set[bytes]) -> dict[bytes, tuple[str | None, int]]:
    """Return each document's external id and number of sentences."""
    found = {}
    value_set = pa.array(sorted(wanted), pa.binary(16))
    for batch in dataset.documents():
        rows = batch.filter(pc.is_in(batch.column("document_id"), value_set))
        names = ("document_id", "external_id", "num_sentences")
        for key, external_id, count in zip(
            *(rows.column(name).to_pylist() for name in names), strict=True
        ):
            found[key] = (external_id, count)
    return found


def _reading_settings(path: Path) -> BuildConfig | None:
    """Return the settings that inputs were read with, from the build's log."""
    names = BuildConfig().settings("input").keys() - {"inputs", "validation"}
    try:
        with open_regular(path) as stream:
            identity = json.loads(stream.readline())["identity"]
        return BuildConfig(**{name: identity[name] for name in names})
    except (OSError, ValueError, LookupError, TypeError, RecursionError, ClozemillError):
        return None
