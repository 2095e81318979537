from dataclasses import dataclass
from pathlib import Path

import torch
from tests.pipeline.small_datasets import build_small

from clozemill.pipeline.dataset import open_dataset
from clozemill.pipeline.errors import RunError
from clozemill.pipeline.json_records import from_json, to_json
from clozemill.train.config import PretrainConfig
from clozemill.train.facts import (
    RunFacts,
    check_same_run,
    current_execution,
    dataset_facts,
    run_facts,
)


@dataclass
class Shape:
    """Stands for the configuration of an encoder: any record of plain values."""

    hidden_size: int = 8
    layer_norm_eps: float = 1e-12


def facts_of(config: PretrainConfig, folder: Path) -> RunFacts:
    execution = current_execution(
        device="cpu", precision="fp32", num_processes=1, micro_batch_size=8
    )
    return run_facts(config, model=Shape(), dataset=open_dataset(folder), execution=execution)


def test_the_facts_of_a_dataset_are_those_of_its_manifest(tmp_path: Path) -> None:
    build_small(tmp_path, "data")
    facts = dataset_facts(open_dataset(tmp_path / "data"))
    manifest = open_dataset(tmp_path / "data").manifest
    assert facts.path == str(tmp_path / "data")
    assert facts.tokenizer_hash == manifest.tokenizer.hash
    assert facts.dataset_digests.keys() == {"train", "validation"}
    assert facts.dataset_digests["train"] == manifest.splits["train"].dataset_digest
    assert facts.instances_digests["train"] == manifest.splits["train"].instances_digest
    assert facts.dataset_digests["train"] != facts.instances_digests["train"]


def test_execution_is_what_torch_says() -> None:
    facts = current_execution(device="cpu", precision="bf16", num_processes=2, micro_batch_size=8)
    assert facts.torch_version == torch.__version__
    assert facts.num_threads == torch.get_num_threads()
    assert facts.cpu_capability == torch.backends.cpu.get_cpu_capability()
    assert (facts.precision, facts.num_processes, facts.micro_batch_size) == ("bf16", 2, 8)


def test_facts_survive_json_and_fit_themselves(tmp_path: Path) -> None:
    build_small(tmp_path, "data")
    config = PretrainConfig(steps=10, learning_rate=1 / 3, data=str(tmp_path / "data"))
    facts = facts_of(config, tmp_path / "data")
    again = from_json(RunFacts, to_json(facts), "facts", error=RunError)
    assert again == facts
    assert check_same_run(again, config, facts, "run") == []
