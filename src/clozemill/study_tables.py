"""What a person sees of a study: what it will do, and what it has found."""

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from clozemill.analysis.study_findings import (
    LINE_NAME,
    PRIMARY,
    Comparison,
    Findings,
    noise_floor,
    nothing_learnt,
    study_warnings,
)
from clozemill.analysis.study_plan import StudyPlan, Training
from clozemill.pipeline.figures import count, fixed, percent
from clozemill.pipeline.json_records import to_json
from clozemill.printing import tell
from clozemill.printouts import Printout, new_table, render


def plan_text(plan: StudyPlan) -> str:
    """Return what a study will do, in a sentence or two."""
    arms, seeds = ", ".join(arm.name for arm in plan.arms), count(plan.num_seeds, "seed")
    text = (
        f"{len(plan.arms) * plan.num_seeds} trainings ({arms}; {seeds} each) of "
        f"{plan.num_steps:,} steps, {plan.num_steps / plan.steps_per_epoch:.1f} epochs; compared "
        "after the last step."
    )
    return f"{text} {_left_out(plan.left_out)}".rstrip()


def _left_out(counts: tuple[int, ...]) -> str:
    if not counts:
        return ""
    return (
        f"Left out: static-{', static-'.join(map(str, counts))}, of whose masks none would return "
        "in so few epochs."
    )


def tell_training(training: Training, number: int, total: int) -> None:
    """Say on standard error which training is due."""
    tell(f"training {number} of {total}: {training.arm.name}, seed {training.seed}")


def study_printout(findings: Findings, out: Path) -> Printout:
    """Return what a study has found."""
    unread = nothing_learnt(findings)
    parts = [
        *([] if unread is None else [f"{unread}\n"]),
        _seen_table(findings),
        _losses_table(findings),
        *_difference_parts(findings),
        f"{out} holds study.json, with the curves of all trainings.",
    ]
    return Printout(data=to_json(findings), text=render(*parts))


def _seen_table(findings: Findings) -> Table:
    last = max(row.epoch for row in findings.seen)
    columns = ["arm", "ever selected", "expected", "repeats", "entropy (nats)", "expected"]
    title = f"what is seen in {count(last, 'epoch')}"
    table = new_table(title, columns, right=range(1, len(columns)))
    found = {(row.arm, row.quantity): row for row in findings.seen if row.epoch == last}
    for arm in findings.plan.arms:
        share, repeats, entropy = (
            found[arm, quantity] for quantity in ("ever_selected", "repeats", "entropy")
        )
        table.add_row(
            arm,
            percent(share.observed),
            percent(share.expected),
            percent(repeats.observed),
            fixed(entropy.observed),
            fixed(entropy.expected),
        )
    return table


def _losses_table(findings: Findings) -> Table:
    columns = ["arm", "MLM loss", "sd of seeds", "at [MASK]", "MLM accuracy"]
    found = {(row.arm, row.measure): row.spread for row in findings.summaries}
    has_pairs = any(row.measure == "nsp_accuracy" for row in findings.summaries)
    columns += ["NSP accuracy"] * has_pairs
    title = f"validation after step {findings.plan.num_steps:,}, means of seeds"
    table = new_table(title, columns, right=range(1, len(columns)))
    for arm in findings.plan.arms:
        loss = found[arm, PRIMARY]
        cells = [
            arm,
            fixed(loss.mean),
            fixed(loss.sd),
            fixed(found[arm, "mask_only_loss"].mean),
            percent(found[arm, "mlm_accuracy"].mean),
        ]
        if has_pairs:
            cells.append(percent(found[arm, "nsp_accuracy"].mean))
        table.add_row(*cells)
    if findings.context_free_loss is not None:
        table.add_row(LINE_NAME, fixed(findings.context_free_loss))
    return table


def _difference_parts(findings: Findings) -> Iterator[Table | str]:
    """Yield the comparisons by MLM loss, and how to read them."""
    columns = ["arm", "difference", "95 % interval", "p", "detectable", "documents", "verdict"]
    seeds = count(findings.plan.num_seeds, "seed")
    title = f"MLM loss minus that of {findings.reference}, {seeds}"
    table = new_table(title, columns, right=range(1, len(columns) - 1))
    for one in findings.verdicts:
        table.add_row(*_cells(one, findings.reference))
    yield table
    yield (
        "The interval is over seeds (paired t); p is Holm's, over all arms. Detectable: the "
        "minimum detectable difference (80 % power). Documents: the interval over validation "
        "documents alone, which is evaluation noise and says nothing of other seeds."
    )
    if noise := noise_floor(findings):
        yield noise
    yield from study_warnings(findings)
    if findings.left_out:
        yield _left_out(findings.left_out)


def _cells(one: Comparison, reference: str) -> list[str]:
    spread, noise = one.difference.spread, one.evaluation_noise
    return [
        one.difference.arm,
        f"{spread.mean:+.4f}",
        _interval(spread.low, spread.high),
        fixed(one.difference.adjusted_p),
        fixed(one.difference.minimum_detectable, digits=4),
        "-" if noise is None else _interval(noise.low, noise.high),
        one.verdict.replace(f" than {reference}", ""),  # the title names it
    ]


def _interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:+.4f}, {high:+.4f}"
