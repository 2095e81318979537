"""The plan of a study: which trainings it makes, fixed before the first of them.

An *arm* is a masking: static with K variants, or dynamic, which is K without end. Every arm is
trained with the same seeds. A seed decides the first weights, the order of instances, and which
variants are shown (seed s begins at variant s * 2^20, so seeds re-draw masks too); within a seed
the arms differ in their masks alone. The arm with the most variants, dynamic where it is one, is
the *reference* that the others are compared with.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozemill import __version__
from clozemill.analysis.study_records import FORMAT_VERSION, PLAN_NAME, PlanRecord
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.pipeline.json_records import from_json, read_object
from clozemill.train.config import PretrainConfig, steps_per_epoch

VARIANTS_PER_SEED = 2**20
"""Distance of the first variants of two seeds: more epochs than anybody trains."""

MOST_SEEDS = 2**31 // VARIANTS_PER_SEED
"""With more, the numbers of variants would not fit `mask_offset`."""

OWN_FIELDS = ("out", "masking", "num_static_variants", "mask_offset", "seed", "resume")
"""Settings of a training that a study decides."""

_FREE_FIELDS = (*OWN_FIELDS, "data", "recipe", "overwrite", "stop_after", "log_with")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """A masking that is trained with every seed."""

    num_variants: int | None
    """K of static masking; None is dynamic."""

    @property
    def name(self) -> str:
        """Its name: `static-4` or `dynamic`."""
        return "dynamic" if self.num_variants is None else f"static-{self.num_variants}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """What a study is, before it begins."""

    config: PretrainConfig
    """What all trainings have in common."""

    arms: tuple[Arm, ...]
    """By their number of variants; the last is the reference."""

    left_out: tuple[int, ...]
    """Numbers of variants that were asked for and would never return within the study."""

    num_seeds: int
    """Seeds are 0 .. S - 1."""

    num_steps: int
    """Steps of each training; what is compared is measured after the last."""

    steps_per_epoch: int
    """Steps until masks may return."""

    dataset_digests: dict[str, str]
    """Of each split, with its masks."""

    @property
    def reference(self) -> Arm:
        """The arm that the others are compared with."""
        return self.arms[-1]

    @property
    def num_epochs(self) -> int:
        """Whole passes over the training split; at least 1."""
        return max(1, self.num_steps // self.steps_per_epoch)

    def parting_step(self, arm: Arm) -> int:
        """Return the steps that an arm has in common with the reference: those of K epochs."""
        assert arm.num_variants is not None
        return min(self.num_steps, arm.num_variants * self.steps_per_epoch)

    def config_of(self, arm: Arm, seed: int, out: Path) -> PretrainConfig:
        """Return the settings of one training."""
        return dataclasses.replace(
            self.config,
            out=str(out),
            masking="dynamic" if arm.num_variants is None else "static",
            num_static_variants=arm.num_variants,
            mask_offset=seed * VARIANTS_PER_SEED,
            seed=seed,
            resume="auto",
            overwrite=False,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """One arm with one seed."""

    arm: Arm
    """The masking."""

    seed: int
    """From 0."""

    @property
    def name(self) -> str:
        """Its name in the folder: `static-4-seed-0`."""
        return f"{self.arm.name}-seed-{self.seed}"


def trainings_of(plan: StudyPlan) -> tuple[Training, ...]:
    """Return all trainings in their order: seed by seed, the reference first."""
    arms = (plan.reference, *plan.arms[:-1])
    return tuple(Training(arm=arm, seed=s) for s in range(plan.num_seeds) for arm in arms)


def make_plan(
    config: PretrainConfig,
    dataset: Dataset,
    *,
    variants: Sequence[int],
    has_dynamic: bool,
    num_seeds: int,
) -> StudyPlan:
    """Return the plan of a study.

    Args:
        config: What all trainings have in common; what a study decides must not be set.
        dataset: Opened from `config.data`.
        variants: Numbers of variants of the static arms. Those that would not return within the
            study are left out: they would be the reference itself.
        has_dynamic: Whether there is an arm of dynamic masking.
        num_seeds: S.

    Raises:
        ConfigError: A setting is one that a study decides, a number is out of range, there is no
            validation split, or less than two arms are left.
    """
    _check_settings(config, variants, num_seeds)
    if "validation" not in dataset.splits:
        raise ConfigError(
            f"{dataset.folder} has no validation split to compare arms on; build it with a larger "
            "--validation-fraction."
        )
    num_instances = dataset.num_instances("train")
    num_steps = config.num_steps(num_instances)
    num_per_epoch = steps_per_epoch(num_instances, global_batch_size=config.global_batch_size)
    counts = sorted(set(variants))
    chosen = _chosen_arms(counts, num_steps / num_per_epoch, has_dynamic=has_dynamic)
    return StudyPlan(
        config=config,
        arms=tuple(Arm(num_variants=count) for count in chosen),
        left_out=tuple(count for count in counts if count not in chosen),
        num_seeds=num_seeds,
        num_steps=num_steps,
        steps_per_epoch=num_per_epoch,
        dataset_digests={
            name: split.dataset_digest for name, split in dataset.manifest.splits.items()
        },
    )


def _chosen_arms(
    counts: Sequence[int], num_epochs: float, *, has_dynamic: bool
) -> list[int | None]:
    """Return the K of the arms: those whose masks return, and one whose masks do not.

    Raises:
        ConfigError: Less than two are left.
    """
    returning = [count for count in counts if count < num_epochs]
    # Static masking that has the last word may have any number: it is nobody's double.
    last: list[int | None] = [None] if has_dynamic else [*counts[len(returning) :][:1]]
    if len(returning) == 1 and not last:
        raise ConfigError(
            f"--variants {','.join(map(str, counts))} without --dynamic is one arm; name another "
            "number, or leave out --no-dynamic."
        )
    if len(returning) + len(last) < 2:
        raise ConfigError(
            f"the study has {num_epochs:.2f} epochs, in which no masking of --variants "
            f"{','.join(map(str, counts))} returns, so there are no two arms to compare; train for "
            f"more than {min(counts)} epochs (--epochs, or --steps)."
        )
    return [*returning, *last]


def _check_settings(config: PretrainConfig, variants: Sequence[int], num_seeds: int) -> None:
    defaults = PretrainConfig(steps=1)
    for name in (*OWN_FIELDS, "stop_after", "log_with"):
        value = getattr(config, name)
        if name not in ("masking", "out") and value != getattr(defaults, name):
            raise ConfigError(f"{name} is {value!r}, which a study decides itself; leave it out.")
    if not 1 <= num_seeds <= MOST_SEEDS:
        raise ConfigError(
            f"--seeds is {num_seeds:,}; it must be between 1 and {MOST_SEEDS:,}, as each has "
            f"{VARIANTS_PER_SEED:,} mask variants of its own."
        )
    for count in variants:
        if not 1 <= count <= 10_000:
            raise ConfigError(f"--variants has {count}; each must be between 1 and 10,000.")


def plan_record(plan: StudyPlan) -> PlanRecord:
    """Return what a study's folder says of its plan."""
    shared = plan.config.settings("training", "numerics")
    measuring = {name: getattr(plan.config, name) for name in ("eval_every", "eval_instances")}
    return PlanRecord(
        package_version=__version__,
        data=str(Path(plan.config.data).absolute()),
        settings={n: v for n, v in (shared | measuring).items() if n not in _FREE_FIELDS},
        dataset_digests=plan.dataset_digests,
        arms=tuple(arm.name for arm in plan.arms),
        num_seeds=plan.num_seeds,
        num_steps=plan.num_steps,
        steps_per_epoch=plan.steps_per_epoch,
    )


def read_plan(folder: Path) -> PlanRecord | None:
    """Return the plan in a study's folder, or None where there is none.

    Raises:
        RunError: It cannot be read.
    """
    path = folder / PLAN_NAME
    if not path.exists():
        return None
    table = read_object(path, format_version=FORMAT_VERSION, error=RunError)
    return from_json(PlanRecord, table, str(path), error=RunError)


def check_same_plan(saved: PlanRecord, now: PlanRecord, folder: Path) -> None:
    """Raise `RunError`, with all differences, unless a study is the one in the folder."""
    ways = [
        f"{what} {_said(old)} (now {_said(new)})"
        for what, old, new in _ways(saved, now)
        if old != new
    ]
    if ways:
        raise RunError(
            f"{folder} holds another study, with {', '.join(ways)}; give what it has, --overwrite "
            "to begin again, or another --out."
        )


def _ways(saved: PlanRecord, now: PlanRecord) -> Iterator[tuple[str, Any, Any]]:
    """Yield what decides a study: what it is called, what was saved, and what is asked for."""
    yield "length", _length(saved), _length(now)
    for name, value in now.settings.items():
        if name not in ("epochs", "steps"):
            yield name, saved.settings.get(name), value
    for split in sorted({*saved.dataset_digests, *now.dataset_digests}):
        old, new = (record.dataset_digests.get(split) for record in (saved, now))
        yield f"{split} digest", old, new
    yield "arms", "+".join(saved.arms), "+".join(now.arms)
    yield "seeds", saved.num_seeds, now.num_seeds


def _length(record: PlanRecord) -> str:
    """Return how long the trainings are, as they were asked for."""
    steps, epochs = f"{record.num_steps:,} steps", record.settings.get("epochs")
    return steps if epochs is None else f"{epochs} epochs or {steps}"


def _said(value: Any) -> str:
    return "unset" if value is None else str(value)[:100]
