"""V-Half, V-Min and 1F1B-V: waves whose activation memory follows from one building block.

A building block is when one micro-batch's blocks run on each device; repeated every six ticks without
collision it is a schedule, and the longer its activations live, the more it holds ("Pipeline Parallelism
with Controllable Memory"). Blocks count as one tick long, whole backward
blocks as two; with other times the order is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from placements import Kind, Placement
from schedsearch.baselines.structure import WAVE, BaselineStage, in_orders, stages_in
from schedsearch.metrics import peak_memory
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible

_INTERVAL = 6
"""Ticks from one micro-batch to the next: a device's work for one, two chunks of F, I and W."""

_BuildingBlock = Callable[[int, int], tuple[int, int, int, int]]
"""From device and number of devices, to the ticks of F and F, I and I: chunk 0, chunk 1, chunk 1, chunk 0."""


def v_half(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return V-Half: about half the activations of 1F1B, and little idle time at either end.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with split backward.
    """
    return _from_building_block(placement, num_micro_batches, "V-Half", _half)


def v_min(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return V-Min: about a third of the activations of 1F1B, and no idle time in the steady state.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with split backward.
    """
    return _from_building_block(placement, num_micro_batches, "V-Min", _min)


def one_f_one_b_v(placement: Placement, num_micro_batches: int) -> Schedule:
    """Return 1F1B-V: two thirds to three quarters of the activations of 1F1B, with whole backward blocks.

    As in the authors' released code, gaps that the repeated building block leaves at the begin are filled by
    later blocks, such that no device holds more than one held before.

    Raises:
        UnsuitablePlacementError: The placement is not a wave of two chunks with whole backward.
    """
    stages = stages_in(placement, "1F1B-V", WAVE)
    num_devices = len(stages) // 2
    ticks = _moved_up(_whole(num_devices), num_micro_batches)
    orders: dict[int, list[Instance]] = {}
    for d, of_device in enumerate(ticks):
        near, far = stages[d], stages[-1 - d]
        names = near.forward, far.forward, far.backward, near.backward
        in_order = sorted(of_device, key=of_device.__getitem__)
        orders[near.device] = [(names[piece], n) for piece, n in in_order]
    return in_orders(placement, num_micro_batches, orders)


def _whole(p: int) -> list[tuple[int, int, int, int]]:
    """Return for each device the ticks of a building block with whole backward blocks.

    Forward blocks run without a pause, down the devices and up again. Backward blocks, of two ticks each,
    follow likewise, but pause for three ticks wherever they would meet those of another micro-batch.
    """
    tick = 2 * p + (3 if p % 3 == 0 else 0)
    backward = []
    for i in range(2 * p):
        backward.append(tick)
        tick += 5 if (i - p) % 3 == 1 else 2
    return [(d, 2 * p - 1 - d, backward[d], backward[2 * p - 1 - d]) for d in range(p)]


_NEAR, _FAR, _FAR_BACKWARD, _NEAR_BACKWARD = range(4)
"""Pieces of a building block on a device, as in `_BuildingBlock`."""

_Piece = tuple[int, int]
"""A piece of the building block, and a micro-batch."""


def _moved_up(block: list[tuple[int, int, int, int]], num_micro_batches: int) -> list[dict[_Piece, int]]:
    """Return the ticks of each device's pieces, the building block repeated and then moved into gaps.

    One after the other in the order of their ticks, each piece moves to the first gap after what it waits
    for, of two ticks for a backward block. A forward block does not pass a tick at which its device holds as
    much as any device ever did before.
    """
    pieces = range(_NEAR_BACKWARD + 1)
    repeated = [(piece, n) for n in range(num_micro_batches) for piece in pieces]
    ticks = [{(piece, n): each[piece] + _INTERVAL * n for piece, n in repeated} for each in block]
    rows = [_Row(each) for each in ticks]
    most = max(max(row.held) for row in rows)
    for tick, d, (piece, n) in sorted(
        (tick, d, one) for d, row in enumerate(ticks) for one, tick in row.items()
    ):
        earliest = ticks[d][piece, n - 1] + _length(piece) if n else 0
        for before, where in _inputs(piece, d, len(block)):
            earliest = max(earliest, ticks[where][before, n] + _length(before))
        ticks[d][piece, n] = rows[d].move(piece, tick, earliest, most)
    return ticks


class _Row:
    """A device's ticks: which are taken, and how many activations it holds at the end of each."""

    def __init__(self, ticks: Mapping[_Piece, int]) -> None:
        end = max(ticks.values()) + 2
        self.held = [0] * end
        self._is_taken = [False] * end
        for (piece, _), tick in ticks.items():
            self._take(piece, tick, end)

    def move(self, piece: int, tick: int, earliest: int, most: int) -> int:
        """Move a piece into the first gap, or leave it where none is before it; return its tick."""
        if piece in (_NEAR, _FAR):
            first = tick
            while first > earliest and self.held[first - 1] < most:
                first -= 1
        else:
            first = earliest
        gap = next((at for at in range(first, tick) if self._is_free(at, _length(piece))), tick)
        if gap < tick:
            self._is_taken[tick : tick + _length(piece)] = [False] * _length(piece)
            self._take(piece, gap, tick + _length(piece) - 1)
        return gap

    def _take(self, piece: int, tick: int, until: int) -> None:
        """Take a piece's ticks, and count what it holds or gives back from its end to some tick."""
        length = _length(piece)
        self._is_taken[tick : tick + length] = [True] * length
        for each in range(tick + length - 1, until):
            self.held[each] += 1 if length == 1 else -1

    def _is_free(self, tick: int, length: int) -> bool:
        return not any(self._is_taken[tick : tick + length])


def _length(piece: int) -> int:
    return 1 if piece in (_NEAR, _FAR) else 2


def _inputs(piece: int, d: int, num_devices: int) -> list[tuple[int, int]]:
    """Return the piece, and its device, that a piece on a device waits for; none for the first of all."""
    is_turn = d == (0 if piece in (_NEAR, _FAR_BACKWARD) else num_devices - 1)
    if is_turn:
        return [(piece - 1, d)] if piece else []
    return [(piece, d - 1 if piece in (_NEAR, _FAR_BACKWARD) else d + 1)]


def _half(d: int, p: int) -> tuple[int, int, int, int]:
    extra = 3 if p % 2 == 0 else 0  # else blocks of two micro-batches meet
    return 2 * d, 3 * p - d - 2, 3 * p + extra + 2 * d - 1, 6 * p + extra - d - 2


def _min(d: int, p: int) -> tuple[int, int, int, int]:
    extra = 2 if p % 3 == 0 else 0
    return d, 2 * p - d - 1, 2 * p + extra + d, 4 * p + extra - d - 1


def _from_building_block(
    placement: Placement, num_micro_batches: int, schedule: str, building_block: _BuildingBlock
) -> Schedule:
    stages = stages_in(placement, schedule, WAVE, split=True)
    num_devices = len(stages) // 2
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for d in range(num_devices):
        ticks = building_block(d, num_devices)
        orders[stages[d].device] = _repeated(stages[d], stages[-1 - d], ticks, num_micro_batches)
    repeated = as_soon_as_possible(placement, num_micro_batches, orders)
    limits = [int(units) for units in peak_memory(repeated)]
    return as_soon_as_possible(placement, num_micro_batches, _closed_up(placement, orders, limits))


def _repeated(
    near: BaselineStage, far: BaselineStage, ticks: tuple[int, int, int, int], num_micro_batches: int
) -> list[Instance]:
    """Return the order of one device: the building block again and again, weight halves in the first gap."""
    names = near.forward, far.forward, far.backward, near.backward
    weights = {stage.backward: stage.weight for stage in (near, far) if stage.weight is not None}
    at: dict[int, Instance] = {}
    for n in range(num_micro_batches):
        for tick, name in zip(ticks, names, strict=True):
            assert tick + _INTERVAL * n not in at, "two blocks of the pattern meet"
            at[tick + _INTERVAL * n] = name, n
    for tick in sorted(at):
        name, n = at[tick]
        if name in weights:
            while tick in at:
                tick += 1
            at[tick] = weights[name], n
    return [at[tick] for tick in sorted(at)]


def _closed_up(placement: Placement, orders: list[list[Instance]], limits: list[int]) -> list[list[Instance]]:
    """Return orders with less idle time at both ends, in which no device holds more than its limit.

    In every tick each device runs the first block of its order that can run, and that may pass those before
    it without raising the peak. Once a device has no forward block left, weight halves wait for input halves.
    """
    waiting = [list(order) for order in orders]
    left = [Counter(name for name, _ in order) for order in orders]
    closed_up: list[list[Instance]] = [[] for _ in orders]
    held = [0] * len(orders)
    done: set[Instance] = set()
    while any(waiting):
        chosen = [
            _choose(placement, d, waiting[d], left[d], done, limits[d] - held[d]) for d in range(len(orders))
        ]
        for d, index in enumerate(chosen):
            if index is not None:
                name, n = waiting[d].pop(index)
                held[d] += placement.by_name[name].memory_on(d)
                left[d] -= Counter([name])
                closed_up[d].append((name, n))
                done.add((name, n))
    return closed_up


def _choose(
    placement: Placement,
    device: int,
    order: list[Instance],
    left: Mapping[str, int],
    done: set[Instance],
    room: int,
) -> int | None:
    """Return the index of the block that a device runs next; None where it waits.

    Args:
        placement: What runs where.
        device: Which one.
        order: What the device has yet to run.
        left: How often each block of it.
        done: What has ended on all devices.
        room: Units that the device may still take.
    """
    is_cooldown = all(placement.by_name[name].kind is not Kind.F for name in left)
    weight: int | None = None
    seen: set[str] = set()
    taken = max_taken = 0
    for i, (name, n) in enumerate(order):
        block = placement.by_name[name]
        can_run = name not in seen and all((before, n) in done for before in block.after)
        if can_run and (i == 0 or max_taken + max(block.memory_on(device), 0) <= room):
            if not (is_cooldown and block.kind is Kind.W):
                return i
            weight = i if weight is None else weight
        seen.add(name)
        if len(seen) == len(left):
            break
        taken += block.memory_on(device)
        max_taken = max(max_taken, taken)
    return weight
