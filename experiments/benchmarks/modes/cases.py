"""The cases of the benchmark of modes and streams, and what must be reached."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial

from experiments.benchmarks.benchmark_command import Benchmark
from experiments.benchmarks.modes.measuring import (
    beside_hand_made,
    beside_v_min,
    min_memory_without_bubbles,
    proved,
)
from experiments.benchmarks.modes.placements import (
    H100_LAYERS,
    expert_layers,
    measured_layers,
    modelled_layer,
    recomputing,
    stages_of_layers,
)
from experiments.benchmarks.results import BenchmarkCase, CaseResult
from experiments.benchmarks.timing import load_solvers
from placements.models.memory_levers import Recompute, with_levers
from placements.shapes import loop_shape, wave_shape
from placements.streams import Slowdown

_PERIODS = {
    (4, 40): (6, 6),
    (4, 32): (8, 7),
    (4, 24): (8, 8),
    (4, 16): (8, 8),
    (4, 12): (12, 11),
    (8, 80): (6, 6),
    (8, 70): (8, 7),
    (8, 60): (8, 7),
}
"""Periods by devices and capacity: of one micro-batch per repetend and of two, from a plain CP-SAT model."""


def recompute() -> Iterator[BenchmarkCase]:
    """Yield stages that keep all or compute it again, on four and eight devices: proved."""
    for (devices, capacity), periods in _PERIODS.items():
        for size, period in enumerate(periods, 1):
            cpu_s = 5.0 if devices == 4 else 60.0
            yield BenchmarkCase(
                f"V{devices} memory {capacity}, {size} a repetend",
                f"OPTIMAL, period {period}, {cpu_s:g} s",
                partial(proved, recomputing(devices, capacity), Fraction(period), size, cpu_s),
                (devices, capacity) == (4, 32),
            )
    for (devices, capacity), thirds in {(8, 70): 20, (8, 50): 22, (16, 120): 20}.items():
        yield BenchmarkCase(
            f"V{devices} memory {capacity}, up to 3 a repetend",
            f"OPTIMAL, period {thirds}/3, 60 s",
            partial(proved, recomputing(devices, capacity), Fraction(thirds, 3), 3, 60.0),
        )


def experts() -> Iterator[BenchmarkCase]:
    """Yield layers of DeepSeek-V3 with all-to-alls on their own stream, beside DualPipe's order."""
    for stages in (4, 8):
        for layers in (1, 2):
            capacity = (2 * stages + 2) * layers
            placement = expert_layers(stages, layers, capacity)
            most = 30.3 * layers
            yield BenchmarkCase(
                f"{stages} stages of {layers}, memory {capacity}",
                f"at most {most:g} ms, no slower than by hand",
                partial(beside_hand_made, placement, 60.0, most),
                (stages, layers) == (4, 1),
            )
            slowed = replace(placement, slowdown=(Slowdown(("compute", "communication"), (1.05, 1.05)),))
            yield BenchmarkCase(
                f"{stages} stages of {layers}, memory {capacity}, 5 % slower side by side",
                "no slower than by hand",
                partial(beside_hand_made, slowed, 60.0),
            )


def layers() -> Iterator[BenchmarkCase]:
    """Yield stages of layers measured on an H100 that keep, recompute or offload, beside those by hand."""

    def lacks() -> str:
        return "" if H100_LAYERS.exists() else "measured layers are missing"

    def measure(name: str, devices: int, layers: int, samples: int, gib: float) -> CaseResult:
        layer = dict(measured_layers())[name]
        return beside_hand_made(stages_of_layers(layer, devices, layers, samples, gib), 60.0)

    for name, samples, layers_of in (
        ("llama3_8b_s8192", 1, {8: 4, 16: 2}),
        ("llama3_8b_s8192", 4, {8: 4, 16: 2}),
        ("llama3_70b_s4096", 2, {8: 2, 16: 2}),
        ("llama3_70b_s4096", 8, {8: 2, 16: 2}),
    ):
        for devices, each in layers_of.items():
            for gib in (80, 40):
                tokens = samples * int(name.rpartition("_s")[2])
                yield BenchmarkCase(
                    f"{name.rpartition('_s')[0]}, {devices} of {each} layers, {tokens} tokens, {gib} GiB",
                    "no slower than by hand",
                    partial(measure, name, devices, each, samples, gib),
                    lacks=lacks,
                )


def modelled() -> Iterator[BenchmarkCase]:
    """Yield stages of published models on A100 GPUs from the cost model, with split backward.

    A copy to the host goes over PCIe, of which 25 GB/s are reached in one direction.
    """

    def measure(
        model: str, tensor_parallel: int, devices: int, layers: int, samples: int, gib: int
    ) -> CaseResult:
        layer = modelled_layer(model, tensor_parallel, 25.0)
        return beside_hand_made(stages_of_layers(layer, devices, layers, samples, gib), 60.0)

    for model, tensor_parallel, devices, layers_of, samples, gib in (
        ("gpt3_13b", 1, 8, 5, 2, 40),
        ("gpt3_13b", 1, 8, 5, 8, 80),
        ("gpt3_13b", 1, 20, 2, 4, 40),
        ("gpt3_13b", 1, 20, 2, 8, 40),
        ("llama2_70b", 4, 8, 10, 1, 80),
        ("llama2_70b", 4, 8, 10, 2, 80),
        ("llama2_70b", 2, 16, 5, 1, 80),
        ("llama2_70b", 2, 16, 5, 2, 80),
    ):
        gpus = tensor_parallel * devices
        yield BenchmarkCase(
            f"{model}, {devices} stages, {gpus} A100 of {gib} GiB, {samples} samples",
            "no slower than by hand",
            partial(measure, model, tensor_parallel, devices, layers_of, samples, gib),
        )


def v_min_memory() -> Iterator[BenchmarkCase]:
    """Yield waves with split backward and the memory of V-Min, where modes may be chosen besides."""
    for times in ((1, 1, 1), (2, 2, 2), (2, 3, 1), (2, 3, 2), (4, 5, 3)):
        for devices in (4, 8):
            yield BenchmarkCase(
                f"{devices} devices, forward {times[0]}, input {times[1]}, weight {times[2]}",
                "shorter than V-Min, or proved that none is",
                partial(beside_v_min, devices, times, 60.0),
                (devices, times) == (4, (2, 3, 1)),
            )


def offload() -> Iterator[BenchmarkCase]:
    """Yield stages of 1F1B whose activations may go to the host: the least memory without idle time."""
    for devices in (4, 8):
        for copy_ticks in (2, 3, 4, 6):
            half = 2 * copy_ticks <= 6  # copies that keep up with half of the load
            yield BenchmarkCase(
                f"{devices} devices, copies of {copy_ticks} beside a load of 6",
                "half the memory of 1F1B or less" if half else "less memory than 1F1B",
                partial(min_memory_without_bubbles, devices, copy_ticks, 10.0, 0.5 if half else 0.99),
                (devices, copy_ticks) == (4, 3),
            )


def chunks() -> Iterator[BenchmarkCase]:
    """Yield waves and loops with modes at a third and a half of the memory of 1F1B."""
    for shape in (wave_shape, loop_shape):
        for devices in (4, 8):
            for share in (3, 2):
                capacity = 20 * devices // share
                names = [f"F{chunk}" for chunk in range(2 * devices)]
                placement = with_levers(
                    shape(devices, forward_time=2, backward_time=4, stage_memory=10).with_memory(capacity),
                    {name: [Recompute(1, 2)] for name in names},
                )
                yield BenchmarkCase(
                    f"{shape.__name__} {devices} memory {capacity}",
                    "no slower than by hand",
                    partial(beside_hand_made, placement, 60.0),
                )


BENCHMARK = Benchmark(
    "modes",
    "Modes and streams that the search decides, beside how people decide them by hand.",
    {"recompute": recompute, "experts": experts, "layers": layers, "modelled": modelled}
    | {"chunks": chunks, "v_min_memory": v_min_memory, "offload": offload},
    load_solvers,
)
