import subprocess
import sys

import pytest

from clozemill.model.config import preset
from clozemill.train.memory import ForwardSize, estimate_memory

STEP = r"""
import re, sys, torch
from pathlib import Path
from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import preset
from clozemill.train.config import PretrainConfig
from clozemill.train.loss import Inputs, PretrainingObjective, Targets
from clozemill.train.optimizers import make_optimizer, set_learning_rate

name, vocab, rows, tokens, dropout, precision, optimizer = sys.argv[1:]
vocab, rows, tokens, dropout = int(vocab), int(rows), int(tokens), float(dropout)
torch.set_num_threads(1)

def steps(name, rows, tokens, count):
    shape = preset(name, vocab_size=vocab, max_position_embeddings=tokens,
                   hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    objective = PretrainingObjective(BertForPreTraining(shape, seed=0))
    learner = make_optimizer(PretrainConfig(steps=1, optimizer=optimizer), objective.model)
    set_learning_rate(learner, 1e-4)
    for _ in range(count):
        ids = torch.randint(0, vocab, (rows, tokens))
        selected = torch.randperm(rows * tokens)[: round(rows * tokens * 0.15)]
        pairs = torch.zeros(rows, dtype=torch.int64)
        targets = Targets(selected, ids.flatten()[selected], selected >= 0, pairs)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            sums = objective(Inputs(ids, torch.zeros_like(ids), None), targets)
        (sums.mlm_loss_sum + sums.nsp_loss_sum).backward()
        learner.step()
        learner.zero_grad()

def peak():  # not ru_maxrss, which a child inherits from its parent
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

steps("tiny", 1, 16, 1)
before = peak()
steps(name, rows, tokens, 2)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "vocab", "rows", "tokens", "dropout", "precision", "optimizer"),
    [
        ("mini", 8_000, 32, 128, 0.0, "fp32", "adamw"),
        ("mini", 30_522, 32, 128, 0.1, "bf16", "bert-adam"),
        ("mini", 30_522, 32, 128, 0.0, "fp32", "adamw"),
        ("small", 8_000, 4, 512, 0.1, "fp32", "lamb"),
    ],
)
def test_a_real_step_takes_about_the_estimated_memory(
    name: str, vocab: int, rows: int, tokens: int, dropout: float, precision: str, optimizer: str
) -> None:
    arguments = [name, vocab, rows, tokens, dropout, precision, optimizer]
    command = [sys.executable, "-c", STEP, *map(str, arguments)]
    real = int(subprocess.run(command, check=True, capture_output=True).stdout)
    shape = preset(
        name,
        vocab_size=vocab,
        max_position_embeddings=tokens,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    batch = ForwardSize(num_rows=rows, num_tokens=tokens, num_selected=round(rows * tokens * 0.15))
    estimate = estimate_memory(shape, batch, precision=precision, optimizer=optimizer)
    assert 1 / 1.5 < real / estimate.total_bytes < 1.5


def test_weights_gradients_and_moments_are_four_numbers_for_each_parameter() -> None:
    shape = preset("base", vocab_size=30_522)
    batch = ForwardSize(num_rows=1, num_tokens=128, num_selected=19)
    memory = estimate_memory(shape, batch, precision="fp32", optimizer="adamw")
    assert memory.weights_bytes == memory.gradients_bytes == 4 * 110_106_428
    assert memory.optimizer_bytes == 8 * 110_106_428
    assert memory.total_bytes == 16 * 110_106_428 + memory.activations_bytes


def test_activations_grow_with_rows_and_with_dropout_of_attention() -> None:
    def activations(rows: int, dropout: float) -> int:
        shape = preset("mini", vocab_size=8_000, attention_probs_dropout_prob=dropout)
        batch = ForwardSize(num_rows=rows, num_tokens=128, num_selected=19 * rows)
        memory = estimate_memory(shape, batch, precision="bf16", optimizer="adamw")
        return memory.activations_bytes

    assert activations(8, 0.0) == 2 * activations(4, 0.0)
    assert activations(8, 0.1) > activations(8, 0.0)
