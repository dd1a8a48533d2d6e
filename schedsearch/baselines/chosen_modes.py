"""Hand-made schedules where blocks have modes or streams: how people decide first, and schedule then.

All stages recompute, or none; each stage decides for itself what it can afford, exactly (as AdaPipe's
programme does for given stages); or the first stages send activations to the host (as PipeOffload).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
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

_BLOCKS_TO_SEND = (0, 1)
"""Blocks after its forward from which on a copy to the host counts as done, of which the better is taken."""

_MAX_MIXES = 20_000
"""Most combinations of modes of a device's blocks to enumerate."""


def with_chosen_modes(
    placement: Placement, num_micro_batches: int, makers: Mapping[str, Maker]
) -> Iterator[tuple[str, Schedule]]:
    """Yield the hand-made schedules that fit the memory of a placement with modes, each with its name.

    The placement has decisions or streams, and no optimizer blocks; the makers are those of plain placements
    by name. STP comes besides where blocks communicate.
    """
    for name, schedule in attempts(placement, num_micro_batches, makers):
        if schedule is not None:
            yield name, schedule


def attempts(
    placement: Placement, number: int, makers: Mapping[str, Maker]
) -> Iterator[tuple[str, Schedule | None]]:
    """Yield the schedules of `with_chosen_modes`, and None for each that does not fit."""
    if copies_in(placement):  # which PipeDream alone knows
        if "pipedream" in makers:
            yield "pipedream, copies in turn", _attempt(makers["pipedream"], placement, number)
    elif placement.decisions and _computing(placement).is_plain:
        orders = set[tuple[tuple[Instance, ...], ...]]()
        for name, make in makers.items():
            base = _attempt(make, _computing(placement), number)
            if base is None or base.lane_orders in orders:
                continue
            orders.add(base.lane_orders)
            for how, chosen in _plans(placement, base):
                yield f"{name}, {how}", _made(make, placement, number, chosen, base)
    elif not placement.decisions and (computing := computing_blocks(placement)) is not None:
        for name, make in {**makers, stp.__name__: stp}.items():
            base = _attempt(make, computing, number)
            yield name, base and _attempt(with_communication, placement, number, base)


def _attempt(make: Callable[..., Schedule], *args: Any) -> Schedule | None:
    """Return the schedule that a function makes, if it makes one and the schedule is valid."""
    try:
        return validate(make(*args))
    except (UnsuitablePlacementError, InvalidScheduleError, CyclicOrderError):
        return None


def _made(make: Maker, placement: Placement, number: int, chosen: Chosen, base: Schedule) -> Schedule | None:
    """Return the schedule of a maker in given modes if it fits; with copies, in the base's orders."""
    as_run = placement.as_run(chosen)
    if as_run.is_plain:
        plain = _attempt(make, as_run, number)
        return plain and _attempt(Schedule, placement, number, plain.blocks, (chosen,) * number)
    made = [_attempt(_with_copies, placement, number, chosen, base, to_send) for to_send in _BLOCKS_TO_SEND]
    return min(filter(None, made), key=lambda schedule: schedule.makespan, default=None)


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


def _with_copies(placement: Placement, number: int, chosen: Chosen, base: Schedule, to_send: int) -> Schedule:
    """Return a schedule with copies: out in the order of the forwards, in one block before the backwards.

    Memory is given in this order; a block or copy for which there is none waits for the earliest releases.
    A copy out releases its memory when as many blocks as given have run after its forward.
    """
    as_run = placement.as_run(chosen)
    lanes = {b.name: placement.lanes_of(b)[0] for b in as_run.blocks if b.stream != COMPUTE}
    begins: dict[int, dict[Instance, int]] = {lane: {} for lane in sorted(lanes.values())}
    orders: list[list[Instance]] = [[] for _ in placement.lanes]
    waits: list[tuple[Instance, Instance, int]] = []
    for device, room in enumerate(as_run.free_memory or (sys.maxsize,) * placement.num_devices):
        order = orders[device] = list(base.order(device))
        places = {instance: place for place, instance in enumerate(order)}
        fetched, sent = ([list[Instance]() for _ in range(len(order) + to_send)] for _ in range(2))
        for (name, n), place in places.items():
            for copy in lanes.keys() & as_run.successors[name]:
                begins[lanes[copy]][copy, n] = base.start_of[name, n]
                sent[place + to_send].append((copy, n))
            for copy in lanes.keys() & as_run.by_name[name].after:
                at = max(place - 1, _place_after_inputs(as_run, copy, n, places))
                begins[lanes[copy]][copy, n] = base.start_of[order[at]]
                fetched[at].append((copy, n))
        last, released = tuple[Instance, ...](), deque[Instance]()
        for place, instance in enumerate(order):
            for taker in (*fetched[place], instance):
                block = as_run.by_name[taker[0]]
                units = block.memory_on(device)
                while room < units + block.transient and released:
                    release = released.popleft()
                    waits.append((release, taker, as_run.by_name[release[0]].time))
                    room -= as_run.by_name[release[0]].memory_on(device)
                if units < 0:
                    released.append(taker)
                else:
                    waits += [(earlier, taker, 0) for earlier in last]
                    last = (taker,)
                room -= max(units, 0)
            released += sent[place]
    for lane, begin in begins.items():
        orders[lane] = sorted(begin, key=begin.__getitem__)  # of several devices, where they share a stream
    return as_soon_as_possible(placement, number, orders, (chosen,) * number, waits)


def _place_after_inputs(placement: Placement, copy: str, n: int, places: Mapping[Instance, int]) -> int:
    """Return the place in a device's order from which on all inputs of a copy have run there."""
    inputs = placement.by_name[copy].after
    here = [places[name, n] + 1 for name in inputs if (name, n) in places]
    copies = [name for name in inputs if placement.by_name[name].stream != COMPUTE]
    return max([*here, *(_place_after_inputs(placement, name, n, places) for name in copies)], default=0)


def _plans(placement: Placement, base: Schedule) -> Iterator[tuple[str, Chosen]]:
    """Yield ways to take all decisions, with their names, for the orders of a schedule without limits."""
    decisions = placement.decisions
    names = dict.fromkeys(name for decision in decisions for name in decision.names)
    for name in names:
        yield f"all {name}", tuple(d.names.index(name) if name in d.names else 0 for d in decisions)
    by_stage = _by_stage(placement, base)
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


def _by_stage(placement: Placement, base: Schedule) -> Chosen | None:
    """Return for each device the quickest modes with which its order of blocks fits its memory."""
    chosen = list(_without_copies(placement))
    for device, room in enumerate(placement.free_memory or ()):
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
