"""The verb `compare`: a paired study of static against dynamic masking."""

import contextlib
import dataclasses
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clozemill.options import (
    config_option,
    data_argument,
    json_option,
    out_option,
    overwrite_option,
    pretrain_arguments,
    pretrain_config_from_flags,
    quiet_option,
    study_options,
)
from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.printing import EXIT_INTERRUPTED, fail, show, tell

if TYPE_CHECKING:
    from clozemill.analysis.study_plan import StudyPlan
    from clozemill.analysis.study_run import Train
    from clozemill.train.config import PretrainConfig

DEFAULT_RECIPE = "cpu-demo"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What is asked for beside what the study is."""

    out: str
    """The study's folder."""

    launch: str | None
    """What starts each training; None trains in this process."""

    overwrite: bool
    html: str | None
    """The page to write."""

    is_json: bool
    quiet: bool


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    """Return the whole numbers of a list such as 1,4,10."""
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is no list of numbers such as 1,4,10.") from None


@click.command(
    short_help="Compare static with dynamic masking.",
    epilog="Example: clozemill compare data/ --out study/ --variants 1,4,10 --seeds 3 --epochs 40",
)
@data_argument
@out_option("The study's folder.", metavar="STUDY")
@click.option(
    "--variants",
    metavar="K,K,...",
    callback=_numbers,
    default="1,4,10",
    show_default=True,
    help="Static masking with so many variants each.",
)
@click.option(
    "--dynamic/--no-dynamic", default=True, show_default=True, help="An arm of dynamic masking."
)
@click.option(
    "--seeds", type=int, default=3, show_default=True, help="Trainings of each arm, paired."
)
@click.option(
    "--launch",
    metavar="COMMAND",
    help="Start each training by this, such as 'torchrun --nproc_per_node 2'.",
)
@overwrite_option("Replace a study in the folder.")
@click.option("--html", metavar="FILE", help="Also write it as a page with pictures.")
@study_options
@config_option
@json_option
@quiet_option
@click.pass_context
def compare(
    context: click.Context,
    /,
    config_path: str | None,
    variants: tuple[int, ...],
    dynamic: bool,
    seeds: int,
    **flags: Any,
) -> int:
    """Train encoders that differ in their masks alone, and say what the masks did.

    Static masking with K variants for each K of --variants, and dynamic masking, each with the
    same seeds. Settings are those of pretrain, by default with --recipe cpu-demo. Interrupted or
    killed, the same command goes on; trainings that are done are not made again.
    """
    asked = _Request(**{item.name: flags.pop(item.name) for item in dataclasses.fields(_Request)})
    config = pretrain_config_from_flags(context, config_path, flags, recipe=DEFAULT_RECIPE)
    from clozemill.analysis.charts import require_libraries
    from clozemill.analysis.report_file import check_page
    from clozemill.analysis.study_plan import make_plan
    from clozemill.pipeline.dataset import open_dataset

    if asked.html:
        require_libraries()
        check_page(Path(asked.html), dataset=Path(config.data), studies=[Path(asked.out)])
    plan = make_plan(
        config, open_dataset(config.data), variants=variants, has_dynamic=dynamic, num_seeds=seeds
    )
    return _run(plan, asked)


def _run(plan: "StudyPlan", asked: _Request) -> int:
    """Make the trainings of a study and show what it has found; return the exit code."""
    from clozemill import study_tables
    from clozemill.analysis.report import write_study_report
    from clozemill.analysis.study import run_study
    from clozemill.analysis.study_run import check_folder

    out = Path(asked.out)
    check_folder(plan, out, overwrite=asked.overwrite)
    if not asked.quiet:
        tell(study_tables.plan_text(plan))
    with _trainer(asked) as train:
        findings = run_study(
            plan,
            out,
            train=train,
            overwrite=asked.overwrite,
            on_training=None if asked.quiet else study_tables.tell_training,
        )
    if findings is None:
        return fail(f"{out} was asked to stop; the same command goes on.", EXIT_INTERRUPTED)
    show(study_tables.study_printout(findings, out), asked.is_json)
    if asked.html:  # afterwards: what was found is shown even where the page fails
        write_study_report(Path(asked.html), out.resolve().name, findings)
    return 0


@contextlib.contextmanager
def _trainer(asked: _Request) -> "Iterator[Train]":
    """Give what makes one training and returns whether all steps asked for are done."""
    from clozemill.progress_bars import live_rows
    from clozemill.train.pretrain import pretrain

    launch = asked.launch
    with live_rows(is_shown=not asked.quiet) as on_row:
        if launch is None:
            yield lambda config: pretrain(config, on_row=on_row).is_done(config)
        else:
            yield lambda config: _launched(config, launch, quiet=asked.quiet)


def _launched(config: "PretrainConfig", launch: str, *, quiet: bool) -> bool:
    """Train in processes of their own; return whether all steps asked for are done."""
    command = [*shlex.split(launch), "-m", "clozemill.train.pretrain", *pretrain_arguments(config)]
    try:
        process = subprocess.Popen(
            [*command, *["--quiet"] * quiet], stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
    except OSError as error:
        raise ConfigError(f"--launch {launch!r} cannot start: {error.strerror}.") from error
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.terminate()
        process.wait()
        raise
    if code not in (0, EXIT_INTERRUPTED):
        raise RunError(f"--launch {launch!r} ended with {code}; what it said stands above.")
    return code == 0
