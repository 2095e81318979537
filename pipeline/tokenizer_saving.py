"""A tokenizer as a folder that `transformers` loads with the same ids and settings."""

import json
from pathlib import Path

from tokenizers import models

from clozemill.pipeline.tokenizer import ROLES, PretrainingTokenizer, effective_step, flat_steps
from clozemill.pipeline.tokenizer_files import Json


def save_tokenizer(
    tokenizer: PretrainingTokenizer, folder: Path, *, model_max_length: int | None = None
) -> None:
    """Write files from which `transformers.AutoTokenizer` gets the same ids and settings.

    Writes `tokenizer.json`, `tokenizer_config.json` and, for WordPiece, `vocab.txt`. The
    bytes are a function of the tokenizer and the length.

    Args:
        tokenizer: What to write.
        folder: Where to write; made if absent.
        model_max_length: Longest input of the model; by default the tokenizer's own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    length = model_max_length if model_max_length is not None else tokenizer.model_max_length
    _write(folder / "tokenizer.json", json.dumps(_full_state(tokenizer), ensure_ascii=False))
    config = json.dumps(_saved_config(tokenizer, length), indent=2, sort_keys=True)
    _write(folder / "tokenizer_config.json", config)
    if isinstance(tokenizer.backend.model, models.WordPiece):
        _write(folder / "vocab.txt", "\n".join(tokenizer.pieces))


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
    return effective_step(normalizer)


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
    steps = tokenizer.normalizer_steps
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
