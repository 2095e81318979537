import re
import shlex
from pathlib import Path

import click
import pytest

from clozemill.cli import cli
from clozemill.options import build_options

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_every_verb() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE))
    assert named == set(cli.commands)


def test_commands_in_the_readme_parse() -> None:
    blocks = "".join(re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^(?:\$ )?clozemill (.+)$", blocks, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        verb, *arguments = shlex.split(line.removesuffix(" ..."))
        cli.commands[verb].make_context(verb, arguments)


def test_links_in_the_documents_lead_to_files() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    links = [(p, t) for p in pages for t in re.findall(r"\]\(([^)#:]+)\)", p.read_text("utf-8"))]
    assert links
    for page, target in links:
        assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize("verb", sorted(cli.commands))
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    command = cli.commands[verb]
    text = command.get_help(click.Context(command, info_name=verb))
    assert f"Example: clozemill {verb} " in text.replace("\n", " ")


def test_every_setting_is_a_flag() -> None:
    @click.command()
    @build_options
    def command(**flags: object) -> None: ...

    names = {parameter.name for parameter in command.params}
    assert {"max_seq_length", "source_weight", "overwrite"} <= names
