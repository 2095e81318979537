"""One record becomes a document, or is counted under the reason why it did not."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.documents import Document, id_of_bytes, normalise_text
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.files import bytes_spelled_out

RECORDS_READ = "records_read"
"""Records met: JSON lines, table rows, or what the layout of a text file calls a document."""
DOCUMENTS_READ = "documents_read"
"""Records that became a document."""
NULL_TEXT = "null_text"
"""Records whose text field is null."""
MISSING_TEXT = "missing_text"
"""Records without the text field."""
EMPTY_TEXT = "empty_text"
"""Records whose normalised text is empty."""
BAD_UTF8 = "bad_utf8"
"""Records left out because their bytes are not UTF-8."""
BAD_JSON = "bad_json"
"""Lines left out because they are not JSON."""
BAD_RECORD = "bad_record"
"""Records left out because they are no object, or a field holds something unusable."""
RECORD_FATES = (DOCUMENTS_READ, NULL_TEXT, MISSING_TEXT, EMPTY_TEXT, BAD_UTF8, BAD_JSON, BAD_RECORD)
"""What becomes of a record: `records_read` is the sum of these counts."""

REPLACED_UTF8 = "replaced_utf8"
"""Lines (of tables: texts) in which bad bytes were replaced; not a fate."""
TEXT_BYTES = "text_bytes"
"""UTF-8 bytes of the documents' normalised texts; not a fate."""

MISSING_ID = "missing_id"
"""Documents whose `id_field` is null or missing; not a fate."""
MISSING_SOURCE = "missing_source"
"""Documents whose `source_field` is null or missing; not a fate."""

_MAX_FIELDS_SEEN = 64
_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    type(None): "null",
    int: "a number",
    float: "a number",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What readers need to know of a build's configuration; see `BuildConfig` for meanings."""

    layout: str
    """What a document is in a text file."""

    text_field: str
    """The record field with the text."""

    id_field: str | None
    """The record field with the user's own id."""

    source: str
    """The corpus of documents that do not name theirs."""

    source_field: str | None
    """The record field that names the corpus."""

    on_bad_input: str
    """`error`, `skip` or `replace`."""

    @classmethod
    def from_config(cls, config: BuildConfig) -> Self:
        """Take the reading options out of a build's configuration."""
        return cls(
            layout=config.layout,
            text_field=config.text_field,
            id_field=config.id_field,
            source=config.source,
            source_field=config.source_field,
            on_bad_input=config.on_bad_input,
        )


@dataclass(slots=True)
class ReadTally:
    """What was read, counted by fate; tallies of several splits add up."""

    counts: Counter[str] = field(default_factory=Counter)
    """Counts by the names at the top of this module."""

    fields_seen: set[str] = field(default_factory=set)
    """Fields of records without one that was asked for (some, if there are very many)."""

    has_text_field: bool = False
    """Whether any record had the text field."""

    def note_missing_text(self, names: Iterable[str], *, num_records: int = 1) -> None:
        """Count records without the text field, and remember which fields they have."""
        self.counts[MISSING_TEXT] += num_records
        self.note_fields(names)

    def note_fields(self, names: Iterable[str]) -> None:
        """Remember the fields of a record without one that was asked for."""
        if len(self.fields_seen) < _MAX_FIELDS_SEEN:
            self.fields_seen.update(map(bytes_spelled_out, names))

    def merge(self, other: "ReadTally") -> None:
        """Add the counts of another tally to this one."""
        self.counts.update(other.counts)
        self.fields_seen.update(other.fields_seen)
        self.has_text_field |= other.has_text_field

    def raise_if_no_field(self, config: BuildConfig) -> None:
        """Raise `InputError`, naming the fields there are, if no record had one asked for.

        Those with the id and the corpus must also not be null in all of them.
        """
        seen = ", ".join(sorted(self.fields_seen)[:_MAX_FIELDS_SEEN]) or "none"
        if self.counts[MISSING_TEXT] and not self.has_text_field:
            raise InputError(
                f"no record has the field {config.text_field!r} (of {self.counts[MISSING_TEXT]}); "
                f"fields seen: {seen}; name the one that holds the text with --text-field."
            )
        for flag, name, reason in (
            ("--source-field", config.source_field, MISSING_SOURCE),
            ("--id-field", config.id_field, MISSING_ID),
        ):
            if name and self.counts[reason] == self.counts[DOCUMENTS_READ] > 0:
                raise InputError(
                    f"no record has the field {name!r} of {flag}, or it is null in all; fields "
                    f"seen: {seen}; name another, or leave {flag} out."
                )

    def to_json(self) -> dict[str, Any]:
        """Return the tally as plain JSON values."""
        return {
            "counts": dict(sorted(self.counts.items())),
            "fields_seen": sorted(self.fields_seen),
            "has_text_field": self.has_text_field,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Return the tally that `to_json` wrote."""
        return cls(
            Counter(value["counts"]), set(value["fields_seen"]), bool(value["has_text_field"])
        )


@dataclass(slots=True, kw_only=True)
class RecordReader:
    """Turns the records of one input file into documents, and counts every one."""

    path: str
    """The input file."""

    options: ReadOptions
    """How to read records."""

    tally: ReadTally
    """Where they are counted."""

    locate: Callable[[int, int | None], str]
    """Says where a record at an offset lies, or one byte of it; called for errors only."""

    def refuse(self, reason: str, offset: int, what: str) -> None:
        """Count a record under a reason, or raise `InputError` where bad input is an error."""
        if self.options.on_bad_input == "error":
            raise InputError(
                f"{self.locate(offset, None)}: {what}; mend it or pass --on-bad-input skip."
            )
        self.tally.counts[reason] += 1

    def decode(self, data: bytes, offset: int) -> str | None:
        """Return bytes as text; where they are not UTF-8, raise, refuse or replace as asked."""
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            if self.options.on_bad_input == "error":
                raise InputError(
                    f"{self.locate(offset, error.start)}: byte 0x{data[error.start]:02x} is not "
                    "UTF-8; convert the file with iconv (say, -f LATIN1 -t UTF-8) or pass "
                    "--on-bad-input skip or replace."
                ) from error
        if self.options.on_bad_input == "skip":
            self.tally.counts[BAD_UTF8] += 1
            return None
        self.tally.counts[REPLACED_UTF8] += sum(map(_is_not_utf8, data.splitlines()))
        return data.decode(errors="replace")

    def document_from_fields(self, record: Mapping[str, Any], offset: int) -> Document | None:
        """Return the document of a record, or nothing if it has no usable text."""
        try:
            text = record[self.options.text_field]
        except KeyError:
            self.tally.note_missing_text(record)
            return None
        self.tally.has_text_field = True
        if text is None:
            self.tally.counts[NULL_TEXT] += 1
            return None
        if not isinstance(text, str):
            self.refuse(BAD_RECORD, offset, self._wrong_kind(self.options.text_field, text))
            return None
        return self.document_from_text(text, offset, record)

    def document_from_text(
        self, text: str, offset: int, record: Mapping[str, Any] | None = None
    ) -> Document | None:
        """Return the document of a text, or nothing if nothing is left of it."""
        text = normalise_text(text)
        if not text:
            self.tally.counts[EMPTY_TEXT] += 1
            return None
        source, external_id = self.options.source, None
        try:
            if record is not None:
                source, external_id = self._source_and_id(record)
            data = text.encode()
        except UnicodeEncodeError:
            self.refuse(BAD_RECORD, offset, "the record holds half of a surrogate pair")
            return None
        except TypeError as error:
            self.refuse(BAD_RECORD, offset, str(error))
            return None
        counts = self.tally.counts
        counts[DOCUMENTS_READ] += 1
        counts[TEXT_BYTES] += len(data)
        return Document(
            id=id_of_bytes(data),
            text=text,
            source=source,
            external_id=external_id,
            origin_path=self.path,
            origin_offset=offset,
        )

    def _source_and_id(self, record: Mapping[str, Any]) -> tuple[str, str | None]:
        source = external_id = None
        if self.options.source_field is not None:
            source = self._name(record, self.options.source_field)
            if source is None:
                self.tally.counts[MISSING_SOURCE] += 1
                self.tally.note_fields(record)
        if self.options.id_field is not None:
            external_id = self._name(record, self.options.id_field)
            if external_id is None:
                self.tally.counts[MISSING_ID] += 1
                self.tally.note_fields(record)
        return self.options.source if source is None else source, external_id

    def _name(self, record: Mapping[str, Any], name: str) -> str | None:
        value = record.get(name)
        if value is None:
            return None
        if type(value) is int:
            return str(value)
        if not isinstance(value, str):
            raise TypeError(self._wrong_kind(name, value))
        value.encode()
        return value

    @staticmethod
    def _wrong_kind(name: str, value: Any) -> str:
        kind = kind_of(value)
        return f"the field {name!r} is {kind}, it must be a string"


def _is_not_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False


def kind_of(value: Any) -> str:
    """Return what JSON would call a value: `a list`, `a number`."""
    return _KINDS.get(type(value), f"of type {type(value).__name__}")
