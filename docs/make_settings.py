"""Writes docs/settings.md, the table of all settings of a build, from the record that has them."""

import dataclasses
import sys
from pathlib import Path

from clozemill.pipeline.config import BuildConfig

HEADINGS = {
    "input": "Which documents are read",
    "instances": "Which instances are made of them",
    "masks": "Which masks lie over the instances",
    "layout": "How files hold them",
    "execution": "How the work is done",
}
MEANINGS = {
    "input": "A finished dataset is compared with these and with the files' sizes and times.",
    "instances": "Part of the instance fingerprint: any change gives other instances.",
    "masks": "Part of the dataset fingerprint: a change gives other masks, and `clozemill remask` "
    "makes it without a rebuild.",
    "layout": "Other bytes, the same digests: `clozemill convert` changes them without a rebuild.",
    "execution": "Changes nothing that is written.",
}


def settings_page() -> str:
    """Return the page: a table for each kind of setting."""
    lines = [
        "# Settings of a build",
        "",
        "Made by `python docs/make_settings.py` from `BuildConfig` in `pipeline/config.py`. Each "
        "is a flag (`--max-seq-length 64`), a key of a `--config` TOML file (`max-seq-length = "
        "64`), a field of `BuildConfig(max_seq_length=64)` and, but for input and execution, a "
        "key of the manifest's `configuration`. Flags win over the file.",
    ]
    for kind, heading in HEADINGS.items():
        lines += ["", f"## {heading}", "", MEANINGS[kind], ""]
        lines += ["| setting | default | meaning |", "| --- | --- | --- |"]
        for item in dataclasses.fields(BuildConfig):
            if item.metadata["kind"] == kind:
                lines.append(_row(item))
    return "\n".join(lines) + "\n"


def _row(item: "dataclasses.Field[object]") -> str:
    choices = " \\| ".join(item.metadata["choices"])
    default = "-" if item.default in (None, "", ()) else f"`{item.default}`"
    meaning = item.metadata["help"] + (f" One of: {choices}." if choices else "")
    return f"| `{item.name}` | {default} | {meaning} |"


if __name__ == "__main__":
    path = Path(__file__).with_name("settings.md")
    path.write_text(settings_page(), encoding="utf-8")
    print(f"{path} is written.", file=sys.stderr)
