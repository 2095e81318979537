"""Writes docs/settings.md, the tables of all settings, from the records that have them."""

import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.settings import choices_of
from clozemill.train.config import RECIPES, PretrainConfig, read_recipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What the page says of one record of settings."""

    title: str
    """Heading."""

    text: str
    """Paragraph below it."""

    record: type
    """Whose fields the tables list."""

    kinds: tuple[tuple[str, str, str], ...]
    """Kinds of fields in order, each with a heading and what a change of them means."""


SECTIONS = (
    Section(
        title="Settings of a build",
        text="From `BuildConfig` in `pipeline/config.py`. Each is a flag of `clozemill build` "
        "(`--max-seq-length 64`), a key of a `--config` TOML file (`max-seq-length = 64`), a field "
        "of `BuildConfig(max_seq_length=64)` and, but for input and execution, a key of the "
        "manifest's `configuration`. Flags win over the file.\n\n"
        "```toml\n"
        "# clozemill build --config corpus.toml\n"
        'inputs = ["books/", "wiki/*.jsonl.gz"]\n'
        'validation = ["held-out.jsonl"]\n'
        'tokenizer = "vocab/"\n'
        'out = "data/"\n'
        'source-field = "corpus"\n'
        "max-seq-length = 64\n\n"
        "[source-weight] # a table, so it stands last\n"
        "wiki = 2.0\n"
        "```\n\n"
        "Relative paths start from the folder in which the command runs, not from that of the "
        "file. Inputs on the command line take the place of the file's.",
        record=BuildConfig,
        kinds=(
            (
                "input",
                "Which documents are read",
                "A finished dataset is compared with these and with the files' sizes and times, "
                "not with their content; so copy inputs with `cp -p` or `rsync -t`, which "
                "keep times.",
            ),
            (
                "instances",
                "Which instances are made of them",
                "Part of the instance fingerprint: any change gives other instances.",
            ),
            (
                "masks",
                "Which masks lie over the instances",
                "Part of the dataset fingerprint: a change gives other masks, and `clozemill "
                "remask` makes it without a rebuild.",
            ),
            (
                "layout",
                "How files hold them",
                "Other bytes, the same digests: `clozemill convert` changes them without a "
                "rebuild.",
            ),
            ("execution", "How the work is done", "Changes nothing that is written."),
        ),
    ),
    Section(
        title="Settings of a training run",
        text="From `PretrainConfig` in `train/config.py`. Each is a flag of `clozemill pretrain` "
        "and of `accelerate launch -m clozemill.train.pretrain`, and a key of a `--config` TOML "
        "file. Flags win over the file, the file over the recipe, the recipe over the defaults; "
        "[training.md](training.md) describes the recipes.",
        record=PretrainConfig,
        kinds=(
            (
                "training",
                "Which model comes out",
                "A run goes on only with the same; another value is refused by name.",
            ),
            (
                "numerics",
                "How its sums are rounded",
                "And which dropout is drawn. A run may go on with another value: the same "
                "training, but no longer the same bytes.",
            ),
            ("execution", "How the work goes on", "Changes no weight."),
        ),
    ),
)

RECIPES_TEXT = (
    "`--recipe NAME`, from `train/recipes/`; - is the default. Where they come from and where they "
    "differ from it stands in those files and in [training.md](training.md)."
)


SHARED_TEXT = (
    "`--json`, which all verbs but `demo` have, prints one object on standard output and nothing "
    "else. `--quiet`, which those have that show progress, leaves that out on standard error, and "
    "neither the result nor notices. A verb that writes a folder "
    "refuses one that holds something else, and replaces what it once wrote there only with "
    "`--overwrite`. A pipe that is closed early (`| head`) is no error and changes no exit code."
)


def settings_page() -> str:
    """Return the page: a table for each kind of setting of each record."""
    lines = ["# Settings", "", "Made by `python docs/make_settings.py`."]
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", section.text]
        for kind, heading, meaning in section.kinds:
            lines += ["", f"### {heading}", "", meaning, ""]
            lines += ["| setting | default | meaning |", "| --- | --- | --- |"]
            lines += [
                _row(item)
                for item in dataclasses.fields(section.record)
                if item.metadata["kind"] == kind
            ]
    lines += ["", "## Recipes of a training run", "", RECIPES_TEXT, "", *_recipe_rows()]
    lines += ["", "## What verbs share", "", SHARED_TEXT]
    return "\n".join(lines) + "\n"


def _recipe_rows() -> list[str]:
    """Return a table with a row for each setting that some recipe has."""
    recipes = {name: read_recipe(name) for name in RECIPES}
    rows = [f"| setting | {' | '.join(RECIPES)} |", "| --- |" + " --- |" * len(RECIPES)]
    for item in dataclasses.fields(PretrainConfig):
        values = [recipe.get(item.name) for recipe in recipes.values()]
        if any(value is not None for value in values):
            cells = ["-" if value is None else f"`{value}`" for value in values]
            rows.append(f"| `{item.name}` | {' | '.join(cells)} |")
    return rows


def _row(item: "dataclasses.Field[object]") -> str:
    choices = " \\| ".join(choices_of(item.type))
    default = "-" if item.default in (None, "", ()) else f"`{item.default}`"
    meaning = item.metadata["help"] + (f" One of: {choices}." if choices else "")
    return f"| `{item.name}` | {default} | {meaning} |"


if __name__ == "__main__":
    path = Path(__file__).with_name("settings.md")
    path.write_text(settings_page(), encoding="utf-8")
    print(f"{path} is written.", file=sys.stderr)
