"""1F1B on a pipeline whose transfers occupy both ends, in the order of DeepSpeed's pipeline engine.

It knows the blocks of `placements.measured.measured_placement` and not their costs.
"""

from __future__ import annotations

from collections.abc import Iterator

from placements import Kind, Placement
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible


def blocking_one_f_one_b(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B in which each device takes its transfers in the order of the runtime.

    The engine counts steps. In steps of one parity a stage runs forward, in the others backward, and its
    neighbours do the opposite. It begins a forward step with what it exchanges with the stage before it, and
    a backward step with what it exchanges with the one after it: first the gradient, then the activation. So
    two stages always agree on what comes next, and where transfers take no time this is 1F1B.

    The placement is one of `placements.measured.measured_placement`. Every block starts as soon as this order
    and its inputs let it.
    """
    num_stages = sum(block.kind is Kind.O for block in placement.blocks)
    orders = [list(_order(stage, num_stages, num_micro_batches)) for stage in range(num_stages)]
    return as_soon_as_possible(placement, num_micro_batches, orders)


def _order(stage: int, num_stages: int, num_micro_batches: int) -> Iterator[Instance]:
    before = -1
    for step in range(2 * (num_micro_batches + num_stages - 1)):
        is_forward = step % 2 == stage % 2
        now = (step - stage if is_forward else step - 2 * num_stages + stage + 1) // 2
        exchange = [(f"G{stage - 1}", before), (f"A{stage - 1}", now)]
        if not is_forward:
            exchange = [(f"G{stage}", now), (f"A{stage}", before)]
        neighbour = stage - 1 if is_forward else stage + 1
        block = (f"{'F' if is_forward else 'B'}{stage}", now)
        yield from (
            each
            for each in [*(exchange if 0 <= neighbour < num_stages else []), block]
            if 0 <= each[1] < num_micro_batches
        )
        before = now
