"""The cases beside peers: small tasks of growing size that ours and a peer both do, in one run.

Peers are Tessel's search and PipeDream's and Galvatron-BMW's programmes, of our own making from the papers,
and lowtime and torch as they are installed. The profile of GPT-3 175B is that of the frontier benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.comparison import missing
from experiments.benchmarks.frontier.cases import made_up, measured_profile, measured_task, no_lowtime_on
from experiments.benchmarks.frontier.lowtime_plans import reason_to_skip
from experiments.benchmarks.frontier.measuring import load_solvers as load_linear
from experiments.benchmarks.peers.measuring import (
    against_galvatron,
    against_lowtime,
    against_pipedream,
    against_tessel,
    against_torch_runtime,
    against_torch_schedule,
)
from experiments.benchmarks.peers.plots import draw_costs
from experiments.benchmarks.results import BenchmarkCase
from experiments.benchmarks.timing import load_solvers
from placements import Placement
from placements.shapes import m_shape, nn_shape, v_shape

TESSEL: dict[str, tuple[Callable[[int], Placement], int, tuple[int, ...]]] = {
    "V-shape": (v_shape, 0, (2, 3, 4, 5, 6)),
    "M-shape": (m_shape, 2, (2, 3, 4)),
    "NN-shape": (nn_shape, 2, (2, 3, 4)),
}
"""Shape, memory above the number of devices, and devices."""

TORCH_SCHEDULES = (
    "GPipe",
    "LoopedBFS",
    "Interleaved1F1B",
    "InterleavedZeroBubble",
    "ZBVZeroBubble",
    "DualPipeV",
)


def tessel() -> Iterator[BenchmarkCase]:
    """Yield Tessel's search for whole schedules, by devices."""
    for name, (shape, more, devices) in TESSEL.items():
        for size in devices:
            yield BenchmarkCase(
                f"{name}, {size} devices, memory {size + more}, {3 * size} micro-batches",
                "no longer makespan",
                partial(
                    against_tessel,
                    shape(size).with_memory(size + more),
                    3 * size,
                    title=f"Tessel, {name}",
                    time_limit_s=120.0,
                ),
                is_quick=(name, size) == ("V-shape", 2),
            )


def lowtime() -> Iterator[BenchmarkCase]:
    """Yield lowtime's frontier, by micro-batches."""
    must = "no plan of lowtime below ours at its deadline"
    options: dict[str, Any] = {"unit_ms": 4.0, "title": "lowtime, 4 stages"}
    for number in (4, 8, 16, 32):
        make = partial(made_up, v_shape(4), number, num_clocks=30, seed=1, noise=0.005)
        yield BenchmarkCase(
            f"4 stages, 30 clocks, {number} micro-batches, unit 4 ms",
            must,
            partial(against_lowtime, make, size=number, **options),
            is_quick=number == 4,
            lacks=reason_to_skip,
        )
    make = partial(measured_task, "A100", 12)
    yield BenchmarkCase(
        "GPT-3 175B, A100, 12 micro-batches, unit 1 ms",
        must,
        partial(against_lowtime, make, size=12, unit_ms=1.0, title="lowtime, GPT-3 175B"),
        lacks=partial(no_lowtime_on, measured_profile("A100")),
    )


def torch_runtime() -> Iterator[BenchmarkCase]:
    """Yield torch's runtime, by blocks of an iteration."""
    for number in (4, 8, 16, 32):
        name = f"1F1B, 4 stages of 2 layers of 256 x 256, {number} micro-batches of 64"
        measure = partial(against_torch_runtime, number, width=256, rows=64, rounds=21)
        yield BenchmarkCase(name, "the same gradients", measure, number == 4, partial(missing, "torch"))


def torch_schedules() -> Iterator[BenchmarkCase]:
    """Yield schedules that torch ships, at their own memory."""
    must = "no longer makespan in as much memory"
    for name in TORCH_SCHEDULES:
        measure = partial(against_torch_schedule, name, 4, 8)
        yield BenchmarkCase(
            f"{name}, 4 devices, 8 micro-batches", must, measure, name == "GPipe", partial(missing, "torch")
        )


def galvatron() -> Iterator[BenchmarkCase]:
    """Yield Galvatron-BMW's search, by layers."""
    for layers in (8, 16, 32, 64):
        name = f"bert_huge of {layers} layers, galvatron_titan_8, batch 64, 12 GiB"
        yield BenchmarkCase(
            name, "no longer iteration", partial(against_galvatron, layers), is_quick=layers == 8
        )


def pipedream() -> Iterator[BenchmarkCase]:
    """Yield PipeDream's recurrence, by layers."""
    for layers in (8, 16, 32, 64, 128):
        measure = partial(against_pipedream, layers, workers=16)
        yield BenchmarkCase(f"chain of {layers}, 16 workers", "the same time", measure, is_quick=layers == 8)


def _prepare() -> None:
    load_solvers()
    load_linear()


BENCHMARK = Benchmark(
    "peers",
    "Measure ours beside every peer, in one run.",
    {
        "tessel": tessel,
        "lowtime": lowtime,
        "torch_runtime": torch_runtime,
        "torch_schedules": torch_schedules,
        "galvatron": galvatron,
        "pipedream": pipedream,
    },
    _prepare,
    draw_costs,
)
