"""The verbs of the pipeline: from text to a dataset, and what can be done with one."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from clozemill.options import (
    build_options,
    config_from_flags,
    config_option,
    data_argument,
    is_typed,
    json_option,
    layout_options,
    mask_options,
    out_option,
    overwrite_option,
    quiet_option,
    reading_options,
    vocabulary_options,
)
from clozemill.pipeline.config import SPLITS
from clozemill.pipeline.errors import ConfigError
from clozemill.pipeline.vocab_settings import VocabularySettings
from clozemill.printing import (
    EXIT_FOUND,
    output_width,
    show,
    tell,
)

if TYPE_CHECKING:
    from clozemill.pipeline.config import BuildConfig
    from clozemill.pipeline.dataset import Dataset


@click.command(
    short_help="Turn text into a dataset of masked training instances.",
    epilog="Example: clozemill build corpus/*.jsonl.gz --tokenizer vocab/ --out data/ --workers 8",
)
@click.argument("inputs", nargs=-1, metavar="INPUT...")
@build_options
@config_option
@click.option("--dry-run", is_flag=True, help="Say what a build would cost, and write nothing.")
@json_option
@quiet_option
@click.pass_context
def build(
    context: click.Context,
    /,
    config_path: str | None,
    dry_run: bool,
    is_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Turn text into a dataset of masked training instances.

    INPUT is a file, folder, glob or URL of .txt, .jsonl, .parquet or .arrow (also .gz and .zst),
    - for standard input, or hf:NAME[:CONFIG][:SPLIT]. Interrupted or killed, the same command
    resumes and ends with the same bytes.
    """
    from clozemill.pipeline.engine import num_worker_processes, start_fork_server

    config = config_from_flags(context, config_path, flags)
    if not dry_run and num_worker_processes(config.engine, config.workers):
        # Before this process imports the same, so that both import at once.
        start_fork_server("clozemill.cli")

    from clozemill.pipeline.unneeded import keep_unneeded_out, without_collecting

    with without_collecting():
        from clozemill.pipeline.read_hub import is_hub_name

        if not any(map(is_hub_name, (*config.inputs, *config.validation))):
            keep_unneeded_out()
        from clozemill import data_tables
        from clozemill.pipeline.build import build as run_build
        from clozemill.progress_bars import progress_bar

    if dry_run:
        return _show_estimate(config, is_json)
    with progress_bar(is_shown=not quiet) as on_progress:
        report = run_build(config, on_progress=on_progress)
    for notice in report.notices:
        tell(f"notice: {notice}")
    show(data_tables.build_printout(report, config.out), is_json)
    return None


def _show_estimate(config: "BuildConfig", is_json: bool) -> None:
    from clozemill import data_tables
    from clozemill.pipeline.estimate import estimate_build

    estimate = estimate_build(config)
    for notice in estimate.notices:
        tell(f"notice: {notice}")
    show(data_tables.estimate_printout(estimate), is_json)


@click.command(
    short_help="Train a WordPiece vocabulary that is the same every time.",
    epilog="Example: clozemill vocab corpus/*.jsonl.gz --out vocab/ --vocab-size 8000 --cased",
)
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@out_option("The tokenizer folder to write.")
@vocabulary_options
@overwrite_option("Replace a vocabulary in --out.")
@reading_options
@json_option
@quiet_option
@click.pass_context
def vocab(
    context: click.Context,
    /,
    inputs: tuple[str, ...],
    out: str,
    overwrite: bool,
    is_json: bool,
    quiet: bool,
    **flags: Any,
) -> None:
    """Train a WordPiece vocabulary, byte-identical for the same documents.

    INPUT is what `clozemill build` takes. The folder is one that transformers.AutoTokenizer
    loads with the same ids.
    """
    from clozemill import data_tables
    from clozemill.pipeline.vocab_build import build_vocabulary, vocabulary_notices
    from clozemill.progress_bars import progress_bar

    names = [item.name for item in dataclasses.fields(VocabularySettings)]
    settings = VocabularySettings(**{name: flags.pop(name) for name in names})
    config = config_from_flags(context, None, {**flags, "inputs": inputs})
    with progress_bar(is_shown=not quiet) as on_progress:
        tokenizer, report = build_vocabulary(
            config, settings, Path(out), overwrite=overwrite, on_progress=on_progress
        )
    notices = tuple(vocabulary_notices(settings, report))
    for notice in notices:
        tell(f"notice: {notice}")
    show(data_tables.vocabulary_printout(tokenizer, report, out, notices), is_json)


@click.command(
    short_help="Check that a dataset is what was written.", epilog="Example: clozemill verify data/"
)
@data_argument
@json_option
@quiet_option
def verify(data: str, is_json: bool, quiet: bool) -> int:
    """Check that a dataset is what was written and keeps every rule; exit 1 if not.

    Compares sizes and checksums, then reads every row: schema, ids, spans against documents,
    labels, masks (drawn again), digests, and the sums of the ledger.
    """
    from clozemill import data_tables
    from clozemill.pipeline.verify import verify_dataset
    from clozemill.progress_bars import progress_bar

    with progress_bar(is_shown=not quiet) as on_progress:
        findings = verify_dataset(data, on_progress=on_progress)
    show(data_tables.verify_printout(data, findings), is_json)
    return EXIT_FOUND if findings else 0


@click.command(
    short_help="Write a dataset in another format; its digests stay.",
    epilog="Example: clozemill convert data/ --out tars/ --format webdataset",
)
@data_argument
@out_option()
@layout_options
@overwrite_option("Replace a dataset in --out.")
@json_option
@quiet_option
def convert(
    data: str, out: str, overwrite: bool, is_json: bool, quiet: bool, **settings: Any
) -> None:
    """Write a dataset in another format, compression or shard size; both digests stay."""
    from clozemill import data_tables
    from clozemill.pipeline.convert import convert_dataset
    from clozemill.progress_bars import progress_bar

    with progress_bar(is_shown=not quiet) as on_progress:
        manifest = convert_dataset(
            data, out, **settings, overwrite=overwrite, on_progress=on_progress
        )
    show(data_tables.rewritten_printout(data, manifest, out), is_json)


@click.command(
    short_help="Draw other masks over the same instances.",
    epilog="Example: clozemill remask data/ --out more/ --mask-variants 40",
)
@data_argument
@out_option()
@mask_options
@overwrite_option("Replace a dataset in --out.")
@json_option
@quiet_option
def remask(
    data: str, out: str, overwrite: bool, is_json: bool, quiet: bool, **settings: Any
) -> None:
    """Write a dataset with other masks over the same instances, without a rebuild.

    Settings that are not given stay as they are. Variant k stays variant k.
    """
    from clozemill import data_tables
    from clozemill.pipeline.remask import remask_dataset
    from clozemill.progress_bars import progress_bar

    given = {name: value for name, value in settings.items() if value is not None}
    with progress_bar(is_shown=not quiet) as on_progress:
        manifest = remask_dataset(data, out, given, overwrite=overwrite, on_progress=on_progress)
    show(data_tables.rewritten_printout(data, manifest, out), is_json)


def _at_least(least: int) -> click.IntRange:
    return click.IntRange(min=least)


@click.command(
    short_help="Show instances as text, back to where they came from.",
    epilog="Example: clozemill inspect data/ -n 3 --variants 2",
)
@data_argument
@click.option("-n", "count", type=_at_least(1), default=3, show_default=True, help="How many.")
@click.option(
    "--first", type=_at_least(0), default=0, show_default=True, help="Number of the first one."
)
@click.option(
    "--split",
    type=click.Choice(SPLITS),
    default=SPLITS[0],
    show_default=True,
    help="Of which split.",
)
@click.option("--instance", metavar="ID", help="The instance whose id starts with these digits.")
@click.option(
    "--variants", type=_at_least(0), default=2, show_default=True, help="Variants shown of each."
)
@click.option(
    "--follow-origins",
    is_flag=True,
    help="Read text again from URLs and hf: names too; a stranger's dataset may name any.",
)
@json_option
def inspect(
    data: str,
    count: int,
    first: int,
    split: str,
    instance: str | None,
    variants: int,
    follow_origins: bool,
    is_json: bool,
) -> None:
    """Show instances as text: A and B, what each variant hides, and where they came from."""
    from clozemill.inspection_tables import instances_printout
    from clozemill.pipeline.dataset import open_dataset
    from clozemill.pipeline.inspection import Inspector

    dataset = open_dataset(data)
    inspector = Inspector(dataset, follows_remote=follow_origins, is_readable=not is_json)
    if instance is not None:
        split, number = inspector.find(instance)
        numbers = [number]
    else:
        numbers = _numbers(dataset, split, first, count)
    views = inspector.describe(split, numbers)
    stored = min((len(view.variants) for view in views), default=0)
    is_cut = is_typed(click.get_current_context(), "variants") and variants > stored
    if is_cut and not is_json:
        tell(f"notice: --variants is {variants}, but {data} stores {stored}; these are shown.")
    width, is_terminal = output_width()
    printout = instances_printout(
        views, width=width, is_terminal=is_terminal, most_variants=variants
    )
    show(printout, is_json)


def _numbers(dataset: "Dataset", split: str, first: int, count: int) -> list[int]:
    total = dataset.num_instances(split)
    if first >= total:
        raise ConfigError(
            f"--first is {first}, but the {total} instances of {split} in {dataset.folder} are "
            f"numbered 0 to {total - 1}; choose one of them."
        )
    return list(range(first, min(first + count, total)))
