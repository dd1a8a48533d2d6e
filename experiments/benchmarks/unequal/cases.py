"""The cases of the benchmark of micro-batches that differ, and what must be reached."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.modes.placements import H100_LAYERS
from experiments.benchmarks.results import BenchmarkCase
from experiments.benchmarks.unequal.batches import SHOPS
from experiments.benchmarks.unequal.losses import REPLICAS, drawn_losses, lost
from experiments.benchmarks.unequal.measuring import (
    alike,
    beside_hand_made,
    brute_force,
    johnson,
    load,
    on_replicas,
    quick,
    shop,
)
from experiments.benchmarks.unequal.slices import in_slices
from placements.slices.slices import EQUAL_TIME, EVEN

_WORK = 20.0
"""Units of work of a long search."""

_WORK_ON_REPLICAS = 4.0
"""Likewise on replicas."""


def _lacks() -> str:
    return "" if H100_LAYERS.exists() else "measured layers are missing"


def tiny() -> Iterator[BenchmarkCase]:
    """Yield two micro-batches on two devices, with and without a limit of memory."""
    for seed in range(4):
        for memory in (None, 1):
            yield BenchmarkCase(
                f"random times {seed}, memory {memory or 'without limit'}",
                "the least of all orders",
                partial(brute_force, seed, memory),
                seed == 0,
            )


def equal() -> Iterator[BenchmarkCase]:
    """Yield micro-batches that are alike, as a table."""
    for stages, number in ((4, 8), (8, 16)):
        yield BenchmarkCase(
            f"{stages} stages, {number} micro-batches",
            "the same schedule in 1.2 times the CPU time",
            partial(alike, stages, number),
            stages == 4,
        )


def flow_shops() -> Iterator[BenchmarkCase]:
    """Yield flow shops of two machines."""
    for number in (10, 20, 50):
        for seed in range(2):
            yield BenchmarkCase(
                f"{number} micro-batches, seed {seed}",
                "Johnson's optimum, proved",
                partial(johnson, number, seed),
                (number, seed) == (10, 0),
            )


def sequences() -> Iterator[BenchmarkCase]:
    """Yield 64 sequences of log-normal lengths through 8 stages of Llama 3 8B."""
    for seed, split, limited in itertools.product(range(3), (False, True), (True, False)):
        yield BenchmarkCase(
            f"seed {seed}, {'split' if split else 'whole'} backward, {'64 GiB' if limited else 'no limit'}",
            "10 % below the best by hand, or 2 % above the bound",
            partial(beside_hand_made, seed, split, limited, _WORK),
            lacks=_lacks,
        )


def replicas() -> Iterator[BenchmarkCase]:
    """Yield the same on 2 to 4 replicas."""
    for seed, split, number in itertools.product(range(3), (False, True), (2, 3, 4)):
        yield BenchmarkCase(
            f"seed {seed}, {'split' if split else 'whole'} backward, {number} replicas",
            "10 % below the best by hand or 2 % above the bound; 1 unit within 3 %",
            partial(on_replicas, seed, split, number, _WORK_ON_REPLICAS),
            lacks=_lacks,
        )


def shops() -> Iterator[BenchmarkCase]:
    """Yield published job shops and flow shops, each job a micro-batch."""
    for name in SHOPS:
        yield BenchmarkCase(name, "within 1 % of the best known", partial(shop, name), name == "ft06")


def quick_mode() -> Iterator[BenchmarkCase]:
    """Yield the same with one unit of work."""
    for seed in range(2):
        for split in (False, True):
            yield BenchmarkCase(
                f"seed {seed}, {'split backward' if split else 'whole backward'}",
                f"within 3 % of {_WORK:g} units of work",
                partial(quick, seed, split, _WORK),
                lacks=_lacks,
            )


def slices() -> Iterator[BenchmarkCase]:
    """Yield sequences of 32 thousand to half a million tokens in 8 slices through 4 stages."""
    for tokens, partition in itertools.product((32_768, 131_072, 524_288), (EVEN, EQUAL_TIME)):
        for own in (False, True):
            yield BenchmarkCase(
                f"{tokens} tokens, {partition}, {'memory of the GPUs' if own else 'memory of Seq1F1B'}",
                "not longer than by hand in the same memory",
                partial(in_slices, tokens, partition, own, 1.0),
            )


def losses() -> Iterator[BenchmarkCase]:
    """Yield lost devices of 8 pipelines: each stage's of 4, and 1 to 8 of 64, drawn one after the other."""
    reach = "the throughput of ReCycle's rule, or more"
    for stage in range(4):
        name = f"{REPLICAS} x 4, a device of stage {stage}"
        yield BenchmarkCase(name, reach, partial(lost, 4, 8, [(stage, 7)], 4.0))
    yield BenchmarkCase("a small one", reach, partial(lost, 2, 2, [(1, 7)], 0.3), True)
    for number in (1, 2, 4, 8, 3, 5, 6, 7):
        copies = drawn_losses(8, number)
        yield BenchmarkCase(f"{number} of 64 devices", reach, partial(lost, 8, 8, copies, 1.0))


BENCHMARK = Benchmark(
    "unequal",
    "One batch of micro-batches that differ, beside the orders that people use.",
    {
        "tiny": tiny,
        "equal": equal,
        "flow_shops": flow_shops,
        "sequences": sequences,
        "quick": quick_mode,
        "slices": slices,
        "losses": losses,
        "replicas": replicas,
        "shops": shops,
    },
    load,
)
