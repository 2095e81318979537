from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.train.one_step import GLOBAL_BATCH_SIZE, take_step
from tests.train.processes import run_module
from tests.train.small_readings import BuiltDataset

from clozemill.train.steps import seed_dropout

Gradient = dict[str, torch.Tensor]


def assert_same(found: Gradient, expected: Gradient) -> None:
    """Compare to 1e-6 of the scale of the whole gradient."""
    scale = max(float(gradient.abs().max()) for gradient in expected.values())
    assert scale > 0.01
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert float((found[name] - gradient).abs().max()) <= 1e-6 * scale, name


@pytest.fixture(scope="module")
def whole(built: BuiltDataset) -> Gradient:
    return take_step(built().folder, GLOBAL_BATCH_SIZE)[1]


@pytest.mark.parametrize("micro_batch_size", [4, 3, 2, 1])
def test_gradient_is_the_same_however_the_batch_is_cut(
    built: BuiltDataset, whole: Gradient, micro_batch_size: int
) -> None:
    assert_same(take_step(built().folder, micro_batch_size)[1], whole)


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "micro_batch_size"), [(2, 4), (2, 1), (3, 2)])
def test_gradient_is_the_same_on_several_ranks(
    built: BuiltDataset, whole: Gradient, tmp_path: Path, ranks: int, micro_batch_size: int
) -> None:
    out = tmp_path / "gradient.safetensors"
    arguments = [built().folder, out, micro_batch_size]
    done = run_module("tests.train.one_step", *arguments, ranks=ranks)
    assert done.returncode == 0, done.stderr
    assert_same(load_file(out), whole)


def test_last_step_of_an_epoch_is_divided_by_its_own_tokens(built: BuiltDataset) -> None:
    dataset = built()
    last = -(-dataset.num_instances("train") // GLOBAL_BATCH_SIZE) - 1
    num_left = dataset.num_instances("train") % GLOBAL_BATCH_SIZE
    assert 0 < num_left < GLOBAL_BATCH_SIZE
    result, gradient = take_step(dataset.folder, GLOBAL_BATCH_SIZE, step=last)
    assert result.window.instances == num_left
    assert_same(take_step(dataset.folder, 1, step=last)[1], gradient)


def test_a_fresh_model_knows_nothing(built: BuiltDataset) -> None:
    window = take_step(built().folder, GLOBAL_BATCH_SIZE)[0].window
    vocab_size = built().manifest.tokenizer.vocab_size
    assert window.selected > 30
    assert abs(window.mlm_loss_sum / window.selected - torch.log(torch.tensor(vocab_size))) < 0.2
    assert abs(window.nsp_loss_sum / window.pairs - torch.log(torch.tensor(2.0))) < 0.2


def test_dropout_follows_from_the_place_of_the_micro_batch_alone() -> None:
    def draw(step: int, micro_batch: int) -> list[float]:
        seed_dropout(5, step, micro_batch)
        return torch.rand(4).tolist()  # type: ignore[no-any-return]

    assert draw(7, 2) == draw(7, 2)
    assert len({tuple(draw(step, place)) for step in range(4) for place in range(4)}) == 16
