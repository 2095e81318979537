"""Finding and reading a tokenizer: a folder, a vocabulary file, or a name on the hub."""

import json
import re
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from clozemill.pipeline.errors import TokenizerError

Json = dict[str, Any]

MAX_WORD_CHARACTERS = 100
"""A longer word is one `[UNK]`. Differs from BERT, which says 200: `tokenizers` says 100."""

_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
SPECIAL = re.compile(r"\[[A-Za-z]+\d*\]|</?[A-Za-z]+\d*>")
"""The form of special tokens, and of `[unused7]`."""

_TEXT_ENDINGS = (".jsonl", ".parquet", ".arrow", ".csv", ".gz", ".zst")
_FILES = ("tokenizer.json", "vocab.txt", "vocab.json")


def read_tokenizer(name: str | Path) -> tuple[Json, Json, bool]:
    """Return the objects in `tokenizer.json` and `tokenizer_config.json` of a named tokenizer.

    The first is made up where there is only a vocabulary, see `load_tokenizer`; the last value
    is whether case and accents were guessed from it.

    Raises:
        TokenizerError: Nothing is there, or it is no tokenizer.
    """
    path = Path(name)
    if path.is_dir():
        return _read_folder(path, str(name))
    if path.is_file():
        if path.suffix in _TEXT_ENDINGS:
            raise _text_error(path)
        return _read_file(path, {})
    if isinstance(name, Path) or path.suffix in {".txt", ".json"} or not _HUB_NAME.fullmatch(name):
        raise TokenizerError(f"there is no tokenizer at {name}; give a folder, a file or a name.")
    return _read_folder(_fetch(name), name)


def _fetch(name: str) -> Path:
    import huggingface_hub  # imported late: it is slow, and only names need it

    wanted = [*_FILES, "merges.txt", "tokenizer_config.json", "special_tokens_map.json"]
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=wanted))
    except Exception as error:  # many unrelated classes: network, HTTP, validation, offline
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TokenizerError(
            f"there is no folder {name}, and the hub gave no tokenizer of that name ({reason}); "
            "check the spelling, or download it and give its folder."
        ) from error


def _read_folder(folder: Path, name: str) -> tuple[Json, Json, bool]:
    config: Json = {}
    for part in ("special_tokens_map.json", "tokenizer_config.json"):
        if (folder / part).is_file():
            config |= _read_json(folder / part)
    for part in _FILES:
        if (folder / part).is_file():
            return _read_file(folder / part, config)
    own = folder / "tokenizer"  # of a dataset
    if any((own / part).is_file() for part in _FILES):
        raise TokenizerError(f"{name} is no tokenizer, but holds one; give {own}.")
    raise TokenizerError(f"{name} holds no tokenizer; it needs one of {', '.join(_FILES)}.")


def _read_file(path: Path, config: Json) -> tuple[Json, Json, bool]:
    if path.suffix != ".json":
        state = _wordpiece_state(_read_vocabulary(path), config)
        return state, config, config.get("do_lower_case") is None
    state = _read_json(path)
    if not isinstance(state.get("model"), dict):
        return _byte_level_state(path, state, config), config, False
    _apply_config(state, config)
    return state, config, False


def _read_json(path: Path) -> Json:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise TokenizerError(f"{path} is not a tokenizer file: it holds no JSON object.")
    return content


def _read_vocabulary(path: Path) -> list[str]:
    """Return the pieces of a `vocab.txt`; lines end at LF alone, as U+2028 can be a piece."""
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise TokenizerError(f"cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{path} is not a vocabulary: {error}.") from error
    pieces = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    if "[MASK]" not in pieces and any(" " in piece for piece in pieces):
        raise _text_error(path)
    first_line: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if not piece:
            raise TokenizerError(f"{path}:{number}: the line is empty; a vocabulary has no gaps.")
        if piece in first_line:
            raise TokenizerError(
                f"{path}:{number}: {piece!r} stands also in line {first_line[piece]}; "
                "remove one and retrain, as ids are line numbers."
            )
        first_line[piece] = number
    return pieces


def _text_error(path: Path) -> TokenizerError:
    return TokenizerError(
        f"{path} is no tokenizer, which is a folder, a vocab.txt or a tokenizer.json; is it your "
        "text? That is named without a flag."
    )


def _wordpiece_state(pieces: list[str], config: Json) -> Json:
    is_lower, strips = config.get("do_lower_case"), config.get("strip_accents")
    if is_lower is None:
        is_lower = not would_change(pieces, lowercase=True)
        if is_lower and strips is None:
            strips = not would_change(pieces, strip_accents=True)
    normalizer = normalizers.BertNormalizer(
        lowercase=bool(is_lower),
        strip_accents=strips,
        handle_chinese_chars=config.get("tokenize_chinese_chars", True),
    )
    unk = config.get("unk_token", "[UNK]")
    return wordpiece_state(pieces, normalizer, unk["content"] if isinstance(unk, dict) else unk)


def wordpiece_state(
    pieces: list[str], normalizer: normalizers.Normalizer, unk_token: str = "[UNK]"
) -> Json:
    """Return the `tokenizer.json` object of a BERT WordPiece vocabulary."""
    vocab = {piece: token_id for token_id, piece in enumerate(pieces)}
    backend = Tokenizer(
        models.WordPiece(vocab, unk_token=unk_token, max_input_chars_per_word=MAX_WORD_CHARACTERS)
    )
    backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    state: Json = json.loads(backend.to_str())
    return state


def would_change(
    pieces: list[str], *, lowercase: bool = False, strip_accents: bool = False
) -> bool:
    """Whether lower-casing, or dropping accents, would change an ordinary piece.

    A tokenizer that does either can never produce such a piece, in any script, so the vocabulary
    is not that of one: both are idempotent, and leave every piece of `bert-base-uncased` and
    `bert-base-chinese` as it is (also its double-struck R, which Unicode calls a capital).

    >>> would_change(["[MASK]", "[unused7]", "tea"], lowercase=True)
    False
    """
    normalizer = normalizers.BertNormalizer(
        clean_text=False,
        handle_chinese_chars=False,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    text = "\n".join(piece for piece in pieces if not SPECIAL.fullmatch(piece))
    return bool(normalizer.normalize_str(text) != text)


def _byte_level_state(path: Path, vocab: Json, config: Json) -> Json:
    merges = path.with_name("merges.txt")
    if not merges.is_file():
        raise TokenizerError(f"{path} needs a merges.txt beside it; there is none.")
    try:
        pairs = models.BPE.read_file(str(path), str(merges))[1]
        backend = Tokenizer(models.BPE(vocab, pairs))
    except Exception as error:  # tokenizers raises bare Exception
        raise TokenizerError(f"{path} and its merges.txt do not match: {error}.") from error
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=config.get("add_prefix_space", False)
    )
    backend.decoder = decoders.ByteLevel()
    state: Json = json.loads(backend.to_str())
    return state


def _apply_config(state: Json, config: Json) -> None:
    """Let the settings of a BERT class win over `tokenizer.json`, as `transformers` does."""
    normalizer = state.get("normalizer")
    is_bert = str(config.get("tokenizer_class", "")).startswith("BertTokenizer")
    if not is_bert or normalizer is None or normalizer.get("type") != "BertNormalizer":
        return
    for ours, theirs in (
        ("lowercase", "do_lower_case"),
        ("strip_accents", "strip_accents"),
        ("handle_chinese_chars", "tokenize_chinese_chars"),
    ):
        if theirs in config:
            normalizer[ours] = config[theirs]
