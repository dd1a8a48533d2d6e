"""Time to lay a layer's output out anew where the next layer is shared otherwise.

The module does not know what a layer computes.
"""

from __future__ import annotations

from placements.cluster import DeviceGroup
from placements.models.costing.options import USUAL, CostOptions
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy


def transition_ms(
    layer: Layer,
    before: LayerStrategy,
    after: LayerStrategy,
    samples: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> float:
    """Return the time to lay a layer's output out anew for the next one, or its gradient in the backward.

    Of g GPUs, the more that share samples before or after, each has all but 1 / g to get of what it then
    holds (Galvatron-BMW, Sec. VI: Slice-Gather; the paper gives no formula).

    Args:
        layer: Layer whose output it is.
        before: Strategy of this layer.
        after: Strategy of the next layer.
        samples: Samples of a micro-batch, of all groups together.
        group: The GPUs of both.
        options: Options of the cost model; only the precision counts here.
    """
    if _layout(before) == _layout(after):
        return 0.0
    wider = max(before, after, key=lambda strategy: strategy.num_gpus // strategy.data_parallel)
    degree = wider.num_gpus // wider.data_parallel
    stride = 1 if wider.tensor_innermost else wider.data_parallel
    local = samples / wider.data_parallel * options.precision.number_bytes * layer.output_elements()
    return group.all_gather_ms(local, degree, stride)


def _layout(strategy: LayerStrategy) -> tuple[object, ...]:
    """Return what decides which GPU has what of a boundary; order only where there are two levels."""
    shared = strategy.num_gpus // strategy.data_parallel
    ordered = strategy.tensor_innermost or 1 in (shared, strategy.data_parallel)
    tokens = strategy.tensor_parallel if strategy.sequence != "none" else 1
    return strategy.data_parallel, strategy.context_parallel, tokens, ordered
