"""Rates that a machine reaches: shares of peaks by shape, bandwidths, and times of collectives.

The module knows no layer and no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import RBFInterpolator

from placements.forms.meaning import Meaning
from placements.hardware import Gpu
from placements.models.layers import BF16, Precision
from placements.models.operators import Core, KernelKind, Product

PASSES = ("forward", "input_gradient", "weight_gradient")
"""The product of a forward, and the two of its backward."""

PERMUTE_SHARE = 0.5
"""Share of the memory's bandwidth that sorting tokens by expert reaches: 0.50 forwards and 0.51 backwards
measured on a B200 (SimuMax 1.2)."""

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]
"""Collectives among the GPUs of a node, or a message from one GPU to the next."""

_NEIGHBORS = 20
"""Measured shapes among which a shape is interpolated. Left out and interpolated, products of 512 to 8192 are
5 % off on average on an A100, 7 % by the nearest shape alone."""

CORE_BACKWARD = 2.5
"""Operations of an attention core's backward over its forward's: the backward computes the scores again
(Dao, 2023, FlashAttention-2, Sec. 4.1)."""

CORE_BACKWARD_SHARE = 0.85
"""Share that such a backward reaches over its forward's, where it was not measured: assumed."""

EXPERT_HALF_TOKENS = 230
"""Tokens of each expert with which a product of experts reaches half of the share of large products.

With n tokens it reaches n / (n + 230) of it, within 0.05 of the shares that SimuMax 1.2 measured on a B200:
0.18 of the peak with 128 tokens, 0.27 with 256, 0.39 with 512, 0.49 with 2460."""


@dataclass(frozen=True)
class ShareTable:
    """Shares of the peak that one kind of operator reaches.

    Attributes:
        by_shape: Shares by sizes.
        mean: Share of every shape where none was measured.
        roof: The most that a shape can reach, which memory limits; 1 by default.
    """

    by_shape: Mapping[tuple[int, ...], float]
    mean: float
    roof: Callable[..., float] = field(default=lambda *_: 1.0, compare=False, repr=False)

    def at(self, *sizes: float) -> float:
        """Return the share of a shape: as measured, or interpolated among the nearest measured shapes.

        The logarithm of the share over its roof is interpolated in the logarithms of sizes. A size outside
        the measured ones counts as the last of these, but for the roof.

        >>> table = ShareTable({(1024, 8192): 0.2, (4096, 8192): 0.6}, 0.5)
        >>> table.at(4096, 8192), round(table.at(2048, 8192), 3), round(table.at(9000, 9000), 3)
        (0.6, 0.346, 0.6)
        """
        key = tuple(max(round(size), 1) for size in sizes)
        if key in self.by_shape or not self.by_shape:
            return self.by_shape.get(key, self.mean)
        ends, interpolate = self._interpolation
        place = np.clip(np.log2(key), *ends)
        return float(np.exp(interpolate(place[None])[0])) * self.roof(*key)

    @cached_property
    def _interpolation(self) -> tuple[NDArray[np.float64], RBFInterpolator]:
        """The least and the largest logarithms of sizes, and the function between."""
        places = np.log2(np.array(list(self.by_shape), float))
        values = [math.log(share / self.roof(*shape)) for shape, share in self.by_shape.items()]
        known = RBFInterpolator(places, values, neighbors=min(_NEIGHBORS, len(values)), kernel="linear")
        return np.stack([places.min(axis=0), places.max(axis=0)]), known


@dataclass(frozen=True)
class KernelRate:
    """Rates of kernels bound by memory: bandwidth, reached share and latency."""

    bandwidth_gb_s: Annotated[float, Meaning("from and to memory", "GB/s", above=0, key="gbps")]
    share: Annotated[float, Meaning("share of it that is reached", above=0, max=2, key="efficient_factor")]
    latency_us: Annotated[float, Meaning("time that each kernel takes besides", "us", min=0)]

    def ms(self, num_bytes: float, launches: int) -> float:
        """Return the milliseconds of kernels that read and write `num_bytes` in all."""
        return num_bytes / (self.bandwidth_gb_s * 1e6 * self.share) + launches * self.latency_us / 1e3


@dataclass(frozen=True)
class CollectiveRate:
    """Rates of a collective among n GPUs of a node.

    The volume is 2 for an all-reduce, otherwise 1; each GPU sends ``(n - 1) / n`` of it, but in a send all of
    the tensor. Steps are n - 1, or 2 (n - 1) in an all-reduce.
    """

    bandwidth_gb_s: Annotated[float, Meaning("of a GPU in one direction", "GB/s", above=0)]
    share: Annotated[float, Meaning("share of it that is reached", above=0, max=2, key="efficient_factor")]
    volume: Annotated[float, Meaning("bytes that are sent, of the tensor's", min=0, key="scale")]
    step_us: Annotated[float, Meaning("time of each step", "us", min=0, key="latency_us")]
    usual_us: Annotated[float, Meaning("time besides", "us", min=0, key="fixed_latency_us")] = 0.0
    fixed_us: Annotated[
        Mapping[Annotated[int, Meaning("number of GPUs", min=1)], float],
        Meaning("time besides, of numbers of GPUs", "us", min=0, key="fixed_latency_us_by_comm_num"),
    ] = field(default_factory=dict)

    def ms(self, num_bytes: float, degree: int, is_send: bool) -> float:
        """Return the milliseconds for a tensor of `num_bytes`."""
        sent = num_bytes if is_send else num_bytes * self.volume * (degree - 1) / degree
        steps = 1.0 if is_send else self.volume * (degree - 1)
        fixed_us = self.fixed_us.get(degree, self.usual_us)
        return sent / (self.bandwidth_gb_s * 1e6 * self.share) + (steps * self.step_us + fixed_us) / 1e3


@dataclass(frozen=True)
class CollectiveTimes:
    """Times of a collective among n GPUs of a node, by n and by the bytes of the whole tensor.

    Attributes:
        by_degree: Bytes and milliseconds by number of GPUs, by increasing bytes.
    """

    by_degree: Mapping[int, Sequence[tuple[float, float]]]

    def ms(self, num_bytes: float, degree: int, is_send: bool) -> float:
        """Return the milliseconds for a tensor of `num_bytes`, linear between measured sizes and numbers.

        Among more GPUs than were measured it is in proportion to the (n - 1) / n that each sends. A send is
        half of a gathering of two GPUs: each sends its half.
        """
        if is_send:
            return self.ms(2 * num_bytes, 2, False)
        times_ms = []
        for points in self.by_degree.values():
            sizes, known_ms = np.transpose(points)
            more = max(num_bytes / sizes[-1], 1.0)
            times_ms.append(more * float(np.interp(num_bytes, sizes, known_ms)))
        wider = max((1 - 1 / degree) / (1 - 1 / max(self.by_degree)), 1.0)
        return wider * float(np.interp(math.log2(degree), np.log2(list(self.by_degree)), times_ms))


@dataclass(frozen=True)
class MachineRates:
    """Rates of one machine, measured or assumed.

    Attributes:
        name: Name of the machine.
        peak_tflops: Peak that all shares refer to, 1e12 operations per second.
        shares: Shares by operator and pass: of a ``product`` by tokens, inputs and outputs; of ``experts`` by
            matrices and then these; of a ``core`` by tokens, heads and width of a key, and of
            all scores, those included that a causal kernel leaves out. Of products only the forward is
            needed.
        kernels: Rates of kernels that are bound by memory, by kind.
        collectives: Rates of collectives in a node, by kind; none where all is assumed.
        gpus_per_node: GPUs of the node they were measured in.
        precision: Precision of the products.
    """

    name: str
    peak_tflops: float
    shares: Mapping[tuple[str, str], ShareTable]
    kernels: Mapping[KernelKind, KernelRate]
    collectives: Mapping[CollectiveKind, CollectiveRate | CollectiveTimes]
    gpus_per_node: int = 8
    precision: Precision = BF16
    _known: dict[tuple[float, ...], list[float]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_measured(self) -> bool:
        """Whether its products were measured by shape, and its collectives."""
        return bool(self.collectives)

    def product_ms(self, product: Product, tokens: float, is_frozen: bool = False) -> tuple[float, float]:
        """Return the milliseconds of the forward and of the backward of a product with tokens on each GPU.

        The backward has two products, or if the layer is frozen only the input gradient's. Products in 8 or 4
        bits were measured with the cast of inputs from 16 bits (ai-dynamo/aiconfigurator, collect_gemm.py);
        otherwise inputs and output gradients are cast before, plain and transposed.
        """
        inputs, outputs, experts = product.inputs, product.outputs, product.experts
        key = (inputs, outputs, tokens, experts)
        if key not in self._known:
            flops = 2 * tokens * inputs * outputs / (self.peak_tflops * 1e9)
            self._known[key] = [flops / self._share(pass_name, product, tokens) for pass_name in PASSES]
            if ("product", "weight_gradient") not in self.shares:
                # The product adds its own sums: they are read and written while it computes.
                added_ms = self.kernels["stream"].ms(2 * self.precision.gradient_bytes * product.weights, 0)
                self._known[key][2] = max(self._known[key][2], added_ms)
            if self.precision.has_casts and not self.is_measured:
                num_bytes = tokens * (self.precision.number_bytes + 2 * self.precision.product_bytes)
                self._known[key][0] += self.kernels["stream"].ms(num_bytes * inputs, 0)
                self._known[key][1] += self.kernels["stream"].ms(num_bytes * outputs, 0)
        forward, inputs_ms, weights_ms = self._known[key]
        return forward, inputs_ms + (0.0 if is_frozen else weights_ms)

    def _share(self, which: str, product: Product, tokens: float) -> float:
        """Return the share of the peak of a pass of a product.

        A gradient's product that was not measured is a forward of its own sizes; experts that were not are
        one product of all their tokens, which reaches less the fewer each has.
        """
        inputs, outputs, experts = product.inputs, product.outputs, product.experts
        if experts and (grouped := self.shares.get(("experts", which))) and grouped.by_shape:
            return grouped.at(experts, tokens / experts, inputs, outputs)
        table, sizes = self.shares.get(("product", which)), (tokens, inputs, outputs)
        if table is None:
            table = self.shares["product", "forward"]
            sizes = (tokens, outputs, inputs) if which == "input_gradient" else (inputs, tokens, outputs)
        return table.at(*sizes) * (tokens / (tokens + EXPERT_HALF_TOKENS * experts) if experts else 1.0)

    def core_ms(self, core: Core, samples: float) -> tuple[float, float]:
        """Return the milliseconds of an attention core's forward and backward for a number of samples."""
        shape = core.tokens, core.heads * samples, core.key_width
        pass_ms = core.slowdown * samples * core.flops / (self.peak_tflops * 1e9)
        pass_ms /= core.counted if self.is_measured else 1.0
        if core.writes_scores:
            return self._batched_core_ms(core, samples)
        forward = self.shares["core", "forward"].at(*shape)
        measured = self.shares.get(("core", "backward"))
        backward = CORE_BACKWARD_SHARE * forward if measured is None else measured.at(*shape)
        return pass_ms / forward, CORE_BACKWARD * pass_ms / backward

    def _batched_core_ms(self, core: Core, samples: float) -> tuple[float, float]:
        """Return the milliseconds of a core that writes its scores: two batched products, softmax between.

        The backward has four such products. All of them read or write the scores, and memory limits most.
        """
        scores, stream = samples * core.heads * core.tokens * core.span, self.kernels["stream"]
        table = self.shares["product", "forward"]
        share = table.at(core.tokens * core.heads * samples, core.key_width, core.span)
        ms_per_flop = 1 / (self.peak_tflops * 1e9 * share)

        def product_ms(width: float) -> float:
            numbers = scores + samples * core.heads * (core.tokens + core.span) * width
            return max(2 * scores * width * ms_per_flop, stream.ms(2 * numbers, 1))

        both_ms = product_ms(core.key_width) + product_ms(core.value_width)
        forward, backward = (stream.ms(num_bytes * scores, core.launches) for num_bytes in core.score_bytes)
        return both_ms + forward, 2 * both_ms + backward

    def collective_ms(self, kind: CollectiveKind, num_bytes: float, degree: int) -> float:
        """Return the milliseconds of a collective of GPUs of a node; 0 for one GPU."""
        return 0.0 if degree == 1 else self.collectives[kind].ms(num_bytes, degree, kind == "send")


@cache
def assumed_rates(gpu: Gpu, precision: Precision, share: float, memory_share: float) -> MachineRates:
    """Return one share of a data sheet's peak for all products and cores, and one of the bandwidth.

    Cores of attentions stay in 16 bits.
    """
    peak_tflops = precision.peak_tflops(gpu)
    core = ShareTable({}, share * precision.peak_tflops(gpu, exact=True) / peak_tflops)
    shares = {
        ("product", "forward"): ShareTable({}, share),
        ("core", "forward"): core,
        ("core", "backward"): core,
    }
    stream = KernelRate(gpu.memory_bandwidth_gb_s, memory_share, 0.0)
    permute = replace(stream, share=min(PERMUTE_SHARE, memory_share))
    kernels: Mapping[KernelKind, KernelRate] = {"stream": stream, "permute": permute, "loss": stream}
    return MachineRates(gpu.name, peak_tflops, shares, kernels, {}, precision=precision)
