"""The build: inputs -> documents -> sentences -> instances -> variants -> shards -> manifest."""

import dataclasses
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from clozemill.pipeline.build_identity import identify
from clozemill.pipeline.config import BuildConfig
from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.engine import make_engine
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.finish import Outcome, finish
from clozemill.pipeline.inputs import check_unchanged, list_config_inputs
from clozemill.pipeline.known_tokenizer import save_known_tokenizer
from clozemill.pipeline.ledger import reading_ledger
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.mapping import MapTask, run_map_task
from clozemill.pipeline.notices import build_notices, input_notices, tokenizer_notices
from clozemill.pipeline.plan import make_plan
from clozemill.pipeline.progress import OnProgress
from clozemill.pipeline.recipes import mask_rule
from clozemill.pipeline.reduce import (
    ReduceReceipt,
    ReduceTask,
    close_parts,
    run_reduce_task,
)
from clozemill.pipeline.splits import check_weights
from clozemill.pipeline.stages import Stages
from clozemill.pipeline.tasks import Job, map_tasks, reduce_tasks
from clozemill.pipeline.tokenizer import load_tokenizer
from clozemill.pipeline.workspace import Workspace, open_workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildReport:
    """What a build did."""

    manifest: Manifest
    was_finished: bool
    """Whether the folder already held this very dataset, so that nothing was done."""

    notices: tuple[str, ...] = ()
    """What its user may not expect, a line each."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    """By stage; their sum is the time from the open folder to the manifest."""

    peak_process_bytes: int = 0
    """The most resident memory of any process that took part."""


def build(config: BuildConfig, *, on_progress: OnProgress | None = None) -> BuildReport:
    """Build the dataset that the configuration describes, or resume building it.

    With several workers, a script calls it below `if __name__ == "__main__":`, since workers
    import the script.

    Args:
        config: What to build from what, and where.
        on_progress: Called now and then, from this thread.

    Raises:
        ClozemillError: Something the user can mend; the folder then holds no dataset, and the
            same call resumes once it is mended.
    """
    _check_is_complete(config)
    # Workers elsewhere must find the same folder.
    config = dataclasses.replace(config, out=os.path.abspath(config.out))
    engine = make_engine(config.engine, workers=config.workers, ray_address=config.ray_address)
    with engine, open_workspace(Path(config.out)) as workspace:
        stages = Stages(engine, on_progress or (lambda progress: None))
        with stages.timed("listing"):
            job = _prepare(config, workspace)
        if workspace.is_finished and not config.overwrite:
            workspace.check_finished(job.identity.record)
            workspace.end()
            return BuildReport(manifest=open_dataset(workspace.out).manifest, was_finished=True)
        workspace.begin(job.identity.record, overwrite=config.overwrite)
        report = _run(job, stages)
        workspace.end()
    return report


def _check_is_complete(config: BuildConfig) -> None:
    names = {"inputs": "INPUT", "tokenizer": "--tokenizer", "out": "--out"}
    missing = [flag for name, flag in names.items() if not getattr(config, name)]
    if "--tokenizer" in missing:
        raise ConfigError(
            f"{_listed(missing)} must be given; first train a vocabulary, of the same inputs: "
            "clozemill vocab INPUT... --out vocab/, and then build with --tokenizer vocab/."
        )
    if missing:
        raise ConfigError(f"{_listed(missing)} must be given; see clozemill build --help.")


def _listed(names: Sequence[str]) -> str:
    """Return names as a sentence has them.

    >>> _listed(["INPUT", "--tokenizer", "--out"])
    'INPUT, --tokenizer and --out'
    """
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _prepare(config: BuildConfig, workspace: Workspace) -> Job:
    """Return the job once it is clear that its tokenizer, masks and inputs can be used."""
    tokenizer = load_tokenizer(config.tokenizer)
    mask_rule(config, tokenizer)
    inputs = list_config_inputs(config, workspace.spool_dir)
    return Job(
        config=config,
        tokenizer=tokenizer,
        inputs=inputs,
        identity=identify(config, tokenizer, inputs.files),
        workspace=workspace,
    )


def _run(job: Job, stages: Stages) -> BuildReport:
    config, workspace = job.config, job.workspace
    save_known_tokenizer(job.tokenizer, workspace.tokenizer_dir)
    to_read = map_tasks(job)
    resumed = [*_resumed_notice("reading", workspace.map_dir, to_read)]
    with workspace.discarding_hopeless():
        mapped = stages.run("reading", run_map_task, to_read, unit="bytes")
        check_unchanged(job.inputs.files)
    with workspace.discarding_hopeless(has_read_all=True):
        tally = reading_ledger(
            [receipt.tally for receipt in mapped],
            num_tokens=sum(receipt.num_tokens for receipt in mapped),
            config=config,
        )
        parts = tuple(sorted(part for receipt in mapped for part in receipt.parts))
        with stages.timed("planning"):
            plan = make_plan(workspace.map_dir, parts, config)
            check_weights(config, plan.sources)
        workspace.make_room()
        tasks = reduce_tasks(job, plan, parts)
        resumed += _resumed_notice("writing", workspace.reduce_dir, tasks)
        reduced = _write(tasks, stages)
        outcome = Outcome(tally=tally, plan=plan, receipts=reduced, seconds=stages.seconds)
        with stages.timed("finishing"):
            manifest = finish(job, outcome)
    notices = build_notices(
        config,
        manifest,
        num_special_in_text=sum(receipt.num_special_in_text for receipt in mapped),
    )
    return BuildReport(
        manifest=manifest,
        was_finished=False,
        notices=(
            *resumed,
            *input_notices(config, job.inputs),
            *tokenizer_notices(job.tokenizer),
            *plan.notices,
            *notices,
        ),
        seconds=stages.seconds,
        peak_process_bytes=stages.peak_process_bytes,
    )


def _write(tasks: Sequence[ReduceTask], stages: Stages) -> list[ReduceReceipt]:
    try:
        return stages.run("writing", run_reduce_task, tasks, unit="tokens")
    finally:
        # With one worker the tasks ran in this process, which would keep all parts mapped.
        close_parts()


def _resumed_notice(
    stage: str, folder: Path, tasks: Sequence[MapTask] | Sequence[ReduceTask]
) -> Iterator[str]:
    """Yield how many tasks of a stage have a receipt of an earlier call; each is still checked."""
    num_done = sum((folder / f"{task.name}.json").exists() for task in tasks)
    if num_done:
        yield f"resumed: {num_done} of {len(tasks)} {stage} tasks have receipts of an earlier call."
