"""A schedule: the start of every block of every micro-batch, for a fixed number of micro-batches."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import NamedTuple, TypeVar

from placements import Block, Kind, Placement, PlacementError
from placements.block import COMPUTE
from placements.modes import Chosen
from placements.spec import some
from schedsearch import side_by_side
from schedsearch.graph import Edge, numbered
from schedsearch.memory_order import Run, memory_edges
from schedsearch.results import FileResult


class ScheduledBlock(NamedTuple):
    """One block of one micro-batch at its start.

    Attributes:
        start: Ticks from the begin of the iteration; at least 0.
        micro_batch: ``0 .. num_micro_batches - 1``.
        block: The block's name in the placement.
    """

    start: int
    micro_batch: int
    block: str


Instance = tuple[str, int]
"""A block of one micro-batch: (block name, micro-batch); an optimizer block's is the last micro-batch."""


def micro_batches_of(placement: Placement, name: str, num_micro_batches: int) -> range:
    """Return the micro-batches in which a block runs: all, or for an optimizer block the last."""
    first = num_micro_batches - 1 if placement.by_name[name].kind is Kind.O else 0
    return range(max(first, 0), num_micro_batches)


def instances(
    placement: Placement, num_micro_batches: int, chosen: Sequence[Chosen] = ()
) -> Iterator[tuple[Instance, Block]]:
    """Yield every instance that runs, with its block in the chosen mode; optimizer blocks come once."""
    for n in range(num_micro_batches):
        for block in (placement.as_run(chosen[n]) if chosen else placement).blocks:
            if block.kind is not Kind.O or n == num_micro_batches - 1:
                yield (block.name, n), block


def mode_in(placement: Placement, chosen: Chosen, name: str) -> str:
    """Return the name of the mode that a block runs in; empty for the first choice, and without one.

    The choices are those of the block's micro-batch. How a micro-batch runs that differs from the others is
    no mode.
    """
    decision = placement.decision_of.get(name)
    if decision is None or not chosen[decision] or placement.decisions[decision].is_of_micro_batches:
        return ""
    return placement.decisions[decision].choices[chosen[decision]].name


def require_plain(placement: Placement, what: str, instead: str) -> None:
    """Check that a placement has no decisions, and one stream per device.

    Raises:
        PlacementError: The check fails; the line names the blocks with modes, the streams, the function that
            cannot take them (`what`, as ``simulate``), and the remedy (as ``use schedsearch search``).
    """
    features = [f"modes of {some(placement.decision_of)}"] if placement.decisions else []
    _require_none(placement, what, instead, features)


def require_one_stream(placement: Placement, what: str, instead: str) -> None:
    """Check that a placement has one stream per device; it may have modes. Errors as in `require_plain`."""
    _require_none(placement, what, instead, [])


def _require_none(placement: Placement, what: str, instead: str, features: list[str]) -> None:
    """Raise an error about the features found, and about streams if the placement has any."""
    if streams := sorted({stream for _, stream in placement.lanes} - {COMPUTE}):
        features.append(f"the stream{'s' * (len(streams) > 1)} {', '.join(streams)}")
    elif placement.has_streams:
        features.append("memory of hosts")
    if features:
        raise PlacementError(
            f"{placement.name} has {' and '.join(features)}, which {what} cannot take yet; {instead}, or "
            "leave them out of the placement"
        )


def dependencies(
    placement: Placement, num_micro_batches: int, chosen: Sequence[Chosen] = ()
) -> Iterator[tuple[Instance, Instance, int]]:
    """Yield the dependencies: the earlier instance, the later one, and the transfer ticks between them.

    A block waits for its inputs of the same micro-batch, an optimizer block for those of every micro-batch.
    """
    last = num_micro_batches - 1
    for n in range(num_micro_batches):
        placed = placement.as_run(chosen[n]) if chosen else placement
        optimizer = {block.name for block in placed.optimizer_blocks}
        for block in placed.blocks:
            later = last if block.name in optimizer else n
            for name in block.after:
                if name not in optimizer or n == last:
                    yield (name, n), (block.name, later), placed.transfer_time(name, block.name)


@dataclass(frozen=True)
class Schedule(FileResult):
    """An answer for a fixed number of micro-batches; see `schedsearch.validate.validate` for its rules.

    Attributes:
        placement: What runs where.
        num_micro_batches: Number of micro-batches of the schedule.
        blocks: Every block of every micro-batch, by increasing start, then micro-batch and name; optimizer
            blocks once, as of the last micro-batch, and none that a mode leaves out.
        chosen: For each micro-batch the choice of each decision of the placement; empty where it has none.
    """

    placement: Placement
    num_micro_batches: int
    blocks: tuple[ScheduledBlock, ...]
    chosen: tuple[Chosen, ...] = ()

    def __post_init__(self) -> None:
        """Sort the blocks, so that equal schedules compare equal."""
        blocks = (block if type(block) is ScheduledBlock else ScheduledBlock(*block) for block in self.blocks)
        object.__setattr__(self, "blocks", tuple(sorted(blocks)))

    @cached_property
    def start_of(self) -> Mapping[Instance, int]:
        """Map (block, micro-batch) to its start in ticks."""
        return {(block.block, block.micro_batch): block.start for block in self.blocks}

    @cached_property
    def makespan(self) -> int:
        """End of the last block in ticks."""
        return max(self.end_of.values(), default=0)

    @cached_property
    def end_of(self) -> Mapping[Instance, int]:
        """Map (block, micro-batch) to its end in ticks, streams that slow each other down included."""
        if not self.placement.slowdown:
            return {(name, n): start + self.block(name, n).time for start, n, name in self.blocks}
        blocks = {(name, n): self.block(name, n) for _, n, name in self.blocks}
        return side_by_side.run(self.placement, blocks, {}, self.start_of)[1]

    @property
    def memory_waits(self) -> Iterator[tuple[Instance, Instance, int]]:
        """Waits between instances that keep the memory shared by streams from growing when blocks move."""
        if not self.placement.has_streams:
            return iter(())
        runs = (Run((name, n), self.block(name, n), start) for start, n, name in self.blocks)
        return (edge[:3] for edge in memory_edges(self.placement, runs))

    def as_run(self, micro_batch: int) -> Placement:
        """Return the placement with the decisions of a micro-batch taken."""
        return self.placement.as_run(self.chosen[micro_batch]) if self.chosen else self.placement

    def block(self, name: str, micro_batch: int) -> Block:
        """Return a block in the mode that a micro-batch has chosen."""
        return self.as_run(micro_batch).by_name[name]

    def mode(self, name: str, micro_batch: int) -> str:
        """Return the name of the mode that a block runs in; empty for the first choice, and without one."""
        return mode_in(self.placement, self.chosen[micro_batch], name) if self.chosen else ""

    def run_name(self, name: str, micro_batch: int) -> str:
        """Return the name of a block in its chosen mode, under which a profile has its cost."""
        return self.placement.run_name(name, self.chosen[micro_batch]) if self.chosen else name

    @cached_property
    def runs_of(self) -> Mapping[str, tuple[int, ...]]:
        """Map each block to the micro-batches that run it; blocks that none runs are left out."""
        numbers: dict[str, list[int]] = {}
        for name, n in sorted(self.start_of):
            numbers.setdefault(name, []).append(n)
        return {
            block.name: tuple(numbers[block.name]) for block in self.placement.blocks if block.name in numbers
        }

    @property
    def per_micro_batch(self) -> Schedule:
        """The schedule without its optimizer blocks."""
        placement = self.placement.per_micro_batch
        blocks = tuple(block for block in self.blocks if block.block in placement.by_name)
        return Schedule(placement, self.num_micro_batches, blocks, self.chosen)

    def under(self, placement: Placement) -> Schedule:
        """Return the schedule for a placement of the same blocks, as one with another memory."""
        return self if placement == self.placement else replace(self, placement=placement)

    def order(self, device: int) -> tuple[Instance, ...]:
        """Return the (block, micro-batch) pairs that run on a device, in the order in which they start."""
        return self._orders[device] if self.placement.has_streams else self.lane_orders[device]

    @cached_property
    def lane_orders(self) -> tuple[tuple[Instance, ...], ...]:
        """The instances of each lane in order of their starts; without streams, a lane is a device."""
        lanes = {block.name: self.placement.lanes_of(block) for block in self.placement.blocks}
        return self._by_place(lanes, len(self.placement.lanes))

    @cached_property
    def _orders(self) -> tuple[tuple[Instance, ...], ...]:
        devices = {block.name: block.devices for block in self.placement.blocks}
        return self._by_place(devices, self.placement.num_devices)

    def _by_place(self, places: Mapping[str, Iterable[int]], number: int) -> tuple[tuple[Instance, ...], ...]:
        orders: list[list[Instance]] = [[] for _ in range(number)]
        for _, micro_batch, name in self.blocks:
            for place in places[name]:
                orders[place].append((name, micro_batch))
        return tuple(map(tuple, orders))


class CyclicOrderError(ValueError):
    """The blocks wait for each other in a cycle, so no start times exist."""


Node = TypeVar("Node", bound=Hashable)
Waits = Mapping[Node, Sequence[tuple[Node, int]]]
"""For each node its predecessors, each with the minimum ticks from its start to the node's start."""


def earliest_starts(waits: Waits[Node]) -> dict[Node, int]:
    """Return the earliest start of each node, from 0 on: the length of its longest path.

    Raises:
        graphlib.CycleError: The nodes wait for each other; its second argument is the cycle.
    """
    missing = {node: len(before) for node, before in waits.items()}
    followers: dict[Node, list[tuple[Node, int]]] = {node: [] for node in waits}
    for node, before in waits.items():
        for earlier, ticks in before:
            followers[earlier].append((node, ticks))
    starts = dict.fromkeys(waits, 0)
    ready = [node for node, number in missing.items() if not number]
    for node in ready:  # grows meanwhile
        for later, ticks in followers[node]:
            starts[later] = max(starts[later], starts[node] + ticks)
            missing[later] -= 1
            if not missing[later]:
                ready.append(later)
    if len(ready) < len(waits):  # graphlib says which cycle; for the order alone it takes twice as long
        TopologicalSorter({node: [earlier for earlier, _ in waits[node]] for node in waits}).prepare()
    return starts


def waits_in_order(
    placement: Placement,
    num_micro_batches: int,
    orders: Sequence[Iterable[Instance]],
    chosen: Sequence[Chosen] = (),
) -> dict[Instance, list[tuple[Instance, int]]]:
    """Return the waits of each instance: for its inputs, and for its predecessor on each lane."""
    time = {instance: block.time for instance, block in instances(placement, num_micro_batches, chosen)}
    waits: dict[Instance, list[tuple[Instance, int]]] = {instance: [] for instance in time}
    for earlier, later, ticks in dependencies(placement, num_micro_batches, chosen):
        waits[later].append((earlier, time[earlier] + ticks))
    for lane, order in enumerate(orders):
        for earlier, later in pairwise(_with_optimizer(placement, num_micro_batches, lane, order)):
            waits[later].append((earlier, time[earlier]))
    return waits


def as_soon_as_possible(
    placement: Placement,
    num_micro_batches: int,
    orders: Sequence[Iterable[Instance]],
    chosen: Sequence[Chosen] = (),
    waits: Iterable[tuple[Instance, Instance, int]] = (),
) -> Schedule:
    """Return the schedule that keeps each device's order and starts every block as early as possible.

    Args:
        placement: What runs where.
        num_micro_batches: Number of micro-batches in the orders.
        orders: For each device the (block, micro-batch) pairs in the order in which it runs them, or for each
            lane where devices have several streams; optimizer blocks may be left out, and then come last.
        chosen: The choices of each micro-batch, as of `Schedule`.
        waits: Further triples (earlier, later, ticks from start to start).

    Raises:
        CyclicOrderError: The orders and the dependencies make a cycle.
    """
    further = list(waits)
    is_plain = not chosen and not further and not placement.slowdown
    starts = _run_in_order(placement, num_micro_batches, orders) if is_plain else None
    if starts is None and placement.slowdown:
        starts = _run_side_by_side(placement, num_micro_batches, orders, chosen, further)
    if starts is None:
        before = waits_in_order(placement, num_micro_batches, orders, chosen)
        for earlier, later, least in further:
            before[later].append((earlier, least))
        try:
            starts = earliest_starts(before)
        except CycleError as error:
            starts = _starts_at_once(before) if further else None
            if starts is None:
                stuck = [f"{name} of micro-batch {n}" for name, n in error.args[1][:-1]]
                raise CyclicOrderError(
                    f"{', '.join(stuck[:4])} wait for each other; the orders of the devices make a cycle"
                ) from None
    blocks = (ScheduledBlock(ticks, micro_batch, name) for (name, micro_batch), ticks in starts.items())
    return Schedule(placement, num_micro_batches, tuple(blocks), tuple(chosen))


def _starts_at_once(waits: Waits[Instance]) -> dict[Instance, int] | None:
    """Return the earliest starts if instances may wait for each other without ticks, to start together.

    Two instances that swap memory between a device and its host do so. None if some can never start.
    """
    edges = [Edge(earlier, later, ticks, 0) for later, before in waits.items() for earlier, ticks in before]
    nodes, system = numbered(edges)
    least = system.min_period()
    return None if least is None else dict.fromkeys(waits, 0) | dict(zip(nodes, least[1], strict=True))


def _run_side_by_side(
    placement: Placement,
    num_micro_batches: int,
    orders: Sequence[Iterable[Instance]],
    chosen: Sequence[Chosen],
    further: Iterable[tuple[Instance, Instance, int]],
) -> dict[Instance, int] | None:
    """Return the earliest start of each instance if streams slow each other down; None for a cycle."""
    blocks = dict(instances(placement, num_micro_batches, chosen))
    waits = {
        later: [side_by_side.Wait(earlier, ticks - blocks[earlier].time) for earlier, ticks in before]
        for later, before in waits_in_order(placement, num_micro_batches, orders, chosen).items()
    }
    for earlier, later, ticks in further:  # from a start, or from what was the end
        is_end = ticks and ticks == blocks[earlier].time
        waits[later].append(side_by_side.Wait(earlier, 0 if is_end else ticks, bool(is_end)))
    starts, _ = side_by_side.run(placement, blocks, waits, {})
    return starts if len(starts) == len(blocks) else None


def _run_in_order(
    placement: Placement, num_micro_batches: int, orders: Sequence[Iterable[Instance]]
) -> dict[Instance, int] | None:
    """Return the earliest start of each instance, device by device as far as each can go.

    It makes no graph, so that it takes about a quarter of the time of `earliest_starts`.

    Returns:
        The starts in ticks; None where the devices wait for each other, or do not run every instance once.
    """
    complete = [
        _with_optimizer(placement, num_micro_batches, device, order) for device, order in enumerate(orders)
    ]
    inputs = {
        block.name: [
            (name, placement.by_name[name].time + placement.transfer_time(name, block.name))
            for name in block.after
        ]
        for block in placement.blocks
    }
    optimizer = {block.name for block in placement.optimizer_blocks}
    lanes = {block.name: placement.lanes_of(block) for block in placement.blocks}
    last_first = range(num_micro_batches - 1, -1, -1)
    starts: dict[Instance, int] = {}
    waiting: dict[Instance, list[int]] = {}
    position, free = [0] * len(complete), [0] * len(complete)
    ready = list(range(len(complete)))
    while ready:
        device = ready.pop()
        order = complete[device]
        while position[device] < len(order):
            instance = order[position[device]]
            name, micro_batch = instance
            block = placement.by_name[name]
            others = [other for other in lanes[name] if other != device]
            if any(complete[other][position[other] : position[other] + 1] != [instance] for other in others):
                break  # the last of its devices to come to it starts it
            start = max([free[device], *(free[other] for other in others)]) if others else free[device]
            missing = None
            for source, ticks in inputs[name]:
                for number in last_first if name in optimizer and source not in optimizer else (micro_batch,):
                    done = starts.get((source, number))
                    if done is None:
                        missing = source, number
                        break
                    if done + ticks > start:
                        start = done + ticks
                if missing is not None:
                    break
            if missing is not None:
                waiting.setdefault(missing, []).append(device)
                break
            starts[instance] = start
            for other in lanes[name]:
                free[other] = start + block.time
                position[other] += 1
            ready += others
            ready += waiting.pop(instance, ())
    numbers = {name: len(micro_batches_of(placement, name, num_micro_batches)) for name in lanes}
    runs = sum(number * len(lanes[name]) for name, number in numbers.items())
    is_whole = sum(position) == sum(map(len, complete)) == runs
    return starts if is_whole and len(starts) == sum(numbers.values()) else None


def memory_needed(placement: Placement, device: int, order: Iterable[Instance]) -> Iterator[int]:
    """Yield the memory that a device needs at the start of each block of an order, static memory excluded."""
    held = 0
    for name, _ in order:
        block = placement.by_name[name]
        held += block.memory_on(device)
        yield held + block.transient


def _with_optimizer(
    placement: Placement, num_micro_batches: int, lane: int, order: Iterable[Instance]
) -> list[Instance]:
    """Return a lane's order with its missing optimizer blocks added at the end."""
    complete = list(order)
    blocks = placement.optimizer_blocks
    here = [(block.name, num_micro_batches - 1) for block in blocks if lane in placement.lanes_of(block)]
    return complete + [instance for instance in here if num_micro_batches > 0 and instance not in complete]


def with_optimizer(placement: Placement, schedule: Schedule) -> Schedule:
    """Return a schedule of ``placement.per_micro_batch`` with the placement's optimizer blocks at its end."""
    if not placement.optimizer_blocks:
        return schedule.under(placement)
    return as_soon_as_possible(
        placement,
        schedule.num_micro_batches,
        schedule.lane_orders,
        schedule.chosen,
        schedule.memory_waits,
    )
