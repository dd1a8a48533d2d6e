"""Files of machines, in both forms: what is read of them, and what a wrong one is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made_up_machine import MACHINE, MACHINE_CSV, machine_json
from told import told

from placements.gpus import A100_SXM_80GB, GPUS
from placements.models.machine.machine_file import MachineFileError, read_machine
from placements.models.machine.measured_rates import CollectiveRate, KernelRate, MeasuredRates, ShareTable


def read(path: Path, content: Any) -> MeasuredRates:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_machine(path, A100_SXM_80GB)


def test_the_json_form_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "a.json", machine_json())
    assert (found.name, found.peak_tflops, found.gpus_per_node) == ("made up", 1, 4)
    mean = {each: ShareTable(MACHINE.products[each].by_shape, 0.8) for each in MACHINE.products}
    assert found.products == mean, "gradients of weights as they are added up, in 32 bits"
    assert found.experts == MACHINE.experts
    assert found.forward_cores == MACHINE.forward_cores, "of what is contiguous, where both were measured"
    assert found.backward_cores == ShareTable({(100, 2, 1, 8): 1.4}, 0.25)
    assert found.kernels == {
        "stream": KernelRate(1000, 0.5, 30),
        "permute": KernelRate(1000, 0.25, 30),
        "loss": KernelRate(1000, 0.5, 10),
    }
    assert found.collectives["all_reduce"] == CollectiveRate(100, 0.8, 2, 10, {0: 5})
    assert found.collectives["all_gather"] == CollectiveRate(100, 0.8, 1, 10, {0: 0, 8: 9})


def test_the_csv_form_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "a100_own.csv", MACHINE_CSV)
    gpu = A100_SXM_80GB
    assert (found.name, found.peak_tflops, found.gpus_per_node) == ("a100_own", gpu.peak_tflops, 8)
    by_shape = {(500, 1000, 2000): 0.5, (500, 1000, 1000): 0.7}
    assert found.products["forward"] == ShareTable(by_shape, pytest.approx(0.6))
    assert found.products["weight_gradient"] == ShareTable({(500, 1000, 2000): 0.2}, 0.2)
    assert found.experts["forward"] == ShareTable({(4, 100, 100, 200): 0.3}, 0.3)
    # What was not measured reaches what products do.
    assert found.experts["weight_gradient"] == ShareTable({}, pytest.approx(0.6))
    assert found.forward_cores == ShareTable({}, pytest.approx(0.6))
    assert found.backward_cores == ShareTable({(100, 2, 1, 8): 1.4}, 1.4)
    stream = KernelRate(gpu.memory_bandwidth_gb_s, 0.5, 30)
    loss = KernelRate(gpu.memory_bandwidth_gb_s, 0.75, 10)
    assert found.kernels == {"stream": stream, "permute": stream, "loss": loss}
    assert found.collectives["all_reduce"] == CollectiveRate(gpu.link_bandwidth_gb_s, 0.5, 2, 10, {})
    assert found.collectives["send"] == CollectiveRate(gpu.link_bandwidth_gb_s, 0.7, 1, 0, {})
    assert read(tmp_path / "other.csv", MACHINE_CSV.splitlines()[0] + PRODUCTS).kernels["loss"].share == 0.85


PRODUCTS = """
product,forward,1 1 1,0.5,
product,input_gradient,1 1 1,0.5,
product,weight_gradient,1 1 1,0.5,
"""


def field(*names: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def of(data: dict[str, Any]) -> dict[str, Any]:
        for name in names:
            data = data[name]
        return data

    return of


ROOT = field()
MATMUL = field("accelerator", "op", "matmul")
EXPERTS = field("accelerator", "op", "group_matmul")
CORES = field("accelerator", "op", "sdp_fwd")
SHARES = "accurate_efficient_factor"
LINK = field("networks", "high_intra_node", "op", "p2p")


@pytest.mark.parametrize(
    ("part", "changes", "where", "why"),
    [
        (ROOT, {"sys_name": None}, "sys_name", "lacks the field 'sys_name'; add it"),
        (ROOT, {"num_per_node": 0}, "num_per_node", "is not a number of GPUs"),
        (MATMUL, {"tflops": -1}, "accelerator.op.matmul.tflops", "is not a peak in TFLOP/s"),
        (MATMUL, {"efficient_factor": 2.5}, "matmul.efficient_factor", "2.5 is not a share above 0"),
        (MATMUL, {SHARES: {"m=1, k=1, n=1, layout=TT": 0.5}}, "matmul", "use TN, NN or NT"),
        (MATMUL, {SHARES: {"m=1, k=1, layout=TN": 0.5}}, "matmul", "has no size n="),
        (MATMUL, {SHARES: {"m=1, k=1, n=x, layout=TN": 0.5}}, "n=x", "has no size n="),
        (MATMUL, {SHARES: {"m=1, k=1, n=1, layout=TN": 0}}, "TN", "0 is not a share"),
        (EXPERTS, {SHARES: {"ng=1, M=1, K=1, N=1": 0.5}}, "group_matmul", "use fwd, bwd_"),
        (CORES, {SHARES: {"seq_len=1": 0.5}}, "sdp_fwd", "has no size head_num="),
        (CORES, {SHARES: [0.5]}, "sdp_fwd", "is not a mapping"),
        (LINK, {"latency_us": "9"}, "p2p.latency_us", "is not a time in us"),
        (LINK, {"scale": None}, "p2p", "lacks the field 'scale'; add it"),
        (LINK, {"fixed_latency_us_by_comm_num": {"two": 1}}, "num", "'two' is not a number of GPUs"),
    ],
)
def test_a_wrong_json_file(
    tmp_path: Path, part: Callable[[dict[str, Any]], Any], changes: dict[str, Any], where: str, why: str
) -> None:
    data = machine_json()
    part(data).update(changes)
    for name in [name for name, value in changes.items() if value is None]:
        del part(data)[name]
    with told(MachineFileError, f"{tmp_path / 'a.json'}: ", has=why):
        read(tmp_path / "a.json", data)
    with pytest.raises(MachineFileError, match=where.replace(".", r"\.")):
        read_machine(tmp_path / "a.json", A100_SXM_80GB)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("pool,forward,1,0.5,", "line 2, column operator: 'pool' is not known; use one of product, experts"),
        ("product,sideways,1 1 1,0.5,", "line 2, column pass: 'sideways' is not known; use one of forward"),
        ("core,weight_gradient,1 1 1 1,0.5,", "line 2, column pass: 'weight_gradient' is not known"),
        ("product,forward,1 1,0.5,", "line 2, column sizes: '1 1' is not 3 whole numbers above 0; give them"),
        ("experts,forward,1 1 1,0.5,", "line 2, column sizes: '1 1 1' is not 4 whole numbers"),
        ("kernel,stream,1,0.5,", "line 2, column sizes: '1' is not 0 whole numbers"),
        ("product,forward,1 0 1,0.5,", "line 2, column sizes: '1 0 1' is not 3"),
        ("product,forward,1 1 1,0,", "line 2, column share: '0' is not a number above 0, at most 2"),
        ("product,forward,1 1 1,2.1,", "line 2, column share: '2.1' is not a number above 0, at most 2"),
        ("product,forward,1 1 1,fast,", "line 2, column share: 'fast'"),
        ("kernel,stream,,0.5,-1", "line 2, column latency_us: '-1'"),
        ("product,forward,1 1 1,0.5,", "has no product of the pass input_gradient; measure one"),
    ],
)
def test_a_wrong_csv_file(tmp_path: Path, row: str, why: str) -> None:
    path = tmp_path / "a.csv"
    with told(MachineFileError, f"{path}: {why}"):
        read(path, f"operator,pass,sizes,share,latency_us\n{row}\n")


def test_a_csv_file_without_a_column_or_a_file_that_is_not_there(tmp_path: Path) -> None:
    with told(MachineFileError, f"{tmp_path / 'a.csv'}: ", has="share"):
        read(tmp_path / "a.csv", "operator,pass\nproduct,forward\n")
    for name in ("none.csv", "none.json"):
        with told(MachineFileError, f"{tmp_path / name}: cannot be read"):
            read_machine(tmp_path / name, GPUS["b200"])
    with told(MachineFileError, f"{tmp_path / 'a.json'}: ", has="JSON"):
        read(tmp_path / "a.json", "{")
