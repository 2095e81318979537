import pytest
import torch

from clozemill.train.throughput import (
    data_sheet_peak,
    device_peak,
    measure_peak,
)


@pytest.mark.parametrize(
    ("name", "teraflops"),
    [
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA A10", 125),
    ],
)
def test_a_known_gpu_has_the_dense_peak_of_its_data_sheet(name: str, teraflops: int) -> None:
    assert data_sheet_peak(name) == teraflops * 1e12


@pytest.mark.parametrize("name", ["NVIDIA A10G", "NVIDIA L40", "NVIDIA GH200 480GB", "Tesla T4"])
def test_a_gpu_with_a_similar_name_is_not_taken_for_a_known_one(name: str) -> None:
    assert data_sheet_peak(name) is None


def test_the_peak_of_a_cpu_is_measured_and_about_the_same_again() -> None:
    cpu = torch.device("cpu")
    first, second = device_peak(cpu, "fp32"), measure_peak(cpu, torch.float32)
    assert first.source == "measured"
    assert first.flops_per_second > 1e9
    assert 0.1 < first.flops_per_second / second < 10


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_gpu_reaches_a_good_part_of_its_data_sheet() -> None:
    device = torch.device("cuda")
    peak = device_peak(device, "bf16").flops_per_second
    assert 0.3 < measure_peak(device, torch.bfloat16) / peak < 1.1
