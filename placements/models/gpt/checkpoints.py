"""How many activation checkpoints a stage of equal layers keeps (Narayanan, dissertation, Sec. 4.3.5).

A stage of l layers that keeps c inputs of layers computes l / c layers again at a time, so it needs
c A_input + (l / c) A_intermediate, least at c = sqrt(l A_intermediate / A_input). Throughput does not depend
on c: each layer is computed again once. The dissertation counts one micro-batch; where several are in flight,
each keeps its checkpoints, and only one at a time is computed again, so that fewer are best.
"""

from __future__ import annotations


def stage_bytes(
    layers: int, checkpoints: int, input_bytes: float, intermediate_bytes: float, in_flight: int = 1
) -> float:
    """Return what a stage needs for activations, with segments as equal as whole layers allow.

    Args:
        layers: Layers of the stage.
        checkpoints: Inputs of layers that it keeps, that of the stage included; 1 to `layers`.
        input_bytes: Input of a layer.
        intermediate_bytes: What a layer holds from its forward to its backward where nothing is recomputed.
        in_flight: Micro-batches that the stage holds at one time.

    >>> [stage_bytes(8, c, 2, 16) for c in (1, 2, 4, 8)]
    [130, 68, 40, 32]
    """
    return in_flight * checkpoints * input_bytes + -(-layers // checkpoints) * intermediate_bytes


def optimal_checkpoints(
    layers: int, input_bytes: float, intermediate_bytes: float, in_flight: int = 1
) -> int:
    """Return the number of checkpoints with which a stage needs least memory; the least of equal ones.

    It is the whole number whose memory is least, so next to sqrt(l A_intermediate / (m A_input)).

    >>> optimal_checkpoints(64, 2, 8), optimal_checkpoints(64, 2, 8, in_flight=4)
    (16, 8)
    """
    if layers < 1:
        return 0
    return min(
        range(1, layers + 1),
        key=lambda c: (stage_bytes(layers, c, input_bytes, intermediate_bytes, in_flight), c),
    )


def checkpoints_of(wanted: int | None, layers: int, input_bytes: float, intermediate_bytes: float) -> int:
    """Return how many checkpoints a stage keeps: ``wanted``; 0 is the optimum, None one a layer."""
    if wanted is None:
        return layers
    return min(wanted, layers) if wanted else optimal_checkpoints(layers, input_bytes, intermediate_bytes)
