"""The period where blocks have modes: time and memory of each device over the mixes of its modes.

Scipy is loaded with the first program, since reading a frontier needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from placements import Block, Placement
from schedsearch.proof.bound import Amount, Bound
from schedsearch.proof.timeline import Timeline

_SCALE = 10**6
"""Sum of all prices, about: any whole numbers prove a bound, these one next to the best."""


@dataclass(frozen=True)
class ModeChoice(Bound):
    """The cost of a device's cheapest modes at some prices, as a bound on the period.

    Proof. In a period each lane of the device has as much time as there is in the period, and the device as
    much memory times time as its free memory times the period. So at prices for both a period costs its ticks
    times the sum of the prices, and at least what its micro-batches need: those take one choice in each
    decision, each of which needs at least the time of its blocks, and its memory for at least as long as what
    comes between takes. So each decision costs at least its cheapest choice, whatever the mix.

    Attributes:
        device: The device.
        lanes: Price of a tick of each of its lanes, by number.
        memory: Price of all its free memory for a tick.
    """

    name: ClassVar[str] = "modes"
    device: int
    lanes: Mapping[int, Amount]
    memory: Amount

    def value(self, placement: Placement) -> Fraction:
        """Return the ticks per micro-batch that it proves: least cost of all decisions over sum of prices."""
        placement = placement.per_micro_batch
        here = {number for number, (device, _) in enumerate(placement.lanes) if device == self.device}
        if not here:
            raise ValueError(f"there is no device {self.device}")
        if not set(self.lanes) <= here:
            raise ValueError(f"a price is of no stream of device {self.device}")
        free = 0 if placement.free_memory is None else placement.free_memory[self.device]
        if self.memory and not free:
            raise ValueError(f"the memory of device {self.device} has a price, but no limit")

        def cost(need: Need) -> Fraction:
            ticks = sum(price * need.time.get(lane, 0) for lane, price in self.lanes.items())
            return ticks + (Fraction(self.memory * need.held, free) if self.memory else Fraction(0))

        needs = needs_of(placement, self.device).values()
        paid = sum(self.lanes.values(), self.memory)
        return sum((min(map(cost, choices)) for choices in needs), Fraction(0)) / (paid or 1)

    def __str__(self) -> str:
        return f"modes of device {self.device}, whatever their mix"


def mode_choice(placement: Placement) -> ModeChoice | None:
    """Return the greatest of these bounds over the devices; None where nothing is decided."""
    if not placement.decisions:
        return None
    bounds = [_on(placement.per_micro_batch, device) for device in range(placement.num_devices)]
    return max(bounds, key=lambda bound: bound.value(placement))


@dataclass(frozen=True)
class Need:
    """Time and memory that some blocks of a micro-batch need on a device in a mode.

    Attributes:
        time: Ticks of each of its lanes.
        held: Least memory times ticks.
    """

    time: Mapping[int, int]
    held: int


def _on(placement: Placement, device: int) -> ModeChoice:
    """Return a device's bound at the best prices, by a linear program over prices and costs of decisions."""
    import numpy as np
    from scipy.optimize import linprog

    needs = list(needs_of(placement, device).values())
    lanes = [number for number, (owner, _) in enumerate(placement.lanes) if owner == device]
    free = 0 if placement.free_memory is None else placement.free_memory[device]
    costs = [
        [-need.time.get(lane, 0) for lane in lanes] + [-need.held / free if free else 0]
        for choices in needs
        for need in choices
    ]
    num_prices, of_decisions = len(lanes) + 1, np.eye(len(needs)).repeat([*map(len, needs)], axis=0)
    result = linprog(
        [0.0] * num_prices + [-1.0] * len(needs),
        np.hstack([costs, of_decisions]),
        np.zeros(len(costs)),
        [[1.0] * num_prices + [0.0] * len(needs)],
        [1.0],
        [(0, None)] * len(lanes) + [(0, None if free else 0)] + [(0, None)] * len(needs),
        method="highs",
    )
    *of_lanes, memory = (round(price * _SCALE) for price in result.x[:num_prices])
    return ModeChoice(device, dict(zip(lanes, of_lanes, strict=True)), memory)


def needs_of(placement: Placement, device: int) -> dict[int | None, list[Need]]:
    """Return the time and memory that each decision needs on a device, for each of its choices.

    Keys are the numbers of decisions; the key None has the needs of all blocks outside decisions.
    """
    decided = placement.decision_of
    others = [block.name for block in placement.per_micro_batch.blocks if block.name not in decided]
    needs: dict[int | None, list[Need]] = {None: [_need(placement.at_best, others, device)]}
    for i, decision in enumerate(placement.decisions):
        if any(device in placement.by_name[name].devices for name in decision.blocks):
            choices = [placement.at_best_but(i, number) for number in range(len(decision.choices))]
            needs[i] = [_need(choice, decision.blocks, device) for choice in choices]
    return needs


def _need(placement: Placement, names: Iterable[str], device: int) -> Need:
    """Return the time and memory that some blocks need on a device, in a placement without decisions."""
    here = [b for name in names if (b := placement.by_name.get(name)) and device in b.devices]
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
    """Return the least memory times ticks that blocks hold until other blocks release it.

    It is the greatest sum, over all ways to pair allocated units with units released after them, of the
    least ticks between their starts: the dual of the linear program over the starts. Without any such
    pairing it is 0, which is always true.
    """
    import networkx as nx

    whole = Timeline(placement, frozenset())
    units = {block.name: block.memory_on(device) for block in blocks if block.memory_on(device)}
    if not units:
        return 0
    network = nx.DiGraph()
    for name, amount in units.items():
        network.add_node(name, demand=-amount)
        ticks = whole.ticks_from({name}) if amount > 0 else {}
        gives = [other for other in ticks if units.get(other, 0) < 0]
        network.add_weighted_edges_from((name, other, -ticks[other]) for other in gives)
    try:
        return -int(nx.min_cost_flow_cost(network))
    except nx.NetworkXUnfeasible:
        return 0
