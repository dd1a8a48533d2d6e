"""The cases of the search benchmark: what is known of each placement, and what must be reached.

Shapes are Tessel's (Tessel, Fig. 1 and Fig. 8) with a forward of 1 tick, a backward of 3 and embeddings of 1
unless said; a split backward is two halves of 1 tick each, the second of which gives the memory back. Known
periods and makespans come from CP-SAT models of the same problem, written apart from this project's: modulo
scheduling, and whole schedules. CPU limits are of one core of about 2.6 GHz.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.results import BenchmarkCase
from experiments.benchmarks.search.measuring import KnownMakespan, against_tessel, finite, steady, sweep
from experiments.benchmarks.search.random_placements import random_placements
from experiments.benchmarks.search.real_ratios import GIVEN, WORKLOADS
from experiments.benchmarks.search.real_times import real_times
from experiments.benchmarks.timing import load_solvers
from placements import Placement
from placements.shapes import k_shape, m_shape, nn_shape, v_shape, wave_shape, x_shape
from schedsearch.bounds.load_and_path import load_bound
from schedsearch.bounds.memory_need import minimum_memory

Shape = Callable[..., Placement]

TESSEL_SHAPES: dict[str, Shape] = {"V": v_shape, "X": x_shape, "M": m_shape, "NN": nn_shape, "K": k_shape}


def shapes4() -> Iterator[BenchmarkCase]:
    """Yield Tessel's shapes on four devices: zero bubble within a second; M and NN beside Tessel's search."""
    memory = {"V": 4, "X": 4, "M": 6, "NN": 6, "K": 6}
    for name, shape in TESSEL_SHAPES.items():
        for kind in ("training", "inference"):
            placement = shape(4, inference=kind == "inference").with_memory(memory[name])
            yield _zero_bubble(
                f"{name}4 memory {memory[name]} {kind}",
                placement,
                "z3",
                1.0,
                (name, kind) == ("V", "training"),
            )
    for name in ("M", "NN"):
        placement = TESSEL_SHAPES[name](4).with_memory(memory[name])
        measure = partial(against_tessel, placement, 12, ratio=100, time_limit_s=120)
        must = "proof of the period in 1/100 of Tessel's CPU time"
        yield BenchmarkCase(f"{name}4 memory {memory[name]} and Tessel's search", must, measure)


def shapes8_16() -> Iterator[BenchmarkCase]:
    """Yield the shapes on 8 and 16 devices with ample memory: zero bubble."""
    for num_devices in (8, 16):
        for name, shape in TESSEL_SHAPES.items():
            for memory in (3 * num_devices // 2, 2 * num_devices, 3 * num_devices):
                placement = shape(num_devices).with_memory(memory)
                for solver, cpu_s in (("z3", 15.0), ("cpsat", 2.0)):
                    is_quick = (num_devices, name, memory, solver) == (8, "V", 24, "cpsat")
                    case = f"{name}{num_devices} memory {memory} {solver}"
                    yield _zero_bubble(case, placement, solver, cpu_s, is_quick)


def tight8_16() -> Iterator[BenchmarkCase]:
    """Yield shapes with as much memory as devices, where the least period is above the load."""
    for shape, num_devices, period in (
        (m_shape, 8, 8),
        (nn_shape, 8, 10),
        (m_shape, 16, 8),
        (nn_shape, 16, 10),
    ):
        placement = shape(num_devices).with_memory(num_devices)
        for solver, cpu_s in (("cpsat", 30.0), ("z3", 60.0)):
            name = f"{shape.__name__} {num_devices} memory {num_devices} {solver}"
            measure = partial(steady, placement, period=period, cpu_s=cpu_s, solver=solver)
            yield BenchmarkCase(name, f"OPTIMAL, period {period}, {cpu_s:g} s", measure)


def large() -> Iterator[BenchmarkCase]:
    """Yield placements on 32 and 64 devices."""
    sizes = (("V", 32, 32), ("V", 32, 96), ("M", 32, 96), ("K", 32, 96), ("V", 64, 64), ("V", 64, 192))
    for name, num_devices, memory in sizes:
        placement = TESSEL_SHAPES[name](num_devices).with_memory(memory)
        yield _zero_bubble(f"{name}{num_devices} memory {memory}", placement, "cpsat", 60.0)


def random_times() -> Iterator[BenchmarkCase]:
    """Yield shapes whose every block has 60 to 140 ticks for each tick, with least, some and ample memory."""
    numbers = random.Random(20)
    options: dict[str, Any] = {"optimal": False, "gap_below": 0.05, "max_micro_batches": 3}
    for num_devices in (4, 8):
        for name, shape in TESSEL_SHAPES.items():
            placement = shape(num_devices)
            times = (numbers.randint(60 * block.time, 140 * block.time) for block in placement.blocks)
            blocks = tuple(
                replace(block, time=time) for block, time in zip(placement.blocks, times, strict=True)
            )
            placement = replace(placement, blocks=blocks)
            least = max(minimum_memory(placement, device) for device in range(num_devices))
            for memory in (least, numbers.randint(least + 1, 2 * num_devices), 3 * num_devices):
                measure = partial(steady, placement.with_memory(memory), cpu_s=30.0, **options)
                is_quick = (name, num_devices, memory) == ("V", 4, 12)
                yield BenchmarkCase(
                    f"{name}{num_devices} memory {memory}", "OPTIMAL or gap < 5 %, 30 s", measure, is_quick
                )


EVERY_MEMORY: dict[str, tuple[Placement, float, dict[int, int]]] = {
    "V4": (v_shape(4), 5, {2: 8, 3: 8, 4: 4}),
    "X4 (1,2)": (x_shape(4, 1, 2), 5, {2: 9, 3: 7, 4: 6}),
    "X4": (x_shape(4), 5, {2: 13, 3: 9, 4: 8}),
    "M4": (m_shape(4), 5, {2: 10, 3: 10, 4: 7, 5: 6}),
    "NN4": (nn_shape(4), 5, {2: 12, 3: 12, 4: 9, 5: 9, 6: 8}),
    "K4": (k_shape(4), 5, {2: 8, 3: 6}),
    "V4 split": (v_shape(4, split_backward=True), 5, {2: 5, 3: 4, 4: 3}),
    "X4 split": (x_shape(4, split_backward=True), 5, {2: 8, 3: 6}),
    "wave4x2 split": (wave_shape(4, 2, split_backward=True), 5, {2: 12, 3: 10, 4: 6}),
    "wave4x2 split (5,6,4)": (
        wave_shape(4, 2, 5, split_backward=True, input_time=6, weight_time=4),
        5,
        {3: 53, 4: 34, 5: 33, 6: 30},
    ),
    "X8 (1,2)": (x_shape(8, 1, 2), 60, {4: 9, 5: 8, 6: 6}),
    "M8": (m_shape(8), 60, {5: 10, 6: 10, 7: 10, 8: 8, 9: 7, 10: 7, 11: 6}),
    "NN8": (nn_shape(8), 60, {7: 12, 8: 10, 9: 10, 10: 9, 11: 9, 12: 8}),
    "X8 split": (x_shape(8, split_backward=True), 60, {3: 8, 4: 6}),
}
"""Placement, CPU seconds for all of its memories, and least period by memory, one micro-batch per repetend.

Units of memory are activations of a stage or, in a wave, of a chunk. All are proved; for M8 and NN8 with
memory 7 the search that first found the period could not prove it.
"""


def every_memory() -> Iterator[BenchmarkCase]:
    """Yield for each placement the proved least period of every memory that is of interest."""
    for name, (placement, cpu_s, periods) in EVERY_MEMORY.items():
        rows = {
            f"memory {memory}": (placement.with_memory(memory), float(period))
            for memory, period in periods.items()
        }
        texts = ", ".join(f"{memory}: {period:g}" for memory, period in periods.items())
        must = f"OPTIMAL, periods {texts}, {cpu_s:g} s"
        yield BenchmarkCase(name, must, partial(sweep, rows, cpu_s=cpu_s, each_s=cpu_s), name == "K4")


def several() -> Iterator[BenchmarkCase]:
    """Yield placements where several micro-batches per repetend beat one: V 8, M 10, NN 12 and 9 with one."""
    many: dict[str, Any] = {"max_micro_batches": 3, "cpu_s": 60.0}
    measure = partial(steady, v_shape(4).with_memory(3), period=16 / 3, **many)
    yield BenchmarkCase("V4 memory 3", "OPTIMAL, period 16/3, 60 s", measure, is_quick=True)
    for shape, memory, at_most in ((m_shape, 3, 8.0), (nn_shape, 3, 10.5), (nn_shape, 5, 8.5)):
        measure = partial(steady, shape(4).with_memory(memory), at_most=at_most, optimal=False, **many)
        yield BenchmarkCase(
            f"{shape.__name__} 4 memory {memory}", f"period at most {at_most:g}, 60 s", measure
        )


FINITE: dict[str, tuple[Placement, tuple[str, str, str]]] = {
    "V4 (1,2) memory 4": (v_shape(4, 1, 2).with_memory(4), ("27*", "57*", "393*")),
    "V4 (1,2) memory 3": (v_shape(4, 1, 2).with_memory(3), ("30*", "72*", "519")),
    "V4 split memory 4": (v_shape(4, split_backward=True).with_memory(4), ("21*", "51*", "387*")),
    "X4 (1,2) memory 4": (x_shape(4, 1, 2).with_memory(4), ("22*", "52*", "391")),
    "X4 (1,2) memory 6": (x_shape(4, 1, 2).with_memory(6), ("21*", "51*", "389")),
    "X4 memory 4": (x_shape(4).with_memory(4), ("30*", "70*", "521")),
    "X4 memory 3": (x_shape(4).with_memory(3), ("33*", "78", "583")),
    "X4 split memory 5": (x_shape(4, split_backward=True).with_memory(5), ("19*", "49*", "385*")),
    "X4 split memory 3": (x_shape(4, split_backward=True).with_memory(3), ("21*", "51", "389")),
    "M4 memory 6": (m_shape(4).with_memory(6), ("48*", "108", "780")),
    "M4 memory 5": (m_shape(4).with_memory(5), ("48*", "108", "780")),
    "M4 memory 4": (m_shape(4).with_memory(4), ("48*", "108", "907")),
    "NN4 memory 6": (nn_shape(4).with_memory(6), ("60*", "141", "1037")),
    "NN4 memory 8": (nn_shape(4).with_memory(8), ("60", "140", "1036")),
    "K4 memory 3": (k_shape(4).with_memory(3), ("40*", "100*", "772*")),
    "K4 memory 2": (k_shape(4).with_memory(2), ("50*", "130*", "1026")),
    "wave4x2 split memory 8": (wave_shape(4, 2, split_backward=True).with_memory(8), ("39*", "99*", "771*")),
    "wave4x2 split memory 6": (wave_shape(4, 2, split_backward=True).with_memory(6), ("41*", "101", "779")),
    "wave4x2 split memory 4": (wave_shape(4, 2, split_backward=True).with_memory(4), ("47*", "107", "779")),
    "X8 (1,2) memory 6": (x_shape(8, 1, 2).with_memory(6), ("32", "66", "402")),
    "X8 split memory 4": (x_shape(8, split_backward=True).with_memory(4), ("29", "59", "395")),
    "M8 memory 11": (m_shape(8).with_memory(11), ("64", "124", "796")),
    "NN8 memory 12": (nn_shape(8).with_memory(12), ("77", "157", "1053")),
}
"""Placement, and the least makespan known of 6, 16 and 128 micro-batches; * is proved optimal.

Those that are not were found by CP-SAT over all blocks at once in a minute, by unrolling a repetend, by a
greedy rule, or are those of a schedule made by hand for as much memory or more.
"""

FINITE_TIME_LIMIT_S = 90.0
"""Wall-clock seconds of each search of a whole schedule."""


def finite_schedules() -> Iterator[BenchmarkCase]:
    """Yield whole schedules; a micro-batch of an X-shape is one of each direction, so it has half as many."""
    for count, number in enumerate((6, 16, 128)):
        for name, (placement, known) in FINITE.items():
            best = KnownMakespan(int(known[count].rstrip("*")), known[count].endswith("*"))
            wanted = "at most" if best.is_optimal else "below, or proved,"
            yield BenchmarkCase(
                f"{name}, {number} micro-batches",
                f"makespan {wanted} {best.makespan}; not above any by hand",
                partial(
                    finite,
                    placement,
                    number // 2 if name.startswith("X") else number,
                    best,
                    time_limit_s=FINITE_TIME_LIMIT_S,
                ),
                is_quick=(name, number) == ("V4 (1,2) memory 4", 6),
            )


def real_ratios() -> Iterator[BenchmarkCase]:
    """Yield M-shapes with the times of real models: the bubble by memory, and zero bubble at 5 or 6."""
    for workload, percents in GIVEN:
        rows: dict[str, tuple[Placement, float | None]] = {}
        for memory, percent in percents.items():
            placement = workload.placement().with_memory(memory)
            rows[f"memory {memory}"] = placement, round(load_bound(placement) / (1 - percent / 100))
        bubbles = ", ".join(f"{memory}: {percent:g} %" for memory, percent in percents.items())
        measure = partial(sweep, rows, cpu_s=10.0, each_s=10.0)
        yield BenchmarkCase(workload.name, f"OPTIMAL, bubble {bubbles}", measure, workload is GIVEN[0][0])
    together: dict[str, tuple[Placement, float | None]] = {}
    for workload in WORKLOADS:
        placement = workload.placement()
        for memory in (4, 5, 6):
            is_zero = memory >= (6 if workload.has_head else 5)
            period = load_bound(placement) if is_zero else None
            together[f"{workload.name}, memory {memory}"] = placement.with_memory(memory), period
    yield BenchmarkCase(
        f"all {len(WORKLOADS)} workloads, memory 4, 5 and 6",
        "OPTIMAL, zero bubble from memory 5 on, with a head 6; 60 s",
        partial(sweep, together, cpu_s=60.0, each_s=20.0),
    )


def _zero_bubble(
    name: str, placement: Placement, solver: str, cpu_s: float, is_quick: bool = False
) -> BenchmarkCase:
    measure = partial(steady, placement, period=load_bound(placement), cpu_s=cpu_s, solver=solver)
    return BenchmarkCase(name, f"OPTIMAL, zero bubble, {cpu_s:g} s", measure, is_quick)


BENCHMARK = Benchmark(
    "search",
    "Measure what the search must reach.",
    {
        "shapes4": shapes4,
        "shapes8_16": shapes8_16,
        "tight8_16": tight8_16,
        "large": large,
        "random_times": random_times,
        "every_memory": every_memory,
        "several": several,
        "finite": finite_schedules,
        "real_ratios": real_ratios,
        "real_times": real_times,
        "random_placements": random_placements,
    },
    load_solvers,
)
