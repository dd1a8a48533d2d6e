"""Costs of layers from their shapes, in the form that planners use, by `placements.models.costing`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from placements.cluster import DeviceGroup
from placements.models.chain import ModelShape
from placements.models.costing.layer_costs import layer_cost
from placements.models.costing.options import USUAL, CostOptions
from placements.models.layers import Layer
from placements.models.parallel import Cost, LayerStrategy
from placements.planners.hybrid.uniform import is_end


@dataclass(frozen=True)
class ShapeCosts:
    """The costs of a model's layers in its precision, on GPUs that reach the options' shares."""

    model: ModelShape
    options: CostOptions = USUAL

    def __post_init__(self) -> None:
        """Take the model's precision."""
        object.__setattr__(self, "options", replace(self.options, precision=self.model.precision))

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return the cost of a layer on each GPU; see `placements.models.costing.layer_costs.layer_cost`."""
        return layer_cost(layer, strategy, samples, num_micro_batches, group, self.options)

    def transition_ms(
        self, layer: Layer, before: LayerStrategy, after: LayerStrategy, samples: int, group: DeviceGroup
    ) -> float:
        """Return the time, forward and backward, to lay a layer's output out for the next strategy.

        Of g GPUs, the more that share samples before or after, each has all but 1 / g to get of what it then
        holds (Galvatron-BMW, Sec. VI: Slice-Gather; the paper gives no formula).
        """
        if _layout(before) == _layout(after):
            return 0.0
        wider = max(before, after, key=lambda strategy: strategy.num_gpus // strategy.data_parallel)
        stride = 1 if wider.tensor_innermost else wider.data_parallel
        numbers = samples / wider.data_parallel * self.options.precision.number_bytes
        sharing = wider.num_gpus // wider.data_parallel
        return 2 * group.all_gather_ms(numbers * layer.output_elements(), sharing, stride)

    def transfer_ms(self, layer: Layer, samples: int, before: DeviceGroup, after: DeviceGroup) -> float:
        """Return the time to send a layer's output to the next stage, each GPU an equal part."""
        elements = samples * layer.output_elements()
        num_bytes = self.options.precision.number_bytes * elements / after.count
        rates, factor = self.options.rates_on(before.gpu), self.options.communication_factor
        is_inside = len({*before.nodes, *after.nodes}) == 1 and before.cluster.link_bandwidth_gb_s is None
        if rates.is_measured and is_inside:
            return factor * rates.collective_ms("send", num_bytes, 2)
        return factor * before.next_transfer_ms(after, num_bytes)


@dataclass(frozen=True)
class FrameworkCosts(ShapeCosts):
    """The costs of layers with a framework's buffers, as a search inside a stage adds them up.

    Buffers of an embedding or an output layer are among its states, as a stage has one of them. Buffers of
    other layers, once for all, and gradients between products are held by one backward.
    """

    def cost(
        self, layer: Layer, strategy: LayerStrategy, samples: int, num_micro_batches: int, group: DeviceGroup
    ) -> Cost:
        """Return the cost of a layer on each GPU, with the framework's buffers."""
        cost = super().cost(layer, strategy, samples, num_micro_batches, group)
        buffers = sum(buffer.num_bytes for buffer in cost.buffers)
        states, once = (buffers, 0.0) if is_end(layer) else (0.0, buffers)
        return replace(
            cost,
            static_bytes=cost.static_bytes + states,
            backward_bytes=max(cost.backward_bytes, cost.backward_peak_bytes - cost.kept_bytes) + once,
            backward_peak_bytes=cost.backward_peak_bytes + once,
            buffers=frozenset(),
        )


def _layout(strategy: LayerStrategy) -> tuple[object, ...]:
    """Return a key equal for all strategies that give a GPU the same part of a boundary tensor."""
    shared = strategy.num_gpus // strategy.data_parallel
    ordered = strategy.tensor_innermost or 1 in (shared, strategy.data_parallel)
    tokens = strategy.tensor_parallel if strategy.sequence != "none" else 1
    return strategy.data_parallel, strategy.context_parallel, tokens, ordered
