"""Hand-made schedules where blocks have modes or streams: how people decide first, and schedule then.

All stages recompute, or none; each stage decides for itself what it can afford, exactly (as AdaPipe's
programme does for given stages); or the first stages send activations to the host (as PipeOffload).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Any

from placements import Placement
from placements.block import COMPUTE
from placements.copies.replicas import copies_in
from placements.modes import Chosen
from schedsearch.baselines.communication import computing_blocks, with_communication
from schedsearch.baselines.crossing import stp
from schedsearch.baselines.structure import UnsuitablePlacementError
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible, memory_needed
from schedsearch.validate import InvalidScheduleError, validate

Maker = Callable[[Placement, int], Schedule]

_AHEAD = (1, 2, 3, 4)
"""Numbers of blocks before its backward at which a copy from the host begins, in the order tried."""

_MAX_MIXES = 20_000
"""Most combinations of modes of a device's blocks to enumerate."""


def with_chosen_modes(
    placement: Placement, num_micro_batches: int, makers: dict[str, Maker]
) -> Iterator[tuple[str, Schedule]]:
    """Yield the hand-made schedules that fit the memory of a placement with modes, each with its name.

    The placement has decisions or streams, and no optimizer blocks; the makers are those of plain placements
    by name. STP comes besides where blocks communicate.
    """
    if copies_in(placement):  # which PipeDream alone knows
        if "pipedream" in makers:
            for schedule in _attempt(makers["pipedream"], placement, num_micro_batches):
                yield "pipedream, copies in turn", schedule
    elif placement.decisions and _computing(placement).is_plain:
        for name, make in makers.items():
            for how, chosen in _plans(placement, num_micro_batches, make):
                for schedule in _made(placement, num_micro_batches, make, chosen):
                    yield f"{name}, {how}", schedule
    elif not placement.decisions and (computing := computing_blocks(placement)) is not None:
        for name, make in {**makers, stp.__name__: stp}.items():
            for base in _attempt(make, computing, num_micro_batches):
                for schedule in _attempt(with_communication, placement, num_micro_batches, base):
                    yield name, schedule


def _attempt(make: Callable[..., Schedule], *args: Any) -> Iterator[Schedule]:
    """Yield the schedule that a function makes, if it makes one and the schedule is valid."""
    try:
        yield validate(make(*args))
    except (UnsuitablePlacementError, InvalidScheduleError, CyclicOrderError):
        return


def _made(placement: Placement, number: int, make: Maker, chosen: Chosen) -> Iterator[Schedule]:
    """Yield the valid schedules of a maker for given choices of modes."""
    as_run = placement.as_run(chosen)
    if as_run.is_plain:
        for schedule in _attempt(make, as_run, number):
            yield from _attempt(Schedule, placement, number, schedule.blocks, (chosen,) * number)
        return
    for base in _attempt(make, _computing(placement), number):
        for ahead in _AHEAD:
            yield from _attempt(_with_copies, placement, number, chosen, base, ahead)


def _computing(placement: Placement) -> Placement:
    """Return the placement with the modes that leave all copies out, without limits of memory."""
    return placement.as_run(_without_copies(placement)).with_memory(None)


def _without_copies(placement: Placement) -> Chosen:
    return tuple(next(iter(_on_compute(placement, i)), 0) for i in range(len(placement.decisions)))


def _on_compute(placement: Placement, i: int) -> list[int]:
    """Return the choices of decision `i` that run on the streams ``compute`` alone."""
    decision = placement.decisions[i]
    numbers = []
    for number, choice in enumerate(decision.choices):
        blocks = [choice.by_name.get(name, placement.by_name[name]) for name in decision.blocks]
        if all(block.stream == COMPUTE for block in blocks if block.time):
            numbers.append(number)
    return numbers


def _with_copies(placement: Placement, number: int, chosen: Chosen, base: Schedule, ahead: int) -> Schedule:
    """Return a schedule with copies: out in the order of the forwards, in just before the backwards."""
    as_run = placement.as_run(chosen)
    lanes = {b.name: placement.lanes_of(b) for b in as_run.blocks if b.stream != COMPUTE}
    begins: dict[int, dict[Instance, int]] = {lane: {} for (lane,) in sorted(lanes.values())}
    orders: list[list[Instance]] = [[] for _ in placement.lanes]
    waits: list[tuple[Instance, Instance, int]] = []
    for device in range(placement.num_devices):
        order = orders[device] = list(base.order(device))
        for place, (name, n) in enumerate(order):
            for copy in lanes.keys() & as_run.successors[name]:
                begins[lanes[copy][0]][copy, n] = base.start_of[name, n]
            for copy in lanes.keys() & as_run.by_name[name].after:
                first = order[max(place - ahead, 0)]
                begins[lanes[copy][0]][copy, n] = base.start_of[first]
                waits.append((first, (copy, n), 0))
    for lane, begin in begins.items():
        orders[lane] = sorted(begin, key=begin.__getitem__)  # of several devices, where they share a stream
    return as_soon_as_possible(placement, number, orders, (chosen,) * number, waits)


def _plans(placement: Placement, number: int, make: Maker) -> Iterator[tuple[str, Chosen]]:
    """Yield ways to take all decisions, with their names."""
    decisions = placement.decisions
    names = dict.fromkeys(name for decision in decisions for name in decision.names)
    for name in names:
        yield f"all {name}", tuple(d.names.index(name) if name in d.names else 0 for d in decisions)
    by_stage = _by_stage(placement, number, make)
    if by_stage is not None:
        yield "each stage what it can afford", by_stage
    for name in names:
        choices = {i: d.names.index(name) for i, d in enumerate(decisions) if name in d.names}
        if all(choice in _on_compute(placement, i) for i, choice in choices.items()):
            continue
        order = sorted(choices, key=lambda i: placement.by_name[decisions[i].blocks[0]].devices)
        for count in range(1, len(order)):
            chosen = list(by_stage or _without_copies(placement))
            for i in order[:count]:
                chosen[i] = choices[i]
            yield f"{name} on the first {count}", tuple(chosen)


def _by_stage(placement: Placement, number: int, make: Maker) -> Chosen | None:
    """Return for each device the quickest modes with which its order of blocks fits its memory."""
    chosen = list(_without_copies(placement))
    if placement.free_memory is None:
        return tuple(chosen)
    try:
        base = make(_computing(placement), number)
    except UnsuitablePlacementError:
        return None
    for device, room in enumerate(placement.free_memory):
        on_device = {block.name for block in placement.on(device)}
        here = [i for i, decision in enumerate(placement.decisions) if on_device & set(decision.blocks)]
        fits = []
        for mix in islice(product(*(_on_compute(placement, i) for i in here)), _MAX_MIXES):
            for i, choice in zip(here, mix, strict=True):
                chosen[i] = choice
            as_run = placement.as_run(tuple(chosen))
            peak = max(memory_needed(as_run, device, base.order(device)), default=0)
            if peak <= room:
                fits.append((as_run.load(device), peak, mix))
        if not fits:
            return None
        for i, choice in zip(here, min(fits)[2], strict=True):
            chosen[i] = choice
    return tuple(chosen)
