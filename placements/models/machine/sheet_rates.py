"""Rates by operator from a data sheet, for layers with experts, which no single share of the peak fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from placements.hardware import Gpu
from placements.models.layers import Precision
from placements.models.machine.measured_rates import CORE_BACKWARD, KernelRate
from placements.models.operators import Core, KernelKind, Product

PERMUTE_EFFICIENCY = 0.5
"""Share of the memory's bandwidth that sorting tokens by expert reaches: 0.50 forwards and 0.51 backwards
measured on a B200 (SimuMax 1.2)."""


@dataclass(frozen=True)
class SheetRates:
    """Reached shares of a data sheet: of the peak by large products and cores, and of the bandwidth.

    Cores of attentions stay in 16 bits. See `placements.models.rates.EXPERT_HALF_TOKENS` for the last field.
    """

    gpu: Gpu
    precision: Precision
    product_share: float
    memory_share: float
    expert_half_tokens: float

    @cached_property
    def kernels(self) -> dict[KernelKind, KernelRate]:
        """Rates of kernels that are bound by memory, by kind."""
        stream = KernelRate(self.gpu.memory_bandwidth_gb_s, self.memory_share, 0.0)
        permute = KernelRate(stream.bandwidth_gb_s, min(PERMUTE_EFFICIENCY, self.memory_share), 0.0)
        return {"stream": stream, "permute": permute, "loss": stream}

    def product_ms(self, product: Product, tokens: float, is_frozen: bool = False) -> tuple[float, float]:
        """Return the same as `MeasuredRates.product_ms`.

        In 8 or 4 bits a product's inputs are first cast from 16 bits, plain and transposed. Weight gradients
        are added to those of the micro-batches before.
        """
        precision, stream = self.precision, self.kernels["stream"]
        flops = 2 * tokens * product.inputs * product.outputs
        each_ms = flops / (precision.peak_tflops(self.gpu) * 1e9 * self.product_share)
        each_ms *= 1 + self.expert_half_tokens * product.experts / tokens
        cast = precision.number_bytes + 2 * precision.product_bytes if precision.has_casts else 0.0
        cast_ms = [stream.ms(cast * tokens * width, 0) for width in (product.inputs, product.outputs)]
        weights_ms = each_ms + stream.ms(2 * precision.gradient_bytes * product.weights, 0)
        return each_ms + cast_ms[0], each_ms + cast_ms[1] + (0.0 if is_frozen else weights_ms)

    def core_ms(self, core: Core, samples: float) -> tuple[float, float]:
        """Return the milliseconds of an attention core's forward and backward for a number of samples."""
        peak_tflops = self.precision.peak_tflops(self.gpu, exact=True)
        each_ms = samples * core.flops / (peak_tflops * 1e9 * self.product_share)
        return each_ms, CORE_BACKWARD * each_ms
