"""Inspect: what an instance holds, as a person reads it, back to the text it came from."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import decoders

from clozemill.pipeline.columns import InstanceColumns, binary16_array, read_columns
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import DatasetError
from clozemill.pipeline.source_documents import SourceDocuments
from clozemill.pipeline.tokenizer import PretrainingTokenizer, backend_steps, load_tokenizer

_HEX_ID = re.compile(r"[0-9a-f]{4,32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedPosition:
    """One selected position of a variant."""

    position: int
    original: str
    """The token there, which is to be predicted."""

    shown: str
    """The token that the input shows instead."""

    action: str
    """`mask`, `keep`, or `random` (which the token itself, drawn at random, makes a `keep`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanView:
    """A run of sentences of one document, and where they were read."""

    segment: str
    """`A`, `B`, or a number in packed instances."""

    document_id: str
    """32 hex digits."""

    external_id: str | None
    """The user's own id."""

    file: str | None
    """The input file, if `origins.jsonl` tells."""

    offset: int | None
    """Where in it the document starts."""

    first_sentence: int
    num_sentences: int
    num_document_sentences: int
    cut_front: int
    """Tokens of these sentences missing in front."""

    cut_back: int
    """Tokens of these sentences missing at the end."""

    sentences: tuple[str, ...] = ()
    """Their text, read again from the file; empty where that is impossible."""

    note: str = ""
    """Why there is no text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """One instance with everything that is known about it."""

    instance_id: str
    """32 hex digits."""

    split: str
    number: int
    """Its number in the split."""

    source: str
    next_sentence: str | None
    """`next` or `random`; None where the recipe has no pairs."""

    is_forced: bool
    """Whether B had to be random, as its chunk had one sentence."""

    tokens: tuple[str, ...]
    """All tokens, with specials."""

    segment_b_start: int
    """First position of B; the number of tokens where there is no B."""

    spans: tuple[SpanView, ...]
    variants: tuple[tuple[SelectedPosition, ...], ...]
    """The stored maskings."""


class Inspector:
    """Describes instances of a dataset; keeps the tokenizer."""

    def __init__(
        self, dataset: Dataset, *, follows_remote: bool = False, is_readable: bool = False
    ) -> None:
        """Load the dataset's own tokenizer.

        Args:
            dataset: What to describe.
            follows_remote: Whether documents that were read from other machines are read there
                again; those on this one always are.
            is_readable: Whether tokens are for a person: bytes as text, and `##` before what
                continues a word, whatever the tokenizer writes.
        """
        self.dataset = dataset
        self.follows_remote = follows_remote
        self.tokenizer: PretrainingTokenizer = load_tokenizer(dataset.tokenizer_dir)
        tokenizer = self.tokenizer
        self._pieces = readable_pieces(tokenizer) if is_readable else tokenizer.pieces

    def describe(self, split: str, numbers: Sequence[int]) -> list[InstanceView]:
        """Return the instances with these numbers in a split.

        Raises:
            IndexError: The split has no such instance.
            DatasetError: A shard is damaged.
        """
        batch = self.dataset.take(split, list(numbers))
        columns = read_columns(batch)
        documents = SourceDocuments(
            self.dataset,
            columns.spans.document_ids,
            self.tokenizer,
            follows_remote=self.follows_remote,
        )
        return [
            self._describe(columns, row, split, number, documents)
            for row, number in enumerate(numbers)
        ]

    def find(self, hex_id: str) -> tuple[str, int]:
        """Return split and number of the instance whose id starts with these hex digits.

        Raises:
            DatasetError: They are not 4 to 32 hex digits, or fit no or several instances.
        """
        wanted = hex_id.lower()
        if not _HEX_ID.fullmatch(wanted):
            raise DatasetError(f"{hex_id!r} is not an instance id; give 4 to 32 hex digits of it.")
        found = list(self._matches(wanted))
        if len(found) != 1:
            how_many = f"{len(found)} instances have ids" if found else "no instance has an id"
            raise DatasetError(
                f"{how_many} starting with {wanted} in {self.dataset.folder}; give "
                + ("more of its digits." if found else "an id that clozemill inspect or sql shows.")
            )
        return found[0]

    def _matches(self, wanted: str) -> Iterator[tuple[str, int]]:
        prefix = np.frombuffer(bytes.fromhex(wanted[: len(wanted) // 2 * 2]), np.uint8)
        for split in self.dataset.splits:
            begin = 0
            for batch in self.dataset.batches(split):
                ids = binary16_array(batch.column("instance_id"))
                for row in np.flatnonzero((ids[:, : len(prefix)] == prefix).all(axis=1)):
                    if ids[row].tobytes().hex().startswith(wanted):
                        yield split, begin + int(row)
                begin += batch.num_rows

    def _describe(
        self,
        columns: InstanceColumns,
        row: int,
        split: str,
        number: int,
        documents: SourceDocuments,
    ) -> InstanceView:
        tokens = columns.tokens
        ids = tokens.input_ids[tokens.starts[row] : tokens.starts[row + 1]]
        pieces = [self._piece(token) for token in ids]
        label = int(columns.next_sentence_label[row])
        begin, end = (int(place) for place in columns.spans.starts[row : row + 2])
        has_pairs = label >= 0
        names = ["A", "B"] if has_pairs else [str(i + 1) for i in range(end - begin)]
        return InstanceView(
            instance_id=columns.instance_ids[row].tobytes().hex(),
            split=split,
            number=number,
            source=self.dataset.manifest.sources[int(columns.sources[row])],
            next_sentence=_label_name(label),
            is_forced=int(columns.num_chunk_sentences[row]) == 1,
            tokens=tuple(pieces),
            segment_b_start=int(tokens.segment_b_start[row]),
            spans=tuple(
                _span(columns, place, name, documents)
                for place, name in zip(range(begin, end), names, strict=False)
            ),
            variants=tuple(self._variants(columns, row, pieces)),
        )

    def _variants(
        self, columns: InstanceColumns, row: int, pieces: list[str]
    ) -> Iterator[tuple[SelectedPosition, ...]]:
        masks = columns.masks
        if masks is None:
            return
        for overlay in range(row * columns.num_variants, (row + 1) * columns.num_variants):
            chosen = slice(int(masks.starts[overlay]), int(masks.starts[overlay + 1]))
            yield tuple(
                self._selected(int(position), int(shown), pieces)
                for position, shown in zip(
                    masks.positions[chosen], masks.token_ids[chosen], strict=True
                )
            )

    def _selected(self, position: int, shown: int, pieces: list[str]) -> SelectedPosition:
        if position >= len(pieces):
            raise DatasetError(
                f"{self.dataset.folder} selects position {position} of an instance of "
                f"{len(pieces)} tokens; clozemill verify names the shard."
            )
        piece = self._piece(shown)
        action = "mask" if shown == self.tokenizer.mask_id else "random"
        if piece == pieces[position]:
            action = "keep"
        return SelectedPosition(
            position=position, original=pieces[position], shown=piece, action=action
        )

    def _piece(self, token: int) -> str:
        return self._pieces[token] if token < len(self._pieces) else f"<{token}>"


def readable_pieces(tokenizer: PretrainingTokenizer) -> tuple[str, ...]:
    """Return the pieces as WordPiece would write them: byte-level BPE stores bytes as letters.

    Bytes that are no text by themselves stay as they are.
    """
    is_continuation = tokenizer.is_continuation
    kinds = {step["type"] for step in backend_steps(tokenizer.backend, "pre_tokenizer")}
    if "ByteLevel" not in kinds or is_continuation is None:
        return tokenizer.pieces
    decoder, special = decoders.ByteLevel(), set(tokenizer.special_ids.tolist())

    def readable(token_id: int, piece: str) -> str:
        text = decoder.decode([piece])
        if token_id in special or "\ufffd" in text:
            return piece
        if is_continuation[token_id]:
            return f"##{text}"
        return text.removeprefix(" ") or "\u2423"

    return tuple(map(readable, range(tokenizer.vocab_size), tokenizer.pieces))


def _label_name(label: int) -> str | None:
    if label < 0:
        return None
    return ("next", "random")[label] if label < 2 else f"label {label}"


def _span(
    columns: InstanceColumns, place: int, segment: str, documents: SourceDocuments
) -> SpanView:
    spans = columns.spans
    key = spans.document_ids[place].tobytes()
    document = documents.find(key)
    first, count = int(spans.first_sentence[place]), int(spans.num_sentences[place])
    return SpanView(
        segment=segment,
        document_id=key.hex(),
        external_id=document.external_id,
        file=document.file,
        offset=document.offset,
        first_sentence=first,
        num_sentences=count,
        num_document_sentences=document.num_sentences,
        cut_front=int(spans.cut_front[place]),
        cut_back=int(spans.cut_back[place]),
        sentences=document.sentences[first : first + count],
        note=document.note,
    )
