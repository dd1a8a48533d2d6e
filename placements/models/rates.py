"""Rates that a GPU reaches, from its data sheet and shares of it, which are assumptions and parameters.

The module does not know a model, a stage or a device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from placements.block import PlacementError
from placements.cluster import LINK_EFFICIENCY
from placements.hardware import Gpu

MODEL_FLOPS_UTILISATION = 0.50
"""Share of the peak that transformer layers reach; end to end 44 to 52 % of an A100's were measured
(Narayanan's dissertation, Sec. 4.5.1)."""

EXPERT_HALF_TOKENS = 230
"""Tokens of each expert with which a product of experts reaches half of the share of large products.

With n tokens it reaches n / (n + 230) of it, within 0.05 of the shares that SimuMax 1.2 measured on a B200:
0.18 of the peak with 128 tokens, 0.27 with 256, 0.39 with 512, 0.49 with 2460."""

HOST_US = 125.0
"""Time of the host for each kernel, in 1e-6 seconds: GPTs of hidden size 512 take 4.0 ms for a layer's
forward and backward on H100 in Megatron-LM's own functional tests (at d98e8a64; 12 layers, 4 GPUs to each
matrix), which are 32 kernels by our count; no GPU would need a tenth of that."""

OUTPUT_LAYER_UTILISATION = 0.65
"""Share of the peak that the output layer's product reaches: assumed, above that of whole layers because
it is one large matrix product with nothing between."""

MEMORY_EFFICIENCY = 0.85
"""Share of the data sheet's memory bandwidth that long streams reach: assumed."""

RESERVE_GIB = 4.0
"""Memory kept for the CUDA context, communication buffers, temporaries and fragmentation: assumed."""

COPY_COMPUTE_SHARE = 0.2
"""Share of the time of copies and transfers that depends on the clock: assumed. They are bound by memory and
links, but at the lowest clocks even those slow down."""


@dataclass(frozen=True)
class Rates:
    """Rates that a GPU reaches, from its data sheet and the assumed shares of it.

    Attributes:
        gpu: What every device is.
        model_flops_utilisation: Share of the peak that transformer layers reach; above 0, at most 1, as of
            those that follow.
        output_layer_utilisation: Share of the peak that the output layer reaches.
        memory_efficiency: Share of the memory bandwidth that is reached.
        link_efficiency: Share of the link bandwidth that is reached.
        reserve_gib: Memory that neither parameters nor activations may use.

    Raises:
        PlacementError: A share or the reserve is out of its range.
    """

    gpu: Gpu
    model_flops_utilisation: float = MODEL_FLOPS_UTILISATION
    output_layer_utilisation: float = OUTPUT_LAYER_UTILISATION
    memory_efficiency: float = MEMORY_EFFICIENCY
    link_efficiency: float = LINK_EFFICIENCY
    reserve_gib: float = RESERVE_GIB

    def __post_init__(self) -> None:
        check_shares(
            self,
            "model_flops_utilisation",
            "output_layer_utilisation",
            "memory_efficiency",
            "link_efficiency",
        )
        if not 0 <= self.reserve_gib < self.gpu.memory_gib:
            raise PlacementError(
                f"reserve_gib: {self.reserve_gib} is not from 0 to below the {self.gpu.memory_gib:g} GiB of "
                f"{self.gpu.name}; give less"
            )

    def transfer_ms(self, num_bytes: float) -> float:
        """Return the milliseconds of a transfer between two devices, or of a broadcast in a ring."""
        return num_bytes / (self.gpu.link_bandwidth_gb_s * 1e6 * self.link_efficiency)

    def all_reduce_ms(self, num_bytes: float, num_devices: int) -> float:
        """Return the milliseconds of a ring all-reduce: 2 (n - 1) / n of the bytes over each link."""
        return self.transfer_ms(2 * (num_devices - 1) / num_devices * num_bytes)


def check_shares(rates: object, *names: str) -> None:
    """Ensure that attributes are shares.

    Raises:
        PlacementError: One is not above 0 and at most 1.
    """
    for name in names:
        if not 0 < getattr(rates, name) <= 1:
            raise PlacementError(
                f"{name}: {getattr(rates, name)} is not a share above 0 and at most 1; give one"
            )


def tick_for(shortest_ms: float, tick_ms: float | None) -> float:
    """Return the length of a tick in milliseconds.

    Args:
        shortest_ms: Time of the shortest block.
        tick_ms: What is asked for; None for the longest power of ten of which the shortest block has at
            least 100.

    Raises:
        PlacementError: What is asked for is not above 0, or longer than the shortest block.
    """
    if tick_ms is None:
        return float(f"1e{math.floor(math.log10(shortest_ms / 100))}")
    if not 0 < tick_ms <= shortest_ms:
        raise PlacementError(
            f"tick_ms: {tick_ms} is not above 0 and at most the {shortest_ms:.3g} ms of the shortest block; "
            "give a value in between"
        )
    return tick_ms
