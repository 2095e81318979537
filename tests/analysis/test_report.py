import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.analysis.browsers import CONTRASTS, chromium, opened
from tests.analysis.faults import only_mask_tokens, plant, separators_selected
from tests.pipeline.small_corpora import (
    environment,
    make_texts,
    small_dataset,
    vocabulary,
    write_json_lines,
    write_tokenizer,
)

from clozemill.analysis.audit import AuditReport, run_audit
from clozemill.analysis.charts import ReportError, require_libraries
from clozemill.analysis.db import open_database
from clozemill.analysis.report import answer_cells, write_report
from clozemill.analysis.report_examples import tokens_of
from clozemill.pipeline.dataset import Dataset, open_dataset
from clozemill.pipeline.inspection import Inspector, InstanceView, SelectedPosition

pytestmark = pytest.mark.slow

HOSTILE = (
    "<script>document.title='hacked'</script>",
    '"><img src=x onerror="document.title=\'hacked\'">',
    "{{ 7 * 7 }} &amp; \u202eright to left\u200b 'quoted'",
)
HOSTILE_END = " <script> & \u202e\u05d0\u05d1 \u200b."
"""Of a sentence."""


COVERED = """hint => {
  const box = hint.getBoundingClientRect(), found = [];
  for (const token of hint.closest('.masking').querySelectorAll('.tokens bdi')) {
    if (token.closest('.hint') || !token.checkVisibility()) continue;
    for (const other of token.getClientRects()) {
      const isBeside = other.right <= box.left || other.left >= box.right;
      if (!isBeside && other.top + 3 < box.bottom && other.bottom - 3 > box.top)
        found.push(token.innerText);
    }
  }
  return found;
}"""
"""Tokens of an instance that a hint lies over, but for the air above and below their letters."""


class Written(NamedTuple):
    """A page, and what it is of."""

    path: Path
    dataset: Dataset
    audit: AuditReport


def written(dataset: Dataset, path: Path) -> Written:
    with open_database(dataset) as connection:
        audit = run_audit(connection, dataset.manifest)
        write_report(path, dataset, connection, audit)
    return Written(path, dataset, audit)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The page of a sound dataset whose every text tries to be more than that."""
    folder = tmp_path_factory.mktemp("hostile")
    texts = [text.replace(".", HOSTILE_END) for text in make_texts(90)]
    names = [HOSTILE[number % len(HOSTILE)] for number in range(len(texts))]
    corpus = write_json_lines(
        folder / "a<b>&'c'.jsonl", texts, source=names, key=[f"{n}{i}" for i, n in enumerate(names)]
    )
    pieces = [*vocabulary(), "<", ">", "/", "(", ")", "&", ";", "\u05d0", "##\u05d1", "script"]
    dataset = small_dataset(
        corpus,
        write_tokenizer(folder / "tokenizer", pieces),
        folder / "data <b>&'c'",
        source_field="source",
        id_field="key",
        mask_variants=3,
    )
    return written(dataset, folder / "page.html")


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """The page of a dataset that selects [SEP] tokens, and shows [MASK] for all it selects."""
    folder = tmp_path_factory.mktemp("failed")
    corpus = write_json_lines(folder / "corpus.jsonl", make_texts(60))
    tokenizer = write_tokenizer(folder / "tokenizer")
    small_dataset(corpus, tokenizer, folder / "sound")
    plant(
        folder / "sound",
        folder / "data",
        lambda columns, data: separators_selected(only_mask_tokens(columns, data), data),
    )
    return written(open_dataset(folder / "data"), folder / "page.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def first_instance(page: Written) -> InstanceView:
    return Inspector(page.dataset).describe("train", [0])[0]


def panel(page: Page, number: int) -> Any:
    return page.locator(".example").first.locator(".masking").nth(number)


def test_all_questions_stand_on_the_page_with_their_verdicts(
    browser: Browser, hostile: Written
) -> None:
    assert not hostile.audit.has_failed
    with opened(browser, hostile.path) as page:
        num_passed = sum(answer.verdict == "passed" for answer in hostile.audit.answers)
        assert num_passed > 10
        expect(page.locator(".banner")).to_contain_text(
            f"{num_passed} of {num_passed} questions passed"
        )
        table = page.locator(".questions > tbody")
        expect(table).to_have_count(len(hostile.audit.answers))
        for answer in hostile.audit.answers:
            row = table.filter(has_text=answer.question.question)
            expect(row).to_contain_text(answer.verdict)
            expect(row.locator("pre")).to_have_text(answer.question.sql)


def test_what_failed_stands_first_with_its_rows(browser: Browser, failed: Written) -> None:
    with opened(browser, failed.path) as page:
        expect(page.locator(".banner")).to_contain_text("questions failed")
        headings = page.locator("main h2").all_inner_texts()
        assert headings[:3] == ["What failed", "The dataset", "All questions"]
        assert page.locator("nav a").first.inner_text() == "What failed"
        failure = page.locator(".failure").filter(has_text="as often as asked?")
        expect(failure).to_contain_text("failed")
        expect(failure.locator("tbody th").first).to_contain_text("train, action")
        expect(failure.locator("table")).to_have_count(1)
        expect(failure).to_contain_text("A failure points to other probabilities than")
        expect(failure).to_contain_text("Exact: a binomial law for each action.")
        expect(failure.locator("caption")).to_contain_text("Groups: 5 of 6, the least probable;")
        expect(page.locator(".questions .verdict").first).to_contain_text("failed")
        example = page.locator(".example h3").first
        expect(example).to_contain_text("named by a failed question")


def test_every_picture_has_marks_a_name_and_its_data(browser: Browser, hostile: Written) -> None:
    with opened(browser, hostile.path) as page:
        titles = page.locator("figure h3").all_inner_texts()
        assert titles == [
            "Mask rate by place in the instance (train)",
            "Mask rate by length of the word (train)",
            "What selected positions show (train)",
            "Lengths of instances (train)",
            "Random pairs by source (train)",
            "Shares of sources (train)",
            "Documents, from what was read to what was kept",
            "Tokens, from documents to instances",
        ]
        for figure in page.locator("figure").all():
            svg = figure.locator("svg")
            box = svg.bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) > 60
            assert svg.locator("[class*='mark-'] path[fill], path[stroke]").count() > 0
            expect(svg).to_have_accessible_name(figure.locator("h3").inner_text())
            expect(svg).to_have_accessible_description(re.compile(r"\w.{20,}\."))
            assert figure.locator("tbody tr").count() > 1


def test_hostile_texts_stay_text(browser: Browser, hostile: Written) -> None:
    with opened(browser, hostile.path) as page:
        assert page.title() == "data <b>&'c': audit"
        assert page.locator("script, img, iframe, object, embed, link").count() == 0
        handlers = "[...document.querySelectorAll('*')].flatMap(e => [...e.attributes])"
        assert page.evaluate(
            f"{handlers}.filter(a => /^on|^href$/.test(a.name)).map(a => a.value)"
        ) == [
            f"#{name}"
            for name in (
                *("main", "dataset", "questions", "charts", "ledger", "examples"),
                "after-examples",
            )
        ]
        shown = page.locator("main").inner_text()
        assert HOSTILE[0] in shown
        assert HOSTILE[1] in shown
        assert "{{ 7 * 7 }} &amp; \\u202eright" in shown
        assert "\u202e" not in shown
        tokens = " ".join(page.locator(".tokens").all_text_contents())
        assert "< script > & \u05d0\u05d1" in tokens


def test_keyboard_reaches_selected_tokens_and_shows_what_is_hidden(
    browser: Browser, hostile: Written
) -> None:
    selected = first_instance(hostile).variants[0]
    assert len(selected) > 1
    with opened(browser, hostile.path) as page:
        tokens = panel(page, 0).locator("button.token")
        expect(tokens).to_have_count(len(selected))
        page.locator(".example").first.locator("input").first.focus()
        for number, item in enumerate(selected):
            page.keyboard.press("Tab")
            expect(tokens.nth(number)).to_be_focused()
            hint = panel(page, 0).locator(".hint:visible")
            expect(hint).to_have_count(1)
            assert item.original in hint.inner_text()
            assert page.evaluate(COVERED, hint.element_handle()) == []
            expect(tokens.nth(number)).to_have_accessible_description(hint.inner_text())


def test_another_variant_is_shown_by_the_arrow_keys(browser: Browser, hostile: Written) -> None:
    view = first_instance(hostile)
    with opened(browser, hostile.path) as page:
        page.locator(".example").first.locator("input").first.focus()
        page.keyboard.press("ArrowRight")
        expect(panel(page, 0)).to_be_hidden()
        expect(panel(page, 1)).to_be_visible()
        expect(panel(page, 1).locator("button.token")).to_have_text(
            [item.shown for item in view.variants[1]]
        )
        for _ in range(2):
            page.keyboard.press("ArrowRight")
        words = (panel(page, 3).locator(".tokens").first.inner_text()).split()
        assert words[0] == "[CLS]"
        assert panel(page, 3).locator("button.token").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["hostile", "failed"])
def test_every_text_can_be_read_in_light_and_dark(
    browser: Browser, name: str, scheme: Any, request: pytest.FixtureRequest
) -> None:
    with opened(browser, request.getfixturevalue(name).path, color_scheme=scheme) as page:
        contrasts = page.evaluate(CONTRASTS)
        assert len(contrasts) > 500
        assert [pair for pair in contrasts if pair[1] < 4.5] == []
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 23, 26)"}[scheme]


def test_page_is_marked_up_for_a_screen_reader(browser: Browser, failed: Written) -> None:
    with opened(browser, failed.path) as page:
        for part in ("header", "nav", "main", "footer", "h1"):
            assert page.locator(part).count() == 1
        levels = page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])"
        )
        assert all(below - above <= 1 for above, below in zip(levels, levels[1:], strict=False))
        assert page.locator("table").count() > 5
        assert page.locator("table:not(:has(> caption)), th:not([scope])").count() == 0
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(set(ids)) == len(ids)
        names = "['aria-labelledby', 'aria-describedby', 'for']"
        used = page.evaluate(
            f"{names}.flatMap(n => [...document.querySelectorAll(`[${{n}}]`)]"
            ".flatMap(e => e.getAttribute(n).split(' ')))"
        )
        assert len(used) > 20
        assert set(used) <= set(ids)
        page.keyboard.press("Tab")
        expect(page.locator("body > .skip")).to_be_focused()
        expect(page.locator("body > .skip")).to_be_in_viewport()


def test_a_phone_scrolls_down_and_not_sideways(browser: Browser, failed: Written) -> None:
    with opened(browser, failed.path, viewport={"width": 360, "height": 740}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 360
        chart = page.locator(".charts .chart").first.bounding_box()
        assert chart is not None
        assert 300 < chart["width"] <= 360


def test_a_phone_shows_verdicts_under_their_questions_without_scrolling(
    browser: Browser, failed: Written
) -> None:
    with opened(browser, failed.path, viewport={"width": 390, "height": 844}) as page:
        rows = page.locator(".questions > tbody > tr:first-child")
        assert rows.count() == len(failed.audit.answers)
        boxes = page.evaluate(
            "[...document.querySelectorAll('.questions > tbody')].map(b => ["
            "b.querySelector('tr > th'), b.querySelector('tr > td:last-child .verdict')"
            "].map(e => e.getBoundingClientRect()).map(r => [r.left, r.right, r.top, r.bottom]))"
        )
        for question, verdict in boxes:
            assert verdict[1] <= 390
            assert verdict[0] == question[0]
            assert 0 <= verdict[2] - question[3] < 12
        expect(page.locator(".sideways").first).to_be_visible()
    with opened(browser, failed.path, viewport={"width": 1280, "height": 844}) as page:
        expect(page.locator(".sideways").first).to_be_hidden()


def test_columns_of_numbers_have_their_headings_above_them(
    browser: Browser, failed: Written
) -> None:
    with opened(browser, failed.path) as page:
        tables = page.evaluate(
            "[...document.querySelectorAll('table.data')].map(t => [...t.rows].map("
            "r => [...r.cells].map(c => [c.tagName, c.scope, getComputedStyle(c).textAlign])))"
        )
    assert len(tables) > 5
    assert any(cell[2] == "right" for table in tables for cell in table[0])
    for head, *body in tables:
        for row in body:
            assert row[0][:2] == ["TH", "row"]
            assert [cell[2] for cell in row] == [cell[2] for cell in head]


def test_instances_can_be_skipped_by_the_keyboard(browser: Browser, hostile: Written) -> None:
    with opened(browser, hostile.path) as page:
        skip = page.locator("#examples .skip")
        skip.focus()
        expect(skip).to_be_in_viewport()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.closest('.example')") is None


@pytest.mark.parametrize(
    ("settings", "picture", "no_picture"),
    [
        ({"recipe": "roberta-full"}, "Mask rate by place", "Random pairs"),
        ({"mask_unit": "word", "validation_fraction": 0.0}, "What selected positions", "by place"),
        ({"mask_variants": 0, "validation_fraction": 0.0}, "Tokens, from documents", "Mask rate"),
    ],
)
def test_only_pictures_that_make_sense_are_drawn(
    tmp_path: Path, settings: dict[str, Any], picture: str, no_picture: str
) -> None:
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(20))
    tokenizer = write_tokenizer(tmp_path / "tokenizer")
    dataset = small_dataset(corpus, tokenizer, tmp_path / "data", **settings)
    page = written(dataset, tmp_path / "page.html").path.read_text("utf-8")
    titles = re.findall("<h3>(.*?)</h3>", page)
    assert any(picture in title for title in titles)
    assert not any(no_picture in title for title in titles)
    assert "Instance 0 of train" in titles


def test_a_piece_that_begins_a_segment_stands_alone_with_its_sign() -> None:
    selected = SelectedPosition(position=3, original="tea", shown="[MASK]", action="mask")
    view = InstanceView(
        instance_id="0" * 32,
        split="train",
        number=0,
        source="",
        next_sentence="next",
        is_forced=False,
        tokens=("[CLS]", "##atively", "##ly", "tea", "##s", "[SEP]", "##s", "late", "##r", "[SEP]"),
        segment_b_start=6,
        spans=(),
        variants=((selected,),),
    )
    tokens = list(tokens_of(view, {3: selected}))
    assert [(token.text, token.is_joined) for token in tokens] == [
        ("[CLS]", False),
        ("##atively", False),
        ("ly", True),
        ("[MASK]", False),
        ("##s", False),
        ("[SEP]", False),
        ("##s", False),
        ("late", False),
        ("r", True),
        ("[SEP]", False),
    ]


def test_why_a_question_is_not_asked_stands_in_words(hostile: Written) -> None:
    unasked = [answer for answer in hostile.audit.answers if answer.verdict == "not asked"]
    assert len(unasked) > 3
    passes = {answer_cells(answer).passes for answer in unasked}
    assert "single tokens are masked, not words" in passes
    assert not any("needs" in text for text in passes)


def test_the_verb_writes_the_page_beside_its_table(hostile: Written, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "clozemill", "audit", str(hostile.dataset.folder)]
    done = subprocess.run(
        [*command, "--only", "actions", "--html", str(page)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "actions" in done.stdout
    assert "1 of 1 questions passed" in page.read_text("utf-8")


def test_a_library_that_is_missing_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(ReportError) as raised:
        require_libraries()
    assert str(raised.value) == (
        "a report needs vl-convert-python, which is not installed; pip install 'clozemill[report]'."
    )
