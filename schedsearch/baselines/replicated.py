"""PipeDream's 1F1B and 1F1B-RR: no flush, and stages that may be replicated (dissertation, Sec. 2.4.2).

PipeDream-2BW runs in the same order (Sec. 3.2.1). Which weights are read is in `schedsearch.semantics`; to a
schedule, no flush means that it is one of many micro-batches, or the repetend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from placements import Placement
from placements.copies.stages import StageCopy, copies_in
from schedsearch.baselines.structure import (
    REPLICATED,
    BaselineStage,
    Chains,
    Given,
    Orders,
    by_hand,
    in_turns,
)
from schedsearch.repetend import Cycle, Repetend
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

_TITLE = "PipeDream"


@by_hand(_TITLE, REPLICATED)
def pipedream(given: Given, num_micro_batches: int) -> Orders | Schedule:
    """Return 1F1B in which the replicas of a stage take inputs in turn.

    A replica of a stage runs as many forward blocks before its first backward as inputs are in flight from
    there on: all workers from its stage to the last, over the stage's replicas, rounded up. The first stage
    has NOAM of them. Then it runs one backward and one forward block in turn. Without replicas this is 1F1B.

    It takes a V-shape, one with copies of its devices (`placements.copies.replicas`), or one of
    `placements.planners.replicated`, whose micro-batches are rounds of inputs.
    """
    if copies_in(given.placement):
        return _on_copies(given, num_micro_batches)
    orders = {}
    for device, (stages, ahead) in _replicas(given.chains).items():
        inputs = [(stage, n) for n in range(num_micro_batches) for stage in stages]
        orders[device] = in_turns(inputs, inputs, ahead - 1)
    return orders


def _on_copies(given: Given, num_micro_batches: int) -> Schedule:
    """Return it on copies of stages: micro-batch n takes copy n mod r of a stage of r copies."""
    placement = given.placement
    named = {copy: name for name, copy in copies_in(placement).items()}
    orders: list[Sequence[Instance]] = [()] * placement.num_devices
    takes = [0] * len(placement.decisions)
    for place, stage in enumerate(given.stages):
        number = len(stage.devices)
        ahead = -(-sum(len(later.devices) for later in given.stages[place:]) // number)
        for i, device in enumerate(stage.devices):
            forward, backward = (named[StageCopy(name, i)] for name in (stage.forward, stage.backward))
            own = replace(stage, forward=forward, backward=backward)
            visits = [(own, n) for n in range(i, num_micro_batches, number)]
            orders[device] = in_turns(visits, visits, ahead - 1)
            if number > 1:
                takes[placement.decision_of[forward]] = number
    chosen = [tuple(n % count if count else 0 for count in takes) for n in range(num_micro_batches)]
    return as_soon_as_possible(placement, num_micro_batches, orders, chosen)


def pipedream_repetend(placement: Placement) -> Repetend:
    """Return the steady state of `pipedream`, which never ends: one round of inputs in each period.

    Raises:
        UnsuitablePlacementError: See `pipedream`.
    """
    cycles: list[Cycle] = [[] for _ in range(placement.num_devices)]
    for device, (stages, ahead) in _replicas(REPLICATED.chains(placement, _TITLE)).items():
        cycle = []
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
    chains = REPLICATED.chains(placement, _TITLE)
    return _replicas(chains)[chains[0][0].device][1]


def _replicas(chains: Chains) -> dict[int, tuple[list[BaselineStage], int]]:
    """Return for each device its stages in the order of the inputs, and how many of them are in flight."""
    places = list(zip(*chains, strict=True))
    devices = [list(dict.fromkeys(stage.device for stage in stages)) for stages in places]
    return {
        device: (
            [stage for stage in places[place] if stage.device == device],
            -(-sum(map(len, devices[place:])) // len(replicas)),
        )
        for place, replicas in enumerate(devices)
        for device in replicas
    }
