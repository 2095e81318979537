"""Where weights come from: one function draws them all, and no module draws any of its own.

Legend: V vocabulary, H hidden, I intermediate, P positions.
"""

import re
from typing import Any

import torch
from torch import nn

from clozemill.model.config import BertConfig

TIED = {
    "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
"""Second names that two tensors have in a `state_dict`, and those they are stored under.

The decoder is the table of token embeddings and has the head's bias (google-research/bert
`get_masked_lm_output`); the names are Hugging Face's.
"""


class Linear(nn.Linear):
    """`x @ weight.T + bias` with weight (out, in), both unset until `draw_weights` or a load."""

    def reset_parameters(self) -> None:
        """Leave the weights unset."""


class Embedding(nn.Embedding):
    """A table of vectors, unset until `draw_weights` or a load."""

    def reset_parameters(self) -> None:
        """Leave the table unset."""


def draw_weights(model: nn.Module, *, seed: int, std: float) -> None:
    """Draw all weights of a model from a seed alone; torch's own generators are not touched.

    Matrices and tables come from a normal distribution cut off at two standard deviations, biases
    are 0 and normalization starts as the identity (google-research/bert `create_initializer` and
    TensorFlow's defaults). `std` is the standard deviation before the cut, as in TensorFlow; what
    is left has 0.88 of it. Differs from Hugging Face, which cuts nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():  # a tied tensor comes once
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif name.endswith("LayerNorm.weight"):
            nn.init.ones_(parameter)
        else:
            bound = 2 * std
            nn.init.trunc_normal_(parameter, std=std, a=-bound, b=bound, generator=generator)


def tie_weights(model: nn.Module) -> None:
    """Give each tied tensor its second name, now and after every `load_state_dict`.

    A load then misses no second name, and copies nothing apart that belongs together.
    """
    _tie(model)
    model.register_load_state_dict_post_hook(_mend_ties)  # type: ignore[no-untyped-call]


def _tie(model: nn.Module) -> None:
    for second, first in TIED.items():
        module, _, name = second.rpartition(".")
        setattr(model.get_submodule(module), name, model.get_parameter(first))


def _mend_ties(model: nn.Module, incompatible: Any) -> None:
    _tie(model)
    missing = incompatible.missing_keys
    missing[:] = [name for name in missing if name not in TIED]


def plain_name(name: str) -> str:
    """Return a tensor's name in the plain model, without what compilers and wrappers add.

    >>> plain_name("module._orig_mod.bert.pooler.dense.bias")
    'bert.pooler.dense.bias'
    """
    return re.sub(r"(?<![^.])(_orig_mod|module)\.", "", name)


def tensor_shapes(config: BertConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every stored tensor by its name, which is also Hugging Face's.

    >>> len(tensor_shapes(BertConfig(vocab_size=100, num_hidden_layers=2)))
    46
    """
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (config.vocab_size, hidden),
        "bert.embeddings.position_embeddings.weight": (config.max_position_embeddings, hidden),
        "bert.embeddings.token_type_embeddings.weight": (config.type_vocab_size, hidden),
        **_norm("bert.embeddings", hidden),
    }
    for number in range(config.num_hidden_layers):
        shapes |= _layer_shapes(f"bert.encoder.layer.{number}", hidden, config.intermediate_size)
    if config.next_sentence:
        shapes |= _dense("bert.pooler.dense", hidden, hidden)
    shapes |= {
        "cls.predictions.bias": (config.vocab_size,),
        **_dense("cls.predictions.transform.dense", hidden, hidden),
        **_norm("cls.predictions.transform", hidden),
    }
    if config.next_sentence:
        shapes |= _dense("cls.seq_relationship", hidden, 2)
    return shapes


def _layer_shapes(layer: str, hidden: int, intermediate: int) -> dict[str, tuple[int, ...]]:
    return {
        **_dense(f"{layer}.attention.self.query", hidden, hidden),
        **_dense(f"{layer}.attention.self.key", hidden, hidden),
        **_dense(f"{layer}.attention.self.value", hidden, hidden),
        **_dense(f"{layer}.attention.output.dense", hidden, hidden),
        **_norm(f"{layer}.attention.output", hidden),
        **_dense(f"{layer}.intermediate.dense", hidden, intermediate),
        **_dense(f"{layer}.output.dense", intermediate, hidden),
        **_norm(f"{layer}.output", hidden),
    }


def _dense(name: str, num_in: int, num_out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": (num_out, num_in), f"{name}.bias": (num_out,)}


def _norm(name: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.LayerNorm.weight": (size,), f"{name}.LayerNorm.bias": (size,)}
