import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.small_datasets import build_small

from clozemill.model.bert import BertForPreTraining
from clozemill.model.convert import save_pretrained
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import ConfigError, ModelError
from clozemill.train.assembly import model_config
from clozemill.train.config import PretrainConfig
from clozemill.train.plan import make_plan, measure_rate


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of pairs of length 48 with 3 variants."""
    return build_small(tmp_path_factory.mktemp("plan"))


def config(data: Path, **settings: Any) -> PretrainConfig:
    return PretrainConfig(**{"data": str(data), "model": "tiny", **settings})


def test_the_encoder_has_as_many_parameters_as_planned(data: Path) -> None:
    settings = config(data, epochs=1)
    size = make_plan(settings).model
    model = BertForPreTraining(model_config(settings, open_dataset(data)), seed=0)
    assert size.num_parameters == sum(p.numel() for p in model.parameters())
    tables = [p.numel() for name, p in model.named_parameters() if "_embeddings." in name]
    assert len(tables) == 3
    assert size.num_embedding_parameters == sum(tables)
    assert size.checkpoint_bytes == 12 * size.num_parameters


def test_epochs_see_every_token_of_the_dataset_that_often(data: Path) -> None:
    train = open_dataset(data).manifest.splits["train"]
    length = make_plan(config(data, epochs=6, global_batch_size=16, warmup_steps=5)).length
    assert length.num_instances == train.num_instances
    assert length.steps_per_epoch == -(-train.num_instances // 16)
    assert length.num_steps == 6 * length.steps_per_epoch
    assert (length.num_epochs, length.num_tokens) == (6.0, 6 * train.num_tokens)
    assert length.num_warmup_steps == 5


def test_steps_may_end_within_an_epoch(data: Path) -> None:
    num_instances = open_dataset(data).num_instances("train")
    steps_per_epoch = -(-num_instances // 16)
    length = make_plan(config(data, steps=steps_per_epoch + 1, global_batch_size=16)).length
    assert length.num_epochs == pytest.approx(1 + 16 / num_instances)


@pytest.mark.parametrize(
    ("settings", "num_variants", "exposures"),
    [
        ({"epochs": 6}, 3, 2.0),
        ({"epochs": 6, "num_static_variants": 2}, 2, 3.0),
        ({"epochs": 2}, 2, 1.0),
        ({"epochs": 6, "masking": "dynamic"}, 6, 1.0),
    ],
)
def test_static_variants_return_and_dynamic_ones_do_not(
    data: Path, settings: dict[str, Any], num_variants: int, exposures: float
) -> None:
    length = make_plan(config(data, **settings)).length
    assert (length.num_variants, length.exposures_per_variant) == (num_variants, exposures)


def test_a_batch_larger_than_the_dataset_is_planned_as_what_there_is(data: Path) -> None:
    train = open_dataset(data).manifest.splits["train"]
    plan = make_plan(config(data, epochs=3, global_batch_size=10**6))
    assert (plan.length.steps_per_epoch, plan.length.num_steps) == (1, 3)
    assert plan.step.num_tokens == pytest.approx(train.num_tokens)


def test_hours_follow_from_tokens_and_a_given_rate(data: Path) -> None:
    plan = make_plan(config(data, epochs=3), tokens_per_second=100.0)
    assert plan.hours == pytest.approx(plan.length.num_tokens / 100 / 3600)
    assert make_plan(config(data, epochs=3)).hours is None


def test_flops_of_a_step_are_about_six_for_each_weight_and_token(data: Path) -> None:
    plan = make_plan(config(data, epochs=1, model="base", global_batch_size=16))
    weights = plan.model.num_parameters - plan.model.num_embedding_parameters
    # Less, as the last layer works on what the heads read; more, as attention has products.
    assert 0.85 < plan.step.flops / (6 * weights * plan.step.num_tokens) < 1.05


def test_more_ranks_share_the_micro_batches(data: Path) -> None:
    settings = config(data, epochs=1, global_batch_size=8)
    assert make_plan(settings).step.micro_batch_size == 8
    assert make_plan(settings, num_ranks=4).step.micro_batch_size == 2
    assert (
        make_plan(settings, num_ranks=4).memory.activations_bytes
        < make_plan(settings).memory.activations_bytes
    )


def test_weights_that_are_given_decide_the_sizes(data: Path, tmp_path: Path) -> None:
    shape = model_config(config(data, epochs=1, model="mini"), open_dataset(data))
    save_pretrained(BertForPreTraining(shape, seed=0), tmp_path / "mini")
    given = make_plan(config(data, epochs=1, init_from=str(tmp_path / "mini")))
    assert given.model == make_plan(config(data, epochs=1, model="mini")).model


def test_a_plan_is_json(data: Path) -> None:
    plan = make_plan(config(data, epochs=1), tokens_per_second=5.0)
    table = json.loads(json.dumps(dataclasses.asdict(plan), allow_nan=False))
    assert table["length"]["num_steps"] == plan.length.num_steps


def test_the_rate_of_this_machine_is_measured_and_nothing_is_written(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rate = measure_rate(config(data, epochs=1, global_batch_size=16, threads=1, precision="fp32"))
    assert 10 < rate < 1e9
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_has_the_sizes_of_the_dataset_and_its_own_tokenizer(data: Path) -> None:
    dataset = open_dataset(data)
    shape = model_config(config(data, epochs=1), dataset)
    assert shape.vocab_size == dataset.manifest.tokenizer.vocab_size
    assert shape.max_position_embeddings == dataset.manifest.max_seq_length
    assert model_config(config(data, epochs=1, max_position_embeddings=512), dataset) == (
        dataclasses.replace(shape, max_position_embeddings=512)
    )


def test_an_encoder_too_short_for_the_dataset_is_refused_before_any_step(data: Path) -> None:
    with pytest.raises(ModelError) as error:
        make_plan(config(data, epochs=1, max_position_embeddings=32))
    assert str(error.value) == (
        "the model's max_position_embeddings is 32, but the data has 48 tokens; use a model with "
        "at least 48, or data made for this one."
    )


def test_next_sentences_of_a_dataset_without_pairs_are_refused(tmp_path: Path) -> None:
    packed = build_small(tmp_path, recipe="roberta-full")
    assert not model_config(config(packed, epochs=1), open_dataset(packed)).next_sentence
    with pytest.raises(ConfigError, match="next_sentence is true, but .* has no sentence pairs"):
        make_plan(config(packed, epochs=1, next_sentence=True))
