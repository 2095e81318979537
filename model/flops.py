"""Sizes of a model in numbers: parameters, and multiply-adds of a step times two.

Legend: B rows, T tokens of a row with padding, H hidden, I intermediate, V vocabulary, S
selected positions, L layers.
"""

from clozemill.model.config import BertConfig


def num_parameters(config: BertConfig) -> int:
    """Return how many numbers a model has to learn, heads included; tied ones count once.

    >>> num_parameters(BertConfig(vocab_size=30522))
    110106428
    """
    h, v = config.hidden_size, config.vocab_size
    norm = 2 * h
    tables = (v + config.max_position_embeddings + config.type_vocab_size) * h
    layers = config.num_hidden_layers * (
        4 * _dense(h, h)
        + _dense(h, config.intermediate_size)
        + _dense(config.intermediate_size, h)
        + 2 * norm
    )
    prediction_head = _dense(h, h) + norm + v
    next_sentence_head = _dense(h, h) + _dense(h, 2) if config.next_sentence else 0
    return tables + norm + layers + prediction_head + next_sentence_head


def _dense(num_in: int, num_out: int) -> int:
    return num_in * num_out + num_out


def forward_flops(
    config: BertConfig, *, num_rows: int, num_tokens: int, num_selected: int | None = None
) -> int:
    """Return the floating-point operations of the matrix products of one forward pass.

    A multiplication and an addition count as two. Everything else (normalization, softmax, GELU,
    look-ups) is linear in the activations and left out, as is usual for utilization figures
    (Chowdhery et al. 2022, appendix B). Attention counts in full, also where it is masked.

    Args:
        config: of the model.
        num_rows: B.
        num_tokens: T, all of which are computed; where padding is taken out, the mean length.
        num_selected: S, positions that are predicted; None is all, which also keeps the last
            layer whole.
    """
    h = config.hidden_size
    all_tokens = num_rows * num_tokens
    projections = 3 * h * h
    position_wise = h * h + 2 * h * config.intermediate_size
    attention = 2 * num_rows * num_tokens * num_tokens * h
    num_pooled = num_rows if config.next_sentence else 0
    if num_selected is None:
        num_predicted = num_read = all_tokens
    else:
        num_predicted, num_read = num_selected, num_selected + num_pooled
    products = config.num_hidden_layers * (all_tokens * projections + attention)
    products += (config.num_hidden_layers - 1) * all_tokens * position_wise
    products += num_read * position_wise
    products += num_predicted * (h * h + h * config.vocab_size)
    products += num_pooled * (h * h + 2 * h)
    return 2 * products


def training_flops(
    config: BertConfig, *, num_rows: int, num_tokens: int, num_selected: int | None = None
) -> int:
    """Return those of a forward and a backward pass; arguments are those of `forward_flops`.

    The backward pass multiplies each matrix's gradient once with its input and once with its
    weights, and attention's likewise, so it takes twice the forward pass.
    """
    return 3 * forward_flops(
        config, num_rows=num_rows, num_tokens=num_tokens, num_selected=num_selected
    )
