"""The verbs of training: from a dataset to an encoder, and what can be done with one."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clozemill.options import (
    config_option,
    data_argument,
    evaluation_options,
    json_option,
    out_option,
    overwrite_option,
    pretrain_config_from_flags,
    pretrain_options,
    quiet_option,
    tokenizer_option,
)
from clozemill.pipeline.errors import ConfigError
from clozemill.printing import EXIT_INTERRUPTED, show, tell
from clozemill.train.evaluation_settings import EvaluationSettings

if TYPE_CHECKING:
    from clozemill.train.config import PretrainConfig


@click.command(
    short_help="Train an encoder on a dataset.",
    epilog="Example: clozemill pretrain data/ --out run/ --model mini --epochs 3; on several GPUs: "
    "accelerate launch -m clozemill.train.pretrain data/ --out run/ --model base --epochs 3",
)
@data_argument
@pretrain_options
@config_option
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
    from clozemill import training_tables

    if dry_run:
        from clozemill.train.plan import make_plan

        if _rank() == 0:
            _tell_unsuited_recipe(config)
            show(training_tables.plan_printout(make_plan(config, num_ranks=_num_ranks())), is_json)
        return 0
    if not config.out:
        raise ConfigError("--out is missing; say where the run is to be written.")
    if replay is not None:
        from clozemill.train.replay import replay_step

        show(training_tables.replay_printout(replay_step(config, replay)), is_json)
        return 0

    from clozemill.progress_bars import live_rows
    from clozemill.train.pretrain import pretrain as run_pretraining

    if _rank() == 0:
        _tell_unsuited_recipe(config)
    with live_rows(is_shown=not quiet) as on_row:
        report = run_pretraining(config, on_row=on_row)
    if report.rows:
        for notice in report.notices:
            tell(f"notice: {notice}")
        show(training_tables.run_printout(report), is_json)
    return 0 if report.is_done(config) else EXIT_INTERRUPTED


def _tell_unsuited_recipe(config: "PretrainConfig") -> None:
    """Say beforehand that a dataset is not what the recipe is for; it can be meant."""
    from clozemill.pipeline.dataset import open_dataset
    from clozemill.train.config import unsuited_recipe

    text = unsuited_recipe(config, open_dataset(config.data).manifest.build_config().recipe)
    if text is not None:
        tell(f"notice: {text}")


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _num_ranks() -> int:
    """Return the processes that a launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@click.command(
    short_help="Say what a training would be, before it runs.",
    epilog="Example: clozemill plan data/ --model base --epochs 40 --tokens-per-second 250000",
)
@data_argument
@pretrain_options
@config_option
@click.option(
    "--ranks",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Processes that would train together.",
)
@click.option(
    "--tokens-per-second",
    type=click.FloatRange(min=0.0, min_open=True),
    help="Real tokens of all ranks together, to tell the hours.",
)
@click.option("--measure", is_flag=True, help="Take that rate from a few steps on this machine.")
@json_option
@click.pass_context
def plan(
    context: click.Context,
    /,
    data: str,
    config_path: str | None,
    ranks: int,
    tokens_per_second: float | None,
    measure: bool,
    is_json: bool,
    **flags: Any,
) -> None:
    """Say what a training would be: parameters, steps, exposures, memory and hours.

    Takes the flags of pretrain, and refuses what could not start. Nothing is written.
    """
    config = pretrain_config_from_flags(context, config_path, {**flags, "data": data})
    if measure and tokens_per_second is not None:
        raise ConfigError(
            f"--measure is given and --tokens-per-second is {tokens_per_second:g}; drop one."
        )
    if measure and ranks > 1:
        raise ConfigError(
            f"--measure times one process and --ranks is {ranks}; give --tokens-per-second."
        )
    from clozemill import training_tables
    from clozemill.train.plan import make_plan, measure_rate

    # First without a rate, which takes long to measure and is of no use to what cannot start.
    found = make_plan(config, num_ranks=ranks, tokens_per_second=tokens_per_second)
    if measure:
        found = make_plan(config, tokens_per_second=measure_rate(config))
    _tell_unsuited_recipe(config)
    show(training_tables.plan_printout(found), is_json)


@click.command(
    short_help="Write a run as a model that transformers loads.",
    epilog="Example: clozemill export run/ --out model/",
)
@click.argument("run", metavar="RUN")
@out_option()
@tokenizer_option
@overwrite_option("Replace an earlier export, if it is unchanged.")
@json_option
def export(run: str, out: str, tokenizer: str | None, overwrite: bool, is_json: bool) -> None:
    """Write a run as a folder that transformers loads: weights, tokenizer, model card.

    RUN is a run, whose newest complete checkpoint is taken, or a checkpoint. The folder is read
    back, by transformers too where it is installed, before it counts.
    """
    from clozemill import training_tables
    from clozemill.train.export import export_run

    report = export_run(
        Path(run),
        Path(out),
        tokenizer_dir=None if tokenizer is None else Path(tokenizer),
        overwrite=overwrite,
    )
    for notice in report.notices:
        tell(f"notice: {notice}")
    show(training_tables.export_printout(report), is_json)


@click.command(
    "fill-mask",
    short_help="Show what an encoder expects at [MASK].",
    epilog='Example: clozemill fill-mask run/ "Paris is the [MASK] of France."',
)
@click.argument("model", metavar="MODEL")
@click.argument("text", metavar="TEXT")
@click.option(
    "--top-k", type=click.IntRange(min=1), default=5, show_default=True, help="Candidates shown."
)
@tokenizer_option
@json_option
def fill_mask(model: str, text: str, top_k: int, tokenizer: str | None, is_json: bool) -> None:
    """Show what an encoder expects at each [MASK] of a text.

    MODEL is a run, a checkpoint, an export, or any folder with a Hugging Face BERT and its
    tokenizer. Several masks are filled each by itself.
    """
    from clozemill import training_tables
    from clozemill.train.encoders import find_encoder, find_tokenizer
    from clozemill.train.fill_mask import fill_mask as fill

    encoder = find_encoder(Path(model))
    own = find_tokenizer(encoder, None if tokenizer is None else Path(tokenizer))
    filled = fill(encoder.model, own, text, top_k=top_k)
    show(training_tables.filled_printout(encoder.folder, filled), is_json)


@click.command(
    short_help="Measure an encoder on a dataset.", epilog="Example: clozemill evaluate run/ data/"
)
@click.argument("model", metavar="MODEL")
@data_argument
@evaluation_options
@json_option
@quiet_option
def evaluate(model: str, data: str, is_json: bool, quiet: bool, **flags: Any) -> None:
    """Measure an encoder on a dataset: losses and accuracies beside the lines to beat.

    MODEL is a run, a checkpoint, or a folder with an export or another Hugging Face BERT. A
    variant's masks are always the same, so the number is too; that of variant 0 is what a run logs.
    """
    settings = EvaluationSettings(**flags)
    from clozemill import training_tables
    from clozemill.progress_bars import progress_bar
    from clozemill.train.evaluation import evaluate_encoder

    with progress_bar(is_shown=not quiet) as on_progress:
        found = evaluate_encoder(Path(model), Path(data), settings, on_progress=on_progress)
    show(training_tables.evaluation_printout(found), is_json)
