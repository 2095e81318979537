"""How far long work is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from clozemill.pipeline.shards import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a stage is."""

    stage: str
    """Its name, such as `reading`."""

    unit: Literal["bytes", "tokens", "questions"]
    """What is counted: bytes of inputs as stored, tokens, or questions of an audit."""

    done: int
    """Units finished."""

    total: int
    """Units in all."""


OnProgress: TypeAlias = Callable[[Progress], None]


def shard_progress(
    stage: str, shards: Sequence[Shard], on_progress: OnProgress | None
) -> Callable[[Shard], None]:
    """Return what is to be called after each of some shards, to tell how many tokens are done."""
    total = sum(shard.num_tokens for shard in shards)
    done = 0

    def tell(num_tokens: int) -> None:
        nonlocal done
        done += num_tokens
        if on_progress is not None:
            on_progress(Progress(stage=stage, unit="tokens", done=done, total=total))

    tell(0)
    return lambda shard: tell(shard.num_tokens)
