import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.small_studies import build_pairs

from clozemill.analysis.study import run_study
from clozemill.analysis.study_findings import PRIMARY
from clozemill.analysis.study_plan import StudyPlan, make_plan
from clozemill.analysis.study_records import STUDY_NAME
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import RunError
from clozemill.train.assembly import assemble
from clozemill.train.config import PretrainConfig
from clozemill.train.launch import start_accelerator
from clozemill.train.metrics import exact_columns, read_metrics
from clozemill.train.pretrain import pretrain
from clozemill.train.tensors import model_tensors

STEPS_PER_EPOCH = 3


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return build_pairs(tmp_path_factory.mktemp("pairs"))


def planned(pairs: Dataset, **settings: Any) -> StudyPlan:
    defaults: dict[str, Any] = {
        "model": "tiny",
        "precision": "fp32",
        "threads": 1,
        "global_batch_size": -(-pairs.num_instances("train") // STEPS_PER_EPOCH),
        "learning_rate": 5e-3,
        "steps": 3 * STEPS_PER_EPOCH,
        "eval_every": STEPS_PER_EPOCH,
        "eval_instances": 24,
        "log_every": 2,
    }
    config = PretrainConfig(data=str(pairs.folder), **{**defaults, **settings})
    return make_plan(config, pairs, variants=(1, 2), has_dynamic=True, num_seeds=2)


def train(config: PretrainConfig) -> bool:
    return pretrain(config).is_done(config)


@pytest.fixture(scope="module")
def study(pairs: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a study that was never interrupted."""
    out = tmp_path_factory.mktemp("study") / "study"
    assert run_study(planned(pairs), out, train=train) is not None
    return out


def rows_of(study: Path, name: str) -> list[dict[str, Any]]:
    rows = [exact_columns(row) for row in read_metrics(study / "runs" / name / "metrics.jsonl")]
    assert rows[-1]["step"] == 3 * STEPS_PER_EPOCH
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("num_variants", [1, 2])
def test_an_arm_is_the_reference_until_its_masks_return(
    study: Path, seed: int, num_variants: int
) -> None:
    reference = rows_of(study, f"dynamic-seed-{seed}")
    arm = rows_of(study, f"static-{num_variants}-seed-{seed}")
    assert [row["step"] for row in arm] == [row["step"] for row in reference]
    last_common = num_variants * STEPS_PER_EPOCH
    same = [own == other for own, other in zip(arm, reference, strict=True)]
    assert same == [row["step"] <= last_common for row in arm]


@pytest.mark.slow
def test_seeds_are_other_trainings(study: Path) -> None:
    one, two = (rows_of(study, f"dynamic-seed-{seed}") for seed in (0, 1))
    assert one[0] == two[0]  # the reference lines of the data
    assert all(a["mlm_loss"] != b["mlm_loss"] for a, b in zip(one[1:], two[1:], strict=True))


@pytest.mark.slow
def test_an_interrupted_study_goes_on_and_finds_the_same(
    study: Path, pairs: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    shutil.copytree(study, out)  # of which seed 1 is done
    (out / STUDY_NAME).unlink()
    for name in ("dynamic-seed-0", "static-1-seed-0", "static-2-seed-0"):
        (out / "arms" / f"{name}.json").unlink()
        shutil.rmtree(out / "runs" / name)
    stops = iter([2, 5])  # before the first arm parts, and in that arm on its own
    trained: list[str] = []

    def stopping(config: PretrainConfig) -> bool:
        trained.append(Path(config.out).name)
        if len(trained) in (1, 5):
            pretrain(dataclasses.replace(config, stop_after=next(stops)))
            return False
        return train(config)

    for _ in range(2):
        assert run_study(planned(pairs), out, train=stopping) is None
    assert not (out / STUDY_NAME).exists()
    assert trained[-1] == "static-1-seed-0"
    assert run_study(planned(pairs), out, train=stopping) is not None
    assert (out / STUDY_NAME).read_bytes() == (study / STUDY_NAME).read_bytes()
    assert not [name for name in trained if name.endswith("seed-1")]
    num_trained = len(trained)
    assert run_study(planned(pairs), out, train=stopping) is not None
    assert len(trained) == num_trained, "what is done was trained again"


@pytest.mark.slow
def test_another_study_in_the_folder_is_refused_and_replaced_if_asked_for(
    study: Path, pairs: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "study"
    shutil.copytree(study, out)
    other = planned(pairs, learning_rate=1e-3)
    with pytest.raises(RunError, match=r"another study, with learning_rate 0.005 \(now 0.001\); "):
        run_study(other, out, train=train)
    assert (out / STUDY_NAME).read_bytes() == (study / STUDY_NAME).read_bytes()
    assert run_study(other, out, train=lambda config: False, overwrite=True) is None
    assert sorted(path.name for path in out.iterdir()) == ["plan.json"]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").touch()
    with pytest.raises(RunError, match="holds 'thesis.txt' and no study"):
        run_study(other, tmp_path / "full", train=train, overwrite=True)


@pytest.mark.slow
def test_findings_are_those_of_the_logs(study: Path, pairs: Dataset, tmp_path: Path) -> None:
    findings = run_study(planned(pairs), study, train=train)
    assert findings is not None
    finals = {
        (result.arm, result.seed): rows_of(study, f"{result.arm}-seed-{result.seed}")[-1]
        for result in findings.trainings
    }
    assert len(finals) == 6
    for result in findings.trainings:
        # Documents sum up to what the run logged.
        documents, final = result.documents, finals[result.arm, result.seed]
        assert sum(documents.selected) == final["selected"]
        mean = sum(documents.mlm_loss_sums) / sum(documents.selected)
        assert mean == pytest.approx(final["mlm_loss"], rel=1e-5)
    for one in findings.comparisons:
        own = [
            finals[one.difference.arm, seed][one.measure] - finals["dynamic", seed][one.measure]
            for seed in (0, 1)
        ]
        assert one.difference.spread.mean == pytest.approx(np.mean(own))
        assert (one.evaluation_noise is not None) == (one.measure == PRIMARY)
    assert [c.difference.arm for c in findings.comparisons if c.measure == PRIMARY] == [
        "static-1",
        "static-2",
    ]
    assert {result.shared_steps for result in findings.trainings} == {0, 3, 6}


@pytest.mark.slow
def test_runs_that_differ_in_the_mask_offset_alone_differ_in_their_masks_alone(
    pairs: Dataset, tmp_path: Path
) -> None:
    plan = planned(pairs)
    config = plan.config_of(plan.reference, 0, tmp_path / "run")
    one, two = (
        assemble(c, start_accelerator(c))
        for c in (config, dataclasses.replace(config, mask_offset=2**20))
    )
    weights = [model_tensors(parts.model) for parts in (one, two)]
    assert weights[0]
    assert all(bool((weights[0][name] == weights[1][name]).all()) for name in weights[0])
    for step in range(plan.num_steps):
        batch = one.order.global_batch(step)
        assert np.array_equal(batch, two.order.global_batch(step))
        rows = [parts.instances[batch] for parts in (one, two)]
        assert np.array_equal(rows[0].tokens.input_ids, rows[1].tokens.input_ids)
        assert np.array_equal(rows[0].masks.starts, rows[1].masks.starts)  # as counts are rounded
        assert not np.array_equal(rows[0].masks.positions, rows[1].masks.positions)
    evaluations = [list(parts.evaluation or ()) for parts in (one, two)]
    assert evaluations[0]
    for mine, theirs in zip(*evaluations, strict=True):
        assert all(bool((mine[name] == theirs[name]).all()) for name in mine)
