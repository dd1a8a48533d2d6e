"""Costs of measured layers, in the form that planners use, with the exchanges of GPUs that share a layer.

ZeRO-3 gathers weights before each pass, and scatters gradients with each backward, beside its products. Other
exchanges come after the last micro-batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from placements.block import PlacementError
from placements.cluster import DeviceGroup
from placements.measured.layer_profile import NotProfiledError
from placements.models.chain import ModelShape
from placements.models.costing.options import USUAL, CostOptions
from placements.models.end_layers import ProfiledLayer
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy, Pass, SharingLevel
from placements.planners.hybrid.plan import layout_of

MIN_MS = 1e-3
"""Time of a pass that was not measured, or as less, so that it is a block."""


@dataclass(frozen=True)
class MeasuredCosts(ABC):
    """Costs of the layers of a profile, as `placements.planners.hybrid.stage_tables.LayerCosts` asks.

    Attributes:
        options: Options, of which the slowdown of products beside transfers counts.
    """

    options: CostOptions = field(default=USUAL, kw_only=True)

    @property
    @abstractmethod
    def model(self) -> ModelShape:
        """The layers of the profile."""

    @abstractmethod
    def gather_ms(self, group: DeviceGroup, num_bytes: float, level: SharingLevel) -> float:
        """Return the time of an all-gather; each GPU of a ring begins with an equal share of the bytes.

        Where rings cross nodes, `level.stride` rings leave each node at once.
        """

    @abstractmethod
    def alone(
        self, layer: ProfiledLayer, strategy: LayerStrategy, size: int, m: int, group: DeviceGroup
    ) -> Iterator[tuple[Cost, float, float]]:
        """Yield the cost of m micro-batches of one data-parallel group, on each kind of GPU.

        With it come the bytes of weights, as products read them, and of gradients, among its static bytes.
        """

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return the cost of a profile's layer on each GPU of a group, at the pace of the slowest.

        With ZeRO-2 each GPU holds all gradients while several micro-batches add to them, as in
        `placements.models.costing`.

        Raises:
            PlacementError: The strategy does not divide the samples, or was not measured.
        """
        assert isinstance(layer, ProfiledLayer), "of the profile"
        for name, is_other, remedy in (
            ("sequence", strategy.sequence == "ulysses", "use tp"),
            ("context_parallel", strategy.context_parallel > 1, "use 1"),
            ("expert_parallel", strategy.expert_parallel > 1, "use 1"),
            ("recompute", strategy.recompute == "selective", "use none or full"),
        ):
            if is_other:
                value = getattr(strategy, name)
                raise PlacementError(f"{name}: {value} is not in measured profiles; {remedy}")
        groups, zero, costs = strategy.data_parallel, strategy.zero, list[Cost]()
        if samples % groups:
            fault = f"{groups} does not divide the {samples} samples of a micro-batch"
            raise PlacementError(f"data_parallel: {fault}; use a divisor")
        try:
            measured = list(self.alone(layer, strategy, samples // groups, num_micro_batches, group))
            gather_ms = self.gather_ms(group, measured[0][1], strategy.weight_copies)
        except NotProfiledError as error:
            raise PlacementError(str(error)) from None
        for of_layer, weights, gradients in measured:
            optimizer = of_layer.static_bytes - weights - gradients
            once = optimizer + (gradients if num_micro_batches == 1 else 0.0)
            shared = (0.0, optimizer, once, of_layer.static_bytes)[zero]
            states = of_layer.static_bytes - shared + shared / groups
            step_ms = of_layer.update_ms / (groups if zero else 1)
            if zero < 3 or groups == 1:
                costs.append(replace(of_layer, static_bytes=states, update_ms=step_ms + 2 * gather_ms))
                continue
            gathers, gathered = 1 if layer.role == "embedding" else 2, weights * (1 - 1 / groups)
            backward = self.options.overlapped(of_layer.backward.product_ms, gathers * gather_ms)
            cost = replace(
                of_layer,
                forward=of_layer.forward + Pass(0.0, gather_ms),
                backward=backward + Pass(0.0, of_layer.backward.copy_ms),
                forward_bytes=gathered,
                backward_bytes=2 * gathered + of_layer.backward_bytes,
                static_bytes=states,
                update_ms=step_ms,
            )
            costs.append(cost)
        return max(costs, key=lambda cost: cost.forward.time_ms + cost.backward.time_ms)

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time, forward and backward, to lay a layer's output out for the next strategy.

        The gathered bytes are as in `placements.planners.hybrid.shape_costs`.
        """
        if layout_of(before) == layout_of(after):
            return 0.0
        wider = max(before, after, key=lambda strategy: strategy.tensor_parallel)
        local = samples / wider.data_parallel * layer.output_elements() * self.model.precision.number_bytes
        return 2 * self.gather_ms(group, local, wider.tensor_level)
