"""What a training would be, before anything runs: sizes, steps, exposures, memory and hours."""

import math
import time
from dataclasses import dataclass

import torch

from clozemill.model.config import BertConfig
from clozemill.model.flops import num_parameters, training_flops
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.train.assembly import Assembly, assemble, first_model, model_config
from clozemill.train.config import PretrainConfig, steps_per_epoch
from clozemill.train.launch import choose_precision, start_accelerator
from clozemill.train.loader import micro_batches
from clozemill.train.loss import Batch
from clozemill.train.memory import ForwardSize, MemoryEstimate, estimate_memory
from clozemill.train.variants import VariantSchedule

_ENOUGH_SECONDS = 1.0
# Of a timed step: long enough to be told from noise, short enough to be waited for.


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Numbers that the encoder learns, with its heads; tied ones count once."""

    num_parameters: int
    """All of them."""

    num_embedding_parameters: int
    """Those in the tables of tokens, positions and segments."""

    checkpoint_bytes: int
    """Size of one checkpoint: weights and two moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLength:
    """How long the run is, and how often it sees what."""

    num_instances: int
    """Of the training split."""

    steps_per_epoch: int
    """The last one takes what is left."""

    num_steps: int
    """Optimizer steps in all."""

    num_warmup_steps: int
    """Steps until the learning rate's peak."""

    num_epochs: float
    """How often an instance is seen, on average."""

    num_variants: int
    """Different maskings of an instance that are seen."""

    exposures_per_variant: float
    """How often each of them is seen; the original: 4, in 40 epochs of 10 variants."""

    num_tokens: float
    """Real tokens that are seen, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSize:
    """One step over a full global batch of average instances."""

    num_tokens: float
    """Real tokens, without padding."""

    num_selected: float
    """Positions that are predicted, about: the dataset's mask rate of the tokens."""

    flops: float
    """Additions and multiplications of its matrix products, forward and backward."""

    micro_batch_size: int
    """Most instances of one forward pass of a rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a training would be."""

    model: ModelSize
    """The encoder."""

    length: RunLength
    """The run."""

    step: StepSize
    """A step of all ranks."""

    memory: MemoryEstimate
    """Of the tensors of one rank, with a micro-batch of the longest instances."""

    tokens_per_second: float | None
    """Rate of all ranks together; None if it was neither given nor measured."""

    hours: float | None
    """Time of all steps at that rate, without evaluations and checkpoints."""


def make_plan(
    config: PretrainConfig, *, num_ranks: int = 1, tokens_per_second: float | None = None
) -> Plan:
    """Return what a training would be; nothing is written, and nothing trained.

    Args:
        config: The settings; `out` is not needed.
        num_ranks: Processes that would train together.
        tokens_per_second: Real tokens of all ranks together, such as `measure_rate` returns for
            one.

    Raises:
        ClozemillError: The training could not start; the text says why.
    """
    dataset = open_dataset(config.data)
    shape = _shape(config, dataset)
    length = _run_length(config, dataset)
    return Plan(
        model=_model_size(shape),
        length=length,
        step=_step_size(config, shape, dataset, num_ranks),
        memory=_memory(config, shape, dataset, num_ranks),
        tokens_per_second=tokens_per_second,
        hours=None if tokens_per_second is None else length.num_tokens / tokens_per_second / 3600,
    )


def _shape(config: PretrainConfig, dataset: Dataset) -> BertConfig:
    """Return the encoder's shape, which given weights decide if there are any."""
    if config.init_from is None and config.continue_from is None:
        return model_config(config, dataset)
    return first_model(config, dataset).config


def _model_size(shape: BertConfig) -> ModelSize:
    rows = shape.vocab_size + shape.max_position_embeddings + shape.type_vocab_size
    return ModelSize(
        num_parameters=num_parameters(shape),
        num_embedding_parameters=rows * shape.hidden_size,
        checkpoint_bytes=3 * 4 * num_parameters(shape),
    )


def _run_length(config: PretrainConfig, dataset: Dataset) -> RunLength:
    train = dataset.manifest.splits["train"]
    num_steps = config.num_steps(train.num_instances)
    num_per_epoch = steps_per_epoch(train.num_instances, global_batch_size=config.global_batch_size)
    num_whole, rest = divmod(num_steps, num_per_epoch)
    num_epochs = num_whole + rest * config.global_batch_size / train.num_instances
    num_variants = _num_variants(config, dataset, math.ceil(num_epochs))
    return RunLength(
        num_instances=train.num_instances,
        steps_per_epoch=num_per_epoch,
        num_steps=num_steps,
        num_warmup_steps=config.num_warmup_steps(num_steps),
        num_epochs=num_epochs,
        num_variants=num_variants,
        exposures_per_variant=num_epochs / num_variants,
        num_tokens=num_epochs * train.num_tokens,
    )


def _num_variants(config: PretrainConfig, dataset: Dataset, num_epochs: int) -> int:
    """Return how many different maskings of an instance so many epochs show."""
    schedule = VariantSchedule.of(dataset.num_variants("train"), **config.masking_settings)
    is_dynamic = schedule.masking == "dynamic"
    return num_epochs if is_dynamic else min(num_epochs, schedule.num_static_variants)


def _step_size(
    config: PretrainConfig, shape: BertConfig, dataset: Dataset, num_ranks: int
) -> StepSize:
    train = dataset.manifest.splits["train"]
    num_rows = min(config.global_batch_size, train.num_instances)
    tokens_per_row = train.num_tokens / train.num_instances
    num_selected = num_rows * tokens_per_row * _mask_rate(dataset)
    return StepSize(
        num_tokens=num_rows * tokens_per_row,
        num_selected=num_selected,
        flops=training_flops(
            shape,
            num_rows=num_rows,
            num_tokens=round(tokens_per_row),
            num_selected=round(num_selected),
        ),
        micro_batch_size=config.micro_rows(num_ranks),
    )


def _mask_rate(dataset: Dataset) -> float:
    return float(dataset.manifest.build_config().masked_lm_prob)


def _memory(
    config: PretrainConfig, shape: BertConfig, dataset: Dataset, num_ranks: int
) -> MemoryEstimate:
    num_rows = min(config.micro_rows(num_ranks), dataset.num_instances("train"))
    longest = dataset.manifest.max_seq_length
    batch = ForwardSize(
        num_rows=num_rows,
        num_tokens=longest,
        num_selected=round(num_rows * longest * _mask_rate(dataset)),
    )
    return estimate_memory(
        shape,
        batch,
        precision=choose_precision(config.precision),
        optimizer=config.optimizer,
        device="cuda" if torch.cuda.is_available() else "cpu",
    )


def measure_rate(config: PretrainConfig) -> float:
    """Return the real tokens per second that this process trains on, from a few of its steps.

    It takes some ten seconds and the memory of a training, and writes nothing. Other work on the
    machine lowers the rate. What a step costs besides its micro-batches is counted once per step,
    and a micro-batch by as many of its rows as take about a second.

    Raises:
        ClozemillError: The training could not start; the text says why.
    """
    parts = assemble(config, start_accelerator(config))
    whole = next(iter(micro_batches(parts.instances, parts.order, parts.loading, steps=range(1))))
    batch, once = _timed_rows(parts, whole)
    for_batch = max(_step_seconds(parts, [batch, batch]) - once, 0.1 * once)
    besides = max(once - for_batch, 0.0)
    train = parts.dataset.manifest.splits["train"]
    num_rows = min(config.global_batch_size, train.num_instances)
    num_tokens = num_rows * train.num_tokens / train.num_instances
    return num_tokens / (besides + for_batch * num_tokens / int(batch["attention_mask"].sum()))


def _timed_rows(parts: Assembly, whole: Batch) -> tuple[Batch, float]:
    """Return as many of a micro-batch's rows as take about a second, and what they take."""
    num_rows = 1
    while True:
        some = {name: tensor[:num_rows] for name, tensor in whole.items()}
        seconds = _step_seconds(parts, [some])
        if num_rows >= len(whole["input_ids"]) or seconds >= _ENOUGH_SECONDS:
            return some, seconds
        num_rows *= 4


def _step_seconds(parts: Assembly, batches: list[Batch]) -> float:
    """Return the time of the fastest of three steps with a learning rate of 0."""
    wanted = [parts.without_unused(batch) for batch in batches]
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        parts.learner.step(wanted, number=1, learning_rate=0.0)
        times.append(time.perf_counter() - begin)
    return min(times)
