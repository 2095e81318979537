"""How fast a training step is, beside `transformers` BertForPreTraining on the same rows.

    python -m benchmarks.train_step                               # two CPU cores
    python -m benchmarks.train_step --model base --rows 256       # a GPU

A step is forward, backward, clipping and the optimizer. Every contender runs in a process of its
own, in turn, several rounds of them; the table gives the median round and ratios to the first.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import torch

from benchmarks.tables import give, markdown_table
from benchmarks.watch import machine, run_watched
from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import BertConfig, PresetName, preset
from clozemill.model.flops import training_flops
from clozemill.train.throughput import device_peak

Batch = dict[str, torch.Tensor]
Step = Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Whose step, in which precision."""

    is_ours: bool
    precision: str
    dropout: float


CONTENDERS = {
    "transformers": Contender(is_ours=False, precision="fp32", dropout=0.1),
    "clozemill, the same": Contender(is_ours=True, precision="fp32", dropout=0.1),
    "transformers, bf16, no dropout": Contender(is_ours=False, precision="bf16", dropout=0.0),
    "clozemill, bf16, no dropout": Contender(is_ours=True, precision="bf16", dropout=0.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What every contender computes."""

    model: PresetName
    vocab_size: int
    rows: int
    tokens: int
    selected: int
    """Selected positions of a row."""

    def config(self, dropout: float) -> BertConfig:
        """Return the encoder."""
        return preset(
            self.model,
            vocab_size=self.vocab_size,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )

    def batch(self, device: torch.device) -> Batch:
        """Return rows of random tokens without padding, as the collator makes them."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.rows, self.tokens)
        ids = torch.randint(1000, self.vocab_size, shape, generator=generator)
        places = torch.rand(shape, generator=generator).argsort(1)[:, : self.selected]
        labels = torch.full(shape, -100).scatter(1, places, ids.gather(1, places))
        batch = {
            "input_ids": ids.scatter(1, places, 103),
            "attention_mask": torch.ones(shape, dtype=torch.int64),
            "token_type_ids": (torch.arange(self.tokens) >= self.tokens // 2).long().expand(shape),
            "labels": labels,
            "next_sentence_label": torch.randint(0, 2, (self.rows,), generator=generator),
        }
        return {name: tensor.to(device).contiguous() for name, tensor in batch.items()}


def our_step(shape: Shape, contender: Contender, device: torch.device) -> Step:
    """Return a step as `clozemill pretrain` takes it."""
    from accelerate import Accelerator

    from clozemill.train.config import PretrainConfig
    from clozemill.train.launch import keep_large_blocks
    from clozemill.train.loss import PretrainingObjective
    from clozemill.train.optimizers import make_optimizer
    from clozemill.train.steps import Learner

    keep_large_blocks()
    precision = {"fp32": "no"}.get(contender.precision, contender.precision)
    accelerator = Accelerator(mixed_precision=precision, cpu=device.type == "cpu")
    model = BertForPreTraining(shape.config(contender.dropout)).to(device)
    optimizer = make_optimizer(PretrainConfig(steps=1), model)
    objective, optimizer = accelerator.prepare(PretrainingObjective(model), optimizer)
    learner = Learner(
        accelerator, objective=objective, optimizer=optimizer, mask_id=103, clip_norm=1.0, seed=0
    )
    batch = shape.batch(device)
    return lambda: _check(learner.step([batch], number=1, learning_rate=1e-4).is_finite)


_SHARED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
)
"""What both configurations call by the same name."""


def their_step(shape: Shape, contender: Contender, device: torch.device) -> Step:
    """Return a step of `transformers` as its documentation shows it."""
    from transformers import BertConfig as TheirConfig
    from transformers import BertForPreTraining as TheirModel

    ours = shape.config(contender.dropout)
    model: Any = TheirModel(TheirConfig(**{name: getattr(ours, name) for name in _SHARED}))
    model = model.to(device)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    batch = shape.batch(device)
    is_bf16 = contender.precision == "bf16"

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=is_bf16):
            loss = model(**batch).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        _check(bool(norm.isfinite()))

    return step


def _check(is_finite: bool) -> None:
    if not is_finite:
        raise RuntimeError("a step is not finite, so its time says nothing.")


def measure(name: str, shape: Shape, *, steps: int, threads: int | None) -> dict[str, Any]:
    """Return the seconds of a step of one contender, the median over so many steps."""
    if threads:
        torch.set_num_threads(threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    contender = CONTENDERS[name]
    step = (our_step if contender.is_ours else their_step)(shape, contender, device)
    for _ in range(3):
        step()
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    peak = device_peak(device, contender.precision)
    median = statistics.median(seconds)
    flops = training_flops(
        shape.config(0.0),
        num_rows=shape.rows,
        num_tokens=shape.tokens,
        num_selected=shape.rows * shape.selected,
    )
    return {
        "seconds": median,
        "tokens_per_second": shape.rows * shape.tokens / median,
        "mfu": flops / median / peak.flops_per_second,
        "peak_gflops": peak.flops_per_second / 1e9,
        "gpu_bytes": torch.cuda.max_memory_allocated() if device.type == "cuda" else 0,
    }


@click.command()
@click.option("--model", default="mini", show_default=True)
@click.option("--vocab-size", default=30_522, show_default=True)
@click.option("--rows", default=32, show_default=True, help="Rows of a micro-batch.")
@click.option("--tokens", default=128, show_default=True)
@click.option("--selected", default=19, show_default=True, help="Selected positions of a row.")
@click.option("--steps", default=10, show_default=True, help="Steps timed in a process.")
@click.option("--rounds", default=3, show_default=True)
@click.option("--threads", type=int, help="By default as many as torch takes.")
@click.option("--json", "is_json", is_flag=True)
@click.option("--only", hidden=True, help="Measure one contender in this process.")
def main(
    steps: int,
    rounds: int,
    threads: int | None,
    is_json: bool,
    only: str | None,
    **sizes: Any,
) -> None:
    """Time a training step of clozemill beside one of transformers."""
    shape = Shape(**sizes)
    if only is not None:
        click.echo(json.dumps(measure(only, shape, steps=steps, threads=threads)))
        return
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in CONTENDERS}
    for _ in range(rounds):
        for name in CONTENDERS:
            watched = run_watched(
                [
                    sys.executable,
                    "-m",
                    __spec__.name,
                    "--only",
                    name,
                    *_flags(sizes),
                    *_flags({"steps": steps, **({"threads": threads} if threads else {})}),
                ],
                {},
            )
            found[name].append(
                {**json.loads(watched.stdout), "peak_pss_bytes": watched.peak_pss_bytes}
            )
    medians = {
        name: {key: statistics.median(run[key] for run in runs) for key in runs[0]}
        for name, runs in found.items()
    }
    give({"machine": machine(), "shape": sizes, "runs": found}, _table(medians), is_json=is_json)


def _flags(settings: dict[str, Any]) -> list[str]:
    return [
        word
        for name, value in settings.items()
        for word in ("--" + name.replace("_", "-"), str(value))
    ]


def _table(medians: dict[str, dict[str, Any]]) -> str:
    first = next(iter(medians.values()))["tokens_per_second"]
    rows = []
    for name, run in medians.items():
        memory = run["gpu_bytes"] or run["peak_pss_bytes"]
        rate = run["tokens_per_second"]
        rows.append(
            [
                name,
                f"{rate:,.0f}",
                f"{rate / first:.2f}",
                f"{run['mfu']:.1%}",
                f"{memory / 1e6:,.0f}",
            ]
        )
    return markdown_table(("step of", "tokens/s", "ratio", "MFU", "peak memory MB"), rows)


if __name__ == "__main__":
    main()
