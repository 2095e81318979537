"""Small models with weights far from their initial scale, their twins in transformers, batches.

At the initial scale attention is nearly uniform and GELU nearly linear, so a wrong mask, a
transposed head or the wrong GELU would hardly show.
"""

from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn

from clozemill.model.bert import BertForPreTraining, PretrainingLogits
from clozemill.model.config import BertConfig
from clozemill.model.convert import config_entries

LENGTHS = [13, 5, 21, 2, 21]
"""Real tokens of each row; the longest fill it."""


def small_config(**changes: Any) -> BertConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 211,
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 80,
        "max_position_embeddings": 40,
        "type_vocab_size": 3,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return BertConfig(**(sizes | changes))


def perturb(model: nn.Module, seed: int = 0) -> None:
    """Draw weights at which heads attend sharply and no two features are alike."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 1.0 if "embeddings.weight" in name else 0.15  # 50 and 7 times the initial
            drawn = torch.randn(parameter.shape, generator=generator) * scale
            parameter.copy_(drawn + 1 if name.endswith("LayerNorm.weight") else drawn)


def small_model(seed: int = 0, **changes: Any) -> BertForPreTraining:
    model = BertForPreTraining(small_config(**changes), seed=None)
    perturb(model, seed)
    return model.eval()


def twin_of(model: BertForPreTraining) -> Any:
    """Return the same model as transformers has it, with the same weights."""
    entries = config_entries(model.config)
    twin = getattr(transformers, entries["architectures"][0])(transformers.BertConfig(**entries))
    twin.load_state_dict(model.state_dict())
    return twin.to(next(model.parameters()).dtype).eval()


class Batch(NamedTuple):
    input_ids: Tensor
    token_type_ids: Tensor
    attention_mask: Tensor


def small_batch(lengths: list[int] = LENGTHS, num_tokens: int = 21, seed: int = 1) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    shape = (len(lengths), num_tokens)
    mask = (torch.arange(num_tokens) < torch.tensor(lengths)[:, None]).long()
    ids = torch.randint(1, 211, shape, generator=generator) * mask
    types = torch.randint(0, 3, shape, generator=generator) * mask
    return Batch(ids, types, mask)


def flat_positions(batch: Batch, share: float = 0.4, seed: int = 2) -> Tensor:
    """Return about that share of the real positions, ascending."""
    chosen = torch.rand(batch.input_ids.shape, generator=torch.Generator().manual_seed(seed))
    return ((chosen < share) & batch.attention_mask.bool()).flatten().nonzero().squeeze(1)


def pull(logits: PretrainingLogits, seed: int = 3) -> Tensor:
    """Return a scalar whose gradient reaches every logit differently; double so sums are exact."""
    total = torch.zeros((), dtype=torch.float64)
    for tensor in logits:
        if tensor is not None:
            generator = torch.Generator().manual_seed(seed)
            weights = torch.randn(tensor.shape[-1], generator=generator)
            total = total + (tensor.cpu().double().tanh() * weights).sum()
    return total


def gradients(model: nn.Module) -> dict[str, Tensor]:
    found = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    assert len(found) == len(list(model.parameters()))
    return found


def worst(found: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the scale of what is expected."""
    assert found.shape == expected.shape
    assert found.numel() > 0
    found, expected = found.detach(), expected.detach()
    return float((found - expected).abs().max() / expected.abs().max())
