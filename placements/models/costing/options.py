"""Shares of data sheet figures that GPUs reach, and the work that a training run overlaps.

The module does not know a strategy, nor a link.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from placements.block import PlacementError
from placements.hardware import Gpu
from placements.models.layers import BF16, HALF, Precision
from placements.models.machine.machine_file import rates_of
from placements.models.machine.machine_rates import MachineRates, assumed_rates
from placements.models.memory import PLAIN, Framework
from placements.models.parallel import Pass

_ASSUMED = 0.5
"""Share of its peak that a GPU is assumed to reach where its rates are not known."""

Graphs = Literal["none", "attention", "iteration"]
"""Kernels that run as a CUDA graph, for which the host has nothing to do: none; attention and router; or all,
where the GPU alone knows how many tokens an expert has, so that they are laid out once, where they arrive."""


@dataclass(frozen=True)
class CostOptions:
    """Shares of their data sheets that GPUs reach, and the precision of the training.

    Attributes:
        model_flops_utilisation: Share of the peak that layers reach; above 0, at most 1. None: as measured by
            shape where the project has the GPU's rates, otherwise 0.5. End to end 44 to 52 % of an A100's
            were measured (Narayanan's dissertation, Sec. 4.5.1).
        output_layer_utilisation: Likewise of the output layer's product: assumed, above that of whole layers
            because it is one large matrix product with nothing between.
        memory_efficiency: Share of the memory's bandwidth that long streams reach: assumed.
        overlap_slowdown: Factor by which computing and transfers slow each other down while both run
            (Galvatron-BMW, Sec. V); 1 for none, at most 2: one after the other.
        precision: Precision of weights and activations.
        graphs: Kernels that run as CUDA graphs.
        is_compiled: Kernels between two products are one (torch.compile).
        overlap_tensor_parallel: Tensor-parallel GPUs that share tokens gather and scatter them beside the
            products before and after; otherwise one after the other.
        overlap_weights: With ZeRO-3 the weights of a layer are gathered beside the forward of the one before,
            as FSDP does; otherwise before its own (Galvatron-BMW).
        sends_tokens_once: A token goes once to each GPU that has any of its experts, and once to each other
            node, as with DeepEP and its hybrid; otherwise once for each expert.
        exchanges_apart: Neither the sum of gradients nor the gathering of new weights is in the time of the
            update: who asks lets both run beside the pipeline.
        machine: Measured rates of a machine, which replace all shares, and the links' in a node; None for the
            project's own.
        compute_factor: Factor on times of products, cores and kernels, as of slower clocks, and
            `communication_factor` of exchanges, as of a slower network.
        framework: Training framework, with its memory besides states and activations.

    Raises:
        PlacementError: A share or the slowdown is out of its range.
    """

    model_flops_utilisation: float | None = _ASSUMED
    output_layer_utilisation: float = 0.65
    memory_efficiency: float = 0.85
    overlap_slowdown: float = 1.3
    precision: Precision = HALF
    graphs: Graphs = "none"
    is_compiled: bool = False
    overlap_tensor_parallel: bool = False
    overlap_weights: bool = False
    sends_tokens_once: bool = False
    exchanges_apart: bool = False
    machine: MachineRates | None = None
    framework: Framework = PLAIN
    compute_factor: float = 1.0
    communication_factor: float = 1.0

    def __post_init__(self) -> None:
        """Check shares and slowdown."""
        for name in ("model_flops_utilisation", "output_layer_utilisation", "memory_efficiency"):
            share = getattr(self, name)
            if share is not None and not 0 < share <= 1:
                raise PlacementError(f"{name}: {share} is not a share above 0 and at most 1; give one")
        factor = self.overlap_slowdown
        if not 1 <= factor <= 2:
            raise PlacementError(f"overlap_slowdown: {factor} is not from 1, for none, to 2; give a factor")

    def rates_on(self, gpu: Gpu, is_exact: bool = False) -> MachineRates:
        """Return the rates of a GPU: of its machine, of the project's table, or of its data sheet.

        Exact products stay in 16 bits.
        """
        precision = BF16 if is_exact and self.precision.has_casts else self.precision
        if self.machine is not None:
            return self.machine
        known = rates_of(gpu, precision) if self.model_flops_utilisation is None else None
        return known or assumed_rates(gpu, precision, self.share_of_peak, self.memory_efficiency)

    @property
    def share_of_peak(self) -> float:
        """Share of the peak that layers reach where they are not priced by shape."""
        known = self.model_flops_utilisation
        return _ASSUMED if known is None else known

    def overlapped(self, product_ms: float, transfer_ms: float) -> Pass:
        """Return the time of products and transfers side by side: while both run, both are slower.

        The shorter one runs beside the other for all of its slowed time, s times itself; the other does
        1 / s of that time's work meanwhile. So the sum is the longer and (s - 1) times the shorter
        (Galvatron-BMW, Sec. V).
        """
        longer, shorter = max(product_ms, transfer_ms), min(product_ms, transfer_ms)
        return Pass(product_ms, longer + (self.overlap_slowdown - 1) * shorter - product_ms)


USUAL = CostOptions()
"""The assumed shares, in 16 bits."""
