"""Charts of a study: what its arms see of the text, and what their trainings come to."""

from collections.abc import Iterator
from typing import Any

from clozemill.analysis.charts import DASHES, SERIES, Chart, Spec, number_axis, view
from clozemill.analysis.study_findings import PRIMARY, Findings

_INTERVAL = {"type": "rule", "strokeWidth": 2}
_ZERO: Spec = {
    "data": {"values": [{}]},
    "mark": {"type": "rule", "strokeDash": [5, 4], "color": "var(--quiet)"},
}
_SEEN = {
    "ever_selected": ("Share of positions ever selected", ".0%"),
    "repeats": ("Share of maskings shown before", ".0%"),
    "entropy": ("Entropy of what a position shows, in nats", ".2f"),
}
"""Title and number format of each quantity."""


def study_charts(findings: Findings) -> list[Chart]:
    """Return the charts of a study, in the order of a page: the answer first."""
    charts = [_losses(findings), _dose(findings)]
    if findings.comparisons:
        charts += [_differences(findings), _difference_curve(findings)]
    return [*charts, *_seen(findings)]


def _losses(findings: Findings) -> Chart:
    rows = [
        {"arm": one.arm, "seed": one.seed, "step": row["step"], "loss": row[PRIMARY]}
        for one in findings.trainings
        for row in one.evaluations
    ]
    line = findings.trainings[0].start["context_free_loss"]
    ends = {arm: _mean(rows, arm, findings.plan.num_steps) for arm in findings.plan.arms}
    y = number_axis("loss", "nats", axis={"format": ".2f"})
    layers = _curve_layers(findings, number_axis("step", "step"), y)
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


def _curve_layers(findings: Findings, x: Spec, y: Spec) -> list[Spec]:
    """Return a thin line per arm and seed, and a thick one through their means."""
    legend = {"symbolType": "stroke", "symbolOpacity": 1, "symbolSize": 400}
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
    seeds = [{"arm": one.arm, "loss": one.evaluations[-1][PRIMARY]} for one in findings.trainings]
    x = {**_arm_axis(findings), "axis": {"labelAngle": 0}}
    y = number_axis("mean", "nats", axis={"format": ".2f"})
    point = {"type": "point", "filled": True, "opacity": 1}
    return Chart(
        title="MLM loss over the number of variants",
        description=f"After step {findings.plan.num_steps:,}: large points are means of seeds with "
        "their 95 % t intervals, which hold between studies; small ones are the seeds. "
        + ", ".join(f"{row['arm']} {row['mean']:.4f}" for row in means)
        + ".",
        spec=view(
            means,
            {
                "mark": {"type": "line", "color": "var(--rule)", "strokeWidth": 1.5},
                "encoding": {"x": x, "y": y},
            },
            {
                "transform": [{"filter": "datum.low !== null"}],
                "mark": {**_INTERVAL, "color": "var(--series-1)"},
                "encoding": {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                "mark": {**point, "size": 80, "color": "var(--series-1)"},
                "encoding": {"x": x, "y": y},
            },
            {
                "data": {"values": seeds},
                "mark": {**point, "size": 22, "color": "var(--series-2)", "xOffset": 9},
                "encoding": {"x": x, "y": {**y, "field": "loss"}},
            },
        ),
        columns=("arm", "mean", "sd of seeds", "95 % from", "to"),
        rows=_cells(means),
    )


def differences(findings: Findings) -> list[dict[str, Any]]:
    """Return the paired differences by MLM loss, a row per arm but the reference."""
    return [
        {
            "arm": one.difference.arm,
            "mean": one.difference.spread.mean,
            "low": one.difference.spread.low,
            "high": one.difference.spread.high,
            "p": one.difference.adjusted_p,
            "visible": one.difference.smallest_visible,
            "verdict": one.verdict,
        }
        for one in findings.comparisons
        if one.measure == PRIMARY
    ]


def _differences(findings: Findings) -> Chart:
    rows = differences(findings)
    x = number_axis("mean", "nats", axis={"format": "+.3~f"})
    y = _arm_axis(findings)
    texts = [f"{row['arm']} {row['mean']:+.4f}: {row['verdict']}" for row in rows]
    return Chart(
        title=f"MLM loss minus that of {findings.reference}",
        description="Points are means of paired differences with their 95 % t intervals over "
        f"{findings.plan.num_seeds} seeds, the dashed line no difference: {'; '.join(texts)}.",
        spec=view(
            rows,
            {**_ZERO, "encoding": {"x": {"datum": 0}}},
            {
                "transform": [{"filter": "datum.low !== null"}],
                "mark": {**_INTERVAL, "color": "var(--series-1)"},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": {"value": "var(--series-1)"}},
            },
            height=max(90, 40 * len(rows)),
        ),
        columns=("arm", "difference", "95 % from", "to", "p (Holm)", "visible", "verdict"),
        rows=_cells(rows),
    )


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
    y = number_axis("difference", "nats", axis={"format": "+.3~f"})
    return Chart(
        title=f"The same over steps: minus {findings.reference}",
        description="Thick lines are means of paired differences, thin ones the seeds; an arm has "
        "no difference until its masks return. What is judged is the last step alone.",
        spec=view(
            rows,
            {**_ZERO, "encoding": {"y": {"datum": 0}}},
            *_curve_layers(findings, number_axis("step", "step"), y),
        ),
        columns=("arm", "seed", "step", "difference"),
        rows=_cells(rows),
    )


def _seen(findings: Findings) -> Iterator[Chart]:
    x = number_axis("epoch", "epoch", axis={"tickMinStep": 1})
    for quantity, (title, format) in _SEEN.items():
        points = [row for row in findings.seen if row.quantity == quantity]
        columns = ("arm", "epoch", "observed", "expected")
        rows = [{name: getattr(row, name) for name in columns} for row in points]
        y = number_axis("observed", axis={"format": format}, scale={"zero": True})
        last = max(row.epoch for row in points)
        ends = [f"{row.arm} {row.observed:.3g}" for row in points if row.epoch == last]
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
