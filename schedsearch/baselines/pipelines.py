"""The schedules of chains: GPipe for any placement; 1F1B and eager 1F1B for a V-shape."""

from __future__ import annotations

from collections.abc import Sequence

from placements import Kind, Placement
from schedsearch.baselines.structure import BaselineStage, V, in_orders, stages_in
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible, micro_batches_of


def gpipe(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return GPipe: all forward blocks of every micro-batch, then all the others.

    Defined for any placement: within each half a device takes its blocks in topological order, each for
    every micro-batch before the next block. Forward blocks that wait for a backward come in a half of their
    own after it, and so on.
    """
    halves = _halves(placement)
    orders = [
        [
            (block.name, n)
            for block in sorted(placement.on(device), key=lambda block: halves[block.name])
            for n in micro_batches_of(placement, block.name, num_micro_batches)
        ]
        for device in range(placement.num_devices)
    ]
    return as_soon_as_possible(placement, num_micro_batches, orders)


def _halves(placement: Placement) -> dict[str, int]:
    """Return the half in which each block runs: even ones are forward."""
    halves: dict[str, int] = {}
    for block in placement.topological_order:
        half = max((halves[name] for name in block.after), default=0)
        halves[block.name] = half + (half % 2 == (block.kind is Kind.F))
    return halves


def one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B with flush, for one forward and one backward block per device.

    PipeDream-Flush (dissertation, Sec. 3.2.2 and, as the default schedule, Sec. 4.2.2; Tessel, Sec. VI-A).
    A device with k stages from its own to the last runs k - 1 forward blocks first, then one forward and
    one backward in turn, then the remaining backward blocks.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape.
    """
    stages = stages_in(placement, "1F1B", V)
    return one_forward_one_backward(placement, num_micro_batches, stages)


def eager_one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B with twice as many forward blocks ahead, which hides transfers (Alpa's overlap-friendly).

    A device with k stages from its own to the last runs 2(k - 1) forward blocks first, and holds up to
    2k - 1 activations instead of k. Without transfers it takes as long as 1F1B.

    Raises:
        UnsuitablePlacementError: The placement is not a V-shape.
    """
    stages = stages_in(placement, "eager 1F1B", V)
    return one_forward_one_backward(placement, num_micro_batches, stages, ahead=2)


def one_forward_one_backward(
    placement: Placement,
    num_micro_batches: int,
    stages: list[BaselineStage],
    ahead: int = 1,
    weight_delay: int = 0,
) -> Schedule:
    """Return 1F1B over the stages of a V-shape, with its two parameters.

    Args:
        placement: What runs where.
        num_micro_batches: How many micro-batches to run.
        stages: The stages, first one first.
        ahead: Forward blocks that a stage runs before its first pair, for each stage after it.
        weight_delay: Micro-batches by which a weight half is behind the input half before it, for each
            stage before; the rest comes at the end.
    """
    numbers = range(num_micro_batches)
    orders: dict[int, list[Instance]] = {}
    for position, stage in enumerate(stages):
        orders[stage.device] = in_turns(
            [(stage.forward, n) for n in numbers],
            [(stage.backward, n) for n in numbers],
            [] if stage.weight is None else [(stage.weight, n) for n in numbers],
            ahead * (len(stages) - position - 1),
            weight_delay * position,
        )
    return in_orders(placement, num_micro_batches, orders)


def in_turns(
    forward: Sequence[Instance],
    backward: Sequence[Instance],
    weight: Sequence[Instance],
    warmup: int,
    delay: int,
) -> list[Instance]:
    """Return a device's order: forwards first, then one forward and one backward in turn.

    Args:
        forward: All its forward blocks in order.
        backward: All its backward blocks, or input halves.
        weight: The weight halves; empty where backwards are whole.
        warmup: Forwards before the first turn.
        delay: Blocks by which a weight half is behind the input half before it; the rest comes at the end.
    """
    order = list(forward[:warmup])
    for n, block in enumerate(backward):
        order += [*forward[warmup + n : warmup + n + 1], block]
        if n >= delay:
            order += weight[n - delay : n - delay + 1]
    return order + list(weight[max(len(weight) - delay, 0) :])
