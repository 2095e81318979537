"""A tokenizer as pretraining needs it: ids, roles, word starts, and a folder others can load."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from clozemill.pipeline.errors import TokenizerError
from clozemill.pipeline.instances import token_dtype
from clozemill.pipeline.tokenizer_files import Json, read_tokenizer

ROLES = ("cls", "sep", "pad", "mask", "unk")
"""What special tokens are for; every tokenizer here has a token for each."""

_ROLE_NAMES = {
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "pad": ("[PAD]", "<pad>"),
    "mask": ("[MASK]", "<mask>"),
    "unk": ("[UNK]", "<unk>"),
}
_UNUSED = re.compile(r"\[unused\d+\]|<unused\d+>|madeupword\d+")
_BYTE_LEVEL_WHITE_SPACE = ("\u0120", "\u010a", "\u0109", "\u010d")
_METASPACE = "\u2581"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PretrainingTokenizer:
    """A `tokenizers` tokenizer, and what pretraining must know about its vocabulary.

    V is `vocab_size`.
    """

    backend: Tokenizer
    """Turns text into ids. It knows no special tokens: a literal `[SEP]` in a text is text."""

    vocab_size: int
    """Highest id + 1; never a number that somebody asked for."""

    cls_id: int
    """Opens an instance."""

    sep_id: int
    """Closes a segment."""

    pad_id: int
    """Fills a row up."""

    mask_id: int
    """Stands where a token is to be predicted."""

    unk_id: int
    """Stands for what the vocabulary cannot spell."""

    special_ids: NDArray[np.int64]
    """Sorted ids of all special tokens, the five roles included."""

    ordinary_ids: NDArray[np.int64]
    """Sorted ids that random replacement draws from: not special and not `[unusedN]`."""

    is_continuation: NDArray[np.bool_] | None
    """(V,): whether a piece continues the piece before it; None where words are not defined."""

    pieces: tuple[str, ...]
    """(V,): the piece of each id."""

    hash: str
    """Hex BLAKE2b-128 of everything that decides ids and roles, whatever file it came from."""

    model_max_length: int | None = None
    """The longest input its own configuration allows, in tokens, if it says so."""

    is_guessed: bool = False
    """Whether nothing but the vocabulary told how to treat case and accents."""

    @property
    def unmaskable_ids(self) -> NDArray[np.int64]:
        """Sorted ids that are never selected: the special ones but `[UNK]`, which is text."""
        ids: NDArray[np.int64] = self.special_ids[self.special_ids != self.unk_id]
        return ids

    @property
    def token_dtype(self) -> np.dtype[np.unsignedinteger]:
        """The smallest of uint16 and uint32 that holds every id."""
        return token_dtype(self.vocab_size)

    @property
    def is_lower_case(self) -> bool:
        """Whether the normalizer lower-cases."""
        return any(step.get("lowercase", step["type"] == "Lowercase") for step in self._steps)

    @property
    def strips_accents(self) -> bool:
        """Whether the normalizer drops accents and other marks that combine."""
        return any(
            step.get("strip_accents", step["type"] == "StripAccents")
            for step in map(_effective, self._steps)
        )

    @property
    def _steps(self) -> list[Json]:
        return backend_steps(self.backend, "normalizer")

    def save(self, folder: Path, *, model_max_length: int | None = None) -> None:
        """Write files from which `transformers.AutoTokenizer` gets the same ids and settings.

        Writes `tokenizer.json`, `tokenizer_config.json` and, for WordPiece, `vocab.txt`. The
        bytes are a function of the tokenizer and the length.

        Args:
            folder: Where to write; made if absent.
            model_max_length: Longest input of the model; by default the tokenizer's own.
        """
        folder.mkdir(parents=True, exist_ok=True)
        length = model_max_length if model_max_length is not None else self.model_max_length
        _write(folder / "tokenizer.json", json.dumps(_full_state(self), ensure_ascii=False))
        config = json.dumps(_saved_config(self, length), indent=2, sort_keys=True)
        _write(folder / "tokenizer_config.json", config)
        if isinstance(self.backend.model, models.WordPiece):
            _write(folder / "vocab.txt", "\n".join(self.pieces))


def load_tokenizer(name: str | Path) -> PretrainingTokenizer:
    """Return the tokenizer in a folder or file, or with a name on the Hugging Face hub.

    A folder holds `tokenizer.json`, or `vocab.txt` (WordPiece), or `vocab.json` and `merges.txt`
    (byte-level BPE); its `tokenizer_config.json` wins over what is assumed. A bare `vocab.txt`
    gets BERT's settings, and is cased if lower-casing would change an ordinary piece; else it is
    uncased, and accents are stripped unless that would change one.

    Raises:
        TokenizerError: Nothing is there, it is no tokenizer, it lacks a special token, or its
            vocabulary has duplicates or gaps.
    """
    state, config, is_guessed = read_tokenizer(name)
    return make_tokenizer(state, config=config, name=str(name), is_guessed=is_guessed)


def make_tokenizer(
    state: Json, *, config: Json | None = None, name: str, is_guessed: bool = False
) -> PretrainingTokenizer:
    """Return the tokenizer of a `tokenizer.json` object.

    Special tokens move into the model's own vocabulary, so that ids stay as they are while
    the backend no longer finds them in a text.

    Args:
        state: The object in `tokenizer.json`.
        config: The object in `tokenizer_config.json`, for the roles.
        name: What to call the tokenizer in errors.
        is_guessed: Whether the state was made up from a vocabulary alone.

    Raises:
        TokenizerError: A role has no token, two roles have one, or the ids have gaps.
    """
    config = config or {}
    backend = _parse(json.dumps(state), name)
    vocab: dict[str, int] = backend.get_vocab(with_added_tokens=True)
    pieces = _pieces(vocab, name)
    roles = {role: _role_id(role, vocab, config, name) for role in ROLES}
    _check_distinct(roles, pieces, name)
    parsed: Json = json.loads(backend.to_str())
    special = {t["id"] for t in parsed["added_tokens"] if t["special"]} | set(roles.values())
    stripped = _without_specials(parsed, special)
    backend = _parse(json.dumps(stripped), name)
    if any(backend.token_to_id(t["content"]) != t["id"] for t in stripped["added_tokens"]):
        raise TokenizerError(f"{name} has added tokens whose ids cannot be kept; retrain it.")
    special_ids = np.array(sorted(special), np.int64)
    unused = [i for i, piece in enumerate(pieces) if _UNUSED.fullmatch(piece)]
    everything = np.arange(len(pieces), dtype=np.int64)
    length = config.get("model_max_length")
    return PretrainingTokenizer(
        backend=backend,
        vocab_size=len(pieces),
        **{f"{role}_id": token_id for role, token_id in roles.items()},
        special_ids=special_ids,
        ordinary_ids=np.setdiff1d(everything, np.union1d(special_ids, unused)),
        is_continuation=_continuations(stripped, pieces, special_ids),
        pieces=pieces,
        hash=_hash(stripped, pieces, roles, special_ids),
        model_max_length=int(length) if length is not None and length < 10**9 else None,
        is_guessed=is_guessed,
    )


def _parse(text: str, name: str) -> Tokenizer:
    try:
        backend = Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises bare Exception
        raise TokenizerError(f"{name} is not a tokenizer: {error}.") from error
    backend.no_padding()
    backend.no_truncation()
    return backend


def _pieces(vocab: dict[str, int], name: str) -> tuple[str, ...]:
    by_id = sorted((token_id, piece) for piece, token_id in vocab.items())
    if not by_id:
        raise TokenizerError(f"{name} has an empty vocabulary; train or choose another.")
    for place, (token_id, piece) in enumerate(by_id):
        if token_id > place:
            raise TokenizerError(f"{name} has no token with the id {place}; ids must have no gaps.")
        if token_id < place:
            raise TokenizerError(f"{name} gives the id {token_id} twice, also to {piece!r}.")
    return tuple(piece for _, piece in by_id)


def _check_distinct(roles: dict[str, int], pieces: tuple[str, ...], name: str) -> None:
    """Raise `TokenizerError` if one token has two roles in an instance; padding may share one."""
    role_of: dict[int, str] = {}
    for role, token_id in roles.items():
        other = role_of.setdefault(token_id, role)
        if role != other and "pad" not in (role, other):
            raise TokenizerError(
                f"{name} has {pieces[token_id]!r} as {other} and as {role} token; give it two "
                "tokens, or no reader can tell them apart."
            )


def _role_id(role: str, vocab: dict[str, int], config: Json, name: str) -> int:
    entry = config.get(f"{role}_token")
    told = entry.get("content") if isinstance(entry, dict) else entry
    names = (told,) if told is not None else _ROLE_NAMES[role]
    for candidate in names:
        if candidate in vocab:
            return vocab[candidate]
    raise TokenizerError(
        f"{name} has no {role} token ({' or '.join(map(str, names))}); masked language models "
        f"need all of {', '.join(ROLES)}: choose a tokenizer made for one, or add the token."
    )


def _without_specials(state: Json, special: set[int]) -> Json:
    """Return a state without its special tokens, which it is changed for."""
    for token in state["added_tokens"]:
        vocab = state["model"]["vocab"]
        if token["id"] in special and isinstance(vocab, dict):
            vocab.setdefault(token["content"], token["id"])
    for step in flat_steps(state, "normalizer"):
        step.update(_effective(step))
    state["added_tokens"] = [t for t in state["added_tokens"] if t["id"] not in special]
    return state | {"truncation": None, "padding": None, "post_processor": None}


def backend_steps(backend: Tokenizer, part: str) -> list[Json]:
    """Return the steps of a backend's `normalizer` or `pre_tokenizer`, sequences laid flat."""
    step = getattr(backend, part)
    return flat_steps({part: None if step is None else json.loads(step.__getstate__())}, part)


def flat_steps(state: Json, part: str) -> list[Json]:
    """Return the steps of a normalizer or pre-tokenizer, sequences laid flat."""
    step = state[part]
    if step is None:
        return []
    inner = step.get("normalizers") or step.get("pretokenizers")
    if step["type"] != "Sequence" or inner is None:
        return [step]
    return [flat for each in inner for flat in flat_steps({part: each}, part)]


def _continuations(
    state: Json, pieces: tuple[str, ...], special_ids: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    kinds = {step["type"] for step in flat_steps(state, "pre_tokenizer")}
    prefix = state["model"].get("continuing_subword_prefix")
    if state["model"]["type"] == "WordPiece" and prefix:
        found = [piece.startswith(prefix) for piece in pieces]
    elif state["model"]["type"] == "BPE" and "ByteLevel" in kinds:
        found = [not piece.startswith(_BYTE_LEVEL_WHITE_SPACE) for piece in pieces]
    elif state["model"]["type"] == "Unigram" and "Metaspace" in kinds:
        found = [not piece.startswith(_METASPACE) for piece in pieces]
    else:
        return None
    is_continuation = np.array(found, np.bool_)
    is_continuation[special_ids] = False
    return is_continuation


def _hash(
    state: Json, pieces: tuple[str, ...], roles: dict[str, int], special_ids: NDArray[np.int64]
) -> str:
    model = {key: value for key, value in state["model"].items() if key != "vocab"}
    if not isinstance(state["model"]["vocab"], dict):
        model["scores"] = state["model"]["vocab"]
    steps = flat_steps(state, "normalizer")
    everything = [
        list(pieces), model, steps, flat_steps(state, "pre_tokenizer"),
        state["added_tokens"], roles, special_ids.tolist(),
    ]  # fmt: skip
    text = json.dumps(everything, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _effective(step: Json) -> Json:
    """Spell out BERT's default: accents go where letters are lower-cased."""
    if step["type"] == "BertNormalizer" and step["strip_accents"] is None:
        return step | {"strip_accents": step["lowercase"]}
    return step


def _full_state(tokenizer: PretrainingTokenizer) -> Json:
    state: Json = json.loads(tokenizer.backend.to_str())
    is_byte_level = any(s["type"] == "ByteLevel" for s in flat_steps(state, "pre_tokenizer"))
    specials = [
        {
            "id": int(token_id),
            "content": tokenizer.pieces[token_id],
            "single_word": False,
            # As RoBERTa has it: a mask takes the blank before it along.
            "lstrip": is_byte_level and bool(token_id == tokenizer.mask_id),
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for token_id in tokenizer.special_ids
    ]
    added = sorted(state["added_tokens"] + specials, key=lambda token: int(token["id"]))
    state["normalizer"] = _spelled_out(state["normalizer"])
    return state | {"added_tokens": added, "post_processor": _template(tokenizer)}


def _spelled_out(normalizer: Json | None) -> Json | None:
    """Return a normalizer that reads the same once it was saved and loaded."""
    if normalizer is None or "type" not in normalizer:
        return normalizer
    if normalizer["type"] == "Sequence":
        return normalizer | {"normalizers": [*map(_spelled_out, normalizer["normalizers"])]}
    return _effective(normalizer)


def _template(tokenizer: PretrainingTokenizer) -> Json:
    """Return BERT's `[CLS] A [SEP] B [SEP]`, segments 0 and 1."""

    def special(token_id: int, segment: int) -> Json:
        return {"SpecialToken": {"id": tokenizer.pieces[token_id], "type_id": segment}}

    def sequence(name: str, segment: int) -> Json:
        return {"Sequence": {"id": name, "type_id": segment}}

    cls_id, sep_id = tokenizer.cls_id, tokenizer.sep_id
    single = [special(cls_id, 0), sequence("A", 0), special(sep_id, 0)]
    tokens = {
        tokenizer.pieces[i]: {
            "id": tokenizer.pieces[i],
            "ids": [i],
            "tokens": [tokenizer.pieces[i]],
        }
        for i in sorted({cls_id, sep_id})
    }
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, sequence("B", 1), special(sep_id, 1)],
        "special_tokens": tokens,
    }


def _saved_config(tokenizer: PretrainingTokenizer, model_max_length: int | None) -> Json:
    config: Json = {f"{r}_token": tokenizer.pieces[getattr(tokenizer, f"{r}_id")] for r in ROLES}
    config |= {"clean_up_tokenization_spaces": False}
    config |= {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    if model_max_length is not None:
        config["model_max_length"] = model_max_length
    steps = tokenizer._steps
    if len(steps) == 1 and steps[0]["type"] == "BertNormalizer":
        config["do_lower_case"] = steps[0]["lowercase"]
        config["strip_accents"] = steps[0]["strip_accents"]
        config["tokenize_chinese_chars"] = steps[0]["handle_chinese_chars"]
    is_bert = _is_plain_bert(tokenizer)
    config["tokenizer_class"] = "BertTokenizer" if is_bert else "PreTrainedTokenizerFast"
    return config


def _is_plain_bert(tokenizer: PretrainingTokenizer) -> bool:
    """Whether four settings say everything.

    `transformers` 5 rebuilds a `BertTokenizer` from casing, accents, CJK and the vocabulary, and
    silently drops whatever else `tokenizer.json` says.
    """
    state = json.loads(tokenizer.backend.to_str())
    normalizer, model = state["normalizer"], state["model"]
    return (
        normalizer is not None
        and normalizer["type"] == "BertNormalizer"
        and normalizer["clean_text"]
        and [s["type"] for s in flat_steps(state, "pre_tokenizer")] == ["BertPreTokenizer"]
        and model["type"] == "WordPiece"
        and model["continuing_subword_prefix"] == "##"
        and model["max_input_chars_per_word"] == 100
        and not state["added_tokens"]
        and len(tokenizer.special_ids) == len(ROLES)
    )


def _write(path: Path, text: str) -> None:
    path.write_text(text + "\n", encoding="utf-8", newline="\n")
