"""How far long work is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a stage is, in its own unit."""

    stage: str
    """`reading` (bytes of input) or `writing` (tokens of documents)."""

    done: int
    """Units finished."""

    total: int
    """Units in all."""
