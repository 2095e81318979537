"""The settings of an evaluation: one record from which flags of `clozemill evaluate` are made."""

from dataclasses import dataclass

from clozemill.pipeline.config import Split
from clozemill.pipeline.settings import check_fields, check_ranges, setting
from clozemill.train.config import Precision, PretrainConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """What is measured, and how it is computed. The help text of a field is its meaning."""

    split: Split = setting("validation", "evaluation", "Which instances.")
    variant: int = setting(
        0, "evaluation", "Which masking; one that is not stored is drawn by the same rule."
    )
    num_instances: int | None = setting(None, "evaluation", "The first so many; by default all.")
    precision: Precision = setting(
        "auto", "evaluation", PretrainConfig.__dataclass_fields__["precision"].metadata["help"]
    )
    threads: int | None = setting(None, "evaluation", "By default all usable cores.")
    micro_batch_size: int = setting(32, "evaluation", "Instances of one forward pass.")

    def __post_init__(self) -> None:
        """Raise `ConfigError` for the first setting that cannot be used."""
        check_fields(self)
        check_ranges(self, _RANGES)


_RANGES: dict[str, tuple[float, float]] = {
    "variant": (0, 2**31),
    "num_instances": (1, 2**62),
    "threads": (1, 4_096),
    "micro_batch_size": (1, 10**6),
}
