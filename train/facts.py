"""What a run is: its settings, model, dataset and machine, and whether it may go on from another.

A run's `run.json` and each of its checkpoints hold these facts, so any of them can be compared
with what a command asks for.
"""

import dataclasses
import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from clozemill.model.config import PRESETS
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.pipeline.json_records import from_json, read_object
from clozemill.train.config import PretrainConfig, check_unchanged

FORMAT_VERSION = 1
"""Raised when a reader of the last version would misread a run folder."""

RUN_NAME = "run.json"
CHECKPOINTS_NAME = "checkpoints"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """The dataset that is trained on."""

    path: str
    """Its folder when the run began, from the root; it may be moved."""

    dataset_digests: dict[str, str]
    """Of each split, with its masks."""

    instances_digests: dict[str, str]
    """Of each split, without masks."""

    instances_fingerprint: str
    """Of what decided its instances."""

    tokenizer_hash: str
    """Of the tokenizer that made its ids."""

    max_seq_length: int
    """Longest instance, in tokens with specials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """What the run is computed by: it changes no sample and no mask, but the last bits of sums."""

    python_version: str
    """Of the interpreter."""

    torch_version: str
    """Of the installed torch, with its build."""

    accelerate_version: str
    """Of the installed accelerate."""

    device: str
    """`cpu`, or the name of the accelerator."""

    cpu_capability: str
    """The instruction set of torch's CPU kernels, such as `AVX512`."""

    precision: str
    """Number format of matrix products: `fp32`, `bf16` or `fp16`, whatever `auto` came to."""

    num_threads: int
    """Threads of one process inside an operation."""

    num_processes: int
    """Ranks that share the global batch."""

    micro_batch_size: int
    """Most rows of one forward on one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """All facts of a run."""

    settings: dict[str, Any]
    """Every field of `PretrainConfig` by name."""

    model: dict[str, Any]
    """Every field of `BertConfig` by name."""

    dataset: DatasetFacts
    """What it reads."""

    execution: Execution
    """What computes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """What `run.json` holds."""

    format_version: int = FORMAT_VERSION
    """Version of the folder's format in docs/runs.md."""

    package_version: str
    """The clozemill that began the run."""

    facts: RunFacts
    """What the run is."""

    started_from: str | None
    """Checkpoint of another run that it started from."""


def run_facts(
    config: PretrainConfig, *, model: Any, dataset: Dataset, execution: Execution
) -> RunFacts:
    """Return the facts of a run that is about to start; `model` is its `BertConfig`."""
    return RunFacts(
        settings=config.settings("training", "numerics", "execution"),
        model=dataclasses.asdict(model),
        dataset=dataset_facts(dataset),
        execution=execution,
    )


def dataset_facts(dataset: Dataset) -> DatasetFacts:
    """Return the facts of an opened dataset, from its manifest."""
    manifest = dataset.manifest
    return DatasetFacts(
        path=str(dataset.folder.absolute()),
        dataset_digests={name: s.dataset_digest for name, s in manifest.splits.items()},
        instances_digests={name: s.instances_digest for name, s in manifest.splits.items()},
        instances_fingerprint=manifest.fingerprints.instances,
        tokenizer_hash=manifest.tokenizer.hash,
        max_seq_length=manifest.max_seq_length,
    )


def check_size(config: PretrainConfig) -> None:
    """Make sure that weights to start from, if there are any, have the size that was asked for.

    Raises:
        ConfigError: They have another.
        RunError: There is no run to continue from.
    """
    layers, hidden, heads = PRESETS[config.model]
    asked = {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
    }
    folder, found = _given_weights(config)
    for name, size in asked.items():
        if found.get(name, size) != size:
            verb = "starts" if config.continue_from is None else "continues"
            raise ConfigError(
                f"model is {config.model} with the {name} {size}, but {folder}, which the run "
                f"{verb} from, has {found[name]!r:.20}; leave model out."
            )


def _given_weights(config: PretrainConfig) -> tuple[str | None, Mapping[str, Any]]:
    """Return the folder that a run starts from, and the shape of the encoder in it.

    The shape is empty where a folder holds none: why, reading its weights will say.
    """
    if config.continue_from is not None:
        return config.continue_from, read_run(Path(config.continue_from)).facts.model
    if config.init_from is None:
        return None, {}
    try:
        shape = json.loads((Path(config.init_from) / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        shape = {}
    return config.init_from, shape if isinstance(shape, dict) else {}


def current_execution(
    *, device: str, precision: str, num_processes: int, micro_batch_size: int
) -> Execution:
    """Return the facts of this process; its threads must have been set before."""
    import torch  # here, as what a run was can be read without it

    return Execution(
        python_version=platform.python_version(),
        torch_version=torch.__version__,
        accelerate_version=version("accelerate"),
        device=device,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        precision=precision,
        num_threads=torch.get_num_threads(),
        num_processes=num_processes,
        micro_batch_size=micro_batch_size,
    )


def read_run(folder: Path) -> RunRecord:
    """Return what a run folder says of its run.

    Raises:
        RunError: It is no run folder, damaged, or of a newer clozemill.
    """
    record = find_record(folder)
    if record is None:
        raise RunError(f"{folder} holds no {RUN_NAME}, so it is not a run folder; check the path.")
    return record


def find_record(folder: Path) -> RunRecord | None:
    """Return what `run.json` holds, or None where there is none."""
    path = folder / RUN_NAME
    if not os.path.lexists(path):
        return None
    table = read_object(path, format_version=FORMAT_VERSION, error=RunError)
    return from_json(RunRecord, table, str(path), error=RunError)


def check_same_run(saved: RunFacts, config: PretrainConfig, now: RunFacts, where: str) -> list[str]:
    """Make sure that a run may go on from another's checkpoint, as if it were the same run.

    Args:
        saved: The facts in the checkpoint or `run.json`.
        config: The settings that are asked for.
        now: The facts of the run that is to go on.
        where: What holds the saved facts, for errors.

    Returns:
        What differs but is allowed, a sentence each: with it, the weights need no longer have the
        bytes that they would have had.

    Raises:
        RunError: A setting of the kind `training`, the dataset, the tokenizer or the model differs.
    """
    check_unchanged(saved.settings, config, where)
    _check_same_dataset(saved.dataset, now.dataset, where)
    for name, old, new in _differences(saved.model, now.model):
        raise RunError(
            f"{name!r:.60} of the model is {new!r:.80}, but {where} has {old!r:.80}; train into "
            "another folder."
        )
    numerics = config.settings("numerics")
    settings = {name: value for name, value in saved.settings.items() if name in numerics}
    changed = [
        *_differences(dataclasses.asdict(saved.execution), dataclasses.asdict(now.execution)),
        *_differences(settings, numerics),
    ]
    changed = [change for change in changed if change[0] != "python_version"]
    if not changed:
        return []
    texts = ", ".join(f"{name} was {old!r:.80} and is {new!r:.80}" for name, old, new in changed)
    return [
        f"{texts}: the order of instances and their masks stay, but sums are rounded and dropout "
        "is drawn otherwise, so the weights will not be bit-equal to those of one unbroken run."
    ]


def _check_same_dataset(saved: DatasetFacts, now: DatasetFacts, where: str) -> None:
    """Raise `RunError` for the first fact that differs; the tokenizer first, as it explains all."""
    ways = [
        ("tokenizer", saved.tokenizer_hash, now.tokenizer_hash),
        ("max_seq_length", saved.max_seq_length, now.max_seq_length),
        ("instances fingerprint", saved.instances_fingerprint, now.instances_fingerprint),
    ]
    for what in ("instances", "dataset"):
        for split, *digests in _differences(
            getattr(saved, f"{what}_digests"), getattr(now, f"{what}_digests")
        ):
            ways.append((f"{what} digest of {split}", *digests))
    for what, old, new in ways:
        if old != new:
            raise RunError(
                f"{now.path} has the {what} {new!r:.80}, but {where} was trained on {old!r:.80}; "
                f"give that dataset (then {saved.path!r:.200}), or train into another folder."
            )


def _differences(saved: Mapping[str, Any], now: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return name, old and new value of what differs, in the order of names now."""
    names = [*now, *(name for name in saved if name not in now)]
    return [(n, saved.get(n), now.get(n)) for n in names if saved.get(n) != now.get(n)]
