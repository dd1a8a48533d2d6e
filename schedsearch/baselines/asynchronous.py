"""PipeDream's 1F1B and 1F1B-RR: no flush, and stages that may be replicated (dissertation, Sec. 2.4.2).

PipeDream-2BW runs in the same order (Sec. 3.2.1). Which weights are read is in `schedsearch.semantics`; to a
schedule, no flush means that it is one of many micro-batches, or the repetend.
"""

from __future__ import annotations

from placements import Placement
from schedsearch.baselines.structure import BaselineStage, in_orders, replicated_chains
from schedsearch.repetend import Cycle, Repetend
from schedsearch.schedule import Instance, Schedule


def pipedream(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B in which the replicas of a stage take inputs in turn.

    A replica of a stage runs as many forward blocks before its first backward as inputs are in flight from
    there on: all workers from its stage to the last, over the stage's replicas, rounded up. The first stage
    has NOAM of them. Then it runs one backward and one forward block in turn. Without replicas this is 1F1B.

    Args:
        placement: A V-shape, or `placements.planners.replicated`; its micro-batches are rounds of inputs.
        num_micro_batches: How many rounds.

    Raises:
        UnsuitablePlacementError: The placement is neither.
    """
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
