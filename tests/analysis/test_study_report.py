import dataclasses
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect
from tests.analysis.browsers import CONTRASTS, chromium, opened
from tests.analysis.small_findings import STEPS, small_findings
from tests.train.small_runs import small_execution

from clozemill.analysis.charts import draw
from clozemill.analysis.report import write_study_report
from clozemill.analysis.study_charts import difference_chart, study_charts
from clozemill.analysis.study_findings import PRIMARY, Findings, noise_floor, study_warnings


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.html"
    write_study_report(path, "a <i>study</i>", small_findings(3))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_verdicts_and_every_curve_stand_on_the_page(
    browser: Browser, page_path: Path, scheme: Any
) -> None:
    findings = small_findings(3)
    with opened(browser, page_path, color_scheme=scheme) as page:
        expect(page.locator("h1")).to_have_text("a <i>study</i>")
        expect(page.locator(".verdicts li").first).to_have_text(
            "static-1: higher loss than dynamic (worse)"
        )
        expect(page.locator(".verdicts li").last).to_have_text("static-10: no difference shown")
        charts = [difference_chart(findings), *study_charts(findings)]
        titles = page.locator("figure h3").all_inner_texts()
        assert titles == [chart.title for chart in charts]
        for figure in page.locator("figure").all():
            assert figure.locator("svg [class*='mark-'] path[stroke], svg path[fill]").count() > 0
        for figure in page.locator(".charts figure").all():
            assert figure.locator("tbody tr").count() > 2
        curves = page.locator(".charts figure").first
        expect(curves.locator(".mark-line path[stroke-width='1']")).to_have_count(4 * 3)
        assert [pair for pair in page.evaluate(CONTRASTS) if pair[1] < 4.5] == []


@pytest.mark.slow
def test_a_phone_shows_every_picture_without_scrolling_sideways(
    browser: Browser, page_path: Path
) -> None:
    with opened(browser, page_path, viewport={"width": 360, "height": 740}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        charts = page.locator(".chart").all()
        assert len(charts) == 7
        for chart in charts:
            box = chart.bounding_box()
            assert box is not None
            assert 280 < box["width"] <= 360


@pytest.mark.slow
def test_a_phone_shows_p_detectable_and_verdict_of_each_arm(
    browser: Browser, page_path: Path
) -> None:
    with opened(browser, page_path, viewport={"width": 390, "height": 844}) as page:
        for arm in page.locator("table.stacks tbody tr").all():
            for cell in (arm.locator("th"), *arm.locator("td").all()):
                box = cell.bounding_box()
                assert box is not None
                assert 0 < box["x"] < box["x"] + box["width"] <= 390
            heading, verdict = arm.locator("th").bounding_box(), arm.locator("td").last
            under = verdict.bounding_box()
            assert heading is not None
            assert under is not None
            assert 0 <= under["y"] - heading["y"] - heading["height"] < 12


def test_models_that_do_not_read_are_told_before_the_verdicts(tmp_path: Path) -> None:
    findings = small_findings(3)
    assert "No arm beats" not in shown(findings, tmp_path / "read.html")
    start = {"context_free_loss": 1.0}
    trainings = tuple(dataclasses.replace(one, start=start) for one in findings.trainings)
    text = shown(dataclasses.replace(findings, trainings=trainings), tmp_path / "unread.html")
    told = "No arm beats 1.000, what is known without context: this study says nothing of masks"
    assert text.count(told) == 1
    assert text.index(told) < text.index("higher loss than dynamic")
    measures = text[text.index("All measures") :]
    assert re.search(r"dynamic\s+mlm_loss\s.*?\s+without context\s+mlm_loss\s+1\s", measures, re.S)


def test_the_page_says_what_the_arms_are(tmp_path: Path) -> None:
    assert (
        "static-1: one masking of each instance, shown again in each epoch; static-4: 4 maskings "
        "of each instance, shown in turn; static-10: 10 maskings of each instance, shown in turn; "
        "dynamic: a new masking of each instance in each epoch."
    ) in shown(small_findings(3), tmp_path / "page.html")


def shown(findings: Findings, path: Path) -> str:
    """Return the text of the page of a study."""
    write_study_report(path, "study", findings)
    return unescape(re.sub("<[^>]+>", " ", path.read_text("utf-8")))


def test_the_page_says_what_the_seeds_and_the_documents_allow_to_say(tmp_path: Path) -> None:
    findings = small_findings(3)
    text = shown(findings, tmp_path / "page.html")
    floor = noise_floor(findings)
    assert floor is not None
    assert floor in text
    for one in findings.verdicts:
        noise, found = one.evaluation_noise, one.difference
        assert noise is not None
        assert noise.low < noise.high
        assert f"{noise.low:+.4f} to {noise.high:+.4f}" in text
        assert f"{found.spread.low:+.4f} to {found.spread.high:+.4f}" in text
        assert f"{found.minimum_detectable:.4f}" in text
    columns = re.findall("<th[^>]*>(.*?)</th>", (tmp_path / "page.html").read_text("utf-8"))
    for column in ("95 % over seeds", "95 % over documents", "minimum detectable"):
        assert columns.count(column) == 1, column


def test_the_page_warns_of_what_is_printed_as_a_warning(tmp_path: Path) -> None:
    sound = small_findings(3)
    assert not list(study_warnings(sound))
    assert 'class="warning"' not in written(sound, tmp_path / "sound.html")
    weak = small_findings(1)
    few = {**weak.trainings[0].evaluations[-1], "instances": 7}
    first = dataclasses.replace(weak.trainings[0], evaluations=(few,))
    other = dataclasses.replace(weak.trainings[1], execution=small_execution(num_threads=7))
    weak = dataclasses.replace(weak, trainings=(first, other, *weak.trainings[2:]))
    told = list(study_warnings(weak))
    assert len(told) == 3
    text = " ".join(shown(weak, tmp_path / "weak.html").split())
    text = re.sub(" (--[a-z-]+) ([.,])", r" \1\2", text)
    assert all(warning in text for warning in told)
    assert "Noise floor" not in text


def written(findings: Findings, path: Path) -> str:
    write_study_report(path, "study", findings)
    return path.read_text("utf-8")


def test_bytes_of_a_page_do_not_depend_on_the_pages_before_it(tmp_path: Path) -> None:
    findings = small_findings(2)
    first = written(findings, tmp_path / "first.html")
    assert written(findings, tmp_path / "second.html") == first


def test_one_seed_has_curves_and_no_interval() -> None:
    differences = difference_chart(small_findings(1))
    assert [row[0] for row in differences.rows] == ["static-1", "static-4", "static-10"]
    rows = [dict(zip(differences.columns, row, strict=True)) for row in differences.rows]
    for name in ("95 % over seeds", "p (Holm)", "minimum detectable"):
        assert {row[name] for row in rows} == {None}
    assert all(row["95 % over documents"] for row in rows)
    assert "one seed: no interval" in differences.description


def test_a_difference_over_steps_is_taken_within_a_seed() -> None:
    findings = small_findings(2)
    charts = {chart.title: chart for chart in study_charts(findings)}
    chart = charts["The difference over steps: minus dynamic"]
    rows = chart.rows
    # The reference has no difference from itself, and no place in the legend.
    legends = [layer["encoding"].get("color", {}).get("legend") for layer in chart.spec["layer"]]
    named = [legend["values"] for legend in legends if legend]
    assert named == [["static-1", "static-4", "static-10"]] * 2
    assert len(rows) == 3 * 2 * len(STEPS)
    losses = {(one.arm, one.seed): one.evaluations[-1][PRIMARY] for one in findings.trainings}
    last = {row[:2]: row[3] for row in rows if row[2] == STEPS[-1]}
    assert last["static-1", 1] == losses["static-1", 1] - losses["dynamic", 1]


def test_columns_of_every_picture_are_distinct_and_filled() -> None:
    findings = small_findings(2)
    charts = [difference_chart(findings), *study_charts(findings)]
    assert len(charts) == 7
    for chart in charts:
        assert len(set(chart.columns)) == len(chart.columns)
        assert {len(row) for row in chart.rows} == {len(chart.columns)}


def labels(picture: str) -> list[str]:
    """Return the numbers at the axes of a picture, as they are written."""
    return re.findall(r">([+\u2212]?[0-9.]+%?)</text>", picture)


def test_ticks_of_an_axis_have_as_many_digits() -> None:
    findings = small_findings(2)
    charts = [difference_chart(findings), *study_charts(findings)[:3]]
    for chart in charts:
        values = [text for text in labels(draw(chart)) if "." in text]
        assert len(values) > 2, chart.title
        assert len(set(values)) == len(values)
        assert len({len(text.partition(".")[2]) for text in values}) == 1, values


def test_an_arm_has_the_same_colour_in_every_picture() -> None:
    findings = small_findings(2)
    charts = [difference_chart(findings), *study_charts(findings)]
    colors = {"static-1": 2, "static-4": 3, "static-10": 4, "dynamic": 1}
    for chart in charts:
        used = [
            layer["encoding"]["color"]["scale"]
            for layer in chart.spec["layer"]
            if "color" in layer["encoding"]
        ]
        assert used, chart.title
        for scale in used:
            named = dict(zip(scale["domain"], scale["range"], strict=True))
            assert named == {arm: f"var(--series-{n})" for arm, n in colors.items()}
        fixed = {layer["mark"].get("color") for layer in chart.spec["layer"]}
        assert not any("series" in (color or "") for color in fixed)
