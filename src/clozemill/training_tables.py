"""What a person sees of a training: its rows, and the table at its end."""

import dataclasses
import json
from pathlib import Path

from rich.table import Table

from clozemill.pipeline.figures import fixed, megabytes, percent
from clozemill.pipeline.visible import visible
from clozemill.printouts import Printout, new_table, render
from clozemill.train.evaluation import Evaluation
from clozemill.train.export import ExportReport
from clozemill.train.fill_mask import FilledMask, FilledText
from clozemill.train.metrics import EvaluationRow, Row, StartRow, row_line
from clozemill.train.plan import Plan
from clozemill.train.pretrain import PretrainReport
from clozemill.train.replay import Replay


def row_text(row: Row) -> str:
    """Return a row of the log as a line."""
    if isinstance(row, StartRow):
        lines = (
            f"lines to beat: MLM {fixed(row.context_free_loss)} nats without context "
            f"(evenly {fixed(row.even_loss)})"
        )
        if row.nsp_length_accuracy is None:
            return lines
        return f"{lines}, NSP accuracy {percent(row.nsp_length_accuracy)} from lengths alone"
    losses = (
        f"MLM {fixed(row.mlm_loss)} ({percent(row.mlm_accuracy)}), "
        f"NSP {fixed(row.nsp_loss)} ({percent(row.nsp_accuracy)})"
    )
    if isinstance(row, EvaluationRow):
        return f"step {row.step}  {row.split}: {losses}"
    speed = "" if row.tokens_per_second is None else f"  {row.tokens_per_second:,.0f} tokens/s"
    return f"step {row.step}  epoch {row.epoch}  {losses}{speed}"


def run_printout(report: PretrainReport) -> Printout:
    """Return how far a training came, and what its evaluations say beside the reference lines."""
    data = {
        "out": str(report.folder),
        "step": report.step,
        "num_steps": report.num_steps,
        "is_finished": report.is_finished,
        "rows": [{"kind": row.kind, **dataclasses.asdict(row)} for row in _last_of_kinds(report)],
        "notices": list(report.notices),
    }
    columns = ["step", "MLM loss", "at [MASK]", "MLM accuracy", "NSP loss", "NSP accuracy"]
    table = new_table("validation", columns, right=range(len(columns)))
    evaluations = [row for row in report.rows if isinstance(row, EvaluationRow)]
    for row in evaluations[-_MOST_EVALUATIONS:]:
        table.add_row(
            str(row.step),
            fixed(row.mlm_loss),
            fixed(row.mask_only_loss),
            percent(row.mlm_accuracy),
            fixed(row.nsp_loss),
            percent(row.nsp_accuracy),
        )
    starts = [row_text(row) for row in report.rows if isinstance(row, StartRow)]
    parts = [table] if evaluations else []
    return Printout(data=data, text=render(*parts, *starts, _end_text(report)))


_MOST_EVALUATIONS = 10


def _last_of_kinds(report: PretrainReport) -> list[Row]:
    last: dict[str, Row] = {row.kind: row for row in report.rows}
    return list(last.values())


def _end_text(report: PretrainReport) -> str:
    if report.is_finished:
        return f"{report.folder} has all its {report.num_steps} steps."
    return (
        f"{report.folder} was asked to stop after step {report.step} of {report.num_steps}; the "
        "same command goes on from there."
    )


def replay_printout(replay: Replay) -> Printout:
    """Return a step taken again, an instance a line, the largest loss first."""
    window = replay.result.window
    data = {
        "step": replay.step,
        "window": dataclasses.asdict(window),
        "gradient_norm": str(replay.result.gradient_norm),
        "is_finite": replay.result.is_finite,
        "instances": [
            {**dataclasses.asdict(i), "mlm_loss": str(i.mlm_loss), "nsp_loss": str(i.nsp_loss)}
            for i in replay.instances
        ],
    }
    columns = ["instance", "number", "variant", "tokens", "selected", "MLM loss", "NSP loss"]
    table = new_table(f"step {replay.step}", columns, right=range(1, len(columns)))
    # What is no number first: NaN compares with nothing.
    for i in sorted(replay.instances, key=lambda i: (i.is_finite, -i.mlm_loss)):
        counts = (i.number, i.variant, i.num_tokens, i.num_selected)
        table.add_row(i.instance_id, *map(str, counts), fixed(i.mlm_loss), fixed(i.nsp_loss))
    means = (
        f"whole step, with dropout: MLM {fixed(window.mlm_loss_sum / max(1, window.selected))}, "
        f"NSP {fixed(window.nsp_loss_sum / max(1, window.pairs))}, gradient norm "
        f"{replay.result.gradient_norm:.3f}; nothing was written."
    )
    return Printout(data=data, text=render(table, means))


def export_printout(report: ExportReport) -> Printout:
    """Return what an export is and who has read it back."""
    data = {
        **dataclasses.asdict(report),
        "folder": str(report.folder),
        "checkpoint": str(report.checkpoint),
    }
    readers = "clozemill"
    if report.transformers_version is not None:
        readers += f" and transformers {report.transformers_version}"
    text = (
        f"{report.folder} is the {report.architecture} of {report.checkpoint} with its tokenizer: "
        f"{', '.join(report.files)}.\n"
        f"Read back by {readers}: nothing missing, nothing unexpected, equal logits.\n"
    )
    return Printout(data=data, text=text)


def filled_printout(model: Path, filled: FilledText) -> Printout:
    """Return what an encoder expects at each mask."""
    data = {"model": str(model), **dataclasses.asdict(filled)}
    tables = [_mask_table(filled, mask) for mask in filled.masks]
    return Printout(data=data, text=render(*tables).rstrip("\n") + "\n")


def _mask_table(filled: FilledText, mask: FilledMask) -> Table:
    """Return the candidates of a mask; with several masks the title says which one."""
    number = filled.masks.index(mask) + 1
    title = "" if len(filled.masks) == 1 else f"mask {number} of {len(filled.masks)}"
    table = new_table(title, ["token", "probability"], right=(1,))
    for candidate in mask.candidates:
        table.add_row(visible(candidate.token), f"{candidate.probability:.2%}")
    return table


def evaluation_printout(found: Evaluation) -> Printout:
    """Return losses and accuracies beside those of predictors that read no context."""
    row, lines = found.row, found.baselines
    data = {
        **json.loads(row_line(row)),
        "model": str(found.model),
        "variant": found.variant,
        "precision": found.precision,
        "dataset_digest": found.dataset_digest,
        "tokenizer_hash": found.tokenizer_hash,
        "is_tokenizer_known": found.is_tokenizer_known,
        "baselines": dataclasses.asdict(lines),
    }
    columns = ["", "model", "without context", "guessing"]
    table = new_table(f"{row.split}, variant {found.variant}", columns, right=(1, 2, 3))
    loss, even = fixed(row.mlm_loss), fixed(lines.even_loss)
    table.add_row("MLM loss", loss, fixed(lines.context_free_loss), even)
    table.add_row("  at [MASK]", fixed(row.mask_only_loss), fixed(lines.mask_token_loss), even)
    accuracy = percent(row.mlm_accuracy)
    table.add_row("MLM accuracy", accuracy, percent(lines.context_free_accuracy), "")
    if row.pairs:
        even = fixed(lines.nsp_even_loss)
        table.add_row("NSP loss", fixed(row.nsp_loss), fixed(lines.nsp_length_loss), even)
        table.add_row(
            "NSP accuracy",
            percent(row.nsp_accuracy),
            percent(lines.nsp_length_accuracy),
            percent(lines.nsp_majority_accuracy),
        )
    return Printout(data=data, text=render(table, _evaluation_note(found)))


def _evaluation_note(found: Evaluation) -> str:
    note = (
        f"{found.row.instances:,} instances, {found.row.selected:,} tokens predicted, in "
        f"{found.precision}. Without context: from token frequencies and the shown token alone; "
        "for pairs, from their lengths."
    )
    if not found.is_tokenizer_known:
        note += " Nothing says the model's tokenizer; its vocabulary has the dataset's size."
    return note


def plan_printout(plan: Plan) -> Printout:
    """Return what a training would be."""
    model, length, step, memory = plan.model, plan.length, plan.step, plan.memory
    masking = f"{length.num_variants:,}, each seen {length.exposures_per_variant:,.1f} times"
    tables = 100 * model.num_embedding_parameters / model.num_parameters
    rows = [
        ("parameters", f"{model.num_parameters:,}, {tables:.0f} % of them in embeddings"),
        ("instances", f"{length.num_instances:,}"),
        ("steps", f"{length.num_steps:,}, the first {length.num_warmup_steps:,} warm up"),
        ("epochs", f"{length.num_epochs:,.2f} of {length.steps_per_epoch:,} steps"),
        ("maskings of an instance", masking),
        ("tokens", f"{length.num_tokens:,.0f} without padding"),
        ("a step", f"{step.num_tokens:,.0f} tokens, {step.num_selected:,.0f} of them predicted"),
        ("", f"{step.flops / 1e9:,.1f} GFLOP, micro-batches of {step.micro_batch_size:,} rows"),
        ("memory of a rank", f"{megabytes(memory.total_bytes)}, and 0.4 to 1.3 GB of torch"),
        ("  weights", megabytes(memory.weights_bytes)),
        ("  gradients", megabytes(memory.gradients_bytes)),
        ("  optimizer", megabytes(memory.optimizer_bytes)),
        ("  activations", megabytes(memory.activations_bytes)),
        ("a checkpoint", megabytes(model.checkpoint_bytes)),
        ("time", _planned_time(plan)),
    ]
    table = new_table("plan", ["", ""], right=())
    for row in rows:
        table.add_row(*row)
    data = dataclasses.asdict(plan)
    data["memory"]["total_bytes"] = memory.total_bytes
    return Printout(data=data, text=render(table).rstrip("\n") + "\n")


def _planned_time(plan: Plan) -> str:
    if plan.hours is None:
        return "unknown; give clozemill plan --tokens-per-second or --measure"
    return f"{plan.hours:,.2f} hours at {plan.tokens_per_second:,.0f} tokens/s, without evaluations"
