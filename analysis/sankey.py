"""Amounts that are divided again and again, as a Sankey picture: boxes with ribbons between them.

All lengths are in pixels; y grows downwards.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clozemill.analysis.charts import Chart, Spec

_LEAST_WIDTH = 760
"""Of a picture, without what is written at its right."""

_CHARACTER = 6.6
"""Width of one in a name, about."""

_BOX = 10
"""Width of a box."""

_GAP = 20
"""Between boxes of a column: a line of text, so that the names of small ones stay apart."""

_NAME_GAP = 6
"""Between a box and its name."""

_LEAST_HEIGHT = 1.0
"""Of a box or ribbon: what is rare can still be seen."""

_NUM_PIECES = 12
"""Of a ribbon's edge."""

_LOST, _KEPT = "lost", "kept"

_PADDING = {"left": 4, "top": 10, "bottom": 10, "right": 40}
"""Right: names of the last column, which are wider in some fonts than where they are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """An amount and what it is divided into."""

    name: str
    """What it is."""

    count: int
    """How much."""

    parts: tuple["Stage", ...] = ()
    """What becomes of it; they sum to it, or to a multiple where it is used several times."""

    is_lost: bool = False
    """Whether no instance has it."""

    whole: str = ""
    """What shares of its parts are shares of, in a word or two; by default its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A stage and its place in the picture."""

    stage: Stage
    """What it shows."""

    depth: int
    """Its column, from 0."""

    top: float
    """Where it begins."""

    height: float
    """Its share of the root's height."""

    share: float
    """Of what its parent is divided into."""

    share_of: str
    """What that is called; empty for the root."""

    origin: float | None
    """Where on its parent its ribbon begins; None for the root."""


def sankey(title: str, root: Stage, *, height: float) -> Chart:
    """Return the picture of a stage and all that becomes of it.

    Args:
        title: Heading of the chart.
        root: The whole; stages without a count are not drawn.
        height: Of the root's box.
    """
    boxes = list(lay_out(root, height))
    rows = tuple(
        (
            box.depth + 1,
            box.stage.name,
            box.stage.count,
            box.share if box.depth else None,
            box.share_of,
        )
        for box in boxes
    )
    return Chart(
        title=title,
        description="; ".join(map(_text, boxes)) + ".",
        spec=_spec(boxes),
        columns=("step", "what", "count", "share", "of"),
        rows=rows,
    )


def lay_out(root: Stage, height: float) -> Iterator[Box]:
    """Yield a box for every stage that has a count, column by column.

    All that becomes of a stage stands above all that becomes of the next one, so that ribbons cross
    neither each other nor the names of other stages.
    """
    first = Box(stage=root, depth=0, top=0.0, height=height, share=1.0, share_of="", origin=None)
    yield from sorted(_placed(first), key=lambda box: box.depth)


def _placed(box: Box) -> Iterator[Box]:
    """Yield a box and all that becomes of it, from the box's top down."""
    yield box
    top = box.top
    for part in _parts(box):
        boxes = list(_placed(dataclasses.replace(part, top=top)))
        yield from boxes
        top = max(one.top + one.height for one in boxes) + _GAP


def _parts(box: Box) -> Iterator[Box]:
    """Yield what a box is divided into, side by side on its right edge."""
    total = sum(part.count for part in box.stage.parts)
    origin = box.top
    for part in box.stage.parts:
        if part.count:
            share = part.count / total
            height = box.height * share
            yield Box(
                stage=part,
                depth=box.depth + 1,
                top=origin,
                height=height,
                share=share,
                share_of=box.stage.whole or box.stage.name,
                origin=origin,
            )
            origin += height


def _text(box: Box) -> str:
    share = "" if box.depth == 0 or box.share == 1.0 else f" ({box.share:.1%} of {box.share_of})"
    return f"{box.stage.name} {box.stage.count:,}{share}"


def _spec(boxes: Sequence[Box]) -> Spec:
    step = _step(boxes)
    width = step * (boxes[-1].depth + 1)
    height = max(box.top + max(box.height, _GAP) for box in boxes)
    axes = {
        "x": {"field": "left", "type": "quantitative", "axis": None, "scale": _pixels(0, width)},
        "y": {"field": "top", "type": "quantitative", "axis": None, "scale": _pixels(height, 0)},
    }
    drawn = [_box_row(box, step) for box in boxes]
    points = [point for number, box in enumerate(boxes) for point in _ribbon(box, number, step)]
    return {
        "width": width,
        "height": height,
        "layer": [
            _ribbon_layer(points, axes),
            _box_layer(drawn, axes),
            _name_layer(drawn, axes),
        ],
        "resolve": {"scale": {"color": "independent", "fill": "independent"}},
        "padding": _PADDING,
    }


def _step(boxes: Sequence[Box]) -> float:
    """Return the distance of two columns, in which the names between them have room."""
    last = boxes[-1].depth
    names = [len(_text(box)) * _CHARACTER for box in boxes if box.depth < last]
    return max(_LEAST_WIDTH / (last + 1), *(2 * _BOX + _NAME_GAP + name for name in names), 0)


def _pixels(begin: float, end: float) -> Spec:
    return {"domain": [begin, end], "nice": False, "zero": False}


def _ribbon_layer(points: list[dict[str, Any]], axes: Spec) -> Spec:
    return {
        "data": {"values": points or [{}]},
        "mark": {"type": "area", "line": False},
        "encoding": {
            **axes,
            "y2": {"field": "bottom"},
            "detail": {"field": "ribbon"},
            "color": _kind_colors("faint"),
        },
    }


def _box_layer(drawn: list[dict[str, Any]], axes: Spec) -> Spec:
    return {
        "data": {"values": drawn},
        "mark": {"type": "rect"},
        "encoding": {
            **axes,
            "x2": {"field": "right"},
            "y2": {"field": "bottom"},
            "fill": _kind_colors("series"),
        },
    }


def _name_layer(drawn: list[dict[str, Any]], axes: Spec) -> Spec:
    return {
        "data": {"values": drawn},
        "mark": {"type": "text", "align": "left", "dx": _BOX + _NAME_GAP},
        "encoding": {**axes, "y": {**axes["y"], "field": "middle"}, "text": {"field": "text"}},
    }


def _kind_colors(name: str) -> Spec:
    """Return the colours of what is kept and what is lost, of a family of `page/colors.css`."""
    colors = [f"var(--{name}-1)", f"var(--{name}-2)"]
    return {"field": "kind", "scale": {"domain": [_KEPT, _LOST], "range": colors}, "legend": None}


def _kind(box: Box) -> str:
    return _LOST if box.stage.is_lost else _KEPT


def _box_row(box: Box, step: float) -> dict[str, Any]:
    left = box.depth * step
    return {
        "left": left,
        "right": left + _BOX,
        "top": box.top,
        "middle": _name_place(box),
        "bottom": box.top + max(box.height, _LEAST_HEIGHT),
        "kind": _kind(box),
        "text": _text(box),
    }


def _name_place(box: Box) -> float:
    """Return the height of a box's name: above its own ribbons where they would strike it out."""
    is_thin = box.height < _GAP and any(part.count for part in box.stage.parts)
    return box.top - _GAP / 2 if is_thin else box.top + box.height / 2


def _ribbon(box: Box, number: int, step: float) -> Iterator[dict[str, Any]]:
    """Yield the points of the band from a box's place on its parent to the box."""
    if box.origin is None:
        return
    begin = (box.depth - 1) * step + _BOX
    for piece in range(_NUM_PIECES + 1):
        share = piece / _NUM_PIECES
        smooth = share * share * (3 - 2 * share)
        top = box.origin + (box.top - box.origin) * smooth
        yield {
            "ribbon": number,
            "left": begin + (step - _BOX) * share,
            "top": top,
            "bottom": top + max(box.height, _LEAST_HEIGHT),
            "kind": _kind(box),
        }
