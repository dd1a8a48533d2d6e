"""Shares of its peak that this machine reaches, by shape: products, experts, attention cores, and memory.

Each operator runs by itself, several times; the median counts. The form of the rows is that of
`placements.models.machine.machine_file`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from placements.hardware import Gpu
from placements.models.layers import Layer
from placements.models.machine.machine_file import MachineRow, MeasuredOperator
from placements.models.machine.measured_rates import CORE_BACKWARD
from placements.models.operators import Core, Product

_STREAM_BYTES = 1 << 28
"""Bytes that are read and written to measure the bandwidth of memory."""


@dataclass(frozen=True)
class RatesOptions:
    """What is measured, and how.

    Attributes:
        device: Where.
        repeats: Times that each operator runs; the median counts.
        warm_up: Times that it runs before.
        stream_bytes: Bytes that the measurement of memory moves.
    """

    device: torch.device
    repeats: int = 10
    warm_up: int = 3
    stream_bytes: int = _STREAM_BYTES


@dataclass(frozen=True)
class Shape:
    """An operator to measure.

    Attributes:
        operator: See `placements.models.machine.machine_file`.
        which: Its pass or kind.
        sizes: Its sizes.
        amount: Operations, or bytes of a kernel.
        make: Returns what runs it once.
    """

    operator: MeasuredOperator
    which: str
    sizes: tuple[int, ...]
    amount: float
    make: Callable[[], Callable[[], object]]


class RatesError(ValueError):
    """Nothing can be measured; the message says why in one line."""


def rates_options(device: str, repeats: int) -> RatesOptions:
    """Return how operators are measured on a device by its name.

    Raises:
        RatesError: The device is not there.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise RatesError("device: cuda is not there; use cpu, or a machine with a GPU")
    return RatesOptions(torch.device(device), repeats)


def shapes_of(
    layers: Sequence[Layer], degrees: Sequence[int], samples: int, options: RatesOptions
) -> list[Shape]:
    """Return every different operator of layers, each once, products first.

    Args:
        layers: Layers of a model.
        degrees: Degrees of tensor parallelism; those that do not divide a layer are left out.
        samples: Samples of a micro-batch.
        options: Where they run.
    """
    found: dict[tuple[str, str, tuple[int, ...]], Shape] = {}
    for degree in degrees:
        for layer in layers:
            try:
                layer.check(degree, 1)
            except ValueError:
                continue
            for product in layer.on(degree).products:
                for shape in _of_product(product, samples, options):
                    found.setdefault((shape.operator, shape.which, shape.sizes), shape)
            for core in layer.on(degree).cores:
                for shape in _of_core(core, samples, options):
                    found.setdefault((shape.operator, shape.which, shape.sizes), shape)
    stream = Shape("kernel", "stream", (), options.stream_bytes, lambda: _copy(options))
    return [*sorted(found.values(), key=lambda each: each.operator != "product"), stream]


def measured_rows(shapes: Sequence[Shape], gpu: Gpu, options: RatesOptions) -> Iterator[MachineRow]:
    """Yield the share that each operator reaches.

    Args:
        shapes: What is measured.
        gpu: Its peaks.
        options: How it is measured.
    """
    for shape in shapes:
        seconds = _seconds(shape.make(), options)
        peak = gpu.memory_bandwidth_gb_s * 1e9 if shape.operator == "kernel" else gpu.peak_tflops * 1e12
        # A rate above what the file takes is a wrong peak; it is told when the file is read.
        share = min(shape.amount / (seconds * peak), 2.0)
        latency_us = _launch_us(options) if shape.operator == "kernel" else None
        yield MachineRow(shape.operator, shape.which, share, " ".join(map(str, shape.sizes)), latency_us)


def _of_product(product: Product, samples: int, options: RatesOptions) -> Iterator[Shape]:
    """Yield the forward of a product, and both products of its backward."""
    inputs, outputs = round(product.inputs), round(product.outputs)
    tokens, number = round(samples * product.tokens), round(product.experts)
    each = max(tokens // number, 1) if number else tokens
    flops = 2.0 * each * inputs * outputs * (number or 1)
    sizes = (number, each, inputs, outputs) if number else (each, inputs, outputs)
    orders = {
        "forward": ((each, inputs), (inputs, outputs)),
        "input_gradient": ((each, outputs), (outputs, inputs)),
        "weight_gradient": ((outputs, each), (each, inputs)),
    }
    for which, (left, right) in orders.items():
        make = _multiply(left, right, number, options)
        yield Shape("experts" if number else "product", which, sizes, flops, make)


def _multiply(
    left: tuple[int, int], right: tuple[int, int], number: int, options: RatesOptions
) -> Callable[[], Callable[[], object]]:
    batch = (number,) if number else ()

    def make() -> Callable[[], object]:
        a, b = (_random((*batch, *size), options) for size in (left, right))
        return lambda: torch.matmul(a, b)

    return make


def _of_core(core: Core, samples: int, options: RatesOptions) -> Iterator[Shape]:
    """Yield the forward and the backward of a causal attention."""
    heads, kv_heads = round(core.heads), round(core.kv_heads)
    sizes = (core.tokens, heads, kv_heads, core.key_width)
    flops = samples * core.flops / core.counted
    yield Shape("core", "forward", sizes, flops, lambda: _attend(core, samples, options, False))
    yield Shape(
        "core", "backward", sizes, CORE_BACKWARD * flops, lambda: _attend(core, samples, options, True)
    )


def _attend(core: Core, samples: int, options: RatesOptions, is_backward: bool) -> Callable[[], object]:
    heads, kv_heads, tokens = round(core.heads), round(core.kv_heads), core.tokens
    queries = _random((samples, heads, tokens, core.key_width), options).requires_grad_(is_backward)
    keys = _random((samples, kv_heads, tokens, core.key_width), options).requires_grad_(is_backward)
    values = _random((samples, kv_heads, tokens, core.value_width), options).requires_grad_(is_backward)

    def forward() -> Tensor:
        return torch.nn.functional.scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=heads != kv_heads
        )

    if not is_backward:
        return forward
    output = forward()
    gradient = torch.ones_like(output)
    return lambda: torch.autograd.grad(output, (queries, keys, values), gradient, retain_graph=True)


def _copy(options: RatesOptions) -> Callable[[], object]:
    """Return a copy that reads half of the bytes and writes as many."""
    source = torch.zeros(options.stream_bytes // 2, dtype=torch.uint8, device=options.device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _launch_us(options: RatesOptions) -> float:
    """Return the time of a kernel that does nothing to speak of."""
    one = torch.zeros(1, device=options.device)
    return 1e6 * _seconds(lambda: one.add_(1), options)


def _random(size: tuple[int, ...], options: RatesOptions) -> Tensor:
    return torch.randn(size, dtype=torch.bfloat16, device=options.device)


def _seconds(run: Callable[[], object], options: RatesOptions) -> float:
    """Return the median time of a run, until the device is done."""
    for _ in range(options.warm_up):
        run()
    is_cuda = options.device.type == "cuda"
    times = []
    for _ in range(options.repeats):
        if is_cuda:
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            begin.record()
            run()
            end.record()
            end.synchronize()
            times.append(float(begin.elapsed_time(end)) / 1e3)
        else:
            started = time.perf_counter()
            run()
            times.append(time.perf_counter() - started)
    return max(median(times), 1e-9)
