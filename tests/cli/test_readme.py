import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from tests.pipeline.small_corpora import environment, make_texts, write_json_lines, write_tokenizer

from clozemill.cli import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_names_every_verb() -> None:
    named = set(re.findall(r"^\| `([\w-]+)` \|", README, re.MULTILINE))
    assert named == set(cli.commands)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 200


def test_commands_in_the_readme_parse() -> None:
    blocks = "".join(re.findall(r"^```\n(.*?)^```$", README, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^(?:\$ )?clozemill (.+)$", blocks, re.MULTILINE)
    assert len(lines) >= 5
    for line in lines:
        verb, *arguments = shlex.split(line.removesuffix(" ...").split(" < ")[0], comments=True)
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


@pytest.mark.slow
def test_python_in_the_readme_runs_as_scripts(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    write_json_lines(tmp_path / "corpus" / "texts.jsonl", make_texts(40))
    write_tokenizer(tmp_path / "vocab")
    scripts = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    (build,) = scripts
    digest = run_script(build.replace('"data/"', '"data/", workers=2'), tmp_path)
    assert re.fullmatch(r"[0-9a-f]{32}\n", digest.stdout), digest.stderr


@pytest.mark.slow
def test_a_script_without_a_guard_is_told_to_have_one(tmp_path: Path) -> None:
    write_json_lines(tmp_path / "texts.jsonl", make_texts(40))
    write_tokenizer(tmp_path / "vocab")
    script = (
        "from clozemill.pipeline.build import build\n"
        "from clozemill.pipeline.config import BuildConfig\n"
        "build(BuildConfig(inputs=('texts.jsonl',), tokenizer='vocab', out='data',"
        " workers=2))\n"
    )
    done = run_script(script, tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(
        "ConfigError: workers import the script that starts a build and must not start another; "
        'put what the script does below `if __name__ == "__main__":`.'
    )


def run_script(source: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    (folder / "script.py").write_text(source)
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
