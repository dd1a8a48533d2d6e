"""A bound on the period by Little's law: the time of memory in use limits the rate of micro-batches.

The bound is an exact fraction, of which anyone computes the value by adding up, and by going through the
states of single devices where it uses more than their capacities.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from placements import Placement
from schedsearch.proof.bound import Amount, Bound, repeated
from schedsearch.proof.check.states import HeldLimit
from schedsearch.proof.device_states import Counts, DeviceStates, device_states
from schedsearch.proof.timeline import Timeline, timelines

_FINEST_WEIGHT = 10_000
"""Weights are whole numbers up to this."""

_ROUNDED = 1e-6
"""Greatest difference between a weight and the whole number that is taken for it."""


@dataclass(frozen=True)
class MemoryOccupancy(Bound):
    """Prices of memory that prove a lower bound on the period.

    Proof (Little's law). Memory released by a block can be allocated again only by a later block of the same
    device, hence after the first block's end: counted until then, memory in use still never exceeds the
    capacity. Averaged over a long time it is the memory times the time in use of one micro-batch, averaged
    over micro-batches, divided by the period per micro-batch. While a block runs that releases memory,
    counted is the greater of what it releases and what it needs for itself: both fit, one before and one
    during it.

    So let block b start at s(b), averaged over micro-batches. What a device d with capacity c(d) has in use
    is the sum over its blocks of ``-memory(b, d) * s(b) + occupied_while_running(b, d)`` per period, which is
    at most c(d) times the period. So it is with each limit of what a device holds: the sum of ``-weight(b) *
    s(b) + spare(b) * time(b)`` is at most the limit times the period. Sum over all of them, devices with
    their weights, and let memory(b) be what b's starts are multiplied by; its sign may be another than on
    some devices. The flow balances what blocks allocate and release in these sums, so the sum of ``-memory *
    s`` is that of ``flow(a, b) * (s(b) - s(a))``, at least ``flow(a, b) * (time(a) + transfer(a, b))``, as
    the averages of the starts satisfy the dependencies as each one's starts do. What is left is free of s.

    No cycle of blocks that wait for each other, by their inputs or for memory, takes longer than that.

    Attributes:
        device_weight: Price of each device's memory; shape ``(num_devices,)``.
        flow: For pairs of a block and one after it, the memory that the first passes on to the second, until
            a block releases it; in units of memory times the device's price.
        shared: Devices whose shared blocks are cut out; see `schedsearch.proof.timeline`.
        held: Limits on the memory held on some devices, besides their capacities.
    """

    name: ClassVar[str] = "memory_occupancy"
    device_weight: tuple[Amount, ...]
    flow: tuple[tuple[str, str, Amount], ...]
    shared: tuple[int, ...] = ()
    held: tuple[HeldLimit, ...] = ()

    def value(self, placement: Placement, unused: Sequence[Fraction] = ()) -> Fraction:
        """Return the ticks per micro-batch that it proves: memory occupied times ticks, over the limits.

        Args:
            placement: What runs where.
            unused: Memory times ticks per micro-batch that each device is known to leave unused.

        Raises:
            ValueError: The flow does not balance, or a name or a device is not of the placement.
        """
        placement = repeated(placement)
        if placement.free_memory is None:
            raise ValueError("the placement has no memory capacities, so it bounds nothing")
        if len(self.device_weight) != placement.num_devices:
            raise ValueError(f"weighs {len(self.device_weight)} devices of {placement.num_devices}")
        timeline = Timeline(placement, frozenset(self.shared))
        length = timeline.length
        named = {name for a, b, _ in self.flow for name in (a, b)}
        if unknown := named.union(*({*held.weight, *held.spare} for held in self.held)) - length.keys():
            raise ValueError(f"there is no block {min(unknown)!r}")
        left = _weighted_memory(placement, self.device_weight, self.held)
        occupied = sum(w * _occupied(timeline, device) for device, w in enumerate(self.device_weight))
        occupied += sum(amount * length[name] for held in self.held for name, amount in held.spare.items())
        for a, b, amount in self.flow:
            if a not in placement.by_name[b].after:
                raise ValueError(f"{b} is not after {a}, so nothing can be passed on")
            left[a] -= amount
            left[b] += amount
            occupied += amount * _apart(timeline, a, b)
        if any(left.values()):
            raise ValueError("what some blocks allocate is not what the others release")
        idle = sum((w * ticks for w, ticks in zip(self.device_weight, unused, strict=False)), Fraction(0))
        limit = sum(w * c for w, c in zip(self.device_weight, placement.free_memory, strict=True))
        limit += sum(held.limit for held in self.held)
        return timeline.shared_time + ((occupied + idle) / limit if limit > 0 else Fraction(0))

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Check each limit on a device's memory; return True, or None if there was not enough time."""
        shown: list[bool | None] = []
        for limit in self.held:
            shown.append(limit.is_shown(repeated(placement), time_limit_s / len(self.held)))
            if shown[-1] is False:
                raise ValueError(f"device {limit.device} can hold more than is claimed")
        return all(shown) or None


@lru_cache(maxsize=8)
def memory_occupancy(placement: Placement) -> MemoryOccupancy | None:
    """Return the best bound on any timeline, or None where memory bounds nothing."""
    bounds = filter(None, map(memory_occupancy_on, timelines(repeated(placement))))
    return max(bounds, key=lambda bound: bound.value(placement), default=None)


def memory_occupancy_on(timeline: Timeline, unused: Sequence[Fraction] = ()) -> MemoryOccupancy | None:
    """Return the best bound on one timeline, or None where memory bounds nothing.

    A linear program finds the prices. They are rounded to whole numbers; whatever they are, limits are what
    the states say, and the best flow is a minimum cost flow in whole numbers, so that the bound is exact. It
    needs no states where capacities prove as much.

    Args:
        timeline: Of a placement that repeats.
        unused: As of `MemoryOccupancy.value`.
    """
    placement = timeline.placement
    if placement.free_memory is None or not any(b.memory or b.transient for b in placement.blocks):
        return None
    states = device_states(placement)
    bounds = filter(None, (_priced(timeline, unused, known) for known in ([(), states] if states else [()])))
    return max(bounds, key=lambda bound: bound.value(placement, unused), default=None)


def _priced(
    timeline: Timeline, unused: Sequence[Fraction], known: Sequence[DeviceStates]
) -> MemoryOccupancy | None:
    """Return the bound at the best prices of the devices' memory and of their other limits."""
    import networkx as nx

    placement, devices = timeline.placement, range(timeline.placement.num_devices)
    best = _best_prices(timeline, unused, known)
    whole = [] if best is None else _in_whole_numbers(best).tolist()
    if not any(whole):
        return None
    device_weight, amounts = tuple(whole[: len(devices)]), iter(whole[len(devices) :])
    prices = [np.array([next(amounts) for _ in states.groups], dtype=np.int64) for states in known]
    held = tuple(_held_limit(states, row) for states, row in zip(known, prices, strict=True) if row.any())
    graph = nx.DiGraph()
    for name, memory in _weighted_memory(placement, device_weight, held).items():
        graph.add_node(name, demand=-memory)
    for a, b in _waits(placement):
        graph.add_edge(a, b, weight=-_apart(timeline, a, b))
    try:
        _, flows = nx.network_simplex(graph)
    except nx.NetworkXUnfeasible:  # not all that release wait for those that allocate
        return None
    flow = tuple((a, b, amount) for a, targets in flows.items() for b, amount in targets.items() if amount)
    return MemoryOccupancy(device_weight, flow, tuple(sorted(timeline.devices)), held)


def _waits(placement: Placement) -> list[tuple[str, str]]:
    return [(name, block.name) for block in placement.blocks for name in block.after]


def _apart(timeline: Timeline, a: str, b: str) -> int:
    """Return the least ticks from an input's start to a block's."""
    return timeline.length[a] + timeline.transfer_time(a, b)


def _weighted_memory(
    placement: Placement, device_weight: Sequence[int], held: Sequence[HeldLimit]
) -> dict[str, int]:
    """Return each block's price-weighted memory, by which its start times are multiplied in the sum."""
    memory = {
        block.name: sum(device_weight[device] * block.memory_on(device) for device in block.devices)
        for block in placement.blocks
    }
    for limit in held:
        for name, amount in limit.weight.items():
            memory[name] += amount
    return memory


def _occupied(timeline: Timeline, device: int) -> int:
    """Return the memory times ticks of a device that counts only while its blocks run."""
    here = timeline.placement.on(device)
    return sum(max(-b.memory_on(device), b.transient) * timeline.length[b.name] for b in here)


def _best_prices(
    timeline: Timeline, unused: Sequence[Fraction], known: Sequence[DeviceStates]
) -> NDArray[np.float64] | None:
    """Return the weights of devices and the prices of groups of pairs with which the bound is greatest.

    The program's variables are the bound's own data: weights, flow, and for each device with states its
    limit, what each block leaves spare of it, and the price of a micro-batch between a group of pairs. For
    limits that sum to 1 it makes greatest what is occupied. In each state the prices are at most the limit.
    """
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, csr_array, vstack

    placement, length = timeline.placement, timeline.length
    assert placement.free_memory is not None
    row = {block.name: i for i, block in enumerate(placement.blocks)}
    gain, of_limits, changes = list[float](), list[float](), list[tuple[int, int, int]]()

    def add(ticks: float, limit: float = 0, changed: Iterable[tuple[str, int]] = ()) -> None:
        """Add a variable: its gain in ticks, its share of all limits, and its changes of blocks' balances."""
        changes.extend((change, row[name], len(gain)) for name, change in changed)
        gain.append(ticks)
        of_limits.append(limit)

    for device, capacity in enumerate(placement.free_memory):
        here = ((block.name, block.memory_on(device)) for block in placement.on(device))
        add(_occupied(timeline, device) + float(unused[device] if unused else 0), capacity, here)
    for a, b in _waits(placement):
        add(_apart(timeline, a, b), 0, [(a, -1), (b, 1)])
    in_states = [csr_array((0, len(gain)))]
    of_groups: list[int] = []
    for states in known:
        running = {name: counts for name, counts in states.running.items() if length[name]}
        add(0, 1)
        for name in running:
            add(length[name])
        for group in states.groups:
            of_groups.append(len(gain))
            add(0, 0, [change for a, b, times in group for change in ((a, times), (b, -times))])
        in_states.append(csr_array(_at_most([states.held, *running.values()])))
    change, rows, columns = zip(*changes, strict=True)
    balance = csr_array((change, (rows, columns)), shape=(len(row), len(gain)), dtype=float)
    answer = linprog(
        -np.array(gain),
        A_ub=block_diag(in_states, format="csr"),
        b_ub=np.zeros(sum(matrix.shape[0] for matrix in in_states)),
        A_eq=vstack([balance, csr_array([of_limits])]),
        b_eq=np.array([0.0] * len(row) + [1.0]),
        bounds=(0, None),
        method="highs",
    )
    return answer.x[[*range(placement.num_devices), *of_groups]] if answer.status == 0 else None


def _at_most(several: Sequence[Counts]) -> NDArray[np.float64]:
    """Return rows of the linear program, one a state: the limit, each block's spare part, and the prices.

    First come the states without a running block, then the states of each block.
    """
    rows = []
    for number, counts in enumerate(map(_greatest, several)):
        limits = np.zeros((len(counts), len(several)))
        limits[:, number] = 1
        limits[:, 0] = -1
        rows.append(np.hstack([limits, counts]))
    return np.vstack(rows)


def _greatest(between: Counts) -> Counts:
    """Return the maximal rows: no other row is at least as great everywhere and greater somewhere."""
    rows = np.unique(between, axis=0)[::-1]
    kept = np.ones(len(rows), dtype=bool)
    for i, row in enumerate(rows):
        if kept[i]:
            kept &= (rows > row).any(axis=1) | (np.arange(len(rows)) == i)
    return rows[kept]


def _held_limit(states: DeviceStates, prices: NDArray[np.int64]) -> HeldLimit:
    """Return the least valid limit at given prices of the micro-batches between the pairs of each group."""
    limit = int((states.held @ prices).max())
    spare = {name: limit - int((counts @ prices).max()) for name, counts in states.running.items()}
    between = (
        (a, b, times * amount)
        for group, amount in zip(states.groups, prices.tolist(), strict=True)
        for a, b, times in group
    )
    return HeldLimit(
        states.device, tuple(between), limit, {name: units for name, units in spare.items() if units}
    )


def _in_whole_numbers(weights: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the smallest whole numbers in the ratios of some weights, at least approximately."""
    greatest = weights.max(initial=0.0)
    if greatest <= 0:
        return np.zeros(len(weights), dtype=np.int64)
    scales = np.arange(1, _FINEST_WEIGHT + 1)
    scaled = weights[:, None] / greatest * scales
    exact = np.flatnonzero(np.abs(scaled - np.rint(scaled)).max(axis=0) < _ROUNDED * scales)
    whole = np.rint(scaled[:, exact[0] if len(exact) else -1]).astype(np.int64)
    return np.array(whole // np.gcd.reduce(whole))
