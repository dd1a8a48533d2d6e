"""A bound on the period where blocks have modes: time and memory of each device over the mixes of its modes.

Knows nothing of the search. Scipy is loaded with the first program, since reading a frontier needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from placements import Block, Placement

_DENOMINATOR = 10**6
"""Prices are rounded to fractions of so much: any prices prove a bound, these one next to the best."""


@dataclass(frozen=True)
class ModeChoice:
    """No period per micro-batch is below what the cheapest modes cost on a device at some prices.

    Proof. In a period each lane of the device has as much time as there is in the period, and the device as
    much memory times time as its free memory times the period. At prices for both that sum to 1 for each tick
    of the period, a period costs its ticks, and at least what its micro-batches need: those take one choice
    in each decision, each of which needs at least the time of its blocks, and its memory for at least as long
    as what comes between takes. So each decision costs at least its cheapest choice, whatever the mix.

    Attributes:
        device: The device.
        lanes: Price of a tick of each of its lanes.
        memory: Price of a unit of memory held for a tick, times the device's free memory.
    """

    device: int
    lanes: Mapping[int, Fraction]
    memory: Fraction

    def bound(self, placement: Placement) -> Fraction:
        """Return the ticks per micro-batch that it proves; at most the prices' sum is paid for each."""
        paid = sum(self.lanes.values(), self.memory)
        if not paid:
            return Fraction(0)
        free = placement.free_memory
        total = Fraction(0)
        for needs in needs_of(placement, self.device).values():
            costs = []
            for need in needs:
                time, held = need.time, need.held
                cost = sum(
                    (self.lanes.get(lane, Fraction(0)) * ticks for lane, ticks in time.items()), Fraction(0)
                )
                if self.memory:
                    assert free is not None
                    cost += self.memory * Fraction(held, free[self.device])
                costs.append(cost)
            total += min(costs)
        return total / paid


def mode_choice(placement: Placement) -> ModeChoice | None:
    """Return the reason for the greatest of these bounds over the devices; None where nothing is decided."""
    if not placement.decisions:
        return None
    found = [_on(placement, device) for device in range(placement.num_devices)]
    return max(found, key=lambda each: each.bound(placement))


@dataclass(frozen=True)
class Need:
    """What some blocks of a micro-batch need of a device in a mode.

    Attributes:
        time: Ticks of each of its lanes.
        held: Least memory times ticks.
    """

    time: Mapping[int, int]
    held: int


def _on(placement: Placement, device: int) -> ModeChoice:
    """Return the bound of a device at the best prices, which are those of the best mix of modes."""
    from scipy.optimize import linprog

    needs = list(needs_of(placement, device).values())
    lanes = sorted({lane for choices in needs for each in choices for lane in each.time})
    free = None if placement.free_memory is None else placement.free_memory[device]
    columns = [(i, need.time, need.held) for i, choices in enumerate(needs) for need in choices]
    rows = [[float(time.get(lane, 0)) for _, time, _ in columns] + [-1.0] for lane in lanes]
    if free:
        rows.append([held / free for _, _, held in columns] + [-1.0])
    if not rows or not columns:
        return ModeChoice(device, {}, Fraction(0))
    mixes = [[float(j == i) for j, _, _ in columns] + [0.0] for i in range(len(needs))]
    found = linprog(
        [0.0] * len(columns) + [1.0],
        np.array(rows, float),
        [0.0] * len(rows),
        np.array(mixes),
        [1.0] * len(mixes),
        method="highs",
    )
    if not found.success:
        return ModeChoice(device, dict.fromkeys(lanes, Fraction(1)), Fraction(0))
    marginals = [max(round(-price * _DENOMINATOR), 0) for price in found.ineqlin.marginals]
    prices = [Fraction(price, _DENOMINATOR) for price in marginals]
    memory = prices[len(lanes)] if free else Fraction(0)
    return ModeChoice(device, dict(zip(lanes, prices, strict=False)), memory)


def needs_of(placement: Placement, device: int) -> dict[int | None, list[Need]]:
    """Return what each decision needs of a device in each of its choices.

    Those are by the number of the decision; by None what all else needs, of which nothing is decided.
    """
    decided = placement.decision_of
    others = [block.name for block in placement.per_micro_batch.blocks if block.name not in decided]
    found: dict[int | None, list[Need]] = {None: [_need(placement.at_best, others, device)]}
    for i, decision in enumerate(placement.decisions):
        if any(device in placement.by_name[name].devices for name in decision.blocks):
            choices = [placement.at_best_but(i, number) for number in range(len(decision.choices))]
            found[i] = [_need(choice, decision.blocks, device) for choice in choices]
    return found


def _need(placement: Placement, names: Iterable[str], device: int) -> Need:
    """Return what blocks of a placement without decisions need of a device."""
    blocks = [placement.by_name[name] for name in names if name in placement.by_name]
    here = [block for block in blocks if device in block.devices]
    time: dict[int, int] = {}
    for block in here:
        for lane in placement.lanes_of(block):
            if placement.lanes[lane][0] == device:
                time[lane] = time.get(lane, 0) + block.time
    if placement.free_memory is None:
        return Need(time, 0)
    transient = sum(block.transient * block.time for block in here)
    return Need(time, transient + _least_held(placement, device, here))


def _least_held(placement: Placement, device: int, blocks: Iterable[Block]) -> int:
    """Return the least memory times ticks that blocks hold from their starts to those that release it.

    It is the greatest sum, over all ways to pair units that are allocated with units that are released after
    them, of the ticks that come between their starts at least: the dual of the linear program over the
    starts. Where there is no such way, nothing is known.
    """
    import networkx as nx

    units = {block.name: block.memory_on(device) for block in blocks if block.memory_on(device)}
    takes = [name for name, each in units.items() if each > 0]
    gives = [name for name, each in units.items() if each < 0]
    if len(takes) == len(gives) == 1:
        between = _ticks_from(placement, takes[0]).get(gives[0])
        return units[takes[0]] * between if between is not None else 0
    network = nx.DiGraph()
    for name, each in units.items():
        network.add_node(name, demand=-each)
    for name in takes:
        ticks = _ticks_from(placement, name)
        for other in gives:
            if other in ticks:
                network.add_edge(name, other, weight=-ticks[other])
    try:
        return -int(nx.min_cost_flow_cost(network)) if units else 0
    except nx.NetworkXUnfeasible:
        return 0


def _ticks_from(placement: Placement, name: str) -> dict[str, int]:
    """Return the least ticks from a block's start to that of each block after it."""
    found = {name: 0}
    for block in placement.topological_order:
        before = [
            found[each] + placement.by_name[each].time + placement.transfer_time(each, block.name)
            for each in block.after
            if each in found
        ]
        if before:
            found[block.name] = max(before)
    return found
