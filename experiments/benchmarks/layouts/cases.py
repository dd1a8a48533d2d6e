"""The cases of the benchmark of layouts: published ones in Megatron-LM's notation, which are facts.

Llama 3 70B on 8 ranks of 5 chunks, and DeepSeek-V3 on 16 ranks, the last one of megatron-core's page;
``Ett|(tt|)*6mL`` has 14 layers. There is no limit of memory, and few GPUs share the experts: the times are to
compare layouts, not to plan a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.layouts.measuring import beside_published
from experiments.benchmarks.layouts.profiles import alike, modelled
from experiments.benchmarks.results import BenchmarkCase, CaseResult
from experiments.benchmarks.timing import load_solvers
from placements.layouts.layout import PipelineLayout
from placements.layouts.megatron_notation import read_notation
from placements.planners.hybrid.uniform import Degrees

_LAYOUTS = {
    "Llama 3 70B": ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 8, "llama3_70b", 4, 1),
    "DeepSeek-V3, PP 16": ("Et*4|(tttt|)*14tmL", 16, "deepseek_v3", 1, 8),
    "DeepSeek-V3, PP 16, VPP 2, no MTP": ("Et|(tt|)*30L", 16, "deepseek_v3", 1, 8),
    "DeepSeek-V3, 14 layers, PP 8": ("Ett|(tt|)*6mL", 8, "deepseek_v3", 1, 8),
    "DeepSeek-V3, PP 16, VPP 2": ("Et*3|(tt|)*29,m|L", 16, "deepseek_v3", 1, 8),
}
"""Layout, ranks, model, and how many GPUs share a matrix and the experts where it is modelled."""

_ROUNDS = (4, 16)
"""Micro-batches for each rank."""


def layers_alike() -> Iterator[BenchmarkCase]:
    """Yield published layouts where all layers take as long."""
    for name, (text, ranks, *_) in _LAYOUTS.items():
        for rounds in _ROUNDS:
            yield _case(name, read_notation(text, ranks), rounds, "", 1, 1)


def on_h100() -> Iterator[BenchmarkCase]:
    """Yield published layouts where layers take what is modelled for H100s."""
    for name, (text, ranks, model, tensor, expert) in _LAYOUTS.items():
        for rounds in _ROUNDS:
            yield _case(name, read_notation(text, ranks), rounds, model, tensor, expert)


def _case(
    name: str, layout: PipelineLayout, rounds: int, model: str, tensor: int, expert: int
) -> BenchmarkCase:
    number = rounds * layout.num_devices
    measure = partial(_measured, layout, number, model, tensor, expert)
    is_quick = (layout.num_devices, layout.num_chunks, rounds) == (8, 1, 4)
    return BenchmarkCase(f"{name}, {number} micro-batches", "no slower than published", measure, is_quick)


def _measured(layout: PipelineLayout, number: int, model: str, tensor: int, expert: int) -> CaseResult:
    if not model:
        return beside_published(layout, alike(layout), number)
    each = max(tensor, expert)
    degrees = Degrees(tensor, layout.num_devices, each // tensor, expert=expert)
    layers = modelled(layout, model, degrees, f"h100_{each * layout.num_devices}")
    return beside_published(layout, layers, number)


BENCHMARK = Benchmark(
    "layouts",
    "The best layouts beside published ones.",
    {"layers_alike": layers_alike, "on_h100": on_h100},
    load_solvers,
)
