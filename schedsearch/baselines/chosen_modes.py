"""Hand-made schedules where blocks have modes: how people decide first, and schedule then.

All stages recompute, or none; each stage decides for itself what it can afford, exactly (as AdaPipe's
programme does for given stages); or the first stages send activations to the host (as PipeOffload).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction

from placements import Block, Placement
from placements.block import COMPUTE
from placements.copies.stages import copies_in
from placements.modes import Chosen
from placements.streams import Lane
from schedsearch.baselines.structure import UnsuitablePlacementError
from schedsearch.schedule import CyclicOrderError, Instance, Schedule, as_soon_as_possible
from schedsearch.validate import InvalidScheduleError, validate

Maker = Callable[[Placement, int], Schedule]

_AHEAD = (1, 2, 3, 4)
"""How many blocks of its device before its backward a copy from the host may begin."""


def with_chosen_modes(
    placement: Placement, num_micro_batches: int, makers: dict[str, Maker]
) -> Iterator[tuple[str, Schedule]]:
    """Yield schedules made by hand on a placement with modes, each with its name, where they fit its memory.

    Args:
        placement: With decisions, without optimizer blocks.
        num_micro_batches: Micro-batches of each schedule.
        makers: Hand-made schedules of plain placements by name.
    """
    if copies_in(placement):
        yield from _in_turn(placement, num_micro_batches, makers)
        return
    if not placement.decisions or not _computing(placement).is_plain:
        return  # streams that no mode leaves out: no such schedule knows them
    for name, make in makers.items():
        for how, chosen in _plans(placement, num_micro_batches, make):
            for schedule in _made(placement, num_micro_batches, make, chosen):
                yield f"{name}, {how}", schedule


def _in_turn(placement: Placement, number: int, makers: dict[str, Maker]) -> Iterator[tuple[str, Schedule]]:
    """Yield PipeDream's schedule on copies of stages, which alone knows them, where it fits."""
    try:
        if (make := makers.get("pipedream")) is not None:
            yield "pipedream, copies in turn", validate(make(placement, number))
    except (UnsuitablePlacementError, InvalidScheduleError, CyclicOrderError):
        return


def _made(placement: Placement, number: int, make: Maker, chosen: Chosen) -> Iterator[Schedule]:
    """Yield the schedules of a maker with modes that are taken, where they are valid."""
    as_run = placement.as_run(chosen)
    try:
        if as_run.is_plain:
            found = make(as_run, number)
            yield validate(Schedule(placement, number, found.blocks, (chosen,) * number))
            return
        base = make(_computing(placement), number)
    except (UnsuitablePlacementError, InvalidScheduleError, CyclicOrderError):
        return
    for ahead in _AHEAD:
        try:
            yield validate(_with_copies(placement, number, chosen, base, ahead))
        except (InvalidScheduleError, CyclicOrderError):
            continue


def _computing(placement: Placement) -> Placement:
    """Return the placement with the modes that leave all copies out, without limits of memory."""
    return placement.as_run(_without_copies(placement)).with_memory(None)


def _without_copies(placement: Placement) -> Chosen:
    return tuple(
        next((k for k in range(len(each.choices)) if _computes(placement, i, k)), 0)
        for i, each in enumerate(placement.decisions)
    )


def _computes(placement: Placement, decision: int, choice: int) -> bool:
    """Return whether a choice runs on the streams ``compute`` alone."""
    own = placement.decisions[decision]
    blocks = [own.choices[choice].by_name.get(name, placement.by_name[name]) for name in own.blocks]
    return all(block.stream == COMPUTE for block in blocks if block.time)


def _with_copies(placement: Placement, number: int, chosen: Chosen, base: Schedule, ahead: int) -> Schedule:
    """Return a schedule with copies: out in the order of the forwards, in just before the backwards."""
    as_run = placement.as_run(chosen)
    orders: list[list[Instance]] = [[] for _ in placement.lanes]
    begins: dict[Instance, int] = {}
    waits: list[tuple[Instance, Instance, int]] = []
    for device in range(placement.num_devices):
        orders[device] = list(base.order(device))
        for place, (name, n) in enumerate(base.order(device)):
            for copy in as_run.successors[name]:
                if (out := as_run.by_name[copy]).stream != COMPUTE:
                    orders[_lane_of(placement, out)].append((copy, n))
                    begins[copy, n] = base.start_of[name, n]
            for copy in as_run.by_name[name].after:
                if (back := as_run.by_name[copy]).stream != COMPUTE:
                    orders[_lane_of(placement, back)].append((copy, n))
                    first = orders[device][max(place - ahead, 0)]
                    begins[copy, n] = base.start_of[first]
                    waits.append((first, (copy, n), 0))
    for order in orders[placement.num_devices :]:
        order.sort(key=begins.__getitem__)  # of several devices, where they share a stream
    return as_soon_as_possible(placement, number, orders, (chosen,) * number, waits)


def _lane_of(placement: Placement, block: Block) -> int:
    """Return the lane of a block of one device."""
    (lane,) = placement.lanes_of(block)
    return lane


def _plans(placement: Placement, number: int, make: Maker) -> Iterator[tuple[str, Chosen]]:
    """Yield ways to take all decisions, with their names."""
    names = dict.fromkeys(name for decision in placement.decisions for name in decision.names)
    for name in names:
        chosen = tuple(
            decision.names.index(name) if name in decision.names else 0 for decision in placement.decisions
        )
        yield f"all {name}", chosen
    by_stage = _by_stage(placement, number, make)
    if by_stage is not None:
        yield "each stage what it can afford", by_stage
    base = by_stage or _without_copies(placement)
    for name in names:
        order = sorted(
            (i for i, each in enumerate(placement.decisions) if name in each.names),
            key=lambda i: placement.by_name[placement.decisions[i].blocks[0]].devices,
        )
        if all(_computes(placement, i, placement.decisions[i].names.index(name)) for i in order):
            continue
        for count in range(1, len(order)):
            first = set(order[:count])
            yield (
                f"{name} on the first {count}",
                tuple(
                    placement.decisions[i].names.index(name) if i in first else base[i]
                    for i in range(len(base))
                ),
            )


def _by_stage(placement: Placement, number: int, make: Maker) -> Chosen | None:
    """Return for each device the quickest modes with which its order of blocks fits its memory."""
    if placement.free_memory is None:
        return _without_copies(placement)
    try:
        base = make(_computing(placement), number)
    except UnsuitablePlacementError:
        return None
    chosen = list(_without_copies(placement))
    for device in range(placement.num_devices):
        here = [
            i
            for i, decision in enumerate(placement.decisions)
            if any(device in placement.by_name[name].devices for name in decision.blocks)
        ]
        options = [
            [k for k in range(len(placement.decisions[i].choices)) if _computes(placement, i, k)]
            for i in here
        ]
        best: tuple[int, int, tuple[int, ...]] | None = None
        for mix in itertools.islice(itertools.product(*options), 20_000):
            for i, k in zip(here, mix, strict=True):
                chosen[i] = k
            as_run = placement.as_run(tuple(chosen))
            held = peak = 0
            for name, _ in base.order(device):
                block = as_run.by_name[name]
                held += block.memory_on(device)
                peak = max(peak, held + block.transient)
            if peak <= placement.free_memory[device]:
                found = as_run.load(device), peak, mix
                best = found if best is None else min(best, found)
        if best is None:
            return None
        for i, k in zip(here, best[2], strict=True):
            chosen[i] = k
    return tuple(chosen)


def overlapped(placement: Placement, num_micro_batches: int) -> Iterator[Schedule]:
    """Yield schedules in which a forward and a backward of a device share its streams, pair by pair.

    A device runs pairs from when the first backward reaches it, if each pair takes as long on every device:
    with twice the micro-batches in flight of 1F1B. In a pair, blocks run as soon as their streams are free,
    the backward's first, or the forward's. DualPipe and Megatron's 1F1B with overlapped all-to-alls order
    pairs so.

    Args:
        placement: Of several streams, without decisions; each device is a stage, or more.
        num_micro_batches: Micro-batches of the schedule.
    """
    devices = list(dict.fromkeys(device for block in placement.topological_order for device in block.devices))
    for backward_first in (True, False):
        orders: list[list[Instance]] = [[] for _ in placement.lanes]
        for stage, device in enumerate(devices):
            ahead = min(2 * (len(devices) - stage) - 1, num_micro_batches)
            pairs = [[(True, n)] for n in range(ahead)]
            pairs += [[(True, n + ahead), (False, n)] for n in range(num_micro_batches - ahead)]
            pairs += [[(False, n)] for n in range(num_micro_batches - ahead, num_micro_batches)]
            for pair in pairs:
                for instance in _pair_order(placement, device, pair, backward_first):
                    for lane in placement.lanes_of(placement.by_name[instance[0]]):
                        if placement.lanes[lane][0] == device:
                            orders[lane].append(instance)
        try:
            yield validate(as_soon_as_possible(placement, num_micro_batches, orders))
        except (CyclicOrderError, InvalidScheduleError):
            continue


def _pair_order(
    placement: Placement, device: int, pair: list[tuple[bool, int]], backward_first: bool
) -> list[Instance]:
    """Return the blocks of a device's forward and backward in the order in which its streams run them."""
    waiting = [
        (block, n)
        for is_forward, n in sorted(pair, key=lambda each: each[0] is backward_first)
        for block in placement.on(device)
        if (block.kind.value == "F") is is_forward
    ]
    free: dict[str, int] = {}
    ends: dict[Instance, int] = {}
    order: list[tuple[int, int, Instance]] = []
    while waiting:
        ready = []
        for rank, (block, n) in enumerate(waiting):
            inputs = [(name, n) for name in block.after if device in placement.by_name[name].devices]
            here = [each for each in inputs if each in ends or any((b.name, m) == each for b, m in waiting)]
            if all(each in ends for each in here):
                begin = max([free.get(block.stream, 0), *(ends[each] for each in here)])
                ready.append((begin, rank))
        begin, rank = min(ready)
        block, n = waiting.pop(rank)
        ends[block.name, n] = free[block.stream] = begin + block.time
        order.append((begin, len(order), (block.name, n)))
    return [instance for _, _, instance in sorted(order)]


def steady_rate(schedule: Schedule) -> Fraction:
    """Return ticks per micro-batch over the middle half of a schedule, by the ends of its last blocks.

    Where forwards that ran before that half let it end sooner than it could go on, it is the work of the
    busiest stream in it.
    """
    ends = [0] * schedule.num_micro_batches
    for (_, n), end in schedule.end_of.items():
        ends[n] = max(ends[n], end)
    ends.sort()
    first, last = len(ends) // 4, 3 * len(ends) // 4
    middle = range(first, max(last, first + 1))
    work: Counter[Lane] = Counter()
    for as_run in map(schedule.as_run, middle):
        work.update({lane: as_run.load(number) for number, lane in enumerate(as_run.lanes)})
    return Fraction(max(ends[last] - ends[first], *work.values()), len(middle))
