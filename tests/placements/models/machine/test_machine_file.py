"""Files of machines and the rates that are in them: read, looked up by hand, and refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from itertools import islice
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from made_up_machine import MACHINE, MACHINE_CSV, machine_json
from one_line_errors import raises_line
from places import SHARED_DATA

from placements.forms.tables import csv_rows
from placements.gpus import A100_SXM_80GB, GPUS
from placements.models.layers import BF16, PRECISIONS
from placements.models.machine.machine_file import MachineFileError, rates_of, read_machine
from placements.models.machine.machine_rates import (
    CollectiveRate,
    CollectiveTimes,
    KernelRate,
    MachineRates,
    ShareTable,
)
from placements.models.operators import Core, Product


def read(path: Path, content: Any) -> MachineRates:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return read_machine(path, A100_SXM_80GB)


def test_the_json_form_is_read(tmp_path: Path) -> None:
    machine = read(tmp_path / "a.json", machine_json())
    assert (machine.name, machine.peak_tflops, machine.gpus_per_node) == ("made up", 1, 4)
    gradients = ("product", "weight_gradient")  # as they are added up, in 32 bits
    others = {gradients: 0.8, ("core", "backward"): 0.25}
    assert machine.shares == {
        key: ShareTable(table.by_shape, others.get(key, table.mean)) for key, table in MACHINE.shares.items()
    } | {("core", "backward"): ShareTable({(100, 2, 8): 1.4}, 0.25)}
    assert machine.kernels == {
        "stream": KernelRate(1000, 0.5, 30),
        "permute": KernelRate(1000, 0.25, 30),
        "loss": KernelRate(1000, 0.5, 10),
    }
    assert machine.collectives["all_reduce"] == CollectiveRate(100, 0.8, 2, 10, 5)
    assert machine.collectives["all_gather"] == CollectiveRate(100, 0.8, 1, 10, 0, {8: 9})


def test_the_csv_form_is_read(tmp_path: Path) -> None:
    machine = read(tmp_path / "a100_own.csv", MACHINE_CSV)
    gpu = A100_SXM_80GB
    assert (machine.name, machine.peak_tflops, machine.gpus_per_node) == ("a100_own", gpu.peak_tflops, 8)
    # Cores that were not measured reach what products do.
    missing = ShareTable({}, pytest.approx(0.6))
    assert machine.shares == {
        ("product", "forward"): ShareTable({(500, 1000, 2000): 0.5, (500, 1000, 1000): 0.7}, missing.mean),
        ("product", "input_gradient"): ShareTable({(500, 1000, 2000): 0.25}, 0.25),
        ("product", "weight_gradient"): ShareTable({(500, 1000, 2000): 0.2}, 0.2),
        ("experts", "forward"): ShareTable({(4, 100, 100, 200): 0.3}, 0.3),
        ("core", "forward"): missing,
        ("core", "backward"): ShareTable({(100, 2, 8): 1.4}, 1.4),
    }
    stream = KernelRate(gpu.memory_bandwidth_gb_s, 0.5, 30)
    loss = KernelRate(gpu.memory_bandwidth_gb_s, 0.75, 10)
    assert machine.kernels == {"stream": stream, "permute": stream, "loss": loss}
    assert machine.collectives["all_reduce"] == CollectiveRate(gpu.link_bandwidth_gb_s, 0.5, 2, 10)
    assert machine.collectives["send"] == CollectiveRate(gpu.link_bandwidth_gb_s, 0.7, 1, 0)
    assert read(tmp_path / "other.csv", MACHINE_CSV.splitlines()[0] + PRODUCTS).kernels["loss"].share == 0.75


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
    with raises_line(MachineFileError, f"{tmp_path / 'a.json'}: ", match=where.replace(".", r"\."), has=why):
        read(tmp_path / "a.json", data)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("pool,forward,1,0.5,", "line 2, column operator: 'pool' is not known; use one of product, experts"),
        ("product,sideways,1 1 1,0.5,", "line 2, column pass: 'sideways' is not known; use one of forward"),
        ("product,forward,1 1,0.5,", "line 2, column sizes: '1 1' is not 3 whole numbers above 0; give them"),
        ("kernel,stream,,0.5,-1", "line 2, column latency_us: '-1'"),
        ("core,forward,1 1 1 1,0.5,", "has no product of the pass forward; measure one"),
        ("product,forward,1 1 1,,", "line 2, column share: give either a share, or time_us of its sizes"),
    ],
)
def test_a_wrong_csv_file(tmp_path: Path, row: str, why: str) -> None:
    path = tmp_path / "a.csv"
    with raises_line(MachineFileError, f"{path}: {why}"):
        read(path, f"operator,pass,sizes,share,latency_us\n{row}\n")


def test_a_shape_has_its_own_share_or_one_between_its_neighbours() -> None:
    table = ShareTable({(128, 128): 0.1, (128, 512): 0.2, (512, 128): 0.2, (512, 512): 0.4}, 0.5)
    assert table.at(128, 512.4) == 0.2, "sizes are rounded"
    assert table.at(256, 256) == pytest.approx(0.2), "the middle of all, in logarithms"
    assert 0.1 < table.at(150, 128) < table.at(300, 128) < 0.2
    assert table.at(9000, 9000) == pytest.approx(0.4), "the last measured"
    assert ShareTable({}, 0.5).at(0, 100) == 0.5
    # Memory limits products of few tokens, also beyond the last one that was measured.
    limited = ShareTable(
        {(1024, 4096): 0.5, (4096, 4096): 0.8}, 0.5, lambda tokens, _: min(1.0, tokens / 1024)
    )
    assert limited.at(128, 4096) == pytest.approx(0.5 / 8)


def test_collectives_are_interpolated_in_bytes_and_gpus() -> None:
    times = CollectiveTimes({2: [(100, 1.0), (200, 1.5)], 8: [(100, 3.0), (200, 4.0)]})
    assert times.ms(150, 2, False) == pytest.approx(1.25)
    assert times.ms(10, 2, False) == 1.0, "no shorter than the smallest"
    assert times.ms(400, 8, False) == pytest.approx(8.0), "in proportion beyond the largest"
    assert times.ms(100, 4, False) == pytest.approx(2.0)
    assert times.ms(100, 64, False) == pytest.approx(3.0 * (63 / 64) / (7 / 8)), "each sends more of it"
    assert times.ms(75, 2, True) == pytest.approx(1.25), "half of what two gather"


@pytest.mark.parametrize("gpu", ["a100", "h100", "h200", "b200", "gb200", "gb300"])
def test_the_rates_of_usual_gpus_come_along(gpu: str) -> None:
    """Large products reach 0.45 to 0.9 of the peak in 16 bits, and small ones less."""
    rates = rates_of(GPUS[gpu], BF16)
    large, small = (2 * n**3 / rates.peak_tflops / 1e9 for n in (8192, 512))
    square = Product("a", 8192, 8192, 8192, "outputs")
    assert 0.45 < large / rates.product_ms(square, 8192)[0] < 0.9
    assert small / rates.product_ms(square._replace(inputs=512, outputs=512), 512)[0] < 0.3
    core = Core(32, 8, 128, 128, 8192, 8192, 0.5)
    assert 0.3 < core.flops / rates.peak_tflops / 1e9 / rates.core_ms(core, 1)[0] < 0.7
    sent = rates.collective_ms("all_gather", 2**27, 8)
    assert 0.5 < 2**27 * 7 / 8 / (GPUS[gpu].link_bandwidth_gb_s * 1e6) / sent < 1
    fp8 = rates_of(GPUS[gpu], PRECISIONS["fp8"])
    times_ms = fp8.product_ms(square, 8192)[0], rates.product_ms(square, 8192)[0]
    assert times_ms[0] == times_ms[1] if gpu == "a100" else times_ms[0] < 0.8 * times_ms[1]


def test_a_gpu_with_the_rates_of_another_reaches_the_same_shares_of_its_peaks() -> None:
    """A GB300 has a GB200's peak in 8 bits, and 1.5 times as much in 4."""
    square = Product("a", 8192, 8192, 8192, "outputs")
    for precision, factor in (("fp8", 1), ("nvfp4", 1.5)):
        rates = [rates_of(GPUS[gpu], PRECISIONS[precision]) for gpu in ("gb200", "gb300")]
        slow_ms, fast_ms = (rate.product_ms(square, 8192)[0] for rate in rates if rate is not None)
        assert slow_ms == pytest.approx(factor * fast_ms)


OPERATORS = SHARED_DATA / "operators"


@pytest.mark.skipif(not OPERATORS.is_dir(), reason="without the shared data")
def test_the_rates_are_as_they_were_measured() -> None:
    rates = rates_of(replace(GPUS["h100"], run_slowdown=1.0), BF16)
    assert rates is not None
    rows = csv_rows(OPERATORS / "h100_sxm_gemm.csv.gz", "product", MachineFileError)
    for row in islice((row for row in rows if row.text("gemm_dtype") == "bfloat16"), 0, None, 97):
        m, n, k = (row[name].whole() for name in "mnk")
        product_ms = rates.product_ms(Product("a", k, n, m, "outputs"), m)[0]
        assert product_ms == pytest.approx(row["latency_ms"].number(), rel=1e-3)


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
    # Where a forward alone was measured, gradients are forwards of their sizes, and sums have 4 bytes.
    alone = replace(MACHINE, shares={("product", "forward"): MACHINE.shares["product", "forward"]}, _known={})
    assert alone.product_ms(plain, 500) == pytest.approx((2 / 0.5, 2 / 0.5 + max(2 / 0.5, 2 * 4 * 2e6 / 5e8)))
    experts = plain._replace(experts=2)
    assert alone.product_ms(experts, 500)[0] == pytest.approx(2 / 0.5 * (1 + 230 * 2 / 500))
    assert alone.core_ms(Core(2, 1, 8, 8, 100, 100, score_bytes=(4, 6), launches=1), 3)[0] == pytest.approx(
        2 * (2 * (3 * 2 * 100 * 100 + 3 * 2 * 200 * 8) / 5e8 + 0.03) + 4 * 3 * 2 * 100 * 100 / 5e8 + 0.03
    )
    routed = Product("b", 100, 200, 1, "outputs", experts=4)
    assert MACHINE.product_ms(routed, 400) == pytest.approx((0.016 / 0.3, 0.016 / 0.1 + 0.016 / 0.6))
    # All scores are counted, and in the backward 2.5 times as many operations.
    core = Core(2, 1, 8, 8, 100, 100, 0.5)
    all_ms = 3 * 4 * 100 * 100 * 2 * 8 / 1e9
    assert MACHINE.core_ms(core, 3) == pytest.approx((all_ms / 0.9, 2.5 * all_ms / 0.7))
    number_ms = 2 / (1000 * 1e6 * 0.5)
    assert MACHINE.kernels["stream"].ms(2 * 3000, 2) == pytest.approx(3000 * number_ms + 0.06)
    assert MACHINE.collective_ms("all_gather", 1e6, 1) == 0
    assert MACHINE.collective_ms("send", 1e6, 2) == pytest.approx(1 / (100 * 0.25) + 0.004)
