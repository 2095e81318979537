"""Parts with chosen ids, sources and sentences, for tests of what is between the stages."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from clozemill.pipeline.instances import starts_of
from clozemill.pipeline.parts import DocumentFacts, PartColumns, write_part


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tokenized:
    """A document as a part holds it."""

    id: bytes
    sentences: tuple[tuple[int, ...], ...] = ((7,),)
    source: str = ""
    external_id: str | None = None
    path: str = "a.txt"
    offset: int = 0


def id_of(cell: int, number: int = 0) -> bytes:
    """Return an id in a cell."""
    return cell.to_bytes(2, "big") + number.to_bytes(14, "big")


def random_documents(count: int, *, seed: int = 0, most_sentences: int = 5) -> list[Tokenized]:
    """Return documents with ids over all cells and 1 to `most_sentences` sentences."""
    rng = np.random.default_rng(seed)
    return [
        Tokenized(
            id=rng.bytes(16),
            sentences=tuple(
                tuple(rng.integers(5, 900, rng.integers(1, 12)).tolist())
                for _ in range(rng.integers(1, most_sentences + 1))
            ),
        )
        for _ in range(count)
    ]


def columns_of(documents: Sequence[Tokenized], *, is_validation: bool = False) -> PartColumns:
    documents = sorted(documents, key=lambda document: document.id)
    sentences = [sentence for document in documents for sentence in document.sentences]
    lengths = np.array([len(sentence) for sentence in sentences], np.uint32)
    sentence_starts = starts_of([len(document.sentences) for document in documents])
    token_ids = np.array([token for sentence in sentences for token in sentence], np.uint16)
    return PartColumns(
        facts=DocumentFacts(
            document_ids=[document.id for document in documents],
            sources=[document.source for document in documents],
            external_ids=[document.external_id for document in documents],
            origin_paths=[document.path for document in documents],
            origin_offsets=[document.offset for document in documents],
            num_characters=[100] * len(documents),
        ),
        is_validation=is_validation,
        token_ids=token_ids,
        token_starts=starts_of(lengths)[sentence_starts],
        sentence_lengths=lengths,
        sentence_starts=sentence_starts,
        is_unknown=token_ids == 1,
    )


def write_parts(
    folder: Path, *parts: Sequence[Tokenized], validation: Sequence[Tokenized] = ()
) -> list[str]:
    """Write parts, the last of them from validation inputs if there are any; return their names."""
    names = []
    for documents, is_validation in [*((part, False) for part in parts), (validation, True)]:
        if documents:
            names.append(f"{len(names):06d}.arrow")
            write_part(folder / names[-1], columns_of(documents, is_validation=is_validation))
    return names
