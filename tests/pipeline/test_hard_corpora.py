"""Real awkward files: each makes a dataset whose ledger closes, or is refused in one clear line."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_corpora import only_line, run_command, small_build, small_config

from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import InputError
from clozemill.pipeline.ledger import from_json, ledger_faults

pytestmark = pytest.mark.slow

LAYOUT_OF_RECIPE = {"bert": "sentences", "roberta-full": "prose", "roberta-doc": "lines"}

NOTHING = "no documents"
ONE_DOCUMENT = "the train split has 1 document, and a random B must come from another"

REFUSED = {
    "bad_jsonl.jsonl": r"bad_jsonl\.jsonl:4: not JSON \(Unterminated string",
    "empty_file.jsonl.gz": NOTHING,
    "empty_file.txt": NOTHING,
    "encodings/2005-Bush_invalid_utf8.txt": r"8\.txt:3, byte offset 837: byte 0xa1 is not UTF-8",
    "encodings/Arabic_Alarabia-Arabic.txt": r"\.txt:1, byte offset 0: byte 0xc7 is not UTF-8",
    "encodings/Chinese_Mandarin-GB2312.txt": r"\.txt:1, byte offset 0: byte 0xca is not UTF-8",
    "encodings/Chinese_Mandarin-UTF8.txt": r"\.txt:109, byte offset 9998: byte 0xe6 is not UTF-8",
    "encodings/French_Francais-Latin1.txt": r"\.txt:1, byte offset 1: byte 0xe9 is not UTF-8",
    "encodings/German_Deutsch-Latin1.txt": r"\.txt:1, byte offset 19: byte 0xe4 is not UTF-8",
    "encodings/Hungarian_Magyar-Unicode.txt": r"\.txt is UTF-16LE, not UTF-8",
    "encodings/Japanese_Nihongo-SJIS.txt": r"\.txt:1, byte offset 0: byte 0x81 is not UTF-8",
    "encodings/Russian_Russky-Cyrillic.txt": r"\.txt:1, byte offset 0: byte 0xc2 is not UTF-8",
    "encodings/Tamil-UTF8.txt": r"\.txt:22, byte offset 9998: byte 0xe0 is not UTF-8",
    "encodings/Vietnamese-VIQR.txt": r"\.txt:1, byte offset 8: byte 0xf4 is not UTF-8",
    "encodings/mixed_utf8_latin1_cp1252.txt": r"\.txt:117, byte offset 10003: byte 0xe9 is not",
    "utf16le_bom_inaugural.txt": r"utf16le_bom_inaugural\.txt is UTF-16LE, not UTF-8",
}
"""Files that cannot be read as they are, and what is said of them."""

SINGLE = {
    "html_latin1_cfi_ch4.htm",
    "longline_moby_dick.txt.gz",
    "notebook_leftover.ipynb.gz",
    "one_huge_document.jsonl.gz",
}
"""Files of one document, of which no pairs can be made."""


def hard_files(corpora: Path) -> dict[str, Path]:
    folder = corpora / "hard"
    files = {str(p.relative_to(folder)): p for p in sorted(folder.rglob("*")) if p.is_file()}
    assert len(files) > 40
    assert files.keys() >= REFUSED.keys() | SINGLE
    return files


def settings_for(corpora: Path, recipe: str, **more: Any) -> dict[str, Any]:
    return {
        "tokenizer": corpora / "vocab" / "bert-base-uncased-vocab.txt",
        "recipe": recipe,
        "layout": LAYOUT_OF_RECIPE[recipe],
        "input_format": "txt",
        "bucket_tokens": 1_000_000,
        "max_seq_length": 128,
        "mask_variants": 1,
        **more,
    }


def assert_nothing_vanished(out: Path) -> None:
    manifest = open_dataset(out).manifest
    assert ledger_faults(from_json(manifest.ledger)) == []
    assert manifest.ledger["records"][""]["documents_read"] > 0
    assert manifest.splits["train"].num_instances > 0
    masks = manifest.ledger["masks"]["train"]
    assert 0.1 < masks["selected"] / masks["maskable"] < 0.34


def test_every_file_makes_a_dataset_or_is_refused_by_name(corpora: Path, tmp_path: Path) -> None:
    for number, (name, path) in enumerate(hard_files(corpora).items()):
        recipe = list(LAYOUT_OF_RECIPE)[number % len(LAYOUT_OF_RECIPE)]
        out = tmp_path / str(number)
        if name not in REFUSED:
            recipe = recipe if name not in SINGLE else "roberta-full"
            small_build(path, out=out, **settings_for(corpora, recipe))
            assert_nothing_vanished(out)
            continue
        with pytest.raises(InputError) as refused:
            small_build(path, out=out, **settings_for(corpora, recipe))
        text = str(refused.value)
        assert re.search(REFUSED[name], text), text
        assert "\n" not in text
        assert str(path) in text or REFUSED[name] == NOTHING
        assert not out.exists()


def test_a_file_of_one_document_makes_no_pairs_but_blocks(corpora: Path, tmp_path: Path) -> None:
    files = hard_files(corpora)
    for name in SINGLE:
        with pytest.raises(InputError, match=ONE_DOCUMENT):
            small_build(files[name], out=tmp_path / "out", **settings_for(corpora, "bert"))
        small_build(files[name], out=tmp_path / name, **settings_for(corpora, "roberta-full"))
        assert_nothing_vanished(tmp_path / name)


@pytest.mark.parametrize("recipe", LAYOUT_OF_RECIPE)
@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_tolerance_is_asked_for_and_counted(
    recipe: str, policy: str, corpora: Path, tmp_path: Path
) -> None:
    """All files together, the broken ones too."""
    files = hard_files(corpora)
    settings = settings_for(corpora, recipe, on_bad_input=policy, workers=2)
    report = small_build(files.values(), out=tmp_path / "out", **settings)
    assert_nothing_vanished(tmp_path / "out")
    records = report.manifest.ledger["records"][""]
    assert records["bad_json"] > 0
    assert records["bad_utf8"] >= 2, "a file in UTF-16 is one bad record"
    assert (records.get("replaced_utf8", 0) > 0) == (policy == "replace")
    assert report.manifest.ledger["documents"]["train"]["duplicate"] > 0


def test_a_refused_file_ends_the_command_in_one_line(corpora: Path, tmp_path: Path) -> None:
    name = "encodings/Tamil-UTF8.txt"
    path = hard_files(corpora)[name]
    done = run_command(small_config(path, out=tmp_path / "out", **settings_for(corpora, "bert")))
    assert done.returncode == 2
    assert re.search(REFUSED[name], only_line(done.stderr))
