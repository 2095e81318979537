"""The command line: parses, calls the library, prints."""

import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import click

import clozemill
from clozemill import analysis_verbs, data_verbs, study_verb, training_verbs
from clozemill.options import overwrite_option
from clozemill.pipeline.errors import ClozemillError
from clozemill.printing import (
    EXIT_COULD_NOT_RUN,
    EXIT_INTERRUPTED,
    PLAIN_WIDTH,
    fail,
    lead_nowhere,
    print_text,
)

_AFTER_INTERRUPTION = {
    "build": "; the same command resumes",
    "demo": "; the same command resumes",
    "vocab": "; nothing is written",
    "convert": "; the same command starts over",
    "remask": "; the same command starts over",
    "pretrain": "; the same command goes on from the last checkpoint",
    "compare": "; the same command goes on from the last checkpoint",
}


class _Interrupted(Exception):
    """A verb was interrupted; the text says what that leaves."""


class _Verbs(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; click would take an interrupt or a closed pipe for its own."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            leaves = _AFTER_INTERRUPTION.get(ctx.invoked_subcommand or "", "")
            raise _Interrupted(f"interrupted{leaves}.") from None
        except MemoryError as error:
            raise ClozemillError(
                "there is not enough memory; give fewer --workers, or raise the limit (ulimit -v)."
            ) from error
        except OSError as error:
            what = error.strerror or str(error)
            raise ClozemillError(
                f"{error.filename}: {what}; mend that, then run the same command again."
                if error.filename
                else f"{what.rstrip('.')}: nothing says where, so look at the temporary folder "
                "(TMPDIR names it), /dev/shm and the limits of this shell (ulimit -a)."
            ) from error


@click.group(
    cls=_Verbs,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": PLAIN_WIDTH,
    },
)
@click.version_option(clozemill.__version__, prog_name="clozemill")
def cli() -> None:
    """Turn raw text into masked-language-model training data, and know what the model was fed."""


def main() -> None:
    """Run the command line; a user's mistake ends in one line and no traceback."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = cli.main(standalone_mode=False)
    except (_Interrupted, click.exceptions.Abort, KeyboardInterrupt) as error:
        code = fail(str(error) or "interrupted.", EXIT_INTERRUPTED)
    except click.ClickException as error:
        error.show()
        code = EXIT_COULD_NOT_RUN
    except ClozemillError as error:
        code = fail(str(error), EXIT_COULD_NOT_RUN)
    except SystemExit:
        # Click's, as nobody reads the help to its end.
        lead_nowhere(sys.stdout)
        code = 0
    sys.exit(code)


def _interrupt(signal_number: int, frame: Any) -> None:
    raise KeyboardInterrupt


@cli.command(
    short_help="Show every verb on the State of the Union speeches.",
    epilog="Example: clozemill demo --out demo-out",
)
@click.option("--out", "-o", default="demo-out", show_default=True, help="Where to put it all.")
@overwrite_option("Replace what an earlier demo left there.")
def demo(out: str, overwrite: bool) -> int:
    """Show the way from text to a trained encoder, in about five minutes on two cores.

    The text is 249 State of the Union speeches. Without torch, only that to a dataset is shown.
    """
    from clozemill.demo import STEPS, missing_package, write_corpus

    folder = Path(out)
    count = write_corpus(folder / "speeches.jsonl")
    print_text(f"{count} speeches, public domain, in {folder / 'speeches.jsonl'}.\n")
    missing = missing_package()
    for step in STEPS:
        if step.trains and missing:
            continue
        arguments = [*step.arguments(folder), *["--overwrite"] * (overwrite and step.writes)]
        print_text(f"\n{step.explanation}\n\n$ clozemill {shlex.join(arguments)}\n\n")
        code: int = cli.main(arguments, standalone_mode=False) or 0
        if code:
            return code
    if missing:
        print_text(
            f"\nWhat is left to show trains an encoder, for which {missing} is not installed: pip "
            "install 'clozemill[train]', and run the same command again.\n"
        )
    return 0


for _verb in (
    data_verbs.vocab,
    data_verbs.build,
    data_verbs.verify,
    data_verbs.inspect,
    data_verbs.convert,
    data_verbs.remask,
    training_verbs.plan,
    training_verbs.pretrain,
    training_verbs.evaluate,
    training_verbs.fill_mask,
    training_verbs.export,
    analysis_verbs.sql,
    analysis_verbs.audit,
    study_verb.compare,
):
    cli.add_command(_verb)
