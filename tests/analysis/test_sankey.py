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


def test_names_of_small_boxes_stand_on_paper_and_no_ribbon_strikes_them_out() -> None:
    picture = ElementTree.fromstring(draw(sankey("Flow", ROOT, height=50)))
    texts = list(picture.iter("{http://www.w3.org/2000/svg}text"))
    behind = [t.text for t in texts if t.get("stroke") == "var(--paper)"]
    small = ["dropped 25 (25.0% of read)", "cut 30 (20.0% of the kept)"]
    assert behind == small
    for name in small:
        assert [t.get("stroke") for t in texts if t.text == name] == ["var(--paper)", None]


def test_an_amount_that_is_not_divided_is_one_box() -> None:
    chart = sankey("Flow", Stage(name="read", count=7), height=50)
    assert chart.description == "read 7."
    assert "read 7" in draw(chart)
