"""Corpora of any size for benchmarks: the real ones, or real sentences recombined.

    python -m benchmarks.corpus --megabytes 1000 --out /tmp/corpus-1000

Documents keep the corpora's lengths and sources; their sentences are drawn from all sentences of
the same source. Real text brings new words for ever, so words are replaced by fresh ones until
the distinct white-space words follow Heaps' law as measured on the corpora; `--closed` leaves
that out. The text is written as it is made, so that a smaller corpus is a larger one's beginning.
"""

import dataclasses
import gzip
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click
import numpy as np
import sentencex
from numpy.typing import NDArray

from benchmarks.words import FreshWords

FULL = "full"
QUICK = "quick"
QUICK_FILES = ("mixed_masc", "mixed_gum", "web_ewt", "encyc_enwiki", "tech_sqlite")

HEAPS_EXPONENT = 0.65
HEAPS_BYTES = 50_155_105
HEAPS_WORDS = 360_690
"""The corpora in shuffled order: 94,881 distinct white-space words at 6.3 MB, 150,256 at
12.6 MB, 230,079 at 25.1 MB and this many at the end."""

NEW_SHARE = 0.4
"""Of the replacements, how many bring a new word; the others repeat an earlier replacement
(Simon 1955), by which 62 % of the fresh words occur once; 57 % of the corpora's words do."""

FILE_BYTES = 64_000_000
_DOCUMENTS_AT_ONCE = 64
_RECEIPT = "corpus.json"
_BLANKS = re.compile(r"(\s+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What decides a made corpus."""

    num_bytes: int
    """UTF-8 bytes of text, reached by the last document."""

    seed: int = 0
    is_closed: bool = False
    """Whether no words are replaced by fresh ones."""

    is_gzipped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What a made corpus holds."""

    num_bytes: int
    num_documents: int
    num_distinct_words: int
    """Words as white space cuts them, within about 1 %: replaced words that occurred nowhere
    else count as well."""

    num_fresh_words: int


class Pool(NamedTuple):
    """The sentences that documents are made of (S sentences, D documents, W distinct words)."""

    sentences: list[str]
    """(S,): in the order of sources, with the white space that follows them."""

    num_bytes: NDArray[np.int64]
    """(S,): UTF-8 bytes."""

    word_ids: NDArray[np.int32]
    """The words of all sentences, as places in `words`, end to end."""

    word_starts: NDArray[np.int64]
    """(S + 1,): where each sentence starts in `word_ids`."""

    words: list[str]
    """(W,): distinct words, in order of appearance."""

    source_starts: NDArray[np.int64]
    """(sources + 1,): where each source's sentences start."""

    sources: list[str]
    document_sources: NDArray[np.int64]
    """(D,): index into `sources`."""

    document_lengths: NDArray[np.int64]
    """(D,): sentences."""


def corpora_dir() -> Path:
    """Return the folder of real text: CLOZEMILL_CORPORA, else ../shared/corpora."""
    beside = Path(__file__).resolve().parent.parent.parent / "shared" / "corpora"
    folder = Path(os.environ.get("CLOZEMILL_CORPORA", beside))
    if not folder.is_dir():
        raise click.ClickException(
            f"no corpora at {folder}; set CLOZEMILL_CORPORA to the folder that holds them."
        )
    return folder


def real_files(tier: str) -> list[Path]:
    """Return the corpora's files of the tier `quick` or `full`."""
    files = sorted((corpora_dir() / "pretrain").glob("*.jsonl.gz"))
    is_quick = tier == QUICK
    return [f for f in files if not is_quick or f.name.removesuffix(".jsonl.gz") in QUICK_FILES]


def read_records(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of JSON lines files."""
    for file in files:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            yield from map(json.loads, stream)


def load_pool(files: Sequence[Path]) -> Pool:
    """Return the sentences of real documents."""
    sentences: list[str] = []
    sources: list[str] = []
    source_starts, document_sources, document_lengths = [0], [], []
    for file in files:
        sources.append(file.name.removesuffix(".gz").removesuffix(".jsonl"))
        for record in read_records([file]):
            found = list(_sentences(record["text"]))
            sentences += found
            document_sources.append(len(sources) - 1)
            document_lengths.append(len(found))
        source_starts.append(len(sentences))
    places: dict[str, int] = {}
    words = [sentence.split() for sentence in sentences]
    ids = [places.setdefault(word, len(places)) for each in words for word in each]
    return Pool(
        sentences=sentences,
        num_bytes=np.array([len(each.encode()) for each in sentences]),
        word_ids=np.array(ids, np.int32),
        word_starts=np.concatenate([[0], np.cumsum([len(each) for each in words])]),
        words=list(places),
        source_starts=np.array(source_starts),
        sources=sources,
        document_sources=np.array(document_sources),
        document_lengths=np.array(document_lengths),
    )


def _sentences(text: str) -> Iterator[str]:
    """Yield sentences with the white space after them, so that any other can follow."""
    # A paragraph a line; given the whole text, an unpaired quotation mark would keep the
    # splitter from cutting for pages.
    for line in text.split("\n"):
        pending = ""
        for piece in sentencex.segment("en", line):
            pending += piece
            # A cut without a blank is one inside a word: `him...But`.
            if pending[-1:].isspace():
                yield pending
                pending = ""
        yield pending + "\n"


class Mixer:
    """Makes documents, and keeps the distinct words on their curve."""

    def __init__(self, pool: Pool, recipe: Recipe) -> None:
        """Start a corpus."""
        self.pool = pool
        self.is_closed = recipe.is_closed
        self.random = np.random.default_rng(recipe.seed)
        self.fresh = FreshWords(pool.words, seed=recipe.seed)
        self.is_seen = np.zeros(len(pool.words), np.bool_)
        self.num_seen = 0
        self.num_bytes = 0
        self.num_fresh = 0
        self.replacements: list[str] = []

    @property
    def num_distinct_words(self) -> int:
        """White-space words so far."""
        return self.num_seen + self.num_fresh

    def documents(self) -> Iterator[tuple[str, str]]:
        """Yield sources and texts without end."""
        pool = self.pool
        while True:
            chosen = self.random.integers(len(pool.document_lengths), size=_DOCUMENTS_AT_ONCE)
            lengths, kinds = pool.document_lengths[chosen], pool.document_sources[chosen]
            sentences = self._draw(np.repeat(kinds, lengths))
            texts = self._replace_words(sentences)
            place = 0
            for kind, length in zip(kinds.tolist(), lengths.tolist(), strict=True):
                text = "".join(texts[place : place + length]).rstrip()
                place += length
                yield pool.sources[kind], text

    def _draw(self, kinds: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return for each place a sentence of the source that it asks for."""
        first, stop = self.pool.source_starts[kinds], self.pool.source_starts[kinds + 1]
        return first + (self.random.random(len(kinds)) * (stop - first)).astype(np.int64)

    def _replace_words(self, sentences: NDArray[np.int64]) -> list[str]:
        """Return the sentences, with as many fresh words as the curve asks for."""
        texts = [self.pool.sentences[i] for i in sentences.tolist()]
        self.num_bytes += int(self.pool.num_bytes[sentences].sum())
        self._see(sentences)
        if self.is_closed:
            return texts
        wanted = HEAPS_WORDS * (self.num_bytes / HEAPS_BYTES) ** HEAPS_EXPONENT
        num_new = round(wanted) - self.num_distinct_words
        if num_new > 0:
            self._put_fresh(texts, sentences, num_new)
        return texts

    def _see(self, sentences: NDArray[np.int64]) -> None:
        if self.num_seen == len(self.is_seen):
            return
        starts = self.pool.word_starts
        for i in sentences.tolist():
            self.is_seen[self.pool.word_ids[starts[i] : starts[i + 1]]] = True
        self.num_seen = int(np.count_nonzero(self.is_seen))

    def _put_fresh(self, texts: list[str], sentences: NDArray[np.int64], num_new: int) -> None:
        """Replace words anywhere in the texts; `num_new` of the replacements are new words."""
        lengths = np.diff(self.pool.word_starts)[sentences]
        ends = np.cumsum(lengths)
        num_new = min(num_new, int(ends[-1]))
        total = min(round(num_new / NEW_SHARE), int(ends[-1]))
        places = np.sort(self.random.choice(int(ends[-1]), total, replace=False))
        is_new = self.random.permutation(total) < num_new
        owners = np.searchsorted(ends, places, "right")
        inner = places - (ends - lengths)[owners]
        chances = self.random.random(total)
        columns = (each.tolist() for each in (owners, inner, is_new, chances))
        for owner, rows in itertools.groupby(zip(*columns, strict=True), itemgetter(0)):
            pieces = _BLANKS.split(texts[owner])
            # Words stand at even places; before a blank at the start stands an empty one.
            shift = 0 if pieces[0] else 2
            for _, word, new, chance in rows:
                place = 2 * word + shift
                # A word with punctuation may open a quotation or end a sentence. It stays; the
                # curve asks for the new word again next time.
                if pieces[place].isalnum():
                    fresh = self._replacement(new, chance)
                    self.num_bytes += len(fresh.encode()) - len(pieces[place].encode())
                    pieces[place] = fresh
            texts[owner] = "".join(pieces)

    def _replacement(self, is_new: bool, chance: float) -> str:
        if is_new or not self.replacements:
            word = self.fresh.make()
            self.num_fresh += 1
        else:
            word = self.replacements[int(chance * len(self.replacements))]
        self.replacements.append(word)
        return word


def write_corpus(load: Callable[[], Pool], recipe: Recipe, out: Path) -> Tally:
    """Write a corpus as JSON lines, a file for every 64 MB of text, unless it is there already."""
    receipt = out / _RECEIPT
    asked = dataclasses.asdict(recipe)
    if receipt.is_file():
        found = json.loads(receipt.read_text())
        if found["recipe"] == asked:
            return Tally(**found["tally"])
        raise click.ClickException(f"{out} holds another corpus; name another folder.")
    out.mkdir(parents=True, exist_ok=True)
    mixer = Mixer(load(), recipe)
    num_bytes = num_documents = 0
    documents = mixer.documents()
    while num_bytes < recipe.num_bytes:
        number = num_bytes // FILE_BYTES
        stop = min(FILE_BYTES * (number + 1), recipe.num_bytes)
        with _open(out, number, recipe) as sink:
            while num_bytes < stop:
                source, text = next(documents)
                line = {"id": f"made/{num_documents:08d}", "text": text, "source": source}
                sink.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
                num_bytes += len(text.encode())
                num_documents += 1
    tally = Tally(
        num_bytes=num_bytes,
        num_documents=num_documents,
        num_distinct_words=mixer.num_distinct_words,
        num_fresh_words=mixer.num_fresh,
    )
    receipt.write_text(json.dumps({"recipe": asked, "tally": dataclasses.asdict(tally)}))
    return tally


def _open(out: Path, number: int, recipe: Recipe) -> BinaryIO | gzip.GzipFile:
    path = out / f"part-{number:04d}.jsonl"
    if not recipe.is_gzipped:
        return path.open("wb")
    # Neither time nor name in the header: equal corpora are equal files.
    return gzip.GzipFile(path.with_name(path.name + ".gz"), "wb", compresslevel=6, mtime=0)


@click.command()
@click.option("--megabytes", type=float, required=True, help="Text to make, in 10^6 bytes.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder to write.")
@click.option("--closed", is_flag=True, help="Recombine only; no fresh words.")
@click.option("--gz", is_flag=True, help="Compress the files.")
@click.option("--seed", default=0, show_default=True)
def main(megabytes: float, out: Path, closed: bool, gz: bool, seed: int) -> None:
    """Make a corpus of any size from the real one."""
    recipe = Recipe(num_bytes=round(megabytes * 1e6), seed=seed, is_closed=closed, is_gzipped=gz)
    tally = write_corpus(lambda: load_pool(real_files(FULL)), recipe, out)
    click.echo(json.dumps(dataclasses.asdict(tally)))


if __name__ == "__main__":
    main()
