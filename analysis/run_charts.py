"""Curves of trainings: losses and accuracies over steps, beside lines that a model must beat."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clozemill.analysis.charts import SERIES, Chart, ReportError, Spec, number_axis, view
from clozemill.pipeline.visible import visible
from clozemill.train.metrics import (
    METRICS_NAME,
    EvaluationRow,
    Row,
    StartRow,
    TrainRow,
    read_metrics,
)

_PADDING = {"left": 12, "top": 12, "right": 36, "bottom": 12}
"""Right: names of lines, which are wider in some fonts than in the one they were measured with."""

_MOST_POINTS = 120
"""Of a training curve; more rows are joined to their means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Panel:
    """One of the measures over steps."""

    title: str
    """Its heading."""

    measure: str
    """Column of rows of training and evaluation."""

    weight: str
    """Column that says over how many the measure is a mean."""

    format: str
    """Of numbers, as D3 writes it."""

    lines: tuple[tuple[str, str], ...]
    """Reference lines: column of the start row, and what it is."""


_PANELS = (
    _Panel(
        title="Masked language model: loss in nats",
        measure="mlm_loss",
        weight="selected",
        format=".2f",
        lines=(("even_loss", "knowing nothing"), ("context_free_loss", "without context")),
    ),
    _Panel(
        title="Next sentence: accuracy",
        measure="nsp_accuracy",
        weight="pairs",
        format=".0%",
        lines=(
            ("nsp_majority_accuracy", "the commoner label"),
            ("nsp_length_accuracy", "from lengths alone"),
        ),
    ),
)


def read_runs(runs: Iterable[Path]) -> dict[str, list[Row]]:
    """Return the logs of run folders by the folders' names.

    Raises:
        ReportError: Two have one name.
        ClozemillError: A log cannot be read.
    """
    logs: dict[str, list[Row]] = {}
    for run in runs:
        name = visible(run.resolve().name)
        if name in logs:
            raise ReportError(f"two runs are called {name}, as is {run}; rename a folder.")
        logs[name] = read_metrics(run / METRICS_NAME)
    return logs


def curves(logs: Mapping[str, list[Row]], *, width: int = 640) -> Chart:
    """Return loss and next-sentence accuracy over steps, one panel above the other.

    Args:
        logs: Rows of a run's log by the run's name.
        width: Of a panel, in pixels.

    Raises:
        ReportError: No log has a row of training or evaluation.
    """
    panels, rows = [], []
    for panel in _PANELS:
        points = [point for name, log in logs.items() for point in _points(panel, name, log)]
        if points:
            lines = _reference_lines(panel, logs)
            panels.append(_panel_spec(panel, points, lines, tuple(logs), width))
            rows += [(panel.title, "", line["label"], None, line["value"]) for line in lines]
            rows += [
                (panel.title, point["run"], point["kind"], point["step"], point["value"])
                for point in points
            ]
    if not panels:
        raise ReportError(f"no step is in the logs of {', '.join(logs)}; train for longer.")
    return Chart(
        title=f"Training of {', '.join(logs)}",
        description=_description(logs),
        spec={"vconcat": panels, "spacing": 28, "padding": _PADDING},
        columns=("measure", "run", "of", "step", "value"),
        rows=tuple(rows),
    )


def _points(panel: _Panel, run: str, log: list[Row]) -> list[dict[str, Any]]:
    """Return what is drawn of a run: its evaluations, and means of its steps."""
    trained = [
        row for row in log if isinstance(row, TrainRow) and getattr(row, panel.measure) is not None
    ]
    joined = -(-len(trained) // _MOST_POINTS)
    found = []
    for begin in range(0, len(trained), joined or 1):
        rows = trained[begin : begin + joined]
        weights = [getattr(row, panel.weight) for row in rows]
        values = [getattr(row, panel.measure) for row in rows]
        mean = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
        found.append({"run": run, "kind": "training", "step": rows[-1].step, "value": mean})
    found += [
        {"run": run, "kind": row.split, "step": row.step, "value": getattr(row, panel.measure)}
        for row in log
        if isinstance(row, EvaluationRow) and getattr(row, panel.measure) is not None
    ]
    return found


def _reference_lines(panel: _Panel, logs: Mapping[str, list[Row]]) -> list[dict[str, Any]]:
    """Return the lines of the first run, or of no run where another one has other lines."""
    starts = [row for log in logs.values() for row in log if isinstance(row, StartRow)]
    found = []
    for column, label in panel.lines:
        values = {getattr(row, column) for row in starts}
        if len(values) == 1 and (value := values.pop()) is not None:
            found.append({"label": label, "value": value})
    return sorted(found, key=lambda line: -line["value"])


def _panel_spec(
    panel: _Panel,
    points: list[dict[str, Any]],
    lines: list[dict[str, Any]],
    runs: tuple[str, ...],
    width: int,
) -> Spec:
    scale = {"domain": list(runs)}
    legend = {"symbolOpacity": 1} if len(runs) > 1 else None
    encoding = {
        "x": number_axis("step", "step", scale={"nice": False, "zero": True}),
        "y": number_axis("value", axis={"format": panel.format}),
        "color": {"field": "run", "scale": {**scale, "range": list(SERIES)}, "legend": legend},
    }
    shape = {"field": "run", "type": "nominal", "scale": scale, "legend": legend}
    thin = {"type": "line", "strokeWidth": 1.25, "opacity": 0.55}
    spec = view(
        points,
        {"transform": [_of_kind("===")], "mark": thin, "encoding": encoding},
        {"transform": [_of_kind("!==")], "mark": "line", "encoding": encoding},
        {
            "transform": [_of_kind("!==")],
            "mark": {"type": "point", "filled": True, "size": 50, "opacity": 1},
            "encoding": {**encoding, "shape": shape},
        },
        *_line_layers(lines),
        width=width,
        height=220,
    )
    subtitle = "thin: training, means over steps; points: evaluation"
    return {**spec, "title": {"text": panel.title, "subtitle": subtitle}}


def _of_kind(comparison: str) -> Spec:
    return {"filter": f"datum.kind {comparison} 'training'"}


def _line_layers(lines: list[dict[str, Any]]) -> list[Spec]:
    """Return dashed lines with their names beside the plot, the lowest line's below it."""
    layers: list[Spec] = []
    for place, line in enumerate(lines):
        is_below = place > 0 and place == len(lines) - 1
        name = {
            "type": "text",
            "align": "left",
            "baseline": "top" if is_below else "bottom",
            "dx": 6,
            "text": line["label"],
            "color": "var(--quiet)",
        }
        rule = {"type": "rule", "strokeDash": [5, 4], "color": "var(--quiet)"}
        once: Spec = {"data": {"values": [{}]}}
        y = {"datum": line["value"]}
        layers.append({**once, "mark": rule, "encoding": {"y": y}})
        layers.append({**once, "mark": name, "encoding": {"y": y, "x": {"value": "width"}}})
    return layers


def _description(logs: Mapping[str, list[Row]]) -> str:
    """Return where every run ended, as sentences."""
    sentences = []
    for name, log in logs.items():
        steps = [row for row in log if not isinstance(row, StartRow)]
        last = max(steps, key=lambda row: (isinstance(row, EvaluationRow), row.step), default=None)
        if last is not None and last.mlm_loss is not None:
            of = last.split if isinstance(last, EvaluationRow) else "training"
            text = f"At step {last.step:,} {name} has a {of} MLM loss of {last.mlm_loss:.3f}"
            if last.nsp_accuracy is not None:
                text += f" and an NSP accuracy of {last.nsp_accuracy:.1%}"
            sentences.append(f"{text}.")
    return " ".join(sentences)
