"""Shows once more that what a device holds, weighed, stays within a limit: by Z3, or state by state.

Shares nothing with `schedsearch.proof.device_states`. Z3 is asked for numbers of starts that fit the
capacity and are above the limit; where there are some, all states are gone through, as the device may never
come to those. A state says how often each weighed block has started on the device, less what all blocks that
it waits for there, or that wait for it, have.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import z3

from placements import Placement
from schedsearch.proof.memory_occupancy import HeldLimit
from schedsearch.solver.interrupts import interruptible

_MAX_STATES = 50_000

HeldState = frozenset[tuple[str, int]]
"""How often blocks have started, by name, where that is more than 0."""


def held_within_limit(placement: Placement, claim: HeldLimit, time_limit_s: float) -> bool | None:
    """Return whether a device never holds more than is claimed; None if it takes too long to see.

    Only states count from which the device can come to hold nothing: what has begun ends in every schedule,
    and would without what begins later too, since a micro-batch never holds less than nothing.

    Args:
        placement: What runs where, without optimizer blocks; with capacities.
        claim: Blocks that are not weighed must have no memory on the device.
        time_limit_s: Seconds.

    Raises:
        ValueError: The claim is not about this placement, or weights do not sum to 0; the message says where.
    """
    if not 0 <= claim.device < placement.num_devices:
        raise ValueError(f"there is no device {claim.device}")
    here = {block.name: block for block in placement.on(claim.device)}
    for name in (*claim.weight, *claim.spare):
        if name not in here:
            raise ValueError(f"there is no block {name!r} on device {claim.device}")
    for name, block in here.items():
        if name not in claim.weight and block.memory_on(claim.device):
            raise ValueError(f"{name} has memory on device {claim.device}, but is not weighed")
    walk = _Walk(placement, claim)
    for group in walk.groups:
        if sum(claim.weight[name] for name in group) or sum(walk.memory[name] for name in group):
            raise ValueError(f"weights or memory of {', '.join(sorted(group))} do not sum to 0")
    deadline = time.monotonic() + time_limit_s
    if not _above_limit_fits(walk, time_limit_s / 2):
        return True
    if not walk.run(deadline):
        return None
    return walk.holds(walk.that_can_end())


def _above_limit_fits(walk: _Walk, time_limit_s: float) -> bool:
    """Return whether numbers of starts above the limit fit the capacity, as far as is seen in time."""
    placement, claim = walk.placement, walk.claim
    assert placement.free_memory is not None
    free = placement.free_memory[claim.device]
    solver = z3.SolverFor("QF_LIA")
    solver.set("timeout", max(1, int(time_limit_s * 1000)))
    solver.set("ctrl_c", False)
    starts = {name: z3.Int(name) for name in claim.weight}
    held = z3.Sum([units * starts[name] for name, units in walk.memory.items()])
    weighed = z3.Sum([weight * starts[name] for name, weight in claim.weight.items()])
    solver.add(held <= free, *(starts[a] >= starts[b] for b, waits in walk.waits.items() for a in waits))
    above = [weighed > claim.limit]
    for block in placement.on(claim.device):
        name, spare = block.name, claim.spare.get(block.name, 0)
        runs = held + walk.memory.get(name, 0) + block.transient <= free
        if name in claim.weight:
            runs = z3.And(runs, *(starts[a] > starts[name] for a in walk.waits[name]))
        above.append(z3.And(runs, weighed + claim.weight.get(name, 0) > claim.limit - spare))
    solver.add(z3.Or(above))
    return bool(interruptible(solver.check, solver.interrupt) != z3.unsat)


@dataclass
class _Walk:
    """The walk over the states of one device."""

    placement: Placement
    claim: HeldLimit
    memory: Mapping[str, int] = field(init=False)
    waits: dict[str, set[str]] = field(init=False)
    groups: list[set[str]] = field(init=False)
    steps: dict[HeldState, list[tuple[str, HeldState]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        by_name = self.placement.by_name
        self.memory = {name: by_name[name].memory_on(self.claim.device) for name in self.claim.weight}
        before: dict[str, set[str]] = {}
        for block in self.placement.topological_order:
            before[block.name] = set(block.after).union(*(before[name] for name in block.after))
        self.waits = {name: before[name] & set(self.claim.weight) for name in self.claim.weight}
        self.groups = []
        for name, others in self.waits.items():
            touching = [group for group in self.groups if group & (others | {name})]
            self.groups = [group for group in self.groups if group not in touching]
            self.groups.append({name}.union(*touching))

    def run(self, deadline: float) -> bool:
        """Go through all states; return whether there was time for it."""
        todo = [HeldState()]
        self.steps[HeldState()] = []
        while todo:
            state = todo.pop()
            for name in self.waits:
                if self._starts_in(name, state):
                    after = self._reduced(_with(name, state))
                    self.steps[state].append((name, after))
                    if after not in self.steps:
                        self.steps[after] = []
                        todo.append(after)
            if len(self.steps) > _MAX_STATES or time.monotonic() > deadline:
                return False
        return True

    def that_can_end(self) -> set[HeldState]:
        """Return the states from which nothing can be held any more."""
        sources: dict[HeldState, set[HeldState]] = {}
        for state, steps in self.steps.items():
            for _, after in steps:
                sources.setdefault(after, set()).add(state)
        found: set[HeldState] = set()
        todo = {HeldState()}
        while todo:
            found |= todo
            todo = {state for after in todo for state in sources.get(after, ())} - found
        return found

    def holds(self, states: set[HeldState]) -> bool:
        """Return whether the limit is kept in all of some states, and while blocks run in between."""
        assert self.placement.free_memory is not None
        claim, by_name = self.claim, self.placement.by_name
        free = self.placement.free_memory[claim.device]
        for state in states:
            weighed = self._sum(claim.weight, state)
            if weighed > claim.limit:
                return False
            for name, after in self.steps[state]:
                if after in states and weighed + claim.weight[name] > claim.limit - claim.spare.get(name, 0):
                    return False
            for name, spare in claim.spare.items():
                fits = self._sum(self.memory, state) + by_name[name].transient <= free
                if name not in claim.weight and fits and weighed > claim.limit - spare:
                    return False
        return True

    def _starts_in(self, name: str, state: HeldState) -> bool:
        counts = dict(state)
        if any(counts.get(other, 0) <= counts.get(name, 0) for other in self.waits[name]):
            return False
        assert self.placement.free_memory is not None
        needed = self.memory[name] + self.placement.by_name[name].transient
        return self._sum(self.memory, state) + needed <= self.placement.free_memory[self.claim.device]

    def _reduced(self, counts: dict[str, int]) -> HeldState:
        for group in self.groups:
            completed = min(counts.get(name, 0) for name in group)
            counts.update({name: counts.get(name, 0) - completed for name in group})
        return HeldState((name, count) for name, count in counts.items() if count)

    @staticmethod
    def _sum(units: Mapping[str, int], state: HeldState) -> int:
        return sum(units[name] * count for name, count in state)


def _with(name: str, state: HeldState) -> dict[str, int]:
    counts = dict(state)
    counts[name] = counts.get(name, 0) + 1
    return counts
