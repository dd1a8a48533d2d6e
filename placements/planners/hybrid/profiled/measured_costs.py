"""Costs of measured layers: what GPUs that share one exchange and hold besides what was measured.

ZeRO-3 gathers weights before each pass, and scatters gradients with each backward, beside its products. Other
exchanges come after the last micro-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.measured.layer_profile import NotProfiledError
from placements.models.costing.options import CostOptions
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy, Pass, SharingLevel
from placements.models.profiled_layer import ProfiledLayer

MIN_MS = 1e-3
"""Time of a pass that was not measured, or as less, so that it is a block."""


class MeasuredShare(NamedTuple):
    """A layer on one of the GPUs that share it, without what its data-parallel groups exchange.

    Attributes:
        forward_ms: Products of a forward.
        backward_ms: Those of a backward, and of the forward that it computes again.
        kept_bytes: Kept from the one to the other.
        held_bytes: What a backward holds besides.
        states_bytes: Bytes of weights that products read, of their gradients, and of all else.
        gathers: Times that a backward gathers or scatters weights: both, or as of an embedding one.
        reduces_ms: Sums over tensor-parallel GPUs in a forward and a backward.
        step_ms: Step of the optimizer.
    """

    forward_ms: float
    backward_ms: float
    kept_bytes: float
    held_bytes: float
    states_bytes: tuple[float, float, float]
    gathers: int
    reduces_ms: tuple[float, float] = (0.0, 0.0)
    step_ms: float = 0.0

    def cost(self, strategy: LayerStrategy, m: int, gather_ms: float, options: CostOptions) -> Cost:
        """Return its cost where groups gather its weights in such a time; see the module.

        Of gradients that ZeRO-2 shares all are there while several micro-batches add to them, as in
        `placements.models.costing`.
        """
        weights, gradients, optimizer = self.states_bytes
        once = optimizer + (gradients if m == 1 else 0.0)
        shared = {0: 0.0, 1: optimizer, 2: once, 3: sum(self.states_bytes)}[strategy.zero]
        groups = strategy.data_parallel
        sharded = strategy.zero == 3 and groups > 1
        gathered = weights * (1 - 1 / groups) if sharded else 0.0
        backward = options.overlapped(self.backward_ms, self.gathers * sharded * gather_ms)
        return Cost(
            Pass(self.forward_ms, self.reduces_ms[0] + sharded * gather_ms),
            Pass(backward.product_ms, backward.copy_ms + self.reduces_ms[1]),
            self.kept_bytes,
            gathered,
            2 * gathered + self.held_bytes,
            sum(self.states_bytes) - shared + shared / groups,
            self.step_ms / (groups if strategy.zero else 1) + (not sharded) * 2 * gather_ms,
        )


@dataclass(frozen=True)
class MeasuredCosts(ABC):
    """What layers of a profile cost, as `placements.planners.hybrid.stage_tables.LayerCosts` asks."""

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs each GPU of a group.

        Raises:
            PlacementError: The strategy does not divide samples and GPUs, or was not measured.
        """
        if not isinstance(layer, ProfiledLayer):
            raise PlacementError(f"layer: {layer.name!r} is not of the profile; use the profile's model")
        if strategy.num_gpus != group.count:
            raise PlacementError(
                f"strategy: is of {strategy.num_gpus} GPUs of the group's {group.count}; use as many"
            )
        for name, value, remedy in (
            ("sequence", strategy.sequence == "ulysses", "use tp"),
            ("context_parallel", strategy.context_parallel > 1, "use 1"),
            ("expert_parallel", strategy.expert_parallel > 1, "use 1"),
            ("recompute", strategy.recompute == "selective", "use none or full"),
        ):
            if value:
                raise PlacementError(
                    f"{name}: {getattr(strategy, name)} is not in measured profiles; {remedy}"
                )
        if samples % strategy.data_parallel:
            raise PlacementError(
                f"data_parallel: {strategy.data_parallel} does not divide the {samples} samples of a "
                "micro-batch; use a divisor"
            )
        try:
            return self.share_cost(
                layer, strategy, samples // strategy.data_parallel, num_micro_batches, group
            )
        except NotProfiledError as error:
            raise PlacementError(str(error)) from None

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time, forward and backward, to lay a layer's output out for the next strategy.

        What is gathered is as in `placements.models.costing.layer_costs.transition_ms`.
        """
        if _layout(before) == _layout(after):
            return 0.0
        wider = max(before, after, key=lambda strategy: strategy.tensor_parallel)
        local = samples / wider.data_parallel * layer.output_elements() * self.number_bytes
        return 2 * self.gather_ms(group, local, wider.tensor_level)

    @property
    @abstractmethod
    def number_bytes(self) -> int:
        """Bytes of a number between two layers."""

    @abstractmethod
    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time until each GPU of a ring has all bytes, of which it had an equal share.

        Where rings cross nodes, as many as that leave each node at once.
        """

    @abstractmethod
    def share_cost(
        self, layer: ProfiledLayer, strategy: LayerStrategy, size: int, m: int, group: DeviceGroup
    ) -> Cost:
        """Return the cost of a layer for m micro-batches of a size in each data-parallel group."""


def _layout(strategy: LayerStrategy) -> tuple[int, bool]:
    """Return what decides which GPU has what of a boundary; order only where there are two levels."""
    levels = strategy.tensor_parallel, strategy.data_parallel
    return strategy.data_parallel, strategy.tensor_innermost or 1 in levels
