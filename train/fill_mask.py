"""What an encoder would put in the place of `[MASK]`.

Legend: T tokens with specials, S masks, V vocabulary.
"""

from dataclasses import dataclass

import torch
from tokenizers import AddedToken, Tokenizer

from clozemill.model.bert import BertForPreTraining
from clozemill.pipeline.documents import normalise_text
from clozemill.pipeline.encode import sentence_prefix
from clozemill.pipeline.errors import InputError, ModelError
from clozemill.pipeline.files import bytes_spelled_out, has_utf8_name
from clozemill.pipeline.tokenizer import PretrainingTokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A token that may stand at a mask."""

    token: str
    """The piece, as the vocabulary has it: `##s` continues the word before it."""

    token_id: int
    """Its id."""

    probability: float
    """Of all tokens of the vocabulary."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledMask:
    """A mask, and what the encoder expects there."""

    position: int
    """Its place among the tokens, `[CLS]` being 0."""

    candidates: tuple[Candidate, ...]
    """The most probable first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledText:
    """A text as the encoder read it, with a filled mask for each `[MASK]`."""

    tokens: tuple[str, ...]
    """(T,): the pieces, `[CLS]` and `[SEP]` included."""

    masks: tuple[FilledMask, ...]
    """(S,): each by itself, as the others stay hidden."""


def fill_mask(
    model: BertForPreTraining, tokenizer: PretrainingTokenizer, text: str, *, top_k: int = 5
) -> FilledText:
    """Return what an encoder expects at each mask of a text.

    Args:
        model: In float32 on the CPU, as `find_encoder` returns it.
        tokenizer: That of the model's ids.
        text: Holds the mask token, such as `[MASK]`, at least once. Any other special token in
            it is text, as it is in a dataset.
        top_k: Candidates of each mask; at most the vocabulary has.

    Raises:
        InputError: The text has no mask, is too long, or is no text.
        ModelError: The tokenizer is not the model's, or the weights are not finite.
    """
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ModelError(
            f"the tokenizer has {tokenizer.vocab_size:,} tokens, but the model knows "
            f"{model.config.vocab_size:,}; give the model's own tokenizer."
        )
    token_ids = encode_masked(tokenizer, text)
    _check_length(token_ids, model, tokenizer)
    positions = [i for i, token_id in enumerate(token_ids) if token_id == tokenizer.mask_id]
    probabilities = _probabilities(model, token_ids, positions)[:, : tokenizer.vocab_size]
    # Sorted, not by topk, so that equal ones come in the order of their ids.
    best, best_ids = probabilities.sort(dim=1, descending=True, stable=True)
    masks = [
        FilledMask(
            position=position,
            candidates=tuple(
                Candidate(token=tokenizer.pieces[i], token_id=i, probability=p)
                for i, p in zip(ids, ps, strict=True)
            ),
        )
        for position, ids, ps in zip(
            positions, best_ids[:, :top_k].tolist(), best[:, :top_k].tolist(), strict=True
        )
    ]
    return FilledText(tokens=tuple(tokenizer.pieces[i] for i in token_ids), masks=tuple(masks))


def encode_masked(tokenizer: PretrainingTokenizer, text: str) -> list[int]:
    """Return the ids of `[CLS] text [SEP]`, as a build makes them but for the mask token.

    Raises:
        InputError: The text has no mask, or is no text.
    """
    if not has_utf8_name(text):
        raise InputError(
            f"the text {bytes_spelled_out(text)[:100]!r} is not UTF-8; type it otherwise."
        )
    mask = tokenizer.pieces[tokenizer.mask_id]
    if mask not in text:
        raise InputError(f"the text has no {mask}; write {mask} in the place of a word.")
    prefix = sentence_prefix(tokenizer)
    backend = Tokenizer.from_str(tokenizer.backend.to_str())
    # As `PretrainingTokenizer.save` has it: where words bring their blank, a mask takes it along.
    backend.add_special_tokens([AddedToken(mask, lstrip=bool(prefix), normalized=False)])
    ids = backend.encode(prefix + normalise_text(text), add_special_tokens=False).ids
    special = set(tokenizer.special_ids.tolist()) - {tokenizer.mask_id}
    inner = [tokenizer.unk_id if token_id in special else token_id for token_id in ids]
    return [tokenizer.cls_id, *inner, tokenizer.sep_id]


def _check_length(
    token_ids: list[int], model: BertForPreTraining, tokenizer: PretrainingTokenizer
) -> None:
    most = model.config.max_position_embeddings
    if len(token_ids) > most:
        cls, sep = tokenizer.pieces[tokenizer.cls_id], tokenizer.pieces[tokenizer.sep_id]
        raise InputError(
            f"the text has {len(token_ids):,} tokens with {cls} and {sep}, but the model reads at "
            f"most {most:,}; shorten it."
        )


def _probabilities(
    model: BertForPreTraining, token_ids: list[int], positions: list[int]
) -> torch.Tensor:
    """Return the probability of each token at each mask, float64 (S, V)."""
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        logits = model(torch.tensor([token_ids]), selected=torch.tensor(positions))
    model.train(was_training)
    probabilities: torch.Tensor = logits.prediction_logits.double().softmax(dim=1)
    if not probabilities.isfinite().all():
        raise ModelError("the model's weights are not finite; take an earlier checkpoint.")
    return probabilities
