"""Tokenizers are read from every usual form, described, and saved so that others agree."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from clozemill.pipeline.encode import make_encoder
from clozemill.pipeline.errors import TokenizerError
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer, make_tokenizer
from clozemill.pipeline.tokenizer_files import wordpiece_state
from clozemill.pipeline.tokenizer_saving import save_tokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PIECES = [*SPECIALS, "the", "tea", "##s", "cafe", "caf\u00e9", "[unused0]", "."]


def write_vocabulary(folder: Path, pieces: list[str]) -> Path:
    path = folder / "vocab.txt"
    path.write_text("\n".join(pieces) + "\n", encoding="utf-8")
    return path


def bert(**settings: bool) -> PretrainingTokenizer:
    state = wordpiece_state(PIECES, normalizers.BertNormalizer(**settings))
    return make_tokenizer(state, name="test")


def ids(tokenizer: PretrainingTokenizer, *sentences: str) -> list[int]:
    return make_encoder(tokenizer).encode(list(sentences)).token_ids.tolist()


def test_a_vocabulary_file_gives_roles_and_ordinary_ids(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_vocabulary(tmp_path, PIECES))
    assert tokenizer.pieces == tuple(PIECES)
    assert tokenizer.vocab_size == 12
    roles = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id)
    assert (*roles, tokenizer.mask_id) == (0, 1, 2, 3, 4)
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert tokenizer.ordinary_ids.tolist() == [5, 6, 7, 8, 9, 11]
    assert tokenizer.is_continuation is not None
    assert np.flatnonzero(tokenizer.is_continuation).tolist() == [7]
    assert tokenizer.token_dtype == np.uint16
    assert tokenizer.is_lower_case
    assert ids(tokenizer, "The TEAS.", "CAF\u00c9 [MASK]") == [5, 6, 7, 11, 9, 1, 1, 1]


def test_a_vocabulary_with_capitals_is_cased(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_vocabulary(tmp_path, [*PIECES, "The"]))
    assert not tokenizer.is_lower_case
    assert ids(tokenizer, "The the TEA caf\u00e9") == [12, 5, 1, 9]


def test_capitals_of_any_script_are_capitals(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_vocabulary(tmp_path, [*PIECES, "\u0422\u0430"]))
    assert not tokenizer.is_lower_case


@pytest.mark.parametrize(
    "word",
    [
        "\u0939\u093f\u0928\u094d\u0926\u0940",  # Hindi, with vowel signs and a virama
        "\u306f\u304c",  # Japanese, a syllable that NFD takes apart
        "\ud55c\uae00",  # Korean, the same
    ],
)
def test_a_vocabulary_with_marks_keeps_them(tmp_path: Path, word: str) -> None:
    pieces = [piece for piece in PIECES if piece.isascii()]
    assert load_tokenizer(write_vocabulary(tmp_path, pieces)).strips_accents
    tokenizer = load_tokenizer(write_vocabulary(tmp_path, [*pieces, word]))
    assert tokenizer.is_lower_case
    assert ids(tokenizer, f"THE {word}") == [5, len(pieces)]


@pytest.mark.parametrize(
    ("name", "is_uncased"), [("uncased", True), ("chinese", True), ("cased", False)]
)
def test_published_vocabularies_are_read_as_they_were_trained(
    corpora: Path, name: str, is_uncased: bool
) -> None:
    tokenizer = load_tokenizer(corpora / "vocab" / f"bert-base-{name}-vocab.txt")
    assert (tokenizer.is_lower_case, tokenizer.strips_accents) == (is_uncased, is_uncased)


def test_the_configuration_in_a_folder_wins(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, PIECES)
    settings = {"do_lower_case": True, "strip_accents": False, "model_max_length": 77}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = load_tokenizer(tmp_path)
    assert ids(tokenizer, "CAF\u00c9") == [9]
    assert tokenizer.model_max_length == 77


def test_one_vocabulary_has_one_hash_in_every_form(tmp_path: Path) -> None:
    bare = load_tokenizer(write_vocabulary(tmp_path, PIECES))
    save_tokenizer(bare, tmp_path / "saved", model_max_length=128)
    hashes = {bare.hash}
    for form in ("", "tokenizer.json", "vocab.txt"):
        hashes.add(load_tokenizer(tmp_path / "saved" / form).hash)
    assert len(hashes) == 1


def test_the_hash_sees_whatever_decides_ids() -> None:
    swapped = [*PIECES[:5], "tea", "the", *PIECES[7:]]
    other_mask = make_tokenizer(
        wordpiece_state(PIECES, normalizers.BertNormalizer()),
        config={"mask_token": "tea"},
        name="test",
    )
    hashes = [
        bert().hash,
        bert(lowercase=False).hash,
        bert(strip_accents=False).hash,
        bert(handle_chinese_chars=False).hash,
        make_tokenizer(wordpiece_state(swapped, normalizers.BertNormalizer()), name="test").hash,
        other_mask.hash,
    ]
    assert len(set(hashes)) == len(hashes)
    assert bert(strip_accents=True).hash == bert().hash


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    tokenizer = bert()
    for name in ("one", "two"):
        save_tokenizer(tokenizer, tmp_path / name, model_max_length=128)
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    save_tokenizer(load_tokenizer(tmp_path / "one"), tmp_path / "three")
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "three" / name).read_bytes()


LOAD_ELSEWHERE = """
import json, sys
from transformers import AutoTokenizer
lines = json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
ids = tokenizer(lines, add_special_tokens=False)["input_ids"]
pair = tokenizer("the tea", "tea")
json.dump([len(tokenizer), ids, pair["input_ids"], pair["token_type_ids"],
           tokenizer.model_max_length, tokenizer.mask_token_id,
           tokenizer.tokenize("the [MASK]")], sys.stdout)
"""


def loaded_elsewhere(folder: Path, lines: list[str]) -> list[object]:
    command = [sys.executable, "-c", LOAD_ELSEWHERE, str(folder)]
    done = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded: list[object] = json.loads(done.stdout)
    return loaded


def as_lists(tokenizer: PretrainingTokenizer, lines: list[str]) -> list[list[int]]:
    encoded = make_encoder(tokenizer).encode(lines)
    return [part.tolist() for part in np.split(encoded.token_ids, encoded.starts[1:-1])]


@pytest.mark.slow
@pytest.mark.parametrize("is_cased", [True, False])
@pytest.mark.parametrize("strips", [True, False])
@pytest.mark.parametrize("is_composed", [True, False])
def test_a_fresh_process_gets_the_same_ids_from_the_saved_folder(
    corpora: Path, tmp_path: Path, is_cased: bool, strips: bool, is_composed: bool
) -> None:
    vocabulary = "cased" if is_cased else "uncased"
    bare = load_tokenizer(corpora / "vocab" / f"bert-base-{vocabulary}-vocab.txt")
    step = normalizers.BertNormalizer(lowercase=not is_cased, strip_accents=strips)
    normalizer = normalizers.Sequence([normalizers.NFC(), step]) if is_composed else step
    state = wordpiece_state(list(bare.pieces), normalizer)
    tokenizer = make_tokenizer(state, name="test")
    save_tokenizer(tokenizer, tmp_path, model_max_length=128)
    text = (corpora / "hard" / "udhr" / "fra.txt").read_text(encoding="utf-8")
    lines = [line for line in text.split("\n") if line.strip()][:199]
    lines += ["The CAF\u00c9 in Oslo", "Cafe\u0301 \u306f\u304b\u3099"]
    loaded = loaded_elsewhere(tmp_path, lines)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id
    the, tea = as_lists(tokenizer, ["the tea", "tea"])
    assert loaded == [
        tokenizer.vocab_size,
        as_lists(tokenizer, lines),
        [cls, *the, sep, *tea, sep],
        [0] * (len(the) + 2) + [1] * (len(tea) + 1),
        128,
        tokenizer.mask_id,
        ["the", "[MASK]"],
    ]


def test_the_saved_class_is_berts_only_where_four_settings_say_everything(tmp_path: Path) -> None:
    steps = [normalizers.NFC(), normalizers.BertNormalizer()]
    composed = make_tokenizer(wordpiece_state(PIECES, normalizers.Sequence(steps)), name="test")
    for tokenizer, expected in (
        (bert(strip_accents=False), "BertTokenizer"),
        (bert(clean_text=False), "PreTrainedTokenizerFast"),
        (composed, "PreTrainedTokenizerFast"),
    ):
        save_tokenizer(tokenizer, tmp_path)
        config = json.loads((tmp_path / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == expected
        assert load_tokenizer(tmp_path).hash == tokenizer.hash


def test_byte_level_vocabularies_of_roberta_are_read(corpora: Path, tmp_path: Path) -> None:
    shutil.copy(corpora / "vocab" / "roberta-base-vocab.json", tmp_path / "vocab.json")
    shutil.copy(corpora / "vocab" / "roberta-base-merges.txt", tmp_path / "merges.txt")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.vocab_size == 50_265
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 50_264]
    encoded = ids(tokenizer, "The cafeteria <mask>")
    assert [tokenizer.pieces[i] for i in encoded[:3]] == ["\u0120The", "\u0120cafeteria", "\u0120<"]
    assert tokenizer.mask_id not in encoded
    assert tokenizer.is_continuation is not None
    words = tokenizer.is_continuation[encoded[:5]].tolist()
    assert words == [False, False, False, True, True]
    assert not any("madeupword" in tokenizer.pieces[i] for i in tokenizer.ordinary_ids)


def test_words_are_undefined_for_other_kinds_of_tokenizer() -> None:
    backend = Tokenizer(models.WordLevel({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = make_tokenizer(json.loads(backend.to_str()), name="test")
    assert tokenizer.is_continuation is None


def test_unigram_words_start_at_the_block_sign() -> None:
    scores = [(piece, -1.0) for piece in [*SPECIALS, "\u2581the", "\u2581tea", "s", "\u2581"]]
    backend = Tokenizer(models.Unigram(scores, unk_id=1))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = make_tokenizer(json.loads(backend.to_str()), name="test")
    assert tokenizer.is_continuation is not None
    assert tokenizer.is_continuation[ids(tokenizer, "the teas")].tolist() == [False, False, True]


def test_ordinary_added_tokens_stay_and_special_ones_become_text() -> None:
    backend = Tokenizer.from_str(json.dumps(wordpiece_state(PIECES, normalizers.BertNormalizer())))
    backend.add_special_tokens(["[MASK]", "[EXTRA]"])
    backend.add_tokens(["tea-house"])
    tokenizer = make_tokenizer(json.loads(backend.to_str()), name="test")
    assert tokenizer.vocab_size == len(PIECES) + 2
    assert tokenizer.special_ids.tolist() == [0, 1, 2, 3, 4, 12]
    assert ids(tokenizer, "the tea-house [EXTRA]") == [5, 13, 1, 1, 1]


def test_ids_beyond_65535_take_four_bytes() -> None:
    pieces = [*SPECIALS, *(f"w{number}" for number in range(65_532))]
    tokenizer = make_tokenizer(wordpiece_state(pieces, normalizers.BertNormalizer()), name="test")
    assert tokenizer.token_dtype == np.uint32
    assert ids(tokenizer, "w65531") == [65_536]


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        ([p for p in PIECES if p != "[MASK]"], r"has no mask token \(\[MASK\] or <mask>\)"),
        ([*PIECES, "tea"], r"vocab.txt:13: 'tea' stands also in line 7; remove one"),
        ([*PIECES, "", "x"], r"vocab.txt:13: the line is empty"),
    ],
)
def test_a_faulty_vocabulary_is_refused(tmp_path: Path, pieces: list[str], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(write_vocabulary(tmp_path, pieces))


def test_ids_with_gaps_are_refused() -> None:
    state = wordpiece_state(PIECES, normalizers.BertNormalizer())
    state["model"]["vocab"]["tea"] = 99
    with pytest.raises(TokenizerError, match="has no token with the id 6; ids must have no gaps"):
        make_tokenizer(state, name="test")
    state["model"]["vocab"]["tea"] = 5
    with pytest.raises(TokenizerError, match="gives the id 5 twice"):
        make_tokenizer(state, name="test")


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "None"}}')
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "vocab.json").write_text('{"a": 0}')
    for name, message in (
        ("", "is not a tokenizer"),
        ("list.json", "holds no JSON object"),
        ("broken.json", "is not JSON"),
        ("binary.txt", "is not a vocabulary"),
        ("empty", "holds no tokenizer; it needs one of tokenizer.json, vocab.txt, vocab.json"),
        ("half", "needs a merges.txt beside it"),
        ("absent", "there is no tokenizer at"),
    ):
        with pytest.raises(TokenizerError, match=message):
            load_tokenizer(tmp_path / name)


def test_an_unknown_name_says_what_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(TokenizerError, match="there is no folder nobody/nothing, and the hub gave"):
        load_tokenizer("nobody/nothing")


def test_text_or_a_dataset_in_place_of_a_tokenizer_is_called_what_it_is(tmp_path: Path) -> None:
    for name in ("corpus.jsonl", "corpus.txt"):
        (tmp_path / name).write_text("Cold tea.\n\nHot tea.\n")
        with pytest.raises(TokenizerError, match=rf"{name} is no tokenizer, .* is it your text\?"):
            load_tokenizer(tmp_path / name)
    (tmp_path / "data" / "tokenizer").mkdir(parents=True)
    (tmp_path / "data" / "tokenizer" / "vocab.txt").touch()
    with pytest.raises(TokenizerError, match=r"is no tokenizer, but holds one; give .*izer\.$"):
        load_tokenizer(tmp_path / "data")
