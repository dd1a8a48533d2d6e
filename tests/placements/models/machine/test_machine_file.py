"""Files of machines and the rates that are in them: read, looked up by hand, and refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from made_up_machine import MACHINE, MACHINE_CSV, machine_json
from told import told

from placements.gpus import A100_SXM_80GB
from placements.models.machine.machine_file import MachineFileError, read_machine
from placements.models.machine.measured_rates import CollectiveRate, KernelRate, MeasuredRates, ShareTable
from placements.models.operators import Core, Kernel, Product


def read(path: Path, content: Any) -> MeasuredRates:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_machine(path, A100_SXM_80GB)


def test_the_json_form_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "a.json", machine_json())
    assert (found.name, found.peak_tflops, found.gpus_per_node) == ("made up", 1, 4)
    gradients = ("product", "weight_gradient")  # as they are added up, in 32 bits
    others = {gradients: 0.8, ("core", "backward"): 0.25}
    assert found.shares == {
        key: ShareTable(table.by_shape, others.get(key, table.mean)) for key, table in MACHINE.shares.items()
    } | {("core", "backward"): ShareTable({(100, 2, 1, 8): 1.4}, 0.25)}
    assert found.kernels == {
        "stream": KernelRate(1000, 0.5, 30),
        "permute": KernelRate(1000, 0.25, 30),
        "loss": KernelRate(1000, 0.5, 10),
    }
    assert found.collectives["all_reduce"] == CollectiveRate(100, 0.8, 2, 10, 5)
    assert found.collectives["all_gather"] == CollectiveRate(100, 0.8, 1, 10, 0, {8: 9})


def test_the_csv_form_is_read(tmp_path: Path) -> None:
    found = read(tmp_path / "a100_own.csv", MACHINE_CSV)
    gpu = A100_SXM_80GB
    assert (found.name, found.peak_tflops, found.gpus_per_node) == ("a100_own", gpu.peak_tflops, 8)
    # What was not measured reaches what products do.
    missing = ShareTable({}, pytest.approx(0.6))
    assert found.shares == {
        ("product", "forward"): ShareTable({(500, 1000, 2000): 0.5, (500, 1000, 1000): 0.7}, missing.mean),
        ("product", "input_gradient"): ShareTable({(500, 1000, 2000): 0.25}, 0.25),
        ("product", "weight_gradient"): ShareTable({(500, 1000, 2000): 0.2}, 0.2),
        ("experts", "forward"): ShareTable({(4, 100, 100, 200): 0.3}, 0.3),
        ("experts", "input_gradient"): missing,
        ("experts", "weight_gradient"): missing,
        ("core", "forward"): missing,
        ("core", "backward"): ShareTable({(100, 2, 1, 8): 1.4}, 1.4),
    }
    stream = KernelRate(gpu.memory_bandwidth_gb_s, 0.5, 30)
    loss = KernelRate(gpu.memory_bandwidth_gb_s, 0.75, 10)
    assert found.kernels == {"stream": stream, "permute": stream, "loss": loss}
    assert found.collectives["all_reduce"] == CollectiveRate(gpu.link_bandwidth_gb_s, 0.5, 2, 10)
    assert found.collectives["send"] == CollectiveRate(gpu.link_bandwidth_gb_s, 0.7, 1, 0)
    assert read(tmp_path / "other.csv", MACHINE_CSV.splitlines()[0] + PRODUCTS).kernels["loss"].share == 0.85


PRODUCTS = """
product,forward,1 1 1,0.5,
product,input_gradient,1 1 1,0.5,
product,weight_gradient,1 1 1,0.5,
"""


MATMUL = ("accelerator", "op", "matmul")
EXPERTS = ("accelerator", "op", "group_matmul")
SHARES = "accurate_efficient_factor"
LINK = ("networks", "high_intra_node", "op", "p2p")


@pytest.mark.parametrize(
    ("part", "changes", "where", "why"),
    [
        ((), {"num_per_node": 0}, "num_per_node", "is not a number of GPUs"),
        (MATMUL, {"tflops": -1}, "accelerator.op.matmul.tflops", "is not a peak in TFLOP/s"),
        (MATMUL, {SHARES: {"m=1, k=1, n=1, layout=TT": 0}}, "matmul", "name it by m= k= n= layout=TN or "),
        (MATMUL, {SHARES: {"m=1, k=1, layout=TN": 0.5}}, "matmul", "lacks a size; name it by"),
        (EXPERTS, {SHARES: {"ng=1, M=1, K=1, N=1": 0.5}}, "group_matmul", "stage=fwd or stage=bwd_"),
        (LINK, {"latency_us": "9"}, "p2p.latency_us", "is not a number of 0 or more; give it in us"),
        (LINK, {"fixed_latency_us_by_comm_num": {"two": 1}}, "num", "'two' is not a number of GPUs"),
    ],
)
def test_a_wrong_json_file(
    tmp_path: Path, part: tuple[str, ...], changes: dict[str, Any], where: str, why: str
) -> None:
    data = machine_json()
    reduce(getitem, part, data).update(changes)
    with told(MachineFileError, f"{tmp_path / 'a.json'}: ", match=where.replace(".", r"\."), has=why):
        read(tmp_path / "a.json", data)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("pool,forward,1,0.5,", "line 2, column operator: 'pool' is not known; use one of product, experts"),
        ("product,sideways,1 1 1,0.5,", "line 2, column pass: 'sideways' is not known; use one of forward"),
        ("product,forward,1 1,0.5,", "line 2, column sizes: '1 1' is not 3 whole numbers above 0; give them"),
        ("kernel,stream,,0.5,-1", "line 2, column latency_us: '-1'"),
        ("product,forward,1 1 1,0.5,", "has no product of the pass input_gradient; measure one"),
    ],
)
def test_a_wrong_csv_file(tmp_path: Path, row: str, why: str) -> None:
    path = tmp_path / "a.csv"
    with told(MachineFileError, f"{path}: {why}"):
        read(path, f"operator,pass,sizes,share,latency_us\n{row}\n")


def test_a_shape_has_its_own_share_or_that_of_the_nearest_or_the_mean() -> None:
    table = ShareTable({(100, 100): 0.1, (100, 190): 0.2, (400, 400): 0.4}, 0.5)
    assert table.at(100, 190) == 0.2
    assert table.at(99.6, 100.4) == 0.1, "sizes are rounded"
    assert table.at(110, 120) == 0.1
    assert table.at(110, 180) == 0.2
    assert table.at(200, 100) == 0.1, "a factor of two is near"
    assert table.at(201, 100) == 0.5
    assert table.at(50, 400) == 0.5, "one size is too far, though the other is near"
    assert table.at(200, 200) == 0.2, "2 and 1.05 times, not 2 and 2 times or half and half"
    assert table.at(0, 100) == 0.5


def test_kernels_and_collectives_by_hand() -> None:
    assert KernelRate(1000.0, 0.5, 30.0).ms(2e9, 3) == 4 + 0.09
    rate = CollectiveRate(100.0, 0.5, 2.0, 10.0, 5.0, {8: 7.0})
    assert rate.ms(1e9, 4, False) == pytest.approx(1e3 * 2 * 0.75 / 50 + (6 * 10 + 5) / 1e3)
    assert rate.ms(1e9, 8, False) == pytest.approx(1e3 * 2 * 0.875 / 50 + (14 * 10 + 7) / 1e3)
    assert replace(rate, volume=1.0, usual_us=0.0, fixed_us={}).ms(1e9, 2, True) == pytest.approx(20 + 0.01)


def test_products_and_cores_on_a_machine_by_hand() -> None:
    """A peak of 1 TFLOP/s is 1e9 operations per millisecond."""
    plain = Product("a", 1000, 2000, 1, "outputs")
    assert MACHINE.product_ms(plain, 500) == pytest.approx((2 / 0.5, 2 / 0.25 + 2 / 0.2))
    assert MACHINE.product_ms(plain._replace(inputs=10), 50) == pytest.approx(
        (0.002 / 0.8, 0.002 / 0.8 + 0.002 / 0.4)
    ), "not near"
    own = Product("b", 100, 200, 1, "outputs", experts=4)
    assert MACHINE.product_ms(own, 400) == pytest.approx((0.016 / 0.3, 0.016 / 0.1 + 0.016 / 0.6))
    # All scores are counted, and in the backward 2.5 times as many operations.
    core = Core(2, 1, 8, 8, 100, 100, 0.5)
    all_ms = 3 * 4 * 100 * 100 * 2 * 8 / 1e9
    assert MACHINE.core_ms(core, 3) == pytest.approx((all_ms / 0.9, 2.5 * all_ms / 0.7))
    kernel = Kernel("c", 1000, 2000, launches=(1, 2))
    each_ms = 2 / (1000 * 1e6 * 0.5)
    passes_ms = MACHINE.kernels["stream"].passes_ms(kernel, 1.5, 2)
    assert passes_ms == pytest.approx((1500 * each_ms + 0.03, 3000 * each_ms + 0.06))
    assert MACHINE.collective_ms("all_gather", 1e6, 1) == 0
    assert MACHINE.collective_ms("send", 1e6, 2) == pytest.approx(1 / (100 * 0.25) + 0.004)
