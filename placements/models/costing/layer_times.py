"""The time of a layer's passes by part: what `layer_cost` adds up.

The module does not know how often a pass runs, nor what a pipeline hides.
"""

from __future__ import annotations

from typing import NamedTuple

from placements.cluster import DeviceGroup
from placements.models.costing.layer_costs import recomputed_pass
from placements.models.costing.layer_share import LayerShare
from placements.models.costing.options import USUAL, CostOptions
from placements.models.costing.states import states_of
from placements.models.layers import Layer
from placements.models.parallel import LayerStrategy

TIME_PARTS = (
    *("forward", "backward", "recomputation", "tensor-parallel exchanges", "context-parallel exchanges"),
    *("expert-parallel exchanges", "weights and gradients of ZeRO-3"),
)
"""Parts of a layer's passes, in the order in which they are told."""


class LayerTimes(NamedTuple):
    """The time of a layer's passes by its parts; `TIME_PARTS` names them.

    Attributes:
        forward: Milliseconds of a micro-batch's forward by part.
        backward: Likewise.
    """

    forward: dict[str, float]
    backward: dict[str, float]


def layer_times(
    layer: Layer,
    strategy: LayerStrategy,
    samples: int,
    num_micro_batches: int,
    group: DeviceGroup,
    options: CostOptions = USUAL,
) -> LayerTimes:
    """Return the times of a layer's passes by part; what `layer_cost` says of them is their sum.

    Of exchanges it is the part that products do not hide. What is exchanged again is told with the exchanges,
    not with the recomputation.

    Args:
        layer: Its shape.
        strategy: How the GPUs share it.
        samples: See `placements.models.costing.layer_costs.layer_cost`, as for the rest.
        num_micro_batches: Micro-batches of an iteration.
        group: The GPUs.
        options: What they reach.
    """
    share = LayerShare(layer, strategy, samples / strategy.data_parallel, group, options)
    again = strategy.recompute if layer.reads_weights_backward else "none"
    states = states_of(share, num_micro_batches)
    forward, backward = share.passes()
    recomputed = recomputed_pass(share, again, forward)
    reduces_ms = [
        min(each, one.copy_ms) for each, one in zip(share.seen_reduces_ms, (forward, backward), strict=True)
    ]
    again_ms = min(reduces_ms[0], recomputed.copy_ms)
    core_ms, core_backward_ms = share.core_ms()
    core_backward_ms += core_ms if recomputed.product_ms else 0.0
    rings_ms = share.ring_ms() * (3 if recomputed.product_ms else 2)
    heads_ms, experts_ms = share.exchange_ms(), share.routing_ms()
    if options.overlap_experts:
        products_ms = (forward + backward).product_ms
        experts_ms = options.overlapped(products_ms, 2 * experts_ms).copy_ms / 2
    number = 2 if again == "full" else 1
    gather_ms, regathers_ms = states.gather_ms, share.regathers_ms()
    beside_ms = states.backward_gathers * gather_ms + regathers_ms
    beside = options.overlapped((backward + recomputed).product_ms, beside_ms)
    seen = beside.copy_ms / beside_ms if beside_ms else 0.0
    if options.overlap_weights:
        gather_ms = options.overlapped(forward.product_ms, gather_ms).copy_ms
    ring_ms = options.overlapped(core_ms, share.ring_ms()).copy_ms
    ring_backward_ms = options.overlapped(core_backward_ms, rings_ms).copy_ms
    of_forward = (forward.time_ms - reduces_ms[0], 0.0, 0.0, reduces_ms[0])
    of_backward = (
        *(0.0, backward.time_ms - reduces_ms[1], recomputed.time_ms - again_ms),
        reduces_ms[1] + again_ms + seen * regathers_ms,
    )
    exchanges = (heads_ms + ring_ms, experts_ms, gather_ms)
    exchanges_again = (
        *(number * heads_ms + ring_backward_ms, number * experts_ms),
        seen * states.backward_gathers * states.gather_ms,
    )
    return LayerTimes(
        dict(zip(TIME_PARTS, of_forward + exchanges, strict=True)),
        dict(zip(TIME_PARTS, of_backward + exchanges_again, strict=True)),
    )
