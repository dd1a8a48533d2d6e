"""The time of a layer's passes by part.

The module does not know how often a pass runs, nor what a pipeline hides.
"""

from __future__ import annotations

from typing import NamedTuple

from placements.models.costing.layer_share import LayerShare
from placements.models.costing.states import States
from placements.models.parallel import Pass

TIME_PARTS = (
    *("forward", "backward", "recomputation", "tensor-parallel exchanges", "context-parallel exchanges"),
    *("expert-parallel exchanges", "weights and gradients of ZeRO-3", "wait for the host"),
)
"""Parts of a layer's passes, in the order in which they are told."""


class LayerTimes(NamedTuple):
    """The time of a layer's passes by its parts; `TIME_PARTS` names them.

    Attributes:
        forward: Milliseconds of a micro-batch's forward by part.
        backward: Likewise.
        products_ms: Milliseconds of both that are products.
    """

    forward: dict[str, float]
    backward: dict[str, float]
    products_ms: tuple[float, float]

    @property
    def passes(self) -> tuple[Pass, Pass]:
        """Forward and backward, of which all but products is what GPUs send, copy and wait for."""
        forward, backward = (
            Pass(product_ms, max(sum(parts.values()) - product_ms, 0.0))
            for parts, product_ms in zip((self.forward, self.backward), self.products_ms, strict=True)
        )
        return forward, backward


def times_of(share: LayerShare, states: States) -> LayerTimes:
    """Return the times of a layer's passes by part.

    Of exchanges it is the part that products do not hide. What is exchanged again is told with the exchanges,
    not with the recomputation.

    Args:
        share: The layer on a GPU.
        states: Its weights, gradients and optimizer states.
    """
    options = share.options
    forward, backward = share.passes()
    recomputed = _recomputed_pass(share, forward)
    reduces_ms = [
        min(each, one.copy_ms) for each, one in zip(share.seen_reduces_ms, (forward, backward), strict=True)
    ]
    again_ms = min(reduces_ms[0], recomputed.copy_ms)
    core_ms, core_backward_ms = share.core_ms()
    core_backward_ms += core_ms if recomputed.product_ms else 0.0
    rings_ms = share.ring_ms() * (3 if recomputed.product_ms else 2)
    heads_ms, experts_ms = share.exchange_ms(), share.routing_ms()
    number = 2 if share.again == "full" else 1
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
    passes = of_forward + exchanges, of_backward + exchanges_again
    told_forward, told_backward = (
        dict(zip(TIME_PARTS, (*parts_ms, max(host_ms - sum(parts_ms), 0.0)), strict=True))
        for parts_ms, host_ms in zip(passes, share.host_ms, strict=True)
    )
    return LayerTimes(told_forward, told_backward, (forward.product_ms, beside.product_ms))


def _recomputed_pass(share: LayerShare, forward: Pass) -> Pass:
    """Return what the backward computes again: the forward, or the core where its scores were kept."""
    if share.again == "full":
        return forward
    if share.again == "selective" and share.scores_bytes:
        if share.rates is not None:
            return Pass(share.core_ms()[0])
        layer, t = share.layer, share.strategy.matrix_parallel
        return Pass(forward.product_ms * layer.core_flops(t) / layer.forward_flops(t))
    return Pass()
