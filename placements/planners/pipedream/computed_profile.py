"""The profile of a convolutional network, computed from its layers' shapes and an assumed rate.

Real profiles are measured; this one stands in where none is there. The module does not know workers.
"""

from __future__ import annotations

from collections.abc import Iterable

from placements.models.layers import Layer
from placements.planners.pipedream.profile_graph import ProfiledNode, ProfileGraph, chain_graph

NUMBER_BYTES = 4
"""Bytes of a 32-bit number."""

BACKWARD_FORWARDS = 2
"""How many forwards take as long as a backward: a product for the gradient of either factor."""


def computed_profile(layers: Iterable[Layer], batch_size: int, tflops: float) -> ProfileGraph:
    """Return the chain of layers as a profile of one mini-batch in 32 bits.

    Args:
        layers: In order.
        batch_size: Images of a mini-batch on one worker.
        tflops: What a worker reaches, in 1e12 operations each second.
    """
    nodes = []
    for layer in layers:
        forward_ms = batch_size * layer.forward_flops(1) / (tflops * 1e9)
        nodes.append(
            ProfiledNode(
                layer.name,
                "computed",
                forward_ms,
                BACKWARD_FORWARDS * forward_ms,
                NUMBER_BYTES * batch_size * layer.output_elements(),
                NUMBER_BYTES * layer.num_parameters,
            )
        )
    return chain_graph(nodes)
