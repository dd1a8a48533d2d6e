"""Rates by operator from a data sheet, for layers with experts, which no single share of the peak fits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from placements.hardware import Gpu
from placements.models.layers import Precision
from placements.models.machine.measured_rates import (
    CORE_BACKWARD,
    EXPERT_HALF_TOKENS,
    PERMUTE_SHARE,
    KernelRate,
    batched_core_ms,
    summing_ms,
)
from placements.models.operators import Core, KernelKind, Product


@dataclass(frozen=True)
class SheetRates:
    """Reached shares of a data sheet: of the peak by large products and cores, and of the bandwidth.

    Cores of attentions stay in 16 bits.
    """

    gpu: Gpu
    precision: Precision
    product_share: float
    memory_share: float

    @cached_property
    def kernels(self) -> dict[KernelKind, KernelRate]:
        """Rates of kernels that are bound by memory, by kind."""
        stream = KernelRate(self.gpu.memory_bandwidth_gb_s, self.memory_share, 0.0)
        permute = KernelRate(stream.bandwidth_gb_s, min(PERMUTE_SHARE, self.memory_share), 0.0)
        return {"stream": stream, "permute": permute, "loss": stream}

    def product_ms(self, product: Product, tokens: float, is_frozen: bool = False) -> tuple[float, float]:
        """Return the same as `MeasuredRates.product_ms`.

        In 8 or 4 bits a product's inputs are first cast from 16 bits, plain and transposed. Weight gradients
        are added to those of the micro-batches before.
        """
        precision, casts_ms = self.precision, (0.0, 0.0)
        if precision.has_casts:
            num_bytes = tokens * (precision.number_bytes + 2 * precision.product_bytes)
            stream = self.kernels["stream"]
            casts_ms = stream.ms(num_bytes * product.inputs, 0), stream.ms(num_bytes * product.outputs, 0)
        flops = 2 * tokens * product.inputs * product.outputs
        each_ms = flops / (precision.peak_tflops(self.gpu) * 1e9 * self.product_share)
        each_ms *= 1 + EXPERT_HALF_TOKENS * product.experts / tokens
        weights_ms = each_ms + summing_ms(self.kernels["stream"], precision, product)
        return each_ms + casts_ms[0], each_ms + casts_ms[1] + (0.0 if is_frozen else weights_ms)

    def core_ms(self, core: Core, samples: float) -> tuple[float, float]:
        """Return the milliseconds of an attention core's forward and backward for a number of samples."""
        peak_tflops = self.precision.peak_tflops(self.gpu, exact=True)
        ms_per_flop = 1 / (peak_tflops * 1e9 * self.product_share)
        if core.writes_scores:
            return batched_core_ms(core, samples, self.kernels["stream"], ms_per_flop)
        each_ms = samples * core.flops * ms_per_flop
        return each_ms, CORE_BACKWARD * each_ms
