"""Charts of a study: what its arms see of the text, and what their trainings come to."""

from collections.abc import Iterator, Sequence
from typing import Any

from clozemill.analysis.charts import DASHES, SERIES, Chart, Spec, number_axis, view
from clozemill.analysis.study_findings import PRIMARY, Comparison, Findings
from clozemill.analysis.study_statistics import Interval, Spread

# Formats of axes have no number of digits: Vega then gives all ticks as many as they need.
_INTERVAL = {"type": "rule", "strokeWidth": 2}
_ZERO: Spec = {
    "data": {"values": [{}]},
    "mark": {"type": "rule", "strokeDash": [5, 4], "color": "var(--quiet)"},
}
_SEEN = {
    "ever_selected": ("Share of positions ever selected", "%", ".1%"),
    "repeats": ("Share of maskings shown before", "%", ".1%"),
    "entropy": ("Entropy of what a position shows, in nats", "f", ".3f"),
}
"""Of each quantity the title, and how numbers are written at the axis and in texts."""

_DIFFERENCE_COLUMNS = {
    "arm": "arm",
    "difference": "mean",
    "95 % over seeds": "seeds",
    "p (Holm)": "p",
    "minimum detectable": "detectable",
    "95 % over documents": "documents",
    "verdict": "verdict",
}
"""By heading, the names of `_difference_row`."""


def study_charts(findings: Findings) -> list[Chart]:
    """Return the charts of a study but its answer, `difference_chart`, in the order of a page."""
    return [
        _losses(findings),
        _difference_curve(findings),
        _dose(findings),
        *_seen(findings),
    ]


def difference_chart(findings: Findings) -> Chart:
    """Return the paired differences by MLM loss, with all that is said of them."""
    rows = [_difference_row(one) for one in findings.verdicts]
    x = number_axis("mean", "nats", axis={"format": "+f"})
    y, color = _arm_axis(findings), {**_arm_colors(findings), "legend": None}
    texts = [f"{row['arm']} {row['mean']:+.4f}: {row['verdict']}" for row in rows]
    return Chart(
        title=f"MLM loss minus that of {findings.reference}",
        description="Points are means of paired differences with their 95 % t intervals over "
        f"{_seeds(findings)}, the dashed line no difference: {'; '.join(texts)}.",
        spec=view(
            rows,
            {**_ZERO, "encoding": {"x": {"datum": 0}}},
            {
                "transform": [{"filter": "datum.low !== null"}],
                "mark": _INTERVAL,
                "encoding": {
                    "x": {**x, "field": "low"},
                    "x2": {"field": "high"},
                    "y": y,
                    "color": color,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": color},
            },
            height=max(70, 34 * len(rows)),
        ),
        columns=tuple(_DIFFERENCE_COLUMNS),
        rows=tuple(tuple(row[n] for n in _DIFFERENCE_COLUMNS.values()) for row in rows),
    )


def _difference_row(one: Comparison) -> dict[str, Any]:
    found, noise = one.difference, one.evaluation_noise
    return {
        "arm": found.arm,
        "mean": found.spread.mean,
        "low": found.spread.low,
        "high": found.spread.high,
        "seeds": _interval_text(found.spread),
        "p": found.adjusted_p,
        "detectable": found.minimum_detectable,
        "documents": None if noise is None else _interval_text(noise),
        "verdict": one.verdict,
    }


def _interval_text(interval: Spread | Interval) -> str | None:
    if interval.low is None or interval.high is None:
        return None
    return f"{interval.low:+.4f} to {interval.high:+.4f}"


def _seeds(findings: Findings) -> str:
    return "1 seed" if findings.plan.num_seeds == 1 else f"{findings.plan.num_seeds} seeds"


def _losses(findings: Findings) -> Chart:
    rows = [
        {"arm": one.arm, "seed": one.seed, "step": row["step"], "loss": row[PRIMARY]}
        for one in findings.trainings
        for row in one.evaluations
    ]
    line = findings.trainings[0].start["context_free_loss"]
    ends = {arm: _mean(rows, arm, findings.plan.num_steps) for arm in findings.plan.arms}
    y = number_axis("loss", "nats", axis={"format": "f"})
    layers = _curve_layers(findings, y, findings.plan.arms)
    if line is not None:
        layers.append({**_ZERO, "encoding": {"y": {"datum": line}}})
    return Chart(
        title="Validation MLM loss over steps",
        description="Thick lines are means of seeds, thin ones the seeds. After the last step: "
        + ", ".join(f"{arm} {loss:.4f}" for arm, loss in ends.items())
        + (f". Dashed across: without context, {line:.4f}." if line is not None else "."),
        spec=view(rows, *layers),
        columns=("arm", "seed", "step", "loss"),
        rows=_cells(rows),
    )


def _curve_layers(findings: Findings, y: Spec, arms: Sequence[str]) -> list[Spec]:
    """Return a thin line per arm and seed over steps, and a thick one through their means."""
    x = number_axis("step", "step")
    look = {"symbolType": "stroke", "symbolOpacity": 1, "symbolSize": 400}
    legend = {**look, "values": list(arms)}
    colors = {**_arm_colors(findings), "legend": legend}
    dashes = {"field": "arm", "scale": _arm_scale(findings, list(DASHES)), "legend": legend}
    mean = {**y, "aggregate": "mean"}
    return [
        {
            "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.45},
            "encoding": {"x": x, "y": y, "color": colors, "detail": {"field": "seed"}},
        },
        {
            "mark": {"type": "line", "point": {"filled": True, "size": 30}},
            "encoding": {"x": x, "y": mean, "color": colors, "strokeDash": dashes},
        },
    ]


def _dose(findings: Findings) -> Chart:
    spreads = {row.arm: row.spread for row in findings.summaries if row.measure == PRIMARY}
    means = [
        {"arm": arm, "mean": spread.mean, "sd": spread.sd, "low": spread.low, "high": spread.high}
        for arm, spread in spreads.items()
    ]
    return Chart(
        title="MLM loss over the number of variants",
        description=f"After step {findings.plan.num_steps:,}: large points are means of seeds, "
        + ("" if means[0]["low"] is None else "with 95 % t intervals that hold between studies, ")
        + "small ones the seeds. "
        + ", ".join(f"{row['arm']} {row['mean']:.4f}" for row in means)
        + ".",
        spec=view(means, *_dose_layers(findings)),
        columns=("arm", "mean", "sd of seeds", "95 % from", "95 % to"),
        rows=_cells(means),
    )


def _dose_layers(findings: Findings) -> list[Spec]:
    """Return a line through the means, their intervals, the means, and beside them the seeds."""
    x = {**_arm_axis(findings), "axis": {"labelAngle": 0}}
    y = number_axis("mean", "nats", axis={"format": "f"})
    color = {**_arm_colors(findings), "legend": None}
    point = {"type": "point", "filled": True, "opacity": 1}
    seeds = [{"arm": one.arm, "loss": one.evaluations[-1][PRIMARY]} for one in findings.trainings]
    return [
        {
            "mark": {"type": "line", "color": "var(--rule)", "strokeWidth": 1.5},
            "encoding": {"x": x, "y": y},
        },
        {
            "transform": [{"filter": "datum.low !== null"}],
            "mark": _INTERVAL,
            "encoding": {
                "x": x,
                "y": {**y, "field": "low"},
                "y2": {"field": "high"},
                "color": color,
            },
        },
        {"mark": {**point, "size": 80}, "encoding": {"x": x, "y": y, "color": color}},
        {
            "data": {"values": seeds},
            "mark": {**point, "size": 22, "xOffset": 9},
            "encoding": {"x": x, "y": {**y, "field": "loss"}, "color": color},
        },
    ]


def _difference_curve(findings: Findings) -> Chart:
    losses = {
        (one.arm, one.seed, row["step"]): row[PRIMARY]
        for one in findings.trainings
        for row in one.evaluations
    }
    rows = [
        {"arm": arm, "seed": seed, "step": step, "difference": loss - base}
        for (arm, seed, step), loss in losses.items()
        if arm != findings.reference
        and (base := losses.get((findings.reference, seed, step))) is not None
    ]
    y = number_axis("difference", "nats", axis={"format": "+f"})
    return Chart(
        title=f"The difference over steps: minus {findings.reference}",
        description="Thick lines are means of paired differences, thin ones the seeds; an arm has "
        "no difference until its masks return. What is judged is the last step alone.",
        spec=view(
            rows,
            {**_ZERO, "encoding": {"y": {"datum": 0}}},
            *_curve_layers(findings, y, findings.plan.arms[:-1]),
        ),
        columns=("arm", "seed", "step", "difference"),
        rows=_cells(rows),
    )


def _seen(findings: Findings) -> Iterator[Chart]:
    x = number_axis("epoch", "epoch", axis={"tickMinStep": 1})
    for quantity, (title, axis_format, text_format) in _SEEN.items():
        points = [row for row in findings.seen if row.quantity == quantity]
        columns = ("arm", "epoch", "observed", "expected")
        rows = [{name: getattr(row, name) for name in columns} for row in points]
        y = number_axis("observed", axis={"format": axis_format}, scale={"zero": True})
        last = max(row.epoch for row in points)
        ends = [f"{p.arm} {p.observed:{text_format}}" for p in points if p.epoch == last]
        color = _arm_colors(findings)
        shape = {"field": "arm", "type": "nominal", "scale": _arm_scale(findings), "legend": {}}
        yield Chart(
            title=title,
            description="Lines are expected, points counted in a sample of the training split. "
            f"After epoch {last}: {', '.join(ends)}.",
            spec=view(
                rows,
                {
                    "transform": [{"filter": "datum.expected !== null"}],
                    "mark": {"type": "line", "strokeWidth": 1.5},
                    "encoding": {"x": x, "y": {**y, "field": "expected"}, "color": color},
                },
                {
                    "mark": {"type": "point", "filled": True, "size": 30, "opacity": 1},
                    "encoding": {"x": x, "y": y, "color": color, "shape": shape},
                },
            ),
            columns=columns,
            rows=_cells(rows),
        )


def _arm_axis(findings: Findings) -> Spec:
    return {"field": "arm", "type": "nominal", "title": None, "sort": list(findings.plan.arms)}


def _arm_colors(findings: Findings) -> Spec:
    return {"field": "arm", "scale": _arm_scale(findings, list(SERIES)), "legend": {}}


def _arm_scale(findings: Findings, range: list[Any] | None = None) -> Spec:
    domain = list(findings.plan.arms)
    if range is None:
        return {"domain": domain}
    return {"domain": domain, "range": [range[place % len(range)] for place in _places(domain)]}


def _places(arms: list[str]) -> list[int]:
    """Return which colour or dash each arm has: the reference the first."""
    return [*range(1, len(arms)), 0]


def _mean(rows: list[dict[str, Any]], arm: str, step: int) -> float:
    losses = [row["loss"] for row in rows if (row["arm"], row["step"]) == (arm, step)]
    return float(sum(losses) / len(losses))


def _cells(rows: list[dict[str, Any]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row.values()) for row in rows)
