"""Small corpora and a tiny tokenizer, and builds of them, for tests of the whole pipeline."""

import hashlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from clozemill.pipeline.build import BuildReport, build
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.progress import OnProgress, Progress
from clozemill.pipeline.read import ReadOptions

ROOT = Path(__file__).resolve().parents[2]
OWN_OF_A_RUN = ("build.log.jsonl", "origins.jsonl")
"""Files that say how and from where a dataset was made; all others follow from the documents."""

_CONSONANTS, _VOWELS = "bdfgklmnprst", "aeiou"
SYLLABLES = [a + b for a, b in itertools.product(_CONSONANTS, _VOWELS)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def vocabulary() -> list[str]:
    """Return pieces for every word of `make_text`: syllables, and the same as continuations."""
    punctuation = [".", ",", "?", "[", "]"]
    letters = list("abcdefghijklmnopqrstuvwxyz0123456789")
    starts = [*punctuation, *letters, *SYLLABLES]
    return [*SPECIALS, *starts, *(f"##{piece}" for piece in [*letters, *SYLLABLES])]


def write_tokenizer(folder: Path, pieces: Iterable[str] | None = None) -> Path:
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(pieces or vocabulary()) + "\n")
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    return folder


def make_sentence(rng: np.random.Generator, num_words: int) -> str:
    words = [
        "".join(rng.choice(SYLLABLES, size=rng.integers(1, 4)).tolist()) for _ in range(num_words)
    ]
    return f"{' '.join(words).capitalize()}."


def make_text(rng: np.random.Generator, num_sentences: int) -> str:
    return " ".join(make_sentence(rng, int(rng.integers(3, 16))) for _ in range(num_sentences))


def make_texts(num_documents: int, *, seed: int = 0, most_sentences: int = 20) -> list[str]:
    """Return distinct texts of 1 to `most_sentences` sentences."""
    rng = np.random.default_rng(seed)
    texts = [make_text(rng, int(rng.integers(1, most_sentences + 1))) for _ in range(num_documents)]
    assert len(set(texts)) == num_documents
    return texts


def write_json_lines(path: Path, texts: Iterable[str], **fields: Sequence[Any]) -> Path:
    """Write a record per text; `fields` gives further columns."""
    with path.open("w", encoding="utf-8") as stream:
        for i, text in enumerate(texts):
            record = {"text": text, **{name: values[i] for name, values in fields.items()}}
            stream.write(json.dumps(record, ensure_ascii=False) + "\n")
    return path


def read_options(**settings: Any) -> ReadOptions:
    return ReadOptions.from_config(BuildConfig(**settings))


def small_config(inputs: Any, tokenizer: Path, out: Path, **settings: Any) -> BuildConfig:
    """Return a configuration with many small buckets and one worker, unless told otherwise."""
    names = (inputs,) if isinstance(inputs, str | Path) else inputs
    if "validation" in settings:
        settings["validation"] = tuple(map(str, settings["validation"]))
    defaults: dict[str, Any] = {
        "bucket_tokens": 2_000,
        "max_seq_length": 48,
        "mask_variants": 2,
        "validation_fraction": 0.1,
        "workers": 1,
    }
    return BuildConfig(
        inputs=tuple(map(str, names)),
        tokenizer=str(tokenizer),
        out=str(out),
        **{**defaults, **settings},
    )


def small_build(inputs: Any, tokenizer: Path, out: Path, **settings: Any) -> BuildReport:
    return build(small_config(inputs, tokenizer, out, **settings))


def small_dataset(inputs: Any, tokenizer: Path, out: Path, **settings: Any) -> Dataset:
    small_build(inputs, tokenizer, out, **settings)
    return open_dataset(out)


class Stopped(Exception):
    """Stands for whatever may end a process."""


def stop_when(is_reached: Callable[[Progress], bool]) -> OnProgress:
    """Return an `on_progress` that raises `Stopped` as soon as work is where it is to end."""

    def stop(progress: Progress) -> None:
        if is_reached(progress):
            raise Stopped

    return stop


def has_written(progress: Progress) -> bool:
    """Return whether the first shards are there, and perhaps more."""
    return progress.stage == "writing" and progress.done > 0


def file_hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file that is the same for every build of the same documents."""
    hashes = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in OWN_OF_A_RUN
    }
    assert "manifest.json" in hashes
    assert any(name.startswith("train-") for name in hashes)
    return hashes


def rows_of(dataset: Dataset, split: str) -> list[dict[str, Any]]:
    rows = [row for batch in dataset.batches(split) for row in batch.to_pylist()]
    assert rows
    return rows


def document_rows(dataset: Dataset) -> list[dict[str, Any]]:
    rows = [row for batch in dataset.documents() for row in batch.to_pylist()]
    assert rows
    return rows


def ids_in(dataset: Dataset, split: str) -> set[bytes]:
    """Return every document that an instance of the split is made of, of A or of B."""
    return {span["document_id"] for row in rows_of(dataset, split) for span in row["spans"]}


def origins_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "origins.jsonl").read_text().splitlines()]


def flags_of(config: BuildConfig) -> list[str]:
    """Return the command line that asks for a configuration."""
    flags: list[str] = []
    default = BuildConfig()
    for name in BuildConfig.__dataclass_fields__:
        value = getattr(config, name)
        if name == "inputs" or value == getattr(default, name):
            continue
        flag = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            flags.append(flag)
        elif name == "source_weight":
            for source, weight in value:
                flags += [flag, f"{source}={weight}"]
        elif isinstance(value, tuple):
            for item in value:
                flags += [flag, str(item)]
        else:
            flags += [flag, str(value)]
    return [*config.inputs, *flags]


def command(config: BuildConfig) -> list[str]:
    return [sys.executable, "-m", "clozemill", "build", *flags_of(config), "--quiet"]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), **more}


def run_command(config: BuildConfig, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(config),
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
    )


def only_line(text: str) -> str:
    """Return the one line that a failing command may say."""
    lines = text.strip().splitlines()
    assert len(lines) == 1, text
    assert lines[0].startswith("clozemill: ")
    return lines[0]
