"""The verbs of training: from a dataset to an encoder, and what can be done with one."""

from typing import Any

import click

from clozemill.options import pretrain_config_from_flags, pretrain_options
from clozemill.pipeline.errors import ConfigError
from clozemill.printing import EXIT_INTERRUPTED, json_option, quiet_option, show


@click.command(
    short_help="Train an encoder on a dataset.",
    epilog="Example: clozemill pretrain data/ --out run/ --model mini --epochs 3; on several GPUs: "
    "accelerate launch -m clozemill.train.pretrain data/ --out run/ --model base --epochs 3",
)
@click.argument("data", metavar="DATA")
@pretrain_options
@click.option("--config", "config_path", metavar="FILE.toml", help="Settings; flags win over it.")
@click.option("--dry-run", is_flag=True, help="Say what a training would cost, and write nothing.")
@click.option("--replay", type=click.IntRange(min=1), help="Take this step again; write nothing.")
@json_option
@quiet_option
@click.pass_context
def pretrain(
    context: click.Context,
    /,
    data: str,
    config_path: str | None,
    dry_run: bool,
    replay: int | None,
    is_json: bool,
    quiet: bool,
    **flags: Any,
) -> int:
    """Train an encoder on the dataset DATA, by masked tokens and next sentences.

    The folder --out holds metrics.jsonl, checkpoints and what the run is. Interrupted or killed,
    the same command goes on from the newest whole checkpoint.
    """
    config = pretrain_config_from_flags(context, config_path, {**flags, "data": data})
    if not config.out:
        raise ConfigError("--out is missing; say where the run is to be written.")
    from clozemill import training_tables

    if replay is not None:
        from clozemill.train.replay import replay_step

        show(training_tables.replay_view(replay_step(config, replay)), is_json)
        return 0

    from clozemill.train.pretrain import pretrain as run_pretraining

    with training_tables.live_rows(is_shown=not quiet) as on_row:
        report = run_pretraining(config, on_row=on_row)
    if report.rows:
        for notice in report.notices:
            click.echo(f"notice: {notice}", err=True)
        show(training_tables.run_view(report), is_json)
    return 0 if report.is_finished else EXIT_INTERRUPTED
