"""PipeDream's 1F1B and 1F1B-RR: no flush, and stages that may be replicated (dissertation, Sec. 2.4.2).

PipeDream-2BW runs in the same order (Sec. 3.2.1). Which weights are read is in `schedsearch.semantics`; to a
schedule, no flush means that it is one of many micro-batches, or the repetend.
"""

from __future__ import annotations

from placements import Placement
from placements.copies.stages import StageCopy, as_stages, copies_in
from schedsearch.baselines.structure import (
    BaselineStage,
    UnsuitablePlacementError,
    in_orders,
    pipelines,
    replicated_chains,
)
from schedsearch.repetend import Cycle, Repetend
from schedsearch.schedule import Instance, Schedule


def pipedream(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B in which the replicas of a stage take inputs in turn.

    A replica of a stage runs as many forward blocks before its first backward as inputs are in flight from
    there on: all workers from its stage to the last, over the stage's replicas, rounded up. The first stage
    has NOAM of them. Then it runs one backward and one forward block in turn. Without replicas this is 1F1B.

    Args:
        placement: A V-shape, one with copies of its devices (`placements.copies.replicas`), or one of
            `placements.planners.replicated`, whose micro-batches are rounds of inputs.
        num_micro_batches: How many, or how many rounds.

    Raises:
        UnsuitablePlacementError: The placement is none of these.
    """
    if copies_in(placement):
        return _on_copies(placement, num_micro_batches)
    chains = replicated_chains(placement, "PipeDream")
    orders: dict[int, list[Instance]] = {}
    for device, (stages, ahead) in _replicas(chains).items():
        inputs = [(stage, n) for n in range(num_micro_batches) for stage in stages]
        order = [(stage.forward, n) for stage, n in inputs[: ahead - 1]]
        for i, (stage, n) in enumerate(inputs):
            order += [(later.forward, k) for later, k in inputs[i + ahead - 1 : i + ahead]]
            order.append((stage.backward, n))
        orders[device] = order
    return in_orders(placement, num_micro_batches, orders)


def _on_copies(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return `pipedream` on copies of stages: micro-batch n takes copy n mod r of a stage of r copies."""
    copies, stages = copies_in(placement), as_stages(placement)
    named = {copy: name for name, copy in copies.items()}
    found = pipelines(stages)
    if len(found) != 1 or any(stage.weight for stage in found[0]):
        what = "copies of a chain of stages with mirrored backward blocks that are whole"
        raise UnsuitablePlacementError(
            f"schedule: PipeDream needs {what}, which {placement.name} is not", "use schedule=searched"
        )
    orders: dict[int, list[Instance]] = {}
    takes = [0] * len(placement.decisions)
    for place, stage in enumerate(found[0]):
        workers = sum(len(later.devices) for later in found[0][place:])
        for number, device in enumerate(stage.devices):
            ahead = -(-workers // len(stage.devices))
            own = range(number, num_micro_batches, len(stage.devices))
            forward, backward = (named[StageCopy(name, number)] for name in (stage.forward, stage.backward))
            order = [(forward, n) for n in own[: ahead - 1]]
            for i, n in enumerate(own):
                order += [(forward, later) for later in own[i + ahead - 1 : i + ahead]]
                order.append((backward, n))
            orders[device] = order
            if len(stage.devices) > 1:
                takes[placement.decision_of[forward]] = len(stage.devices)
    chosen = tuple(tuple(n % count if count else 0 for count in takes) for n in range(num_micro_batches))
    return in_orders(placement, num_micro_batches, orders, chosen)


def pipedream_repetend(placement: Placement) -> Repetend:
    """Return the steady state of `pipedream`, which never ends: one round of inputs in each period.

    Raises:
        UnsuitablePlacementError: See `pipedream`.
    """
    cycles: list[Cycle] = [[] for _ in range(placement.num_devices)]
    for device, (stages, ahead) in _replicas(replicated_chains(placement, "PipeDream")).items():
        cycle: list[tuple[Instance, int]] = []
        for i, stage in enumerate(stages):
            rounds, later = divmod(i + ahead - 1, len(stages))
            cycle += [((stages[later].forward, 0), rounds), ((stage.backward, 0), 0)]
        cycles[device] = cycle
    shortest = max(placement.load(device) for device in range(placement.num_devices))
    longest = sum(block.time for block in placement.blocks) + sum(ticks for _, _, ticks in placement.transfer)
    found = Repetend.of_min_period(placement, 1, cycles, shortest, longest)
    assert found is not None, "the order runs one input after the other"
    return found


def num_admitted(placement: Placement) -> int:
    """Return NOAM: the inputs that each replica of the first stage admits before its first backward block.

    Raises:
        UnsuitablePlacementError: See `pipedream`.
    """
    chains = replicated_chains(placement, "PipeDream")
    return _replicas(chains)[chains[0][0].device][1]


def _replicas(chains: list[list[BaselineStage]]) -> dict[int, tuple[list[BaselineStage], int]]:
    """Return for each device its stages in the order of the inputs, and how many of them are in flight."""
    devices = [
        list(dict.fromkeys(chain[place].device for chain in chains)) for place in range(len(chains[0]))
    ]
    found = {}
    for place, replicas in enumerate(devices):
        workers = sum(map(len, devices[place:]))
        for device in replicas:
            stages = [chain[place] for chain in chains if chain[place].device == device]
            found[device] = stages, -(-workers // len(replicas))
    return found
