"""Charts: Vega-Lite pictures that keep their data beside them, drawn as SVG without a network.

Colours are CSS variables of `page/colors.css`, so that one picture serves light and dark.
"""

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from typing import Any, TypeAlias

from clozemill.pipeline.errors import ClozemillError

Spec: TypeAlias = dict[str, Any]
"""A Vega-Lite view."""

SERIES = tuple(f"var(--series-{number})" for number in range(1, 7))
"""Colours of things that are told apart; a chart also tells them apart by label, dash or place."""

DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4], [4, 6])
"""Dashes of lines, beside their colours."""

_LONG_NUMBER = re.compile(r"(?<=[\d(,MLC -])(\d+\.\d\d)\d+(?=[,)\"A-Za-z -])")
"""Digits of paths, places and colours that no eye sees."""


class ReportError(ClozemillError):
    """A report or picture that cannot be made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture and the data it shows."""

    title: str
    """What it shows, as a heading."""

    description: str
    """What a person who does not see it should know."""

    spec: Spec
    """A Vega-Lite view, with its data."""

    columns: tuple[str, ...]
    """Headings of the data."""

    rows: tuple[tuple[Any, ...], ...]
    """The data, for people."""


def require_libraries() -> None:
    """Raise `ReportError` unless what pages and pictures are made with is installed."""
    for module, name in (("jinja2", "jinja2"), ("vl_convert", "vl-convert-python")):
        if importlib.util.find_spec(module) is None:
            raise ReportError(
                f"a report needs {name}, which is not installed; pip install 'clozemill[report]'."
            )


def draw(chart: Chart, name: str = "chart") -> str:
    """Return the chart as an SVG element that names and describes itself.

    Args:
        chart: The picture.
        name: Begin of the element's ids; no two pictures of a page may share it.

    Raises:
        ReportError: The library that draws is not installed.
    """
    require_libraries()
    drawn = _vega_svg({**chart.spec, "config": _CONFIG})
    size = re.match(r'<svg[^>]*?( width="[0-9.]+" height="[0-9.]+" viewBox="[^"]*")[^>]*>', drawn)
    assert size is not None, drawn[:200]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img"{size[1]} '
        f'aria-labelledby="{name}-title" aria-describedby="{name}-text">'
        f'<title id="{name}-title">{escape(chart.title)}</title>'
        f'<desc id="{name}-text">{escape(chart.description)}</desc>'
        f"{drawn[size.end() :]}"
    )


def svg_file(chart: Chart) -> str:
    """Return the chart as the text of an SVG file, with its colours."""
    head, body = draw(chart).split(">", 1)
    style = f"<style>{read_page_file('colors.css')} svg {{ background: var(--paper) }}</style>"
    return f"{head}>{style}{body}\n"


def read_page_file(name: str) -> str:
    """Return the text of `analysis/page/NAME`."""
    return resources.files("clozemill.analysis").joinpath("page", name).read_text("utf-8")


def _vega_svg(spec: Spec) -> str:
    import vl_convert

    drawn: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    return _LONG_NUMBER.sub(r"\1", drawn)


def view(
    rows: Sequence[dict[str, Any]], *layers: Spec, width: int = 360, height: int = 190
) -> Spec:
    """Return a view of layers over the same rows."""
    return {"data": {"values": list(rows)}, "width": width, "height": height, "layer": list(layers)}


def number_axis(field: str, title: str | None = None, **more: Any) -> Spec:
    """Return an axis of numbers that need not begin at 0."""
    scale = {"zero": False, **more.pop("scale", {})}
    return {"field": field, "type": "quantitative", "title": title, "scale": scale, **more}


_PADDING = {"left": 12, "top": 5, "right": 5, "bottom": 5}
"""Left: names at an axis, which are wider in some fonts than in the one they are measured with."""

_TEXT = {"font": "system-ui, sans-serif"}
_CONFIG: Spec = {
    "background": None,
    "padding": _PADDING,
    "aria": False,
    **_TEXT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--quiet)",
        "titleColor": "var(--quiet)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "gridColor": "var(--rule)",
        "domainColor": "var(--strong-rule)",
        "tickColor": "var(--strong-rule)",
        "labelOverlap": "greedy",
        "labelSeparation": 8,
        "labelPadding": 4,
        "titlePadding": 8,
        "tickCount": 5,
    },
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False},
    "legend": {
        "labelColor": "var(--ink)",
        "titleColor": "var(--quiet)",
        "titleFontWeight": "normal",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "labelLimit": 300,
        "orient": "top",
        "title": None,
    },
    "title": {
        "color": "var(--ink)",
        "subtitleColor": "var(--quiet)",
        "fontSize": 14,
        "subtitleFontSize": 12,
        "fontWeight": 600,
        "anchor": "start",
        "frame": "group",
        "offset": 12,
    },
    "text": {"color": "var(--ink)", "fontSize": 12},
    "rule": {"color": "var(--ink)"},
    "line": {"strokeWidth": 2},
    "bar": {"color": "var(--series-1)"},
    "range": {"category": list(SERIES)},
}
