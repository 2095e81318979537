"""Charts of a dataset: what an audit's answers look like beside what was to be expected."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

from clozemill.analysis.audit import Answer, AuditReport
from clozemill.analysis.charts import Chart, Spec, number_axis, view
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.visible import visible

_LEAST_EXPECTED = 30
"""Groups with a smaller expectation are not drawn: their rates would stretch the picture."""

_MOST_SOURCES, _MOST_LISTED = 30, 10
"""Of a picture, the smallest of more are drawn together; and of the sentence below it."""

_NO_NAME = "(none)"
"""A source without a name."""

_ACTIONS = ("mask", "random", "keep")
"""As they are drawn."""

_PERCENT = {"format": "%"}
"""Without a number of digits: Vega gives all ticks as many as they need."""

_BAND = {"type": "area", "opacity": 1, "color": "var(--faint-1)"}
_TICK = {"type": "tick", "thickness": 2, "color": "var(--ink)"}
_BAR = {"type": "bar", "color": "var(--series-1)"}


def dataset_charts(audit: AuditReport, manifest: Manifest) -> list[Chart]:
    """Return the charts that the answers allow, of the training split or the only one."""
    split = "train" if "train" in manifest.splits else next(iter(manifest.splits))
    charts: list[Chart] = []
    for name, make in _CHARTS.items():
        for answer in audit.answers:
            if answer.question.name == name and answer.verdict != "not asked":
                rows = [row for row in _plain_rows(answer) if row["split"] == split]
                for chart in make(rows, split) if rows else ():
                    charts.append(replace(chart, description=chart.description + _cut(answer)))
    return charts


def _cut(answer: Answer) -> str:
    """Return that an answer has more rows than were kept of it, if so."""
    kept, num_rows = answer.rows.num_rows, answer.num_rows
    return "" if kept == num_rows else f" Drawn from the first {kept:,} of {num_rows:,} rows."


def _plain_rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the rows as they are drawn: texts visible, and decimals, as of sums, as numbers."""
    return [{name: _plain(value) for name, value in row.items()} for row in answer.rows.to_pylist()]


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    return (visible(value) or _NO_NAME) if isinstance(value, str) else value


def _by_position(rows: list[dict[str, Any]], split: str) -> Iterator[Chart]:
    for row in rows:
        row["place"] = (row["twentieth"] + 0.5) / 20
    axis = number_axis("place", "place in the instance", axis=_PERCENT, scale={"zero": True})
    yield _rates(rows, axis, "place", f"Mask rate by place in the instance ({split})")


def _by_word_length(rows: list[dict[str, Any]], split: str) -> Iterator[Chart]:
    axis = number_axis("word_length", "pieces of the word", axis={"tickMinStep": 1})
    yield _rates(rows, axis, "word_length", f"Mask rate by length of the word ({split})")


def _rates(rows: list[dict[str, Any]], axis: Spec, group: str, title: str) -> Chart:
    """Return selected shares as points over the band of two standard deviations."""
    rows = sorted(rows, key=lambda row: row[group])
    for row in rows:
        row["rate"] = row["observed"] / row["trials"]
        row["mean"] = row["expected"] / row["trials"]
        row["low"] = row["mean"] - 2 * math.sqrt(row["variance"]) / row["trials"]
        row["high"] = 2 * row["mean"] - row["low"]
    y = number_axis("rate", "selected", axis=_PERCENT)
    edge = {"field": "low", "type": "quantitative"}
    shown = [row for row in rows if row["expected"] >= _LEAST_EXPECTED]
    columns = (group, "observed", "trials", "rate", "mean", "low", "high")
    outside = sum(not row["low"] <= row["rate"] <= row["high"] for row in shown)
    num_rare = len(rows) - len(shown)
    return Chart(
        title=title,
        description=f"Points are selected shares, the band two standard deviations about what is "
        f"expected; outside it: {outside} of {len(shown)}"
        + (f". Not drawn, as rare: {num_rare}." if num_rare else "."),
        spec=view(
            shown,
            {"mark": _BAND, "encoding": {"x": axis, "y": edge, "y2": {"field": "high"}}},
            {
                "mark": {"type": "line", "color": "var(--quiet)", "strokeDash": [4, 3]},
                "encoding": {"x": axis, "y": {**y, "field": "mean"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {"x": axis, "y": y, "color": {"value": "var(--series-1)"}},
            },
        ),
        columns=columns,
        rows=_cells(rows, columns),
    )


def _actions(rows: list[dict[str, Any]], split: str) -> Iterator[Chart]:
    rows = sorted(rows, key=lambda row: _ACTIONS.index(row["action"]))
    for row in rows:
        row["share"] = row["observed"] / row["trials"]
    x = number_axis("share", "of the selected positions", axis=_PERCENT, scale={"zero": True})
    y = {"field": "action", "type": "nominal", "title": None, "sort": list(_ACTIONS)}
    columns = ("action", "observed", "trials", "share", "probability")
    texts = [f"{row['action']} {row['share']:.2%}" for row in rows]
    yield Chart(
        title=f"What selected positions show ({split})",
        description=f"Bars are shares, ticks what is expected: {', '.join(texts)}.",
        spec=view(
            rows,
            {"mark": {**_BAR, "height": {"band": 0.6}}, "encoding": {"x": x, "y": y}},
            {"mark": _TICK, "encoding": {"x": {**x, "field": "probability"}, "y": y}},
            height=120,
        ),
        columns=columns,
        rows=_cells(rows, columns),
    )


def _lengths(rows: list[dict[str, Any]], split: str) -> Iterator[Chart]:
    x = {"field": "up_to_tokens", "type": "ordinal", "title": "tokens, at most"}
    columns = ("up_to_tokens", "num_instances", "share", "mean_tokens")
    longest = max(rows, key=lambda row: row["share"])
    yield Chart(
        title=f"Lengths of instances ({split})",
        description=f"Bars are shares of the instances. The commonest lengths are those up to "
        f"{longest['up_to_tokens']} tokens: {longest['share']:.1%}.",
        spec=view(
            rows,
            {
                "mark": _BAR,
                "encoding": {
                    "x": {**x, "axis": {"labelAngle": 0}},
                    "y": number_axis("share", "instances", axis=_PERCENT, scale={"zero": True}),
                },
            },
        ),
        columns=columns,
        rows=_cells(rows, columns),
    )


def _label_share(rows: list[dict[str, Any]], split: str) -> Iterator[Chart]:
    rows = [row for row in rows if row["expected_share"] is not None]
    if not rows:
        return
    rows = _largest(rows, _num_pairs, _other_labels)
    for row in rows:
        half = 2 * (row["standard_error"] or 0.0)
        row["low"] = max(0.0, row["random_share"] - half)
        row["high"] = min(1.0, row["random_share"] + half)
    x = number_axis("random_share", "pairs with a random B", axis=_PERCENT)
    y = _source_axis(rows)
    columns = ("source", "num_random", "num_next", "random_share", "expected_share", "low", "high")
    texts = [f"{row['source']} {row['random_share']:.1%}" for row in rows]
    yield Chart(
        title=f"Random pairs by source ({split})",
        description="Points are shares with two standard errors, ticks what the manifest expects: "
        + f"{_listed(texts)}.",
        spec=view(
            rows,
            {
                "mark": {"type": "rule", "strokeWidth": 2, "color": "var(--series-1)"},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": {"value": "var(--series-1)"}},
            },
            {"mark": _TICK, "encoding": {"x": {**x, "field": "expected_share"}, "y": y}},
            height=max(80, 26 * len(rows)),
        ),
        columns=columns,
        rows=_cells(rows, columns),
    )


def _source_shares(rows: list[dict[str, Any]], split: str) -> Iterator[Chart]:
    if len(rows) < 2:
        return
    x = number_axis("share_after", "of the tokens", axis=_PERCENT, scale={"zero": True})
    rows = _largest(rows, lambda row: float(row["share_after"] or 0.0), _other_shares)
    y = _source_axis(rows)
    columns = ("source", "num_instances", "mean_passes", "share_before", "share_after")
    texts = [f"{row['source']} {row['share_after']:.1%}" for row in rows]
    yield Chart(
        title=f"Shares of sources ({split})",
        description="Bars are shares of the tokens once per pass, ticks those of the documents "
        f"before sampling: {_listed(texts)}.",
        spec=view(
            rows,
            {"mark": {**_BAR, "height": {"band": 0.6}}, "encoding": {"x": x, "y": y}},
            {"mark": _TICK, "encoding": {"x": {**x, "field": "share_before"}, "y": y}},
            height=max(80, 26 * len(rows)),
        ),
        columns=columns,
        rows=_cells(rows, columns),
    )


def _source_axis(rows: list[dict[str, Any]]) -> Spec:
    names = [row["source"] for row in rows]
    return {"field": "source", "type": "nominal", "title": None, "sort": names}


def _largest(
    rows: list[dict[str, Any]],
    size: Callable[[dict[str, Any]], float],
    joined: Callable[[list[dict[str, Any]]], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Return the rows of the largest sources, and one of all others: a page may have thousands."""
    rows = sorted(rows, key=size, reverse=True)
    others = rows[_MOST_SOURCES:]
    if len(others) < 2:
        return rows
    return [*rows[:_MOST_SOURCES], {"source": f"{len(others):,} others", **joined(others)}]


def _listed(texts: list[str]) -> str:
    rest = len(texts) - _MOST_LISTED
    more = [f"and {rest} more in the data"] if rest > 0 else []
    return ", ".join(texts[:_MOST_LISTED] + more)


def _num_pairs(row: dict[str, Any]) -> float:
    return float(row["num_random"] + row["num_next"])


def _other_labels(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the pairs of several sources as of one, whose documents are drawn independently."""
    weights = [_num_pairs(row) for row in rows]
    total = sum(weights) or 1.0
    pairs = list(zip(rows, weights, strict=True))
    num_random = sum(row["num_random"] for row in rows)
    return {
        "num_random": num_random,
        "num_next": sum(row["num_next"] for row in rows),
        "random_share": num_random / total,
        "expected_share": sum(row["expected_share"] * weight for row, weight in pairs) / total,
        "standard_error": math.hypot(*((r["standard_error"] or 0.0) * w for r, w in pairs)) / total,
    }


def _other_shares(rows: list[dict[str, Any]]) -> dict[str, Any]:
    sums = ("num_instances", "share_before", "share_after")
    return {"mean_passes": None, **{name: sum(row[name] or 0 for row in rows) for name in sums}}


_CHARTS: dict[str, Callable[[list[dict[str, Any]], str], Iterator[Chart]]] = {
    "selected_by_position": _by_position,
    "selected_by_word_length": _by_word_length,
    "actions": _actions,
    "lengths": _lengths,
    "label_share": _label_share,
    "source_shares": _source_shares,
}
"""By the name of the question whose answer is drawn, in the order of the page."""


def _cells(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row[name] for name in columns) for row in rows)
