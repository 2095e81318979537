import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from tests.analysis.browsers import CONTRASTS, chromium, opened
from tests.train.small_runs import small_execution

from clozemill.analysis.report import write_study_report
from clozemill.analysis.study_charts import study_charts
from clozemill.analysis.study_exposures import Seen
from clozemill.analysis.study_findings import MEASURES, PRIMARY, Findings, study_findings
from clozemill.analysis.study_records import ArmResult, DocumentLosses, PlanRecord

pytestmark = pytest.mark.slow

ARMS: dict[str, int | None] = {"static-1": 1, "static-4": 4, "static-10": 10, "dynamic": None}
SHIFTS = {"static-1": 0.12, "static-4": 0.02, "static-10": 0.0, "dynamic": 0.0}
NUM_EPOCHS = 40
STEPS = range(100, 1001, 100)


def findings_of(num_seeds: int) -> Findings:
    """Return a study whose static-1 is worse by a difference far above the noise."""
    rng = np.random.default_rng(5)
    plan = PlanRecord(
        package_version="0",
        data="data",
        settings={"model": "<b>tiny</b>"},
        dataset_digests={"train": "0" * 32},
        arms=tuple(ARMS),
        num_seeds=num_seeds,
        num_steps=STEPS[-1],
        steps_per_epoch=STEPS[-1] // NUM_EPOCHS,
    )
    results = tuple(training(arm, seed, rng) for seed in range(num_seeds) for arm in ARMS)
    return study_findings(plan, results, tuple(seen()))


def training(arm: str, seed: int, rng: Any) -> ArmResult:
    evaluations = []
    for step in STEPS:
        loss = 5 + 3 * math.exp(-step / 300) + SHIFTS[arm] * step / 1000 + 0.01 * rng.normal()
        evaluations.append(
            {**dict.fromkeys(MEASURES, 0.5), "step": step, "instances": 8, PRIMARY: loss}
        )
    return ArmResult(
        arm=arm,
        num_variants=ARMS[arm],
        seed=seed,
        shared_steps=0,
        execution=small_execution(),
        start={"context_free_loss": 5.4},
        evaluations=tuple(evaluations),
        documents=DocumentLosses(mlm_loss_sums=(200.0, 310.0), selected=(40, 60)),
    )


def seen() -> Iterator[Seen]:
    for arm, count in ARMS.items():
        for epoch in range(1, NUM_EPOCHS + 1):
            shown = min(epoch, count or epoch)
            numbers = {"ever_selected": 1 - 0.85**shown, "repeats": 1 - shown / epoch}
            for quantity, number in {**numbers, "entropy": math.log1p(shown) / 8}.items():
                yield Seen(
                    arm=arm, epoch=epoch, quantity=quantity, observed=number, expected=number
                )


@pytest.fixture(scope="module")
def page_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "study.html"
    write_study_report(path, "a <i>study</i>", findings_of(3))
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_verdicts_and_every_curve_stand_on_the_page(
    browser: Browser, page_path: Path, scheme: Any
) -> None:
    with opened(browser, page_path, color_scheme=scheme) as page:
        expect(page.locator("h1")).to_have_text("a <i>study</i>")
        expect(page.locator(".verdicts li").first).to_have_text("static-1: higher than dynamic")
        expect(page.locator(".verdicts li").last).to_have_text("static-10: no difference shown")
        assert page.locator("figure h3").all_inner_texts() == [
            chart.title for chart in study_charts(findings_of(3))
        ]
        for figure in page.locator("figure").all():
            assert figure.locator("svg [class*='mark-'] path[stroke], svg path[fill]").count() > 0
            assert figure.locator("tbody tr").count() > 2
        curves = page.locator("figure").first
        expect(curves.locator(".mark-line path[stroke-width='1']")).to_have_count(4 * 3)
        assert [pair for pair in page.evaluate(CONTRASTS) if pair[1] < 4.5] == []


def test_one_seed_has_curves_and_no_interval() -> None:
    charts = {chart.title: chart for chart in study_charts(findings_of(1))}
    differences = charts["MLM loss minus that of dynamic"]
    assert [row[0] for row in differences.rows] == ["static-1", "static-4", "static-10"]
    assert all(row[2:6] == (None,) * 4 for row in differences.rows)
    assert "one seed: no interval" in differences.description


def test_a_difference_over_steps_is_taken_within_a_seed() -> None:
    findings = findings_of(2)
    charts = {chart.title: chart for chart in study_charts(findings)}
    rows = charts["The same over steps: minus dynamic"].rows
    assert len(rows) == 3 * 2 * len(STEPS)
    losses = {(one.arm, one.seed): one.evaluations[-1][PRIMARY] for one in findings.trainings}
    last = {row[:2]: row[3] for row in rows if row[2] == STEPS[-1]}
    assert last["static-1", 1] == losses["static-1", 1] - losses["dynamic", 1]
