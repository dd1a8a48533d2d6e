"""Layers that all GPUs share beside chains of stages, and the costs of a part of a model."""

from __future__ import annotations

from dataclasses import dataclass

from placements.cluster import DeviceGroup
from placements.models.chain import ModelShape
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.hybrid.plan import is_vocabulary
from placements.planners.hybrid.stage_tables import LayerCosts


@dataclass(frozen=True)
class SharedLayers:
    """Layers that all GPUs share alike.

    Attributes:
        layers: In order of the model.
        places: Before which layer of the chain beside them each comes; its length for those at the end.
        strategy: How all GPUs share each.
        costs: Cost of one micro-batch of each, on each GPU.
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


def shared_vocabulary(
    model: ModelShape, costs: LayerCosts, group: DeviceGroup, data_parallel: int, samples: int, m: int
) -> SharedLayers:
    """Return the embeddings and the output layer of a model on all GPUs, which share the table's rows.

    Args:
        model: Model whose costs they are.
        costs: Costs of the model's layers.
        group: All GPUs.
        data_parallel: Groups that each have a share of the samples and all rows.
        samples: Samples of a micro-batch.
        m: Micro-batches of an iteration.

    Raises:
        PlacementError: One of them cannot be shared so, or its cost is not known.
    """
    places = [i for i, layer in enumerate(model.layers) if is_vocabulary(layer)]
    layers = tuple(model.layers[i] for i in places)
    how = LayerStrategy(group.count // data_parallel, data_parallel)
    found = tuple(costs.cost(layer, how, samples, m, group) for layer in layers)
    return SharedLayers(layers, tuple(place - before for before, place in enumerate(places)), how, found)


class PartCosts:
    """The costs of a part of a model, by those of the whole: a `LayerCosts`."""

    def __init__(self, model: ModelShape, whole: LayerCosts) -> None:
        self.model = model
        self.cost, self.transition_ms, self.transfer_ms = whole.cost, whole.transition_ms, whole.transfer_ms
