import json

from tests.train.small_rows import train_row, window

from clozemill.pipeline.errors import RunError
from clozemill.pipeline.json_records import from_json, to_json
from clozemill.train.window import Window


def test_a_row_holds_the_means_of_its_sums() -> None:
    row = train_row(5)
    assert (row.mlm_loss, row.mask_only_loss, row.nsp_loss) == (3.0, 3.0, 0.5)
    assert (row.mlm_accuracy, row.nsp_accuracy, row.padding_share) == (0.1, 0.75, 0.25)
    assert (row.tokens_per_second, row.selected_per_second) == (45.0, 5.0)
    assert (row.data_wait_share, row.mfu) == (0.25, 0.05)


def test_losses_are_means_over_tokens_of_all_steps_and_not_means_of_steps() -> None:
    sums = Window(selected=1, mlm_loss_sum=4.0) + Window(selected=9, mlm_loss_sum=9.0)
    assert sums.evaluation_row(step=1, split="validation").mlm_loss == 1.3


def test_what_was_not_counted_is_null_with_a_reason() -> None:
    row = Window(steps=1, instances=2, tokens=9, positions=9).evaluation_row(step=1, split="train")
    assert row.mlm_loss is None
    assert row.absent["mlm_loss"] == row.absent["nsp_accuracy"] == "none counted"


def test_sums_survive_json_to_the_last_bit() -> None:
    sums = window(mlm_loss_sum=0.1 + 0.2, nsp_loss_sum=1 / 3, flops=1e300 / 7)
    assert from_json(Window, json.loads(json.dumps(to_json(sums))), "w", error=RunError) == sums
