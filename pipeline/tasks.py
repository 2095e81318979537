"""What there is to do in a build: the tasks of its two stages."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from clozemill.pipeline.build_identity import BuildIdentity
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.input_splits import InputSplit
from clozemill.pipeline.inputs import Inputs
from clozemill.pipeline.mapping import MapTask
from clozemill.pipeline.plan import Plan
from clozemill.pipeline.read import ReadOptions
from clozemill.pipeline.reduce import ReduceTask
from clozemill.pipeline.sentences import sentence_rule
from clozemill.pipeline.splits import split_rule
from clozemill.pipeline.tokenizer import PretrainingTokenizer
from clozemill.pipeline.workspace import Workspace

_FEWEST_TASKS = 16
"""Small neighbouring inputs are read by one task, but not so many that fewer tasks are left."""

_LEAST_BYTES = 1 << 20
"""A task of less than this costs more to start than to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One build: what was asked for, of what, with what, and where."""

    config: BuildConfig
    """All settings."""

    tokenizer: PretrainingTokenizer
    """Whose ids the shards hold."""

    inputs: Inputs
    """The files to read, listed once."""

    identity: BuildIdentity
    """What tells this build from others."""

    workspace: Workspace
    """The output folder, which is this process's alone."""


def map_tasks(job: Job) -> list[MapTask]:
    """Return tasks of one large split or several small ones.

    A limit on documents is one on their order in the inputs, so one task reads them all.
    """
    return [
        *_map_tasks(job, job.inputs.training.splits, is_validation=False),
        *_map_tasks(job, job.inputs.validation.splits, is_validation=True),
    ]


def _map_tasks(job: Job, splits: Sequence[InputSplit], *, is_validation: bool) -> list[MapTask]:
    config = job.config
    groups = _groups(splits, config.input_split_bytes)
    if config.limit_documents:
        groups = [list(splits)] if splits else []
    return [
        MapTask(
            name=f"{'validation' if is_validation else 'input'}-{number:06d}",
            splits=tuple(group),
            is_validation=is_validation,
            options=ReadOptions.from_config(config),
            sentence_rule=sentence_rule(config),
            limit_documents=config.limit_documents,
            tokenizer_dir=str(job.workspace.tokenizer_dir),
            tokenizer_hash=job.tokenizer.hash,
            map_dir=str(job.workspace.map_dir),
        )
        for number, group in enumerate(groups)
    ]


def _groups(splits: Sequence[InputSplit], most_bytes: int) -> list[list[InputSplit]]:
    """Return runs of neighbouring splits, each of about so many bytes at most.

    A small corpus is cut finer, so that every core finds work.
    """
    total = sum(split.num_bytes for split in splits)
    most_bytes = min(most_bytes, max(total // _FEWEST_TASKS, _LEAST_BYTES))
    groups: list[list[InputSplit]] = []
    size = 0
    for split in splits:
        if not groups or size + split.num_bytes > most_bytes:
            groups.append([])
            size = 0
        groups[-1].append(split)
        size += split.num_bytes
    return groups


def reduce_tasks(job: Job, plan: Plan, parts: tuple[str, ...]) -> list[ReduceTask]:
    """Return a task for each bucket."""
    run = secrets.token_hex(8)
    return [
        ReduceTask(
            bucket=bucket,
            key=key,
            run=run,
            parts=parts,
            sources=plan.sources,
            most_span_value=plan.most_span_value,
            split_rule=split_rule(job.config, plan.validation_threshold),
            config=job.config,
            instance_fingerprint=job.identity.fingerprints.instances,
            map_dir=str(job.workspace.map_dir),
            reduce_dir=str(job.workspace.reduce_dir),
            tokenizer_dir=str(job.workspace.tokenizer_dir),
            tokenizer_hash=job.tokenizer.hash,
        )
        for key, bucket in enumerate(plan.buckets)
    ]
