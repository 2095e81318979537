"""The peer of the build: `tokenizers` alone, encoding the same text.

    RAYON_NUM_THREADS=2 python -m benchmarks.peer VOCAB FILE... --megabytes 50

The text is read and cut into lines first; only the encoding is timed. Prints one JSON object.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import click
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from benchmarks.corpus import read_records

LINES_AT_ONCE = 1_000


def bert_tokenizer(vocab: Path) -> Tokenizer:
    """Return bert-base-uncased as `tokenizers` has it, without special tokens in text."""
    tokenizer = Tokenizer(WordPiece.from_file(str(vocab), unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def read_lines(files: tuple[Path, ...], num_bytes: int | None) -> Iterator[str]:
    """Yield the lines of documents until they hold so many bytes."""
    size = 0
    for record in read_records(files):
        yield from record["text"].split("\n")
        size += len(record["text"].encode())
        if num_bytes is not None and size >= num_bytes:
            return


@click.command()
@click.argument("vocab", type=click.Path(path_type=Path))
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--megabytes", type=float, help="Encode the first so many 10^6 bytes only.")
def main(vocab: Path, files: tuple[Path, ...], megabytes: float | None) -> None:
    """Time `encode_batch_fast` over the documents' lines."""
    lines = list(read_lines(files, None if megabytes is None else round(megabytes * 1e6)))
    num_bytes = sum(len(line.encode()) + 1 for line in lines)
    tokenizer = bert_tokenizer(vocab)
    num_tokens = 0
    started = time.perf_counter()
    for first in range(0, len(lines), LINES_AT_ONCE):
        batch = lines[first : first + LINES_AT_ONCE]
        encodings = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        num_tokens += sum(len(each.ids) for each in encodings)
    seconds = time.perf_counter() - started
    result = {"num_bytes": num_bytes, "num_tokens": num_tokens, "seconds": seconds}
    click.echo(json.dumps(result))


if __name__ == "__main__":
    main()
