"""The build: inputs -> documents -> sentences -> instances -> variants -> shards -> manifest."""

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.engine import Engine, make_engine
from clozemill.pipeline.errors import ConfigError, InputError
from clozemill.pipeline.finish import BuildIdentity, Outcome, finish, identify
from clozemill.pipeline.inputs import InputSplit, Listing, list_inputs
from clozemill.pipeline.ledger import Ledger
from clozemill.pipeline.manifest import Manifest, read_manifest
from clozemill.pipeline.mapping import MapReceipt, MapTask, run_map_task
from clozemill.pipeline.notices import build_notices
from clozemill.pipeline.plan import Plan, make_plan
from clozemill.pipeline.progress import Progress
from clozemill.pipeline.read import ReadOptions, ReadTally
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.reduce import ReduceTask, run_reduce_task
from clozemill.pipeline.sentences import sentence_rule
from clozemill.pipeline.splits import split_rule
from clozemill.pipeline.tokenizer import PretrainingTokenizer, load_tokenizer
from clozemill.pipeline.workspace import Workspace, open_workspace


class _Sized(Protocol):
    @property
    def num_units(self) -> int: ...


Task = TypeVar("Task", bound=_Sized)
Receipt = TypeVar("Receipt")

_FEWEST_TASKS = 16
"""Small neighbouring inputs are read by one task, but not so many that fewer tasks are left."""

_LEAST_BYTES = 1 << 20
"""A task of less than this costs more to start than to run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build did."""

    manifest: Manifest
    was_finished: bool
    """Whether the folder already held this very dataset, so that nothing was done."""

    notices: tuple[str, ...] = ()
    """What its user may not expect, a line each."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    """By stage."""


def build(
    config: BuildConfig, *, on_progress: Callable[[Progress], None] | None = None
) -> BuildReport:
    """Build the dataset that the configuration describes, or resume building it.

    Args:
        config: What to build from what, and where.
        on_progress: Called now and then, from this thread.

    Raises:
        ClozemillError: Something the user can mend; the folder then holds no dataset, and the
            same call resumes once it is mended.
    """
    if not config.inputs or not config.tokenizer or not config.out:
        raise ConfigError("inputs, tokenizer and out must be given; see clozemill build --help.")
    # Workers elsewhere must find the same folder.
    config = dataclasses.replace(config, out=os.path.abspath(config.out))
    engine = make_engine(config.engine, workers=config.workers, ray_address=config.ray_address)
    with engine, open_workspace(Path(config.out)) as workspace:
        stages = _Stages(engine, on_progress or (lambda progress: None))
        tokenizer = load_tokenizer(config.tokenizer)
        mask_rule(config, tokenizer)
        listings = _list_all(config, workspace)
        files = [file for listing in listings for file in listing.files]
        identity = identify(config, tokenizer, files)
        if workspace.is_finished and not config.overwrite:
            workspace.check_finished(identity.record)
            workspace.end()
            return BuildReport(manifest=read_manifest(workspace.out), was_finished=True)
        workspace.begin(identity.record, overwrite=config.overwrite)
        tokenizer.save(workspace.tokenizer_dir, model_max_length=config.max_seq_length)

        with _discarding_hopeless(workspace):
            tasks = _map_tasks(config, workspace, listings, tokenizer)
            mapped = stages.run("reading", run_map_task, tasks)
        with _discarding_hopeless(workspace, has_read_all=True):
            tally = _close_reading(mapped, config)
            parts = tuple(sorted(part for receipt in mapped for part in receipt.parts))
            plan = make_plan(workspace.map_dir, parts, config)
            reduce_tasks = _reduce_tasks(config, workspace, plan, parts, identity, tokenizer)
            reduced = stages.run("writing", run_reduce_task, reduce_tasks)
            outcome = Outcome(tally=tally, plan=plan, receipts=reduced, seconds=stages.seconds)
            manifest = finish(workspace, config, tokenizer, identity, outcome)
        workspace.end()
    num_special_in_text = sum(receipt.num_special_in_text for receipt in mapped)
    ignored = [name for listing in listings for name in listing.ignored]
    return BuildReport(
        manifest=manifest,
        was_finished=False,
        notices=(
            *plan.notices,
            *build_notices(
                config, manifest, num_special_in_text=num_special_in_text, ignored=ignored
            ),
        ),
        seconds=stages.seconds,
    )


class _Stages:
    """Runs the stages on the engine, and tells how far they are and how long they took."""

    def __init__(self, engine: Engine, on_progress: Callable[[Progress], None]) -> None:
        self.engine = engine
        self.on_progress = on_progress
        self.seconds: dict[str, float] = {}

    def run(
        self, stage: str, function: Callable[[Task], Receipt], tasks: Sequence[Task]
    ) -> list[Receipt]:
        """Return the receipts in the order of the tasks; the largest tasks start first."""
        started = time.monotonic()
        total = sum(task.num_units for task in tasks)
        done = 0
        self.on_progress(Progress(stage=stage, done=0, total=total))
        order = sorted(range(len(tasks)), key=lambda i: -tasks[i].num_units)
        receipts: dict[int, Receipt] = {}
        numbered = [_Numbered(number=i, function=function, task=tasks[i]) for i in order]
        with contextlib.closing(self.engine.run(_run_numbered, numbered)) as results:
            for number, receipt in results:
                receipts[number] = receipt
                done += tasks[number].num_units
                self.on_progress(Progress(stage=stage, done=done, total=total))
        self.seconds[stage] = time.monotonic() - started
        return [receipts[i] for i in range(len(tasks))]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    """A task with its place, since engines give results back in any order."""

    number: int
    function: Callable[[Any], Any]
    task: Any


def _run_numbered(item: _Numbered) -> tuple[int, Any]:
    return item.number, item.function(item.task)


@contextlib.contextmanager
def _discarding_hopeless(workspace: Workspace, *, has_read_all: bool = False) -> Iterator[None]:
    """Leave nothing behind after an input that this very command can never be built from.

    What was read is kept while another try may read the rest: a network may come back.
    """
    try:
        yield
    except InputError:
        if has_read_all or not any(workspace.map_dir.glob("*.json")):
            workspace.discard()
        raise


def _list_all(config: BuildConfig, workspace: Workspace) -> list[Listing]:
    """Return the training inputs and, if any were named, the validation inputs."""
    workspace.spool_dir.mkdir(parents=True, exist_ok=True)
    return [
        list_inputs(
            inputs,
            input_format=config.input_format,
            layout=config.layout,
            spool_dir=workspace.spool_dir,
            split_bytes=config.split_bytes,
        )
        for inputs in (config.inputs, config.validation)
        if inputs
    ]


def _map_tasks(
    config: BuildConfig,
    workspace: Workspace,
    listings: Sequence[Listing],
    tokenizer: PretrainingTokenizer,
) -> list[MapTask]:
    """Return tasks of one large split or several small ones.

    A limit on documents is one on their order in the inputs, so one task reads them all.
    """
    tasks: list[MapTask] = []
    for is_validation, listing in enumerate(listings):
        groups = _groups(listing.splits, config.split_bytes)
        if config.limit_documents:
            groups = [list(listing.splits)]
        for number, splits in enumerate(groups):
            tasks.append(
                MapTask(
                    name=f"{'validation' if is_validation else 'input'}-{number:06d}",
                    splits=tuple(splits),
                    is_validation=bool(is_validation),
                    options=ReadOptions.from_config(config),
                    sentence_rule=sentence_rule(config),
                    limit_documents=config.limit_documents,
                    tokenizer_dir=str(workspace.tokenizer_dir),
                    tokenizer_hash=tokenizer.hash,
                    map_dir=str(workspace.map_dir),
                )
            )
    return tasks


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


def _close_reading(receipts: Sequence[MapReceipt], config: BuildConfig) -> Ledger:
    """Return what became of the records, once it is known that some had a text."""
    tally = ReadTally()
    for receipt in receipts:
        tally.merge(ReadTally.from_json(receipt.tally))
    tally.raise_if_no_text(config.text_field)
    return Ledger({("records", "", reason): n for reason, n in tally.counts.items()})


def _reduce_tasks(
    config: BuildConfig,
    workspace: Workspace,
    plan: Plan,
    parts: tuple[str, ...],
    identity: BuildIdentity,
    tokenizer: PretrainingTokenizer,
) -> list[ReduceTask]:
    return [
        ReduceTask(
            bucket=bucket,
            key=key,
            parts=parts,
            sources=plan.sources,
            most_span_value=plan.most_span_value,
            split_rule=split_rule(config, plan.validation_threshold),
            config=config,
            instance_fingerprint=identity.fingerprints.instances,
            map_dir=str(workspace.map_dir),
            reduce_dir=str(workspace.reduce_dir),
            tokenizer_dir=str(workspace.tokenizer_dir),
            tokenizer_hash=tokenizer.hash,
        )
        for key, bucket in enumerate(plan.buckets)
    ]
