import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.small_studies import build_pairs
from tests.pipeline.small_corpora import make_texts, small_dataset, write_json_lines

from clozemill.analysis.study_plan import (
    VARIANTS_PER_SEED,
    StudyPlan,
    check_same_plan,
    make_plan,
    plan_record,
    read_plan,
)
from clozemill.analysis.study_records import PLAN_NAME, PlanRecord
from clozemill.pipeline.dataset import Dataset
from clozemill.pipeline.errors import ConfigError, RunError
from clozemill.pipeline.files import write_json
from clozemill.pipeline.json_records import to_json
from clozemill.train.config import PretrainConfig


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return build_pairs(tmp_path_factory.mktemp("pairs"))


def planned(
    pairs: Dataset, variants: tuple[int, ...] = (4, 1), *, num_seeds: int = 2, **settings: Any
) -> StudyPlan:
    has_dynamic = settings.pop("has_dynamic", True)
    config = PretrainConfig(data=str(pairs.folder), **{"epochs": 5, **settings})
    return make_plan(config, pairs, variants=variants, has_dynamic=has_dynamic, num_seeds=num_seeds)


def test_arms_are_ordered_by_their_variants_and_compared_with_the_last(pairs: Dataset) -> None:
    plan = planned(pairs)
    assert [arm.name for arm in plan.arms] == ["static-1", "static-4", "dynamic"]
    assert plan.reference.name == "dynamic"
    assert plan.num_steps == 5 * plan.steps_per_epoch
    assert plan.parting_step(plan.arms[1]) == 4 * plan.steps_per_epoch


def test_arms_whose_masks_never_return_are_left_out(pairs: Dataset) -> None:
    plan = planned(pairs, (1, 4, 5, 10))
    assert [arm.name for arm in plan.arms] == ["static-1", "static-4", "dynamic"]
    assert plan.left_out == (5, 10)


def test_without_dynamic_masking_the_first_masks_that_never_return_are_the_reference(
    pairs: Dataset,
) -> None:
    plan = planned(pairs, (1, 4, 5, 10), has_dynamic=False)
    assert [arm.name for arm in plan.arms] == ["static-1", "static-4", "static-5"]
    plan = planned(pairs, (1, 4), has_dynamic=False)
    assert (plan.reference.name, plan.left_out) == ("static-4", ())


def test_trainings_of_a_seed_differ_in_their_masks_alone(pairs: Dataset) -> None:
    plan = planned(pairs)
    one, four, dynamic = (plan.config_of(arm, 1, Path("run")) for arm in plan.arms)
    assert (one.masking, one.num_static_variants) == ("static", 1)
    assert (four.num_static_variants, dynamic.num_static_variants) == (4, None)
    again = dataclasses.replace(one, masking="dynamic", num_static_variants=None)
    assert again == dynamic


def test_seeds_differ_in_seed_and_masks_alone(pairs: Dataset) -> None:
    plan = planned(pairs, num_seeds=2_048)
    first, last = (plan.config_of(plan.reference, s, Path("run")) for s in (0, 2_047))
    assert (first.mask_offset, last.mask_offset) == (0, 2_047 * VARIANTS_PER_SEED)
    assert dataclasses.replace(last, seed=0, mask_offset=0) == first


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"num_seeds": 2_049}, "--seeds is 2,049; it must be between 1 and 2,048"),
        ({"num_seeds": 0}, "--seeds is 0; "),
        ({"variants": (0, 4)}, "--variants has 0; "),
        (
            {"variants": (7,)},
            "the study has 5.00 epochs, in which no masking of --variants 7 returns",
        ),
        ({"variants": (1,), "has_dynamic": False}, "--variants 1 without --dynamic is one arm; "),
        ({"seed": 3}, "seed is 3, which a study decides itself; leave it out"),
        ({"mask_offset": 3}, "mask_offset is 3, which a study decides itself"),
    ],
)
def test_a_study_that_cannot_be_is_refused(
    pairs: Dataset, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        planned(pairs, **settings)
    assert text in str(caught.value)


def test_a_dataset_without_validation_is_refused(tmp_path: Path, pairs: Dataset) -> None:
    corpus = write_json_lines(tmp_path / "corpus.jsonl", make_texts(8))
    data = small_dataset(corpus, pairs.tokenizer_dir, tmp_path / "data", validation_fraction=0.0)
    with pytest.raises(ConfigError, match="no validation split to compare arms on"):
        planned(data)


def test_a_plan_is_read_as_it_was_written_and_refuses_another(
    pairs: Dataset, tmp_path: Path
) -> None:
    assert read_plan(tmp_path) is None
    record = plan_record(planned(pairs))
    write_json(tmp_path / PLAN_NAME, to_json(record))
    saved = read_plan(tmp_path)
    assert saved == record
    check_same_plan(saved, plan_record(planned(pairs, keep=7, log_every=3)), tmp_path)
    for other, text in (
        (planned(pairs, learning_rate=1e-3), "learning_rate 0.0005 (now 0.001); give what"),
        (planned(pairs, eval_every=7), "eval_every 500 (now 7); give what"),
        (planned(pairs, warmup_steps=9), "warmup_steps unset (now 9); give what"),
        (planned(pairs, num_seeds=3), "seeds 2 (now 3); give what"),
        (planned(pairs, (1, 2)), "arms static-1+static-4+dynamic (now static-1+static-2+dynamic);"),
    ):
        assert f"{tmp_path} holds another study, with {text}" in refusal(saved, other, tmp_path)
    moved = dataclasses.replace(record, dataset_digests={"train": "00"}, data="elsewhere")
    digests = record.dataset_digests
    with pytest.raises(RunError) as caught:
        check_same_plan(saved, moved, tmp_path)
    assert f"with train digest {digests['train']} (now 00), validation digest " in str(caught.value)


def refusal(saved: PlanRecord, other: StudyPlan, folder: Path) -> str:
    with pytest.raises(RunError) as caught:
        check_same_plan(saved, plan_record(other), folder)
    text = str(caught.value)
    assert text.endswith("; give what it has, --overwrite to begin again, or another --out.")
    assert "None" not in text
    assert "\n" not in text
    return text


def test_all_differences_are_named_in_the_terms_that_were_given(
    pairs: Dataset, tmp_path: Path
) -> None:
    saved = plan_record(planned(pairs))
    steps = saved.num_steps
    other = planned(pairs, (1,), epochs=None, steps=steps + 2, learning_rate=1e-3)
    assert refusal(saved, other, tmp_path).split("; give")[0] == (
        f"{tmp_path} holds another study, with length 5 epochs or {steps} steps (now {steps + 2} "
        "steps), learning_rate 0.0005 (now 0.001), arms static-1+static-4+dynamic (now "
        "static-1+dynamic)"
    )
    longer = planned(pairs, epochs=6)
    told = f"length 5 epochs or {steps} steps (now 6 epochs or {longer.num_steps} steps); "
    assert told in refusal(saved, longer, tmp_path)
