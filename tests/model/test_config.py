"""The record of a model's shape: published sizes, and one line for what cannot be used."""

from typing import Any

import pytest

from clozemill.model.config import PRESETS, BertConfig, check_fits, preset
from clozemill.pipeline.errors import ModelError

PUBLISHED = {
    "tiny": (2, 128, 2, 512),
    "mini": (4, 256, 4, 1024),
    "small": (4, 512, 8, 2048),
    "medium": (8, 512, 8, 2048),
    "base": (12, 768, 12, 3072),
    "large": (24, 1024, 16, 4096),
}


def test_presets_are_the_published_sizes():
    assert list(PRESETS) == list(PUBLISHED)
    for name, sizes in PUBLISHED.items():
        config = preset(name, vocab_size=30522)
        assert sizes == (
            config.num_hidden_layers,
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
        )
        assert config.head_size == 64
        assert config.max_position_embeddings == 512
        assert config.layer_norm_eps == 1e-12


def test_base_is_what_the_fields_default_to():
    assert preset("base", vocab_size=30522) == BertConfig(vocab_size=30522)


def test_a_preset_takes_changes():
    config = preset("tiny", vocab_size=100, hidden_act="gelu_new", intermediate_size=7)
    assert (config.hidden_act, config.intermediate_size, config.hidden_size) == ("gelu_new", 7, 128)


@pytest.mark.parametrize(
    ("name", "changes", "text"),
    [
        ("huge", {}, "there is no model 'huge'; choose one of tiny, mini, small, medium, base, "
         "large."),
        ("tiny", {"depth": 3}, "a model has no setting 'depth'; see docs/model.md."),
    ],
)  # fmt: skip
def test_an_unknown_preset_or_setting_is_named(name: str, changes: dict[str, Any], text: str):
    with pytest.raises(ModelError) as caught:
        preset(name, vocab_size=100, **changes)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vocab_size": 0}, "vocab_size is 0; it must be between 1 and 2147483647."),
        ({"vocab_size": "99"}, "vocab_size is '99'; it must be a whole number."),
        ({"num_hidden_layers": True}, "num_hidden_layers is True; it must be a whole number."),
        ({"hidden_size": 768.0}, "hidden_size is 768.0; it must be a whole number."),
        ({"hidden_size": 100}, "hidden_size is 100 and num_attention_heads is 12; the heads must "
         "divide the features evenly."),
        ({"hidden_act": "relu"}, "hidden_act is 'relu'; it must be gelu or gelu_new."),
        ({"hidden_act": ["gelu"]}, "hidden_act is ['gelu']; it must be text."),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob is 1.0; it must be between 0.0 and "
         "0.99."),
        ({"attention_probs_dropout_prob": float("nan")}, "attention_probs_dropout_prob is nan; it "
         "must be between 0.0 and 0.99."),
        ({"initializer_range": 0}, "initializer_range is 0; it must be between 1e-06 and 1.0."),
        ({"layer_norm_eps": -1e-12}, "layer_norm_eps is -1e-12; it must be between 0.0 and 0.001."),
        ({"pad_token_id": 30522}, "pad_token_id is 30522; it must be between 0 and 30521."),
        ({"next_sentence": 1}, "next_sentence is 1; it must be true or false."),
        ({"causal": None}, "causal is None; it must be true or false."),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_said_in_one_line(changes: dict[str, Any], text: str):
    with pytest.raises(ModelError) as caught:
        BertConfig(**({"vocab_size": 30522} | changes))
    assert str(caught.value) == text


def test_whole_numbers_will_do_for_probabilities():
    assert BertConfig(vocab_size=9, hidden_dropout_prob=0).hidden_dropout_prob == 0


# Reports: positions, segments and vocabularies that do not match what the model is fed.


def test_a_model_smaller_than_its_data_is_refused_before_any_step():
    config = preset("tiny", vocab_size=500, max_position_embeddings=32, type_vocab_size=1)
    check_fits(config, vocab_size=500, max_seq_length=32, num_segments=1)
    for sizes, text in [
        ((1506, 32, 1), "the model's vocab_size is 500, but the data has 1506 token ids; use a "
         "model with at least 1506, or data made for this one."),
        ((500, 33, 1), "the model's max_position_embeddings is 32, but the data has 33 tokens; "
         "use a model with at least 33, or data made for this one."),
        ((500, 32, 2), "the model's type_vocab_size is 1, but the data has 2 segments; use a model "
         "with at least 2, or data made for this one."),
    ]:  # fmt: skip
        with pytest.raises(ModelError) as caught:
            check_fits(config, vocab_size=sizes[0], max_seq_length=sizes[1], num_segments=sizes[2])
        assert str(caught.value) == text
