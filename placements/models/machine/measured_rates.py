"""Rates that a machine was measured to reach: shares of peaks by shape, bandwidths, and times of collectives.

They replace the assumed shares of `placements.models.costing.options`. The module knows no layer and no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from placements.forms.meaning import Meaning
from placements.models.operators import Core, Kernel, KernelKind, Product

PASSES = ("forward", "input_gradient", "weight_gradient")
"""The product of a forward, and the two of its backward."""

CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]
"""Collectives among the GPUs of a node, or a message from one GPU to the next."""

CORE_BACKWARD = 2.5
"""Operations of an attention core's backward over its forward's: the backward computes the scores again
(Dao, 2023, FlashAttention-2, Sec. 4.1)."""


@dataclass(frozen=True)
class ShareTable:
    """Shares of the peak that one kind of operator reaches.

    Attributes:
        by_shape: Shares by sizes.
        mean: Share of shapes that no measured one is near to.
    """

    by_shape: Mapping[tuple[int, ...], float]
    mean: float

    def at(self, *sizes: float) -> float:
        """Return the share of a shape: as measured, or of the nearest measured one, or the mean.

        The nearest is the one with the least sum of the logarithms of the ratios of sizes. It counts only
        where no size differs by more than a factor of 2, which is assumed.

        >>> table = ShareTable({(4096, 8192): 0.6, (64, 8192): 0.1}, 0.5)
        >>> table.at(4096, 8192), table.at(4000, 8192), table.at(512, 8192)
        (0.6, 0.6, 0.5)
        """
        key = tuple(round(size) for size in sizes)
        if key in self.by_shape:
            return self.by_shape[key]
        best, share = math.inf, self.mean
        for shape, measured in self.by_shape.items():
            ratios = [abs(math.log2(max(a, 1) / b)) for a, b in zip(key, shape, strict=True)]
            if max(ratios) <= 1 and sum(ratios) < best:
                best, share = sum(ratios), measured
        return share


@dataclass(frozen=True)
class KernelRate:
    """Rates of kernels bound by memory: bandwidth, reached share and latency."""

    bandwidth_gb_s: Annotated[float, Meaning("from and to memory", "GB/s", above=0, key="gbps")]
    share: Annotated[float, Meaning("share of it that is reached", above=0, max=2, key="efficient_factor")]
    latency_us: Annotated[float, Meaning("time that each kernel takes besides", "us", min=0)]

    def ms(self, num_bytes: float, launches: int) -> float:
        """Return the milliseconds of kernels that read and write `num_bytes` in all."""
        return num_bytes / (self.bandwidth_gb_s * 1e6 * self.share) + launches * self.latency_us / 1e3

    def passes_ms(self, kernel: Kernel, share: float, number_bytes: int) -> tuple[float, float]:
        """Return the milliseconds of a kernel's forward and backward, for a number of samples."""
        return (
            self.ms(kernel.forward * share * number_bytes, kernel.launches[0]),
            self.ms(kernel.backward * share * number_bytes, kernel.launches[1]),
        )


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
class MeasuredRates:
    """Measured rates of one machine.

    Attributes:
        name: Name of the machine.
        peak_tflops: Peak that all shares refer to, 1e12 operations per second.
        shares: Shares by operator and pass: of a ``product`` by tokens, inputs and outputs; of ``experts`` by
            matrices and then these; of a ``core`` by tokens, heads, heads of keys, and width of a key, and of
            all scores, those included that a causal kernel leaves out.
        kernels: Rates of kernels that are bound by memory, by kind.
        collectives: Rates of collectives in a node, by kind.
        gpus_per_node: GPUs of the node they were measured in.
    """

    name: str
    peak_tflops: float
    shares: Mapping[tuple[str, str], ShareTable]
    kernels: Mapping[KernelKind, KernelRate]
    collectives: Mapping[CollectiveKind, CollectiveRate]
    gpus_per_node: int = 8
    _known: dict[tuple[float, ...], list[float]] = field(default_factory=dict, compare=False, repr=False)

    def product_ms(self, product: Product, tokens: float, is_frozen: bool = False) -> tuple[float, float]:
        """Return the milliseconds of the forward and of the backward of a product with tokens on each GPU.

        The backward has two products, or if the layer is frozen only the input gradient's.
        """
        inputs, outputs, experts = product.inputs, product.outputs, product.experts
        key = (inputs, outputs, tokens, experts)
        if key not in self._known:
            sizes = (experts, tokens / experts, inputs, outputs) if experts else (tokens, inputs, outputs)
            kind, peak = "experts" if experts else "product", self.peak_tflops * 1e9
            shares = (self.shares[kind, each].at(*sizes) for each in PASSES)
            self._known[key] = [2 * tokens * inputs * outputs / (peak * share) for share in shares]
        forward, inputs_ms, weights_ms = self._known[key]
        return forward, inputs_ms if is_frozen else inputs_ms + weights_ms

    def core_ms(self, core: Core, samples: float) -> tuple[float, float]:
        """Return the milliseconds of an attention core's forward and backward for a number of samples."""
        shape = core.tokens, core.heads, core.kv_heads, core.key_width
        each_ms = samples * core.flops / core.counted / (self.peak_tflops * 1e9)
        forward, backward = (self.shares["core", each].at(*shape) for each in ("forward", "backward"))
        return each_ms / forward, CORE_BACKWARD * each_ms / backward

    def collective_ms(self, kind: CollectiveKind, num_bytes: float, degree: int) -> float:
        """Return the milliseconds of a collective of GPUs of a node; 0 for one GPU."""
        return 0.0 if degree == 1 else self.collectives[kind].ms(num_bytes, degree, kind == "send")
