"""Sums and rows of a log with round numbers in them."""

import math

from clozemill.train.baselines import Baselines
from clozemill.train.metrics import StartRow, TrainRow, start_row
from clozemill.train.window import Measured, Window


def window(**sums: float) -> Window:
    defaults: dict[str, float] = {
        "steps": 1,
        "mlm_loss_sum": 30.0,
        "mask_only_loss_sum": 24.0,
        "nsp_loss_sum": 2.0,
        "selected": 10,
        "mask_only": 8,
        "mlm_correct": 1,
        "pairs": 4,
        "nsp_correct": 3,
        "instances": 4,
        "tokens": 90,
        "positions": 120,
        "seconds": 2.0,
        "data_wait_seconds": 0.5,
        "flops": 1e9,
    }
    return Window(**{**defaults, **sums})  # type: ignore[arg-type]


def train_row(step: int, sums: Window | None = None) -> TrainRow:
    return (sums or window()).train_row(
        step=step,
        epoch=0,
        learning_rate=1e-4,
        gradient_norm=1.25,
        measured=Measured(peak_flops=1e10, peak_memory_bytes=1 << 30),
    )


def start_row_of_a_corpus() -> StartRow:
    return start_row(
        Baselines(
            split="validation",
            num_instances=40,
            num_selected=300,
            num_train_instances=4_000,
            even_loss=math.log(11),
            unigram_entropy=2.0,
            mask_token_loss=2.1,
            context_free_loss=1.9,
            context_free_accuracy=0.1,
            nsp_even_loss=math.log(2),
            nsp_majority_accuracy=0.55,
            nsp_length_loss=0.6,
            nsp_length_accuracy=None,
        )
    )
