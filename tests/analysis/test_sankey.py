import dataclasses
from collections import defaultdict
from xml.etree import ElementTree

import pytest

from clozemill.analysis.charts import draw
from clozemill.analysis.sankey import Stage, lay_out, sankey

ROOT = Stage(
    name="read",
    count=100,
    parts=(
        Stage(
            name="kept",
            count=75,
            whole="the kept",
            # Two passes: what was kept is used twice.
            parts=(Stage(name="used", count=120), Stage(name="cut", count=30, is_lost=True)),
        ),
        Stage(name="empty", count=0, is_lost=True),
        Stage(name="dropped", count=25, is_lost=True),
    ),
)


def test_parts_stand_on_their_parent_without_a_gap_and_fill_it() -> None:
    boxes = {box.stage.name: box for box in lay_out(ROOT, 200.0)}
    assert list(boxes) == ["read", "kept", "dropped", "used", "cut"]
    for parent, parts in (("read", ("kept", "dropped")), ("kept", ("used", "cut"))):
        bottom = boxes[parent].top
        for part in parts:
            assert boxes[part].origin == pytest.approx(bottom)
            bottom += boxes[part].height
        assert bottom == pytest.approx(boxes[parent].top + boxes[parent].height)
    assert [boxes[name].share for name in ("kept", "dropped", "used")] == [0.75, 0.25, 0.8]


def test_boxes_of_a_column_leave_a_line_of_text_between_them() -> None:
    columns = defaultdict(list)
    for box in lay_out(ROOT, 30.0):
        columns[box.depth].append(box)
    assert [len(column) for column in columns.values()] == [1, 2, 2]
    for column in columns.values():
        for above, below in zip(column, column[1:], strict=False):
            assert below.top - (above.top + above.height) >= 16


def test_what_becomes_of_a_stage_stands_above_what_becomes_of_the_next() -> None:
    parts = tuple(Stage(name=f"part {i}", count=20, is_lost=True) for i in range(4))
    root = Stage(
        name="read",
        count=100,
        parts=(Stage(name="kept", count=80, parts=parts), Stage(name="dropped", count=20)),
    )
    boxes = {box.stage.name: box for box in lay_out(root, 50.0)}
    lowest = max(boxes[part.name].top + boxes[part.name].height for part in parts)
    assert lowest > boxes["kept"].top + boxes["kept"].height
    assert boxes["dropped"].top >= lowest + 16


def test_a_long_name_has_room_before_the_next_column() -> None:
    root = dataclasses.replace(ROOT, name="documents of a very long name, " * 3)
    drawn = sankey("Flow", root, height=50).spec["layer"][1]["data"]["values"]
    lefts = sorted({row["left"] for row in drawn})
    assert len(lefts) == 3
    assert lefts[1] - lefts[0] > 6 * len(root.name) > 253


def test_the_picture_writes_every_count_and_its_table_every_share() -> None:
    chart = sankey("Flow", ROOT, height=200)
    assert chart.rows == (
        (1, "read", 100, None, ""),
        (2, "kept", 75, 0.75, "read"),
        (2, "dropped", 25, 0.25, "read"),
        (3, "used", 120, 0.8, "the kept"),
        (3, "cut", 30, 0.2, "the kept"),
    )
    picture = ElementTree.fromstring(draw(chart))
    texts = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert texts == {
        "read 100",
        "kept 75 (75.0% of read)",
        "dropped 25 (25.0% of read)",
        "used 120 (80.0% of the kept)",
        "cut 30 (20.0% of the kept)",
    }


def test_the_name_of_a_thin_box_stands_above_its_ribbons_and_below_what_is_above() -> None:
    parts = (Stage(name="used", count=6), Stage(name="cut", count=4, is_lost=True))
    small = Stage(name="small", count=10, parts=parts)
    large = Stage(name="large", count=90, parts=(Stage(name="all", count=90),))
    root = Stage(name="read", count=100, parts=(large, small))
    rows = sankey("Flow", root, height=100).spec["layer"][1]["data"]["values"]
    named = {row["text"].split()[0]: row for row in rows}
    assert named["small"]["middle"] <= named["small"]["top"] - 8
    assert named["small"]["middle"] >= named["large"]["bottom"] + 8
    assert named["large"]["top"] < named["large"]["middle"] < named["large"]["bottom"]
    assert named["cut"]["middle"] == (named["cut"]["top"] + named["cut"]["bottom"]) / 2


def test_an_amount_that_is_not_divided_is_one_box() -> None:
    chart = sankey("Flow", Stage(name="read", count=7), height=50)
    assert chart.description == "read 7."
    assert "read 7" in draw(chart)
