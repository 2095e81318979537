"""A tokenizer as pretraining needs it: ids, roles and word starts."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

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
        return any(
            step.get("lowercase", step["type"] == "Lowercase") for step in self.normalizer_steps
        )

    @property
    def strips_accents(self) -> bool:
        """Whether the normalizer drops accents and other marks that combine."""
        return any(
            step.get("strip_accents", step["type"] == "StripAccents")
            for step in map(effective_step, self.normalizer_steps)
        )

    @property
    def normalizer_steps(self) -> list[Json]:
        """What is done to a text before it is cut, sequences laid flat."""
        return backend_steps(self.backend, "normalizer")


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
        step.update(effective_step(step))
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


def effective_step(step: Json) -> Json:
    """Spell out BERT's default: accents go where letters are lower-cased."""
    if step["type"] == "BertNormalizer" and step["strip_accents"] is None:
        return step | {"strip_accents": step["lowercase"]}
    return step
