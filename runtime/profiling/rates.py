"""Shares of its peak that this machine reaches, by shape: products, experts, attention cores, and memory.

Each operator runs by itself, several times; the median counts. The form of the rows is that of
`placements.models.machine.machine_file`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from placements.hardware import Gpu
from placements.models.layers import Layer
from placements.models.machine.machine_file import MachineRow, MeasuredOperator
from placements.models.machine.machine_rates import CORE_BACKWARD
from placements.models.operators import Core, Product

_STREAM_BYTES = 1 << 28
"""Bytes that are read and written to measure the bandwidth of memory."""

_WARM_UP = 3
"""Runs of an operator before those that count."""


@dataclass(frozen=True)
class RatesOptions:
    """Device of a measurement, and the runs of each operator, whose median counts."""

    device: torch.device
    repeats: int = 10


class Shape(NamedTuple):
    """An operator to measure.

    Attributes:
        operator: See `placements.models.machine.machine_file`.
        which: Its pass or kind.
        sizes: Its sizes.
        amount: Operations, or bytes of a kernel.
        make: Returns a function that runs it once.
    """

    operator: MeasuredOperator
    which: str
    sizes: tuple[int, ...]
    amount: float
    make: Callable[[], Callable[[], object]]


class RatesError(ValueError):
    """Nothing can be measured; the message says why in one line."""


def rates_options(device: str, repeats: int) -> RatesOptions:
    """Return the options of a device by its name; RatesError if it is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise RatesError("device: cuda is not there; use cpu, or a machine with a GPU")
    return RatesOptions(torch.device(device), repeats)


def operator_shapes(
    layers: Sequence[Layer], degrees: Sequence[int], samples: int, options: RatesOptions
) -> list[Shape]:
    """Return every different operator of layers, each once, products first.

    Degrees of tensor parallelism that do not divide a layer are left out for it; `samples` are of a
    micro-batch.
    """
    shapes: list[Shape] = []
    for degree in degrees:
        for layer in layers:
            try:
                layer.check(degree, 1)
            except ValueError:
                continue
            for product in layer.on(degree).products:
                shapes += _of_product(product, samples, options)
            for core in layer.on(degree).cores:
                shapes += _of_core(core, samples, options)
    distinct = {shape[:3]: shape for shape in shapes}
    stream = Shape("kernel", "stream", (), _STREAM_BYTES, partial(_copy, options))
    return [*sorted(distinct.values(), key=lambda shape: shape.operator != "product"), stream]


def measured_rows(shapes: Sequence[Shape], gpu: Gpu, options: RatesOptions) -> Iterator[MachineRow]:
    """Yield the share of a GPU's peaks that each operator reaches."""
    for shape in shapes:
        seconds = _seconds(shape.make(), options)
        peak = gpu.memory_bandwidth_gb_s * 1e9 if shape.operator == "kernel" else gpu.peak_tflops * 1e12
        # A rate above what the file takes is a wrong peak; it is told when the file is read.
        share = min(shape.amount / (seconds * peak), 2.0)
        latency_us = None
        if shape.operator == "kernel":  # that of one that does nothing to speak of
            one = torch.zeros(1, device=options.device)
            latency_us = 1e6 * _seconds(lambda one=one: one.add_(1), options)  # type: ignore[misc]
        yield MachineRow(shape.operator, shape.which, " ".join(map(str, shape.sizes)), share, latency_us)


def _of_product(product: Product, samples: int, options: RatesOptions) -> Iterator[Shape]:
    """Yield the forward of a product, and both products of its backward."""
    inputs, outputs = round(product.inputs), round(product.outputs)
    tokens, number = round(samples * product.tokens), round(product.experts)
    rows = max(tokens // number, 1) if number else tokens
    flops = 2.0 * rows * inputs * outputs * (number or 1)
    batch = (number,) if number else ()
    orders = {
        "forward": ((rows, inputs), (inputs, outputs)),
        "input_gradient": ((rows, outputs), (outputs, inputs)),
        "weight_gradient": ((outputs, rows), (rows, inputs)),
    }
    for which, (left, right) in orders.items():
        make = partial(_multiply, (*batch, *left), (*batch, *right), options)
        yield Shape("experts" if number else "product", which, (*batch, rows, inputs, outputs), flops, make)


def _multiply(left: Sequence[int], right: Sequence[int], options: RatesOptions) -> Callable[[], object]:
    return partial(torch.matmul, _random(left, options), _random(right, options))


def _of_core(core: Core, samples: int, options: RatesOptions) -> Iterator[Shape]:
    """Yield the forward and the backward of a causal attention."""
    sizes = (core.tokens, round(core.heads), round(core.kv_heads), core.key_width)
    flops = samples * core.flops / core.counted
    for which, amount in (("forward", flops), ("backward", CORE_BACKWARD * flops)):
        yield Shape("core", which, sizes, amount, partial(_attend, core, samples, options, which))


def _attend(core: Core, samples: int, options: RatesOptions, which: str) -> Callable[[], object]:
    heads, kv_heads = round(core.heads), round(core.kv_heads)
    sizes = ((heads, core.key_width), (kv_heads, core.key_width), (kv_heads, core.value_width))
    queries, keys, values = (
        _random((samples, number, core.tokens, width), options).requires_grad_(which == "backward")
        for number, width in sizes
    )
    attention = torch.nn.functional.scaled_dot_product_attention
    forward = partial(attention, queries, keys, values, is_causal=True, enable_gqa=heads != kv_heads)
    if which == "forward":
        return forward
    output, inputs = forward(), (queries, keys, values)
    return partial(torch.autograd.grad, output, inputs, torch.ones_like(output), retain_graph=True)


def _copy(options: RatesOptions) -> Callable[[], object]:
    """Return a copy that reads half of the bytes and writes as many."""
    source = torch.zeros(_STREAM_BYTES // 2, dtype=torch.uint8, device=options.device)
    return partial(torch.empty_like(source).copy_, source)


def _random(size: Sequence[int], options: RatesOptions) -> Tensor:
    return torch.randn(*size, dtype=torch.bfloat16, device=options.device)


def _seconds(run: Callable[[], object], options: RatesOptions) -> float:
    """Return the median time of a run, until the device is done."""
    for _ in range(_WARM_UP):
        run()
    times = []
    for _ in range(options.repeats):
        if options.device.type == "cuda":
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
