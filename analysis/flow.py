"""The ledger as a flow: documents and tokens from what was read to what instances hold."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from clozemill.analysis.charts import Chart, Spec
from clozemill.pipeline.ledger import OWN_FATES
from clozemill.pipeline.manifest import Manifest
from clozemill.pipeline.read_records import RECORD_FATES

_WIDTH = 760
_BOX = 10
_GAP = 20
# Between boxes of a column: a line of text, so that the names of small ones stay apart.
_PIECES = 12
# Of a ribbon's edge.

_LOST = "lost"
_KEPT = "kept"


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


def document_flow(manifest: Manifest) -> Chart:
    """Return what became of the documents that were read."""
    records = manifest.ledger["records"][""]
    lost = [
        Stage(name=_words(fate), count=records.get(fate, 0), is_lost=True)
        for fate in RECORD_FATES[1:]
    ]
    read = records[RECORD_FATES[0]]
    root = Stage(name="documents read", count=read, parts=_fates(manifest, "documents"))
    if records["records_read"] > read:
        root = Stage(name="records read", count=records["records_read"], parts=(root, *lost))
    return _flow("Documents, from what was read to what was kept", root, height=90)


def token_flow(manifest: Manifest) -> Chart:
    """Return what became of the tokens of these documents; kept ones are counted once per pass."""
    parts = []
    for stage in _fates(manifest, "document_tokens"):
        split = stage.name.removeprefix("kept for ")
        passes = manifest.ledger["pass_tokens"].get(split)
        if passes is not None:
            uses = tuple(
                Stage(
                    name=f"{split}: {_words(fate)}",
                    count=passes.get(fate, 0),
                    is_lost=fate != "in_instances",
                )
                for fate in OWN_FATES
            )
            stage = Stage(name=stage.name, count=stage.count, parts=uses)
        parts.append(stage)
    root = Stage(
        name="tokens read", count=manifest.ledger["tokens"][""]["read"], parts=tuple(parts)
    )
    return _flow("Tokens, from documents to instances", root, height=190)


def _fates(manifest: Manifest, section: str) -> tuple[Stage, ...]:
    """Return what was kept by split, and what was not by reason over all splits."""
    splits = manifest.ledger[section]
    kept = [
        Stage(name=f"kept for {split}", count=fates["kept"])
        for split, fates in splits.items()
        if fates.get("kept")
    ]
    reasons = sorted({fate for fates in splits.values() for fate in fates} - {"kept"})
    lost = [
        Stage(
            name=_words(reason),
            count=sum(fates.get(reason, 0) for fates in splits.values()),
            is_lost=True,
        )
        for reason in reasons
    ]
    return (*kept, *lost)


def _words(reason: str) -> str:
    return reason.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """A stage in the picture; lengths are in pixels."""

    stage: Stage
    depth: int
    top: float
    height: float
    share: float
    """Of what its parent is divided into."""

    origin: float | None
    """Where on its parent it begins; None for the first box."""


def _flow(title: str, root: Stage, *, height: float) -> Chart:
    boxes = list(_layout(root, height))
    rows = tuple(
        (box.depth + 1, box.stage.name, box.stage.count, box.share if box.depth else None)
        for box in boxes
    )
    lines = [f"{box.stage.name} {_count_text(box)}" for box in boxes]
    return Chart(
        title=title,
        description="; ".join(lines) + ".",
        spec=_spec(boxes),
        columns=("step", "what", "count", "share of the step before"),
        rows=rows,
    )


def _layout(root: Stage, height: float) -> Iterator[_Box]:
    """Place every stage that has a count: depth by depth, a gap between neighbours."""
    column = [_Box(stage=root, depth=0, top=0.0, height=height, share=1.0, origin=None)]
    while column:
        yield from column
        following: list[_Box] = []
        top = 0.0
        for box in column:
            origin = box.top
            total = sum(part.count for part in box.stage.parts)
            for part in box.stage.parts:
                if part.count:
                    extent = box.height * part.count / total
                    share = part.count / total
                    place = {"top": top, "height": extent, "share": share, "origin": origin}
                    following.append(_Box(stage=part, depth=box.depth + 1, **place))
                    top += extent + _GAP
                    origin += extent
        column = following


def _count_text(box: _Box) -> str:
    share = "" if box.depth == 0 or box.share == 1.0 else f" ({box.share:.1%})"
    return f"{box.stage.count:,}{share}"


def _spec(boxes: Sequence[_Box]) -> Spec:
    depths = max(box.depth for box in boxes) + 1
    step = _WIDTH / depths
    height = max(box.top + max(box.height, _GAP) for box in boxes)
    drawn = [_drawn(box, step) for box in boxes]
    ribbons = [point for number, box in enumerate(boxes) for point in _ribbon(box, number, step)]
    axes = {
        "y": {"field": "top", "type": "quantitative", "axis": None, "scale": _pixels(height, 0)},
        "x": {"field": "left", "type": "quantitative", "axis": None, "scale": _pixels(0, _WIDTH)},
    }
    colors = {"domain": [_KEPT, _LOST]}
    return {
        "width": _WIDTH,
        "height": height,
        "layer": [
            {
                "data": {"values": ribbons or [{}]},
                "mark": {"type": "area", "line": False},
                "encoding": {
                    **axes,
                    "y2": {"field": "bottom"},
                    "detail": {"field": "ribbon"},
                    "color": {
                        "field": "kind",
                        "scale": {**colors, "range": ["var(--faint-1)", "var(--faint-2)"]},
                        "legend": None,
                    },
                },
            },
            {
                "data": {"values": drawn},
                "mark": {"type": "rect"},
                "encoding": {
                    **axes,
                    "x2": {"field": "right"},
                    "y2": {"field": "bottom"},
                    "fill": {
                        "field": "kind",
                        "scale": {**colors, "range": ["var(--series-1)", "var(--series-2)"]},
                        "legend": None,
                    },
                },
            },
            {
                "data": {"values": drawn},
                "mark": {"type": "text", "align": "left", "dx": _BOX + 6},
                "encoding": {
                    **axes,
                    "y": {**axes["y"], "field": "middle"},
                    "text": {"field": "text"},
                },
            },
        ],
        "resolve": {"scale": {"color": "independent", "fill": "independent"}},
        "padding": {"left": 4, "top": 10, "bottom": 10, "right": 40},
    }


def _pixels(begin: float, end: float) -> Spec:
    return {"domain": [begin, end], "nice": False, "zero": False}


def _drawn(box: _Box, step: float) -> dict[str, Any]:
    left = box.depth * step
    return {
        "left": left,
        "right": left + _BOX,
        "top": box.top,
        "middle": box.top + box.height / 2,
        "bottom": box.top + max(box.height, 1.0),
        "kind": _LOST if box.stage.is_lost else _KEPT,
        "text": f"{box.stage.name} {_count_text(box)}",
    }


def _ribbon(box: _Box, number: int, step: float) -> Iterator[dict[str, Any]]:
    """Yield the points of the band from a box's place on its parent to the box."""
    if box.origin is None:
        return
    begin = (box.depth - 1) * step + _BOX
    for piece in range(_PIECES + 1):
        share = piece / _PIECES
        smooth = share * share * (3 - 2 * share)
        top = box.origin + (box.top - box.origin) * smooth
        yield {
            "ribbon": number,
            "left": begin + (step - _BOX) * share,
            "top": top,
            "bottom": top + max(box.height, 1.0),
            "kind": _LOST if box.stage.is_lost else _KEPT,
        }
