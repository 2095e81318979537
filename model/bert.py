"""BERT for pretraining: everything from token ids to the logits of both tasks.

To be read beside Devlin et al. 2019 ("BERT: Pre-training of Deep Bidirectional Transformers for
Language Understanding") and Vaswani et al. 2017 ("Attention Is All You Need"), whose encoder it
is. What the papers leave open follows google-research/bert, `modeling.py` and
`run_pretraining.py`, whose functions are named in brackets.

Legend of shapes: B rows, T tokens of a row, H hidden, N heads, D = H / N features of a head,
I intermediate, V vocabulary, S selected positions, R positions that a head reads. `...` is B, T,
or the number of real tokens where padding was taken out.

Modules bear the names of Hugging Face's BertForPreTraining, so weights need no translation.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from clozemill.model.attention_cpu import attend_by_formula, prefers_formula
from clozemill.model.config import BertConfig
from clozemill.model.dropout import dropout
from clozemill.model.unpadded import Unpadded, can_attend_unpadded, real_tokens
from clozemill.model.weights import Embedding, Linear, draw_weights, tie_weights
from clozemill.pipeline.errors import ModelError

Attend: TypeAlias = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""Attention within a batch's rows: query, key, value (..., N, D) and dropout -> (..., N, D)."""


class PretrainingLogits(NamedTuple):
    """What the two heads say, before the softmax."""

    prediction_logits: Tensor
    """(S, V) at the selected positions; (B, T, V) where none were named."""

    seq_relationship_logits: Tensor | None
    """(B, 2): class 0 is that B follows A, class 1 that it is random; None without that head."""


class PretrainingFeatures(NamedTuple):
    """What comes before the projection to the vocabulary, and the other head's logits."""

    predictions: Tensor
    """(S, H) or (B, T, H), as the decoder takes it."""

    seq_relationship_logits: Tensor | None
    """As in `PretrainingLogits`."""


class Embeddings(nn.Module):
    """Token, segment and position, added and normalized (Devlin et al. 2019, figure 2)."""

    def __init__(self, config: BertConfig) -> None:
        """Make three tables; positions are learned like the rest [embedding_postprocessor]."""
        super().__init__()
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        """Return the encoder's input, (B, T) -> (B, T, H)."""
        words = self.word_embeddings(input_ids)  # (B, T) -> (B, T, H)
        if token_type_ids is None:
            segments = self.token_type_embeddings.weight[0]  # (H,): segment A throughout
        else:
            segments = self.token_type_embeddings(token_type_ids)  # (B, T) -> (B, T, H)
        positions = self.position_embeddings.weight[: input_ids.shape[1]]  # (T, H)
        hidden: Tensor = self.LayerNorm(words + segments + positions)
        if hidden.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            # Or every layer would cast its float32 input once for each of its matrices.
            hidden = hidden.to(torch.get_autocast_dtype("cpu"))
        return dropout(hidden, self.dropout_prob, self.training)


class SelfAttention(nn.Module):
    """What each token gathers from all, head by head (Vaswani et al. 2017, section 3.2.2)."""

    def __init__(self, config: BertConfig) -> None:
        """Make the projections; each is that of all heads, one below the other."""
        super().__init__()
        self.query = Linear(config.hidden_size, config.hidden_size)
        self.key = Linear(config.hidden_size, config.hidden_size)
        self.value = Linear(config.hidden_size, config.hidden_size)
        self.num_heads = config.num_attention_heads
        self.dropout_prob = config.attention_probs_dropout_prob

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        """Return the heads' contexts side by side, (..., H) -> (..., H)."""
        heads = (self.num_heads, -1)
        query = self.query(hidden).unflatten(-1, heads)  # (..., H) -> (..., N, D)
        key = self.key(hidden).unflatten(-1, heads)  # (..., H) -> (..., N, D)
        value = self.value(hidden).unflatten(-1, heads)  # (..., H) -> (..., N, D)
        context = attend(query, key, value, self.dropout_prob if self.training else 0.0)
        return context.flatten(-2)  # (..., N, D) -> (..., H)


def attend_padded(
    query: Tensor, key: Tensor, value: Tensor, dropout_prob: float, *, visible: Tensor | None
) -> Tensor:
    """Return softmax(Q K^T / sqrt(D)) V (Vaswani et al. 2017, equation 1); all are (B, T, N, D).

    `visible`, bool (B or 1, 1, T or 1, T), says which keys a query sees; None is all of them.
    Differs from BERT: the rest has weight 0, not a score lowered by 10000 [attention_layer].
    """
    query, key, value = (x.transpose(1, 2) for x in (query, key, value))  # -> (B, N, T, D)
    if prefers_formula(query, dropout_prob):
        context = attend_by_formula(query, key, value, dropout_prob, visible)
    else:
        context = F.scaled_dot_product_attention(query, key, value, visible, dropout_prob)
    return context.transpose(1, 2)  # (B, N, T, D) -> (B, T, N, D)


class ResidualOutput(nn.Module):
    """The end of both halves of a layer: dense, dropout, add the input, normalize.

    Normalizing after the sum ("post-LN") is Vaswani et al. 2017, section 3.1 [transformer_model].
    """

    def __init__(self, num_features: int, config: BertConfig) -> None:
        """Make the end of a half that is `num_features` wide."""
        super().__init__()
        self.dense = Linear(num_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout_prob = config.hidden_dropout_prob

    def forward(self, branch: Tensor, residual: Tensor) -> Tensor:
        """Return the normalized sum, (..., num_features) and (..., H) -> (..., H)."""
        branch = dropout(self.dense(branch), self.dropout_prob, self.training)  # -> (..., H)
        hidden: Tensor = self.LayerNorm(branch + residual)
        return hidden


class Attention(nn.Module):
    """The first half of a layer."""

    def __init__(self, config: BertConfig) -> None:
        """Make the attention and its end."""
        super().__init__()
        self.self = SelfAttention(config)
        self.output = ResidualOutput(config.hidden_size, config)

    def forward(self, hidden: Tensor, attend: Attend, read: Tensor | None) -> Tensor:
        """Return (..., H) -> (..., H), or (R, H) at the flat positions `read`."""
        context = self.self(hidden, attend)  # (..., H) -> (..., H)
        if read is not None:
            context = context.flatten(0, -2).index_select(0, read)  # (..., H) -> (R, H)
            hidden = hidden.flatten(0, -2).index_select(0, read)  # (..., H) -> (R, H)
        output: Tensor = self.output(context, hidden)
        return output


class DenseGelu(nn.Module):
    """A dense layer and the GELU (Hendrycks and Gimpel 2016; Devlin et al. 2019, appendix A.2).

    `gelu` is exact, x Phi(x). `gelu_new` is its approximation by tanh, which is what the original
    computes [gelu]; logits differ by about 1e-4.
    """

    def __init__(self, num_features: int, config: BertConfig) -> None:
        """Make the layer from H to `num_features`."""
        super().__init__()
        self.dense = Linear(config.hidden_size, num_features)
        self.approximate = "tanh" if config.hidden_act == "gelu_new" else "none"

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (..., H) -> (..., num_features)."""
        return F.gelu(self.dense(hidden), approximate=self.approximate)


class Layer(nn.Module):
    """Attention, then a feed-forward network on each token (Vaswani et al. 2017, figure 1)."""

    def __init__(self, config: BertConfig) -> None:
        """Make both halves."""
        super().__init__()
        self.attention = Attention(config)
        self.intermediate = DenseGelu(config.intermediate_size, config)
        self.output = ResidualOutput(config.intermediate_size, config)

    def forward(self, hidden: Tensor, attend: Attend, read: Tensor | None = None) -> Tensor:
        """Return (..., H) -> (..., H), or (R, H) at the flat positions `read`."""
        hidden = self.attention(hidden, attend, read)
        wide = self.intermediate(hidden)  # (..., H) -> (..., I)
        output: Tensor = self.output(wide, hidden)  # (..., I) -> (..., H)
        return output


class Encoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: BertConfig) -> None:
        """Make the layers."""
        super().__init__()
        self.layer = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))

    def forward(self, hidden: Tensor, attend: Attend, read: Tensor | None) -> Tensor:
        """Return (..., H) -> (..., H), or (R, H) at the flat positions `read`.

        After the last attention tokens no longer meet, so only what a head reads goes on.
        """
        for layer in self.layer[:-1]:
            hidden = layer(hidden, attend)
        output: Tensor = self.layer[-1](hidden, attend, read)
        return output


class Pooler(nn.Module):
    """A summary of the row, made of `[CLS]` alone [BertModel]."""

    def __init__(self, config: BertConfig) -> None:
        """Make its dense layer."""
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        """Return (B, H) -> (B, H), each between -1 and 1."""
        return torch.tanh(self.dense(first))


class Bert(nn.Module):
    """Embeddings and encoder, and the pooler that the next-sentence head trains."""

    def __init__(self, config: BertConfig) -> None:
        """Make the parts."""
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config) if config.next_sentence else None
        self.padding_free: bool | None = None
        """Whether padding is taken out before the encoder; None is where a kernel allows it, but
        not in a compiled graph, which lengths that are data would break."""

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        read: Tensor | None = None,
    ) -> Tensor:
        """Return the last layer, (B, T) -> (B, T, H), or (R, H) at the flat positions `read`."""
        hidden = self.embeddings(input_ids, token_type_ids)  # (B, T) -> (B, T, H)
        real = real_tokens(attention_mask)  # (B, T), or None where nothing is padding
        layout = None if real is None else self._layout_without_padding(real)
        if layout is None:
            visible = visible_keys(real, input_ids, causal=self.config.causal)
            attend: Attend = partial(attend_padded, visible=visible)
            output: Tensor = self.encoder(hidden, attend, read)  # -> (B, T, H) or (R, H)
            return output
        places = None if read is None else layout.places(read)  # (R,)
        output = self.encoder(layout.pack(hidden), layout.attend, places)
        return layout.pad(output) if read is None else output  # -> (B, T, H) or (R, H)

    def _layout_without_padding(self, real: Tensor) -> Unpadded | None:
        """Return it, or None where the padded layout is quicker or, by `padding_free`, wanted."""
        dtype = self.embeddings.word_embeddings.weight.dtype
        if self.padding_free is None and torch.compiler.is_compiling():
            return None
        has_kernel = can_attend_unpadded(real.device, dtype, self.config, training=self.training)
        is_wanted = has_kernel if self.padding_free is None else self.padding_free
        if not is_wanted or not bool(real[:, 0].all()):  # then [CLS] would have no place
            return None
        return Unpadded(real, causal=self.config.causal, has_kernel=has_kernel)


def visible_keys(real: Tensor | None, input_ids: Tensor, *, causal: bool) -> Tensor | None:
    """Return which keys a query sees, bool (B or 1, 1, T or 1, T); None is all of them.

    Every token sees all real ones (Devlin et al. 2019, section 3), or, `causal`, those left of it.
    """
    visible = None if real is None else real[:, None, None, :]  # (B, T) -> (B, 1, 1, T)
    if not causal:
        return visible
    tokens = torch.arange(input_ids.shape[1], device=input_ids.device)
    earlier = tokens[:, None] >= tokens  # (T, T): itself and what is left of it
    if visible is None:
        return earlier
    visible = visible & earlier  # (B, 1, T, T)
    sees_nothing = ~visible.any(-1, keepdim=True)  # padding on the left; has to see something
    return visible | (sees_nothing & earlier)


class Transform(DenseGelu):
    """One more layer before the vocabulary [get_masked_lm_output]."""

    def __init__(self, config: BertConfig) -> None:
        """Make it."""
        super().__init__(config.hidden_size, config)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return (..., H) -> (..., H)."""
        output: Tensor = self.LayerNorm(super().forward(hidden))
        return output


class PredictionHead(nn.Module):
    """Scores of all tokens (Devlin et al. 2019, section 3.1, task 1) [get_masked_lm_output]."""

    def __init__(self, config: BertConfig) -> None:
        """Make the head; `tie_weights` replaces what the decoder has of its own.

        Transform and decoder are called one by one: a loss may take the place of the latter.
        """
        super().__init__()
        self.bias = nn.Parameter(torch.empty(config.vocab_size))
        self.transform = Transform(config)
        self.decoder = Linear(config.hidden_size, config.vocab_size)


class Heads(nn.Module):
    """Both heads, or that of masked tokens alone."""

    def __init__(self, config: BertConfig) -> None:
        """Make them; the second is Devlin et al. 2019, task 2 [get_next_sentence_output]."""
        super().__init__()
        self.predictions = PredictionHead(config)
        self.seq_relationship = Linear(config.hidden_size, 2) if config.next_sentence else None


class BertForPreTraining(nn.Module):
    """BERT with its heads; without `next_sentence` it has the tensors of BertForMaskedLM."""

    def __init__(self, config: BertConfig, *, seed: int | None = 0) -> None:
        """Make the model with weights drawn from a seed, or unset ones for None."""
        super().__init__()
        self.config = config
        self.bert = Bert(config)
        self.cls = Heads(config)
        tie_weights(self)  # the decoder is the table of token embeddings (V, H)
        if seed is not None:
            draw_weights(self, seed=seed, std=config.initializer_range)

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        selected: Tensor | None = None,
    ) -> PretrainingLogits:
        """Return the logits of both tasks.

        Args:
            input_ids: int64 (B, T), token ids; each row begins with `[CLS]`, padding follows it.
            token_type_ids: int64 (B, T), segments; None is segment 0 throughout.
            attention_mask: (B, T), 0 at padding; None is no padding.
            selected: int64 (S,), flat positions b * T + t of real tokens to be predicted, S may
                be 0; None is every position. Naming them saves most of the work for a
                vocabulary many times the hidden size, and never changes a logit.

        Raises:
            ModelError: Rows are longer than the model's table of positions.
        """
        features = self.features(input_ids, token_type_ids, attention_mask, selected)
        predictions: Tensor = self.cls.predictions.decoder(features.predictions)  # -> (..., V)
        return PretrainingLogits(predictions, features.seq_relationship_logits)

    def features(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        selected: Tensor | None = None,
    ) -> PretrainingFeatures:
        """Return what `forward` projects to the vocabulary, for a loss that does so itself.

        Arguments and errors are those of `forward`.
        """
        num_rows, num_tokens = input_ids.shape
        if num_tokens > self.config.max_position_embeddings:
            raise ModelError(
                f"a row has {num_tokens} tokens, but the model's max_position_embeddings is "
                f"{self.config.max_position_embeddings}; cut the row or use a longer model."
            )
        if selected is None:
            hidden = self.bert(input_ids, token_type_ids, attention_mask)  # (B, T, H)
            return self._features(hidden, hidden[:, 0])
        num_firsts = num_rows if self.config.next_sentence else 0
        firsts = torch.arange(num_firsts, device=selected.device) * num_tokens  # (B,) or (0,)
        read = torch.cat([selected, firsts])  # (R,), R = S + B or S
        hidden = self.bert(input_ids, token_type_ids, attention_mask, read)  # (R, H)
        return self._features(*hidden.split([len(selected), num_firsts]))

    def _features(self, hidden: Tensor, first: Tensor) -> PretrainingFeatures:
        """Return (..., H) and (B, H) -> (..., H) and (B, 2)."""
        predictions = self.cls.predictions.transform(hidden)  # (..., H) -> (..., H)
        if self.bert.pooler is None or self.cls.seq_relationship is None:
            return PretrainingFeatures(predictions, None)
        pooled = self.bert.pooler(first)  # (B, H) -> (B, H)
        return PretrainingFeatures(predictions, self.cls.seq_relationship(pooled))  # -> (B, 2)
