"""The configuration of a training run: one record from which flags, TOML keys and docs are made."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from clozemill.model.config import PresetName
from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.pipeline.settings import (
    check_fields,
    check_ranges,
    read_config_file,
    setting,
    settings_of,
    take_plain_values,
)

Kind = Literal["training", "numerics", "execution"]
"""What a field of a run decides.

training: which model comes out; a resumed run must have the same.
numerics: how the same sums are rounded and which dropout is drawn; a resumed run may change it,
    and its weights are then equal in law, not in bytes.
execution: nothing about the weights.
"""

Precision = Literal["auto", "fp32", "bf16", "fp16"]

Recipe = Literal["bert-original", "roberta", "budget", "cpu-demo"]
RECIPES = get_args(Recipe)
"""Names of the settings in `recipes/`."""

_MOST_MICRO_ROWS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainConfig:
    """Everything `clozemill pretrain` can be told. The help text of a field is its meaning."""

    data: str = setting("", "execution", "The dataset folder to train on.")
    out: str = setting("", "execution", "The run folder to write.")
    recipe: Recipe | None = setting(
        None, "execution", "Start from these settings instead of the defaults."
    )

    model: PresetName = setting(
        "mini",
        "training",
        "Size of the encoder.",
    )
    hidden_act: Literal["gelu", "gelu_new"] = setting(
        "gelu",
        "training",
        "GELU with erf (gelu) or with tanh, as the original (gelu_new).",
    )
    initializer_range: float = setting(
        0.02,
        "training",
        "Standard deviation of fresh weights; narrow encoders learn sooner above BERT's 0.02.",
    )
    hidden_dropout_prob: float = setting(0.1, "training", "Dropout of embeddings and sublayers.")
    attention_probs_dropout_prob: float = setting(0.1, "training", "Dropout of attention weights.")
    max_position_embeddings: int | None = setting(
        None, "training", "Longest input of the model; by default the dataset's longest."
    )
    next_sentence: bool | None = setting(
        None, "training", "Train the next-sentence head; by default where the dataset has pairs."
    )
    init_from: str | None = setting(
        None,
        "training",
        "Start from the weights in this folder, ours or a Hugging Face BERT; sizes are its own.",
    )
    continue_from: str | None = setting(
        None,
        "training",
        "Start from the weights and moments of this run, at step 0 of a schedule of its own.",
    )

    masking: Literal["static", "dynamic"] = setting(
        "static",
        "training",
        "Read the stored variants in turn, or draw a new one in each epoch.",
    )
    num_static_variants: int | None = setting(
        None, "training", "Static masking: use the first so many variants; by default all."
    )
    mask_offset: int = setting(
        0, "training", "Added to the epoch that names the variant, so that runs see other masks."
    )
    steps: int | None = setting(None, "training", "Optimizer steps; this or epochs.")
    epochs: int | None = setting(None, "training", "Passes over all instances; this or steps.")
    global_batch_size: int = setting(128, "training", "Instances of a step, over all ranks.")
    micro_batch_size: int | None = setting(
        None,
        "numerics",
        "Most instances of one forward pass; by default the share of a rank, at most 32.",
    )
    length_window: int | None = setting(
        None,
        "training",
        "Global batches among which lengths are sorted; by default those of 16,384 instances.",
    )
    seed: int = setting(0, "training", "Seed of weights, order and dropout; masks have their own.")

    optimizer: Literal["adamw", "bert-adam", "lamb"] = setting(
        "adamw",
        "training",
        "AdamW; BERT's Adam, which corrects no bias; or LAMB, for large batches.",
    )
    learning_rate: float = setting(5e-4, "training", "Peak of the learning rate.")
    beta1: float = setting(0.9, "training", "Decay of the mean of gradients.")
    beta2: float = setting(0.98, "training", "Decay of the mean of squared gradients.")
    epsilon: float = setting(1e-6, "training", "Added to the root of that mean.")
    weight_decay: float = setting(
        0.01, "training", "Decoupled decay of weights; LayerNorm and biases are exempt."
    )
    clip_norm: float = setting(1.0, "training", "Largest norm of the whole gradient; 0 is none.")
    schedule: Literal["linear", "cosine", "wsd", "bert"] = setting(
        "linear",
        "training",
        "Fall of the learning rate after warm-up: see docs/training.md.",
    )
    warmup_steps: int | None = setting(
        None, "training", "Steps until the peak; by default the share warmup_share of all."
    )
    warmup_share: float = setting(0.06, "training", "Share of the steps until the peak.")
    final_share: float = setting(0.0, "training", "Learning rate at the end, as share of the peak.")
    decay_share: float = setting(
        0.1, "training", "Schedule wsd: share of the steps in which the rate falls, at the end."
    )
    decay_shape: Literal["linear", "one-minus-sqrt"] = setting(
        "linear",
        "training",
        "Schedule wsd: shape of that fall, a line or one minus a square root.",
    )
    precision: Precision = setting(
        "auto",
        "training",
        "Number format of matrix products; auto is bf16 where the machine is fast at it.",
    )

    eval_every: int = setting(500, "execution", "Steps between evaluations; 0 is at the end alone.")
    eval_instances: int | None = setting(
        2_048, "execution", "Evaluate on the first so many instances of the validation split."
    )
    checkpoint_every: int = setting(
        500, "execution", "Steps between checkpoints; 0 is at the end alone."
    )
    keep: int = setting(2, "execution", "Checkpoints kept; older ones are deleted.")
    log_every: int = setting(10, "execution", "Steps between rows of metrics.jsonl.")
    log_with: Literal["tensorboard", "trackio", "wandb"] | None = setting(
        None,
        "execution",
        "Send metrics to a tracker as well.",
    )
    resume: str = setting(
        "auto", "execution", "Go on from the newest checkpoint (auto), from a PATH, or never."
    )
    overwrite: bool = setting(False, "execution", "Replace a run in the folder.")
    stop_after: int | None = setting(
        None, "execution", "Stop after this step; without it the same command goes on from there."
    )
    threads: int | None = setting(
        None, "numerics", "Threads of a rank; by default its share of the usable cores."
    )
    loader_workers: int = setting(
        0, "execution", "Processes that read instances; 0 reads in the training process."
    )
    pad_to_multiple_of: int | None = setting(
        None, "numerics", "Pad micro-batches to a multiple of so many tokens."
    )
    compile: bool = setting(False, "numerics", "Use torch.compile, which needs a C++ compiler.")

    def __post_init__(self) -> None:
        """Raise `ConfigError` for the first setting that cannot be used."""
        take_plain_values(self)
        check_fields(self)
        check_ranges(self, _RANGES)
        self._check_length()
        _check_one_of(self.settings("training"), "init_from", "continue_from")
        if self.masking == "dynamic" and self.num_static_variants is not None:
            raise ConfigError(
                f"num_static_variants is {self.num_static_variants}, but masking is dynamic and "
                "reads no stored variants; drop one of them."
            )

    def _check_length(self) -> None:
        _check_one_of(self.settings("training"), "steps", "epochs")
        if self.steps is None and self.epochs is None:
            raise ConfigError(
                "neither steps nor epochs is given; say how long to train, such as --epochs 3, or "
                f"name a recipe ({', '.join(RECIPES)})."
            )
        if self.steps is not None:
            self.num_warmup_steps(self.steps)

    def _told(self, name: str) -> str:
        """Return what a setting is, and that it is the recipe's where nobody may have typed it."""
        value = getattr(self, name)
        is_of_recipe = self.recipe is not None and read_recipe(self.recipe).get(name) == value
        return f"{name} is {value}" + (
            f" (set by the recipe {self.recipe})" if is_of_recipe else ""
        )

    def num_steps(self, instances: int) -> int:
        """Return the steps of the run on a training split of so many instances."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return self.epochs * steps_per_epoch(instances, global_batch_size=self.global_batch_size)

    def num_warmup_steps(self, num_steps: int) -> int:
        """Return the steps until the peak in a run of so many.

        Raises:
            ConfigError: The run ends before its warm-up.
        """
        if self.warmup_steps is None:
            return round(self.warmup_share * num_steps)
        if self.warmup_steps > num_steps:
            raise ConfigError(
                f"{self._told('warmup_steps')}, but the run has {num_steps} steps; lower it, or "
                "give a warmup_share."
            )
        return self.warmup_steps

    def micro_rows(self, num_ranks: int) -> int:
        """Return the most instances of one forward pass where so many ranks share a batch."""
        share = -(-self.global_batch_size // num_ranks)
        return min(share, self.micro_batch_size or _MOST_MICRO_ROWS)

    @property
    def masking_settings(self) -> dict[str, Any]:
        """What decides the masks, named as `PretrainingInstances` takes it."""
        names = ("masking", "num_static_variants", "mask_offset")
        return {name: getattr(self, name) for name in names}

    def settings(self, *kinds: Kind) -> dict[str, Any]:
        """Return the fields of the given kinds, by name, ready for JSON."""
        return settings_of(self, *kinds)


_RANGES: dict[str, tuple[float, float]] = {
    "initializer_range": (1e-6, 1.0),
    "hidden_dropout_prob": (0.0, 0.9),
    "attention_probs_dropout_prob": (0.0, 0.9),
    "max_position_embeddings": (5, 65_535),
    "num_static_variants": (1, 10_000),
    "mask_offset": (0, 2**31),
    "steps": (1, 10**9),
    "epochs": (1, 10**6),
    "global_batch_size": (1, 10**7),
    "micro_batch_size": (1, 10**6),
    "length_window": (1, 10**6),
    "seed": (0, 2**63 - 1),
    "learning_rate": (0.0, 10.0),
    "beta1": (0.0, 1.0 - 1e-9),
    "beta2": (0.0, 1.0 - 1e-9),
    "epsilon": (1e-30, 1.0),
    "weight_decay": (0.0, 10.0),
    "clip_norm": (0.0, 1e9),
    "warmup_steps": (0, 10**9),
    "warmup_share": (0.0, 1.0),
    "final_share": (0.0, 1.0),
    "decay_share": (0.0, 1.0),
    "eval_every": (0, 10**9),
    "eval_instances": (1, 2**62),
    "checkpoint_every": (0, 10**9),
    "keep": (1, 10**6),
    "stop_after": (1, 10**9),
    "log_every": (1, 10**9),
    "threads": (1, 4_096),
    "loader_workers": (0, 4_096),
    "pad_to_multiple_of": (1, 1_024),
}

_ALTERNATIVES = (("steps", "epochs"), ("warmup_steps", "warmup_share"))
"""Settings that say the same in two ways: the one given last is meant."""


def _check_one_of(settings: Mapping[str, Any], first: str, second: str) -> None:
    if settings.get(first) is not None and settings.get(second) is not None:
        raise ConfigError(
            f"{first} is {settings[first]!r} and {second} is {settings[second]!r}, which exclude "
            "each other; drop one of them."
        )


def steps_per_epoch(num_instances: int, *, global_batch_size: int) -> int:
    """Return the steps in which each instance is seen once; the last one takes what is left.

    >>> steps_per_epoch(10, global_batch_size=4)
    3
    """
    return -(-num_instances // global_batch_size)


def pretrain_config(*layers: Mapping[str, Any]) -> PretrainConfig:
    """Return the configuration: defaults, then the recipe's settings, then each layer's.

    The recipe is the one that the last layer names. A later layer's `epochs` takes the place of
    an earlier one's `steps`, and `warmup_share` that of `warmup_steps`, and the other way round.

    Raises:
        ConfigError: A setting cannot be used.

    >>> config = pretrain_config({"recipe": "bert-original"}, {"epochs": 3, "warmup_share": 0.1})
    >>> config.optimizer, config.steps, config.epochs, config.warmup_steps
    ('bert-adam', None, 3, None)
    """
    named = [layer["recipe"] for layer in layers if layer.get("recipe") is not None]
    recipe = read_recipe(named[-1]) if named else {}
    settings: dict[str, Any] = {}
    for layer in (recipe, *layers):
        for pair in _ALTERNATIVES:
            _replace_alternative(settings, layer, pair)
        settings |= layer
    return PretrainConfig(**settings)


_BUILD_RECIPES = {
    "bert-original": ("bert",),
    "roberta": ("roberta-full", "roberta-doc"),
    "budget": ("roberta-full", "roberta-doc"),
}
"""How the dataset of a recipe is built; a recipe that takes any is not here."""


def unsuited_recipe(config: PretrainConfig, build_recipe: str) -> str | None:
    """Return what a dataset of a build recipe lacks for the training recipe; None: nothing.

    >>> config = pretrain_config({"recipe": "roberta", "data": "wiki"})
    >>> print(unsuited_recipe(config, "bert"))
    the recipe roberta is for a dataset that was built with --recipe roberta-full, but wiki was \
built with --recipe bert: its pairs are trained on without their labels.
    >>> unsuited_recipe(config, "roberta-doc")
    """
    expected = _BUILD_RECIPES.get(config.recipe or "", (build_recipe,))
    if build_recipe in expected or config.next_sentence:
        return None
    if build_recipe == "bert":
        what = "its pairs are trained on without their labels"
    else:
        what = "it has no pairs, so next sentences are not trained"
    return (
        f"the recipe {config.recipe} is for a dataset that was built with --recipe {expected[0]}, "
        f"but {config.data} was built with --recipe {build_recipe}: {what}."
    )


def _replace_alternative(
    settings: dict[str, Any], layer: Mapping[str, Any], pair: tuple[str, str]
) -> None:
    _check_one_of(layer, *pair)
    if any(layer.get(name) is not None for name in pair):
        for name in pair:
            settings.pop(name, None)


def read_recipe(name: str) -> dict[str, Any]:
    """Return the settings of a recipe.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in RECIPES:
        raise ConfigError(f"recipe is {name!r}; it must be one of {', '.join(RECIPES)}.")
    path = Path(__file__).with_name("recipes") / f"{name}.toml"
    return read_config_file(path, PretrainConfig, verb="pretrain")


def check_unchanged(saved: Mapping[str, Any], config: PretrainConfig, where: str) -> None:
    """Raise `RunError` for the first training setting that differs from a checkpoint's.

    Args:
        saved: `settings("training")` of the run that wrote the checkpoint.
        config: The run that is to go on from it.
        where: The checkpoint, for the error.
    """
    for name, value in config.settings("training").items():
        if name not in saved:
            raise RunError(f"{where} does not say its {name}; another clozemill wrote it.")
        if saved[name] != value:
            remedy = (
                "without; leave it out"
                if saved[name] is None
                else f"with {saved[name]!r}; give that"
            )
            raise RunError(
                f"{name} is {value!r}, but {where} was trained {remedy}, or train into another "
                "folder."
            )
