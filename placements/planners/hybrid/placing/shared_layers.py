"""Layers that all GPUs share beside chains of stages, and the costs of a part of a model.

The module does not know which layers these are.
"""

from __future__ import annotations

from dataclasses import dataclass

from placements.cluster import DeviceGroup
from placements.models.chain import ModelShape
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.hybrid.stage_tables import LayerCosts


@dataclass(frozen=True)
class SharedLayers:
    """Layers that all GPUs share alike.

    Attributes:
        layers: In order of the model.
        places: Before which layer of the chain beside them each comes; its length for those at the end.
        strategy: How all GPUs share each.
        costs: Costs of one micro-batch on each GPU, for each piece of them that runs as a whole.
    """

    layers: tuple[Layer, ...]
    places: tuple[int, ...]
    strategy: LayerStrategy
    costs: tuple[Cost, ...]

    @property
    def held_mib(self) -> float:
        """Memory that they take of each GPU, with two micro-batches at once."""
        lasting = sum(cost.static_bytes + 2 * cost.kept_bytes for cost in self.costs)
        return (lasting + max(max(cost.forward_bytes, cost.backward_bytes) for cost in self.costs)) / 2**20

    @property
    def time_ms(self) -> float:
        """Forward and backward of one micro-batch."""
        return sum(cost.forward.time_ms + cost.backward.time_ms for cost in self.costs)

    def iteration_ms(self, num_micro_batches: int) -> float:
        """Return what they take of an iteration, with the exchange and update of their weights."""
        return num_micro_batches * self.time_ms + sum(cost.update_ms for cost in self.costs)


@dataclass(frozen=True)
class PartCosts:
    """The costs of a part of a model, by those of the whole.

    Attributes:
        model: The part.
        whole: What knows its layers.
    """

    model: ModelShape
    whole: LayerCosts

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return what a layer costs each GPU of a group, as `LayerCosts` says, like all that follows."""
        return self.whole.cost(layer, strategy, samples, num_micro_batches, group)

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time to lay out a layer's output for the strategy of the next."""
        return self.whole.transition_ms(layer, before, after, samples, group)

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage."""
        return self.whole.transfer_ms(layer, samples, before, after)
