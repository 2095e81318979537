"""The verb `compare`: a paired study of static against dynamic masking."""

import shlex
import subprocess
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
from clozemill.printing import EXIT_INTERRUPTED, fail, show

if TYPE_CHECKING:
    from clozemill.train.config import PretrainConfig

DEFAULT_RECIPE = "cpu-demo"


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
    help="Start each training by this, such as 'accelerate launch --num_processes 2'.",
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
    data: str,
    out: str,
    variants: tuple[int, ...],
    dynamic: bool,
    seeds: int,
    launch: str | None,
    overwrite: bool,
    html: str | None,
    config_path: str | None,
    is_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Train encoders that differ in their masks alone, and say what the masks did.

    Static masking with K variants for each K of --variants, and dynamic masking, each with the
    same seeds. Settings are those of pretrain, by default with --recipe cpu-demo. Interrupted or
    killed, the same command goes on; trainings that are done are not made again.
    """
    config = pretrain_config_from_flags(
        context, config_path, {**flags, "data": data}, recipe=DEFAULT_RECIPE
    )
    from clozemill import study_tables, training_tables
    from clozemill.analysis.charts import require_libraries
    from clozemill.analysis.report import write_study_report
    from clozemill.analysis.report_file import check_page
    from clozemill.analysis.study import run_study
    from clozemill.analysis.study_plan import make_plan
    from clozemill.analysis.study_run import check_folder
    from clozemill.pipeline.dataset import open_dataset
    from clozemill.train.pretrain import pretrain

    if html:
        require_libraries()
        check_page(Path(html), dataset=Path(data), studies=[Path(out)])
    plan = make_plan(
        config, open_dataset(data), variants=variants, has_dynamic=dynamic, num_seeds=seeds
    )
    check_folder(plan, Path(out), overwrite=overwrite)
    if not quiet:
        click.echo(study_tables.plan_text(plan), err=True)
    with training_tables.live_rows(is_shown=not quiet) as on_row:
        findings = run_study(
            plan,
            Path(out),
            train=lambda one: (
                pretrain(one, on_row=on_row).is_done(one)
                if launch is None
                else _launched(one, launch, quiet=quiet)
            ),
            overwrite=overwrite,
            on_training=None if quiet else study_tables.tell_training,
        )
    if findings is None:
        return fail(f"{out} was asked to stop; the same command goes on.", EXIT_INTERRUPTED)
    show(study_tables.study_printout(findings, Path(out)), is_json)
    if html:  # afterwards: what was found is shown even where the page fails
        write_study_report(Path(html), Path(out).resolve().name, findings)
    return 0


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
