"""All parts of a training, put together from its settings before anything is written."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate import Accelerator

from clozemill.model.bert import BertForPreTraining
from clozemill.model.config import BertConfig, check_fits, preset
from clozemill.model.convert import load_pretrained
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.errors import ConfigError, ModelError, RunError
from clozemill.train.checkpoints import STATE_NAME, Checkpoint, load_checkpoint
from clozemill.train.config import PretrainConfig
from clozemill.train.encoders import hash_of_tokenizer_in, newest_checkpoint
from clozemill.train.facts import RUN_NAME, RunFacts, current_execution, read_run, run_facts
from clozemill.train.instances import PretrainingInstances
from clozemill.train.launch import precision_of
from clozemill.train.loader import LoaderSettings, MicroBatches, evaluation_batches
from clozemill.train.loss import Batch, PretrainingObjective
from clozemill.train.optimizers import load_optimizer_tensors, make_optimizer
from clozemill.train.order import BatchOrder
from clozemill.train.schedules import Schedule, make_schedule
from clozemill.train.steps import Learner
from clozemill.train.tensors import put_model_tensors

VALIDATION = "validation"
"""The split that a run is evaluated on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """The parts of a training on one rank."""

    config: PretrainConfig
    """The settings."""

    accelerator: Accelerator
    """Device, precision and ranks."""

    dataset: Dataset
    """What is read."""

    order: BatchOrder
    """Which instances a step sees."""

    instances: PretrainingInstances
    """The training split, masked."""

    loading: LoaderSettings
    """This rank's share."""

    evaluation: MicroBatches | None
    """This rank's share of the validation split under its first stored masks, if there is one."""

    model: BertForPreTraining
    """The encoder, not wrapped."""

    learner: Learner
    """Takes the steps."""

    schedule: Schedule
    """The learning rate of each step."""

    facts: RunFacts
    """What the run is, for its folder."""

    @property
    def objective(self) -> PretrainingObjective:
        """The objective without the wrapper of data-parallel training."""
        plain: PretrainingObjective = self.accelerator.unwrap_model(self.learner.objective)
        return plain

    def without_unused(self, batch: Batch) -> Batch:
        """Return a micro-batch without the labels of a head that the encoder does not have."""
        if self.model.config.next_sentence:
            return batch
        return {name: tensor for name, tensor in batch.items() if name != "next_sentence_label"}


def assemble(config: PretrainConfig, accelerator: Accelerator) -> Assembly:
    """Return the parts of a training, with weights as they are before step 1.

    Raises:
        ClozemillError: Something does not fit: the text says what.
    """
    dataset = open_dataset(config.data)
    instances = PretrainingInstances(dataset, "train", **config.masking_settings)
    loading = _loading(config, accelerator)
    model = first_model(config, dataset)
    learner = _make_learner(config, accelerator, model, dataset)
    execution = current_execution(
        device=_device_name(accelerator.device),
        precision=precision_of(accelerator),
        num_processes=accelerator.num_processes,
        micro_batch_size=loading.micro_batch_size,
    )
    return Assembly(
        config=config,
        accelerator=accelerator,
        dataset=dataset,
        order=_order(config, instances),
        instances=instances,
        loading=loading,
        evaluation=_evaluation(config, dataset, loading),
        model=model,
        learner=learner,
        schedule=make_schedule(config, config.num_steps(len(instances))),
        facts=run_facts(config, model=model.config, dataset=dataset, execution=execution),
    )


def _loading(config: PretrainConfig, accelerator: Accelerator) -> LoaderSettings:
    return LoaderSettings(
        micro_batch_size=config.micro_rows(accelerator.num_processes),
        rank=accelerator.process_index,
        world_size=accelerator.num_processes,
        num_workers=config.loader_workers,
        pad_to_multiple_of=config.pad_to_multiple_of or 1,
        is_pinned=accelerator.device.type == "cuda",
    )


def _order(config: PretrainConfig, instances: PretrainingInstances) -> BatchOrder:
    return BatchOrder(
        instances,
        global_batch_size=config.global_batch_size,
        seed=config.seed,
        length_window=config.length_window,
    )


def _evaluation(
    config: PretrainConfig, dataset: Dataset, loading: LoaderSettings
) -> MicroBatches | None:
    if VALIDATION not in dataset.splits:
        return None
    loading = dataclasses.replace(loading, num_workers=0)
    return evaluation_batches(
        dataset, loading, split=VALIDATION, num_instances=config.eval_instances
    )


def model_config(config: PretrainConfig, dataset: Dataset) -> BertConfig:
    """Return the shape of the encoder that a run begins with.

    Raises:
        ConfigError: Next sentences are asked for of a dataset without pairs, or padding that is
            longer than the encoder.
        ModelError: The encoder is too small for the dataset.
    """
    has_pairs = dataset.manifest.has_pairs
    if config.next_sentence and not has_pairs:
        raise ConfigError(
            f"next_sentence is true, but {dataset.folder} has no sentence pairs (its recipe is "
            f"{dataset.manifest.build_config().recipe}); leave it out."
        )
    shape = preset(
        config.model,
        vocab_size=dataset.manifest.tokenizer.vocab_size,
        hidden_act=config.hidden_act,
        initializer_range=config.initializer_range,
        hidden_dropout_prob=config.hidden_dropout_prob,
        attention_probs_dropout_prob=config.attention_probs_dropout_prob,
        max_position_embeddings=(config.max_position_embeddings or dataset.manifest.max_seq_length),
        next_sentence=has_pairs if config.next_sentence is None else config.next_sentence,
        pad_token_id=dataset.manifest.tokenizer.special_ids["pad"],
    )
    _check_fits(shape, config, dataset)
    return shape


def first_model(config: PretrainConfig, dataset: Dataset) -> BertForPreTraining:
    """Return the encoder with the weights that a run begins with.

    Raises:
        ModelError: The given weights cannot be read, or do not fit the dataset.
        RunError: The run to continue from cannot be.
    """
    if config.init_from is not None:
        model = _pretrained(config, config.init_from, dataset)
    elif config.continue_from is not None:
        shape = _shape_of_run(config, Path(config.continue_from), dataset)
        model = BertForPreTraining(_with_dropout(shape, config), seed=config.seed)
    else:
        return BertForPreTraining(model_config(config, dataset), seed=config.seed)
    _check_fits(model.config, config, dataset)
    return model


def _pretrained(config: PretrainConfig, folder: str, dataset: Dataset) -> BertForPreTraining:
    """Return the encoder in a folder, with the dropout that the settings ask for."""
    _check_is_no_run(Path(folder))
    _check_tokenizer(Path(folder), dataset)
    next_sentence = config.next_sentence
    if next_sentence is None and not dataset.manifest.has_pairs:
        next_sentence = False
    loaded = load_pretrained(folder, next_sentence=next_sentence)
    model = BertForPreTraining(_with_dropout(loaded.config, config), seed=None)
    model.load_state_dict(loaded.state_dict())
    return model


def _check_is_no_run(folder: Path) -> None:
    if any((folder / name).exists() for name in (RUN_NAME, STATE_NAME)):
        raise ModelError(
            f"{folder} belongs to a run, which init_from does not read; give the run as "
            "continue_from, or export it first with clozemill export."
        )


def _check_tokenizer(folder: Path, dataset: Dataset) -> None:
    """Raise `ModelError` if the folder has a tokenizer, and it is not the dataset's."""
    found, expected = hash_of_tokenizer_in(folder), dataset.manifest.tokenizer.hash
    if found not in (None, expected):
        raise ModelError(
            f"{folder} holds the tokenizer {found}, but {dataset.folder} is made with {expected}; "
            "build the dataset with the model's tokenizer."
        )


def _with_dropout(shape: BertConfig, config: PretrainConfig) -> BertConfig:
    return dataclasses.replace(
        shape,
        hidden_dropout_prob=config.hidden_dropout_prob,
        attention_probs_dropout_prob=config.attention_probs_dropout_prob,
    )


def _check_fits(shape: BertConfig, config: PretrainConfig, dataset: Dataset) -> None:
    """Raise an error unless the encoder can read all rows, with the padding that is asked for."""
    manifest = dataset.manifest
    check_fits(
        shape, vocab_size=manifest.tokenizer.vocab_size, max_seq_length=manifest.max_seq_length
    )
    multiple = config.pad_to_multiple_of or 1
    longest = -(-manifest.max_seq_length // multiple) * multiple
    if longest > shape.max_position_embeddings:
        raise ConfigError(
            f"pad_to_multiple_of is {multiple}, which pads the longest rows to {longest} tokens, "
            f"but the model's max_position_embeddings is {shape.max_position_embeddings}; give "
            "multiples that fit, or a model with more positions."
        )


def _shape_of_run(config: PretrainConfig, folder: Path, dataset: Dataset) -> BertConfig:
    """Return the shape of the encoder of a run to continue from; it cannot grow on the way."""
    shape = BertConfig(**read_run(folder).facts.model)
    longest, num_positions = dataset.manifest.max_seq_length, shape.max_position_embeddings
    if longest > num_positions:
        raise ModelError(
            f"{folder} was trained with max_position_embeddings {num_positions}, but "
            f"{dataset.folder} has rows of {longest} tokens; train the first phase with "
            f"--max-position-embeddings {longest}, or build shorter rows."
        )
    for name in ("max_position_embeddings", "next_sentence"):
        asked, found = getattr(config, name), getattr(shape, name)
        if asked not in (None, found):
            raise ConfigError(
                f"{name} is {asked!r}, but {folder}, which the run continues from, has {found!r}; "
                "leave it out."
            )
    return shape


def _make_learner(
    config: PretrainConfig, accelerator: Accelerator, model: BertForPreTraining, dataset: Dataset
) -> Learner:
    objective: torch.nn.Module = PretrainingObjective(model).to(accelerator.device)
    optimizer = make_optimizer(config, model)
    if config.continue_from is not None:
        _continue(model, optimizer, dataset, Path(config.continue_from))
    if config.compile:
        objective = torch.compile(objective)  # type: ignore[assignment]
    objective, optimizer = accelerator.prepare(objective, optimizer)
    return Learner(
        accelerator,
        objective=objective,
        optimizer=optimizer,
        mask_id=dataset.manifest.tokenizer.special_ids["mask"],
        clip_norm=config.clip_norm,
        seed=config.seed,
    )


def _continue(
    model: BertForPreTraining, optimizer: torch.optim.Optimizer, dataset: Dataset, folder: Path
) -> None:
    """Take over the weights and moments of another run (BERT's second phase)."""
    tokenizer = read_run(folder).facts.dataset.tokenizer_hash
    if tokenizer != dataset.manifest.tokenizer.hash:
        raise RunError(
            f"{folder} was trained with the tokenizer {tokenizer}, but {dataset.folder} is made "
            f"with {dataset.manifest.tokenizer.hash}; build the dataset with the run's tokenizer."
        )
    path = newest_checkpoint(folder)
    put_checkpoint(load_checkpoint(path), model, optimizer, where=path)


def put_checkpoint(
    checkpoint: Checkpoint,
    model: BertForPreTraining,
    optimizer: torch.optim.Optimizer,
    *,
    where: Path,
) -> None:
    """Give a model and its optimizer the tensors of a checkpoint."""
    put_model_tensors(model, checkpoint.model, where=str(where))
    load_optimizer_tensors(optimizer, model, checkpoint.optimizer)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
