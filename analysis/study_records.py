"""What the files of a study hold, beside `study.json`: its plan, and what each training came to.

Nothing here needs torch, so that a study can be read where none can be made.
"""

from dataclasses import dataclass
from typing import Any

from clozemill.train.facts import Execution

FORMAT_VERSION = 1
"""Raised when a reader of the last version would misread a study's files."""

PLAN_NAME, STUDY_NAME = "plan.json", "study.json"
"""Files of a study's folder: what it is, and what it has found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """What `plan.json` holds: a study goes on only with the same, but for package and path."""

    format_version: int = FORMAT_VERSION
    """Version of the files of a study."""

    package_version: str
    """The clozemill that began the study."""

    data: str
    """The dataset's folder when it began; it may be moved."""

    settings: dict[str, Any]
    """Settings that decide weights or measurements."""

    dataset_digests: dict[str, str]
    """Of each split, with its masks."""

    arms: tuple[str, ...]
    """Names of the arms; the last is the reference."""

    num_seeds: int
    """Seeds are 0 .. S - 1."""

    num_steps: int
    """Steps of each training."""

    steps_per_epoch: int
    """Steps of a pass over the training split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentLosses:
    """Sums over the evaluated instances of each document, in the order in which they come."""

    mlm_loss_sums: tuple[float, ...]
    """Nats over selected tokens; an instance counts for the document that it begins with."""

    selected: tuple[int, ...]
    """How many tokens those are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmResult:
    """What a training has come to; `arms/NAME.json` holds it."""

    format_version: int = FORMAT_VERSION
    """Version of the files of a study."""

    arm: str
    """Name of the arm."""

    num_variants: int | None
    """K of static masking; null is dynamic."""

    seed: int
    """From 0."""

    shared_steps: int
    """Steps that were taken over from the reference, of which they are a part."""

    execution: Execution
    """What computed it."""

    start: dict[str, Any]
    """The reference lines of the data: a row of metrics.jsonl, exact columns."""

    evaluations: tuple[dict[str, Any], ...]
    """Losses on the validation split over the steps, likewise."""

    documents: DocumentLosses
    """Losses of the last weights by validation document."""
