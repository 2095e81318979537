"""A trained encoder measured on a dataset: losses with stored masks, beside the reference lines.

The numbers are those that a training logs: the same masks, the same sums. With the precision,
threads and micro-batches of the run, they are equal to the last bit.
"""

import dataclasses
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from accelerate import Accelerator

from clozemill.model.config import check_fits
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.errors import ModelError
from clozemill.pipeline.progress import OnProgress, Progress
from clozemill.train.baselines import Baselines, measure_baselines
from clozemill.train.config import PretrainConfig
from clozemill.train.encoders import TrainedEncoder, find_encoder
from clozemill.train.evaluation_settings import EvaluationSettings
from clozemill.train.launch import precision_of, start_accelerator
from clozemill.train.loader import LoaderSettings, MicroBatches, evaluation_batches
from clozemill.train.loss import Batch, PretrainingObjective
from clozemill.train.metrics import EvaluationRow
from clozemill.train.steps import evaluate
from clozemill.train.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """An encoder's losses on a dataset, and those of predictors without one."""

    model: Path
    """The checkpoint or folder whose weights were used."""

    row: EvaluationRow
    """Losses and accuracies, as a run logs them; step 0 where nothing says the step."""

    baselines: Baselines
    """Reference lines, of the same positions."""

    variant: int
    """The masking."""

    precision: str
    """What `auto` came to."""

    dataset_digest: str
    """Of the split, with its masks."""

    tokenizer_hash: str
    """Of the dataset."""

    is_tokenizer_known: bool
    """Whether the model says that it is trained with that one; else only their sizes agree."""


def evaluate_encoder(
    path: Path,
    data: Path,
    settings: EvaluationSettings | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> Evaluation:
    """Return the losses of an encoder on a dataset.

    Args:
        path: A run, a checkpoint, or a folder in Hugging Face's form.
        data: The dataset.
        settings: By default all of validation under its first stored masks.
        on_progress: Told how many tokens are done, about.

    Raises:
        ModelError: The encoder was not made for such a dataset; the text says how they differ.
        ClozemillError: One of them cannot be read.
    """
    settings = settings or EvaluationSettings()
    accelerator = start_accelerator(
        PretrainConfig(steps=1, precision=settings.precision, threads=settings.threads)
    )
    dataset = open_dataset(data)
    batches = _batches(dataset, settings)
    encoder = find_encoder(path)
    is_known = check_made_for(encoder, dataset)
    counted = _counted(batches, dataset, settings, on_progress)
    window = _measure(accelerator, encoder, dataset, counted)
    step = 0 if encoder.state is None else encoder.state.step
    return Evaluation(
        model=encoder.folder,
        row=window.evaluation_row(step=step, split=settings.split),
        baselines=_baselines(dataset, settings),
        variant=settings.variant,
        precision=precision_of(accelerator),
        dataset_digest=dataset.manifest.splits[settings.split].dataset_digest,
        tokenizer_hash=dataset.manifest.tokenizer.hash,
        is_tokenizer_known=is_known,
    )


def _batches(dataset: Dataset, settings: EvaluationSettings) -> MicroBatches:
    return evaluation_batches(
        dataset,
        LoaderSettings(micro_batch_size=settings.micro_batch_size),
        split=settings.split,
        variant=settings.variant,
        num_instances=settings.num_instances,
    )


def _baselines(dataset: Dataset, settings: EvaluationSettings) -> Baselines:
    return measure_baselines(
        dataset,
        split=settings.split,
        variant=settings.variant,
        eval_instances=settings.num_instances,
    )


def _measure(
    accelerator: Accelerator, encoder: TrainedEncoder, dataset: Dataset, batches: Iterable[Batch]
) -> Window:
    """Return the sums of an encoder over batches, and the seconds that they took."""
    objective = PretrainingObjective(encoder.model).to(accelerator.device)
    begin = time.perf_counter()
    window = evaluate(
        accelerator,
        accelerator.prepare_model(objective, evaluation_mode=True),
        _without_unused(batches, encoder),
        mask_id=dataset.manifest.tokenizer.special_ids["mask"],
    )
    return dataclasses.replace(window, seconds=time.perf_counter() - begin)


def check_made_for(encoder: TrainedEncoder, dataset: Dataset) -> bool:
    """Make sure that an encoder can read a dataset's ids and lengths.

    Returns:
        Whether the tokenizers are known to be the same; False if nothing says the encoder's.

    Raises:
        ModelError: The tokenizers differ, or without one the vocabularies' sizes, or the
            encoder's tables are too small.
    """
    known = encoder.tokenizer_hash()
    tokenizer = dataset.manifest.tokenizer
    if known not in (None, tokenizer.hash):
        raise ModelError(
            f"{encoder.folder} was trained with the tokenizer {known:.80}, but {dataset.folder} is "
            f"made with {tokenizer.hash}; build the dataset with the model's tokenizer."
        )
    size = encoder.model.config.vocab_size
    if known is None and size != tokenizer.vocab_size:
        raise ModelError(
            f"{encoder.folder} has no tokenizer and a vocabulary of {size:,} tokens, but that of "
            f"{dataset.folder} has {tokenizer.vocab_size:,}; put the model's tokenizer beside it."
        )
    check_fits(
        encoder.model.config,
        vocab_size=tokenizer.vocab_size,
        max_seq_length=dataset.manifest.max_seq_length,
    )
    return known is not None


def _without_unused(batches: Iterable[Batch], encoder: TrainedEncoder) -> Iterator[Batch]:
    """Yield batches without the labels of a head that the encoder does not have."""
    for batch in batches:
        if not encoder.model.config.next_sentence:
            batch.pop("next_sentence_label", None)
        yield batch


def _counted(
    batches: Iterable[Batch],
    dataset: Dataset,
    settings: EvaluationSettings,
    on_progress: OnProgress | None,
) -> Iterator[Batch]:
    """Yield the batches, telling how far they are; of some instances the total is estimated."""
    entry = dataset.manifest.splits[settings.split]
    num_instances = min(settings.num_instances or entry.num_instances, entry.num_instances)
    total = round(entry.num_tokens * num_instances / entry.num_instances)
    done = 0

    def tell(done: int) -> None:
        if on_progress is not None:
            on_progress(Progress(stage="evaluating", unit="tokens", done=done, total=total))

    tell(0)
    for batch in batches:
        yield batch
        done += int(batch["attention_mask"].sum())
        tell(min(done, total - 1))
    tell(total)
