"""The cases beside peers: small tasks of growing size that ours and a peer both do, in one run.

Peers are Tessel's search and PipeDream's and Galvatron-BMW's programmes, of our own making from the papers,
and lowtime and torch as they are installed. The profile of GPT-3 175B is that of the frontier benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.frontier.cases import measured_task, synthetic_profile
from experiments.benchmarks.frontier.measuring import Task
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
from experiments.benchmarks.results import Case
from experiments.benchmarks.timing import load_solvers
from placements import Placement
from placements.shapes import m_shape, nn_shape, v_shape
from schedsearch.baselines import one_f_one_b

ROUNDS = 3
"""Pairs of runs of each case; the least and the largest ratio are given beside the median."""

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


def tessel() -> Iterator[Case]:
    """Yield Tessel's search for whole schedules, by devices."""
    for name, (shape, more, devices) in TESSEL.items():
        for size in devices:
            yield Case(
                "tessel",
                f"{name}, {size} devices, memory {size + more}, {3 * size} micro-batches",
                "no longer makespan",
                partial(
                    against_tessel,
                    shape(size).with_memory(size + more),
                    3 * size,
                    size=size,
                    title=f"Tessel, {name}",
                    rounds=ROUNDS,
                    time_limit_s=120.0,
                ),
                is_quick=size == 2,
            )


def lowtime() -> Iterator[Case]:
    """Yield lowtime's frontier, by micro-batches."""
    must = "no plan of lowtime below ours at its deadline"
    for number in (4, 8, 16, 32):
        yield Case(
            "lowtime",
            f"4 stages, 30 clocks, {number} micro-batches, unit 4 ms",
            must,
            partial(
                against_lowtime,
                partial(_made_up, number),
                size=number,
                unit_ms=4.0,
                title="lowtime, 4 stages",
                rounds=ROUNDS,
            ),
            is_quick=number == 4,
        )
    yield Case(
        "lowtime",
        "GPT-3 175B, A100, 12 micro-batches, unit 1 ms",
        must,
        partial(
            against_lowtime,
            partial(measured_task, "A100", 12),
            size=12,
            unit_ms=1.0,
            title="lowtime, GPT-3 175B",
            rounds=ROUNDS,
        ),
    )


def _made_up(num_micro_batches: int) -> Task:
    placement = v_shape(4)
    profile = synthetic_profile(placement, 30, seed=1, noise=0.005)
    return Task(one_f_one_b(placement, num_micro_batches), profile)


def torch_runtime() -> Iterator[Case]:
    """Yield torch's runtime, by blocks of an iteration."""
    for number in (4, 8, 16, 32):
        yield Case(
            "torch_runtime",
            f"1F1B, 4 stages of 2 layers of 256 x 256, {number} micro-batches of 64",
            "the same gradients",
            partial(
                against_torch_runtime,
                number,
                width=256,
                rows=64,
                rounds=21,
                title="torch's runtime",
            ),
            is_quick=number == 4,
        )


def torch_schedules() -> Iterator[Case]:
    """Yield schedules that torch ships, at their own memory."""
    for name in TORCH_SCHEDULES:
        yield Case(
            "torch_schedules",
            f"{name}, 4 devices, 8 micro-batches",
            "no longer makespan in as much memory",
            partial(against_torch_schedule, name, 4, 8, rounds=ROUNDS, title=f"torch's {name}"),
            is_quick=name == "GPipe",
        )


def galvatron() -> Iterator[Case]:
    """Yield Galvatron-BMW's search, by layers."""
    for layers in (8, 16, 32, 64):
        yield Case(
            "galvatron",
            f"bert_huge of {layers} layers, galvatron_titan_8, batch 64, 12 GiB",
            "no longer iteration",
            partial(against_galvatron, layers, rounds=ROUNDS, title="Galvatron-BMW"),
            is_quick=layers == 8,
        )


def pipedream() -> Iterator[Case]:
    """Yield PipeDream's recurrence, by layers."""
    for layers in (8, 16, 32, 64, 128):
        yield Case(
            "pipedream",
            f"chain of {layers}, 16 workers",
            "the same time",
            partial(against_pipedream, layers, workers=16, rounds=ROUNDS, title="PipeDream"),
            is_quick=layers == 8,
        )


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "tessel": tessel,
    "lowtime": lowtime,
    "torch_runtime": torch_runtime,
    "torch_schedules": torch_schedules,
    "galvatron": galvatron,
    "pipedream": pipedream,
}
"""The groups by the name that the command line uses."""


def _prepare() -> None:
    load_solvers()
    load_linear()


BENCHMARK = Benchmark("peers", "Measure ours beside every peer, in one run.", GROUPS, _prepare, draw_costs)
