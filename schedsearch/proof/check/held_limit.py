"""A limit of what a device holds at any time, weighed, and a program that shows it: by Z3, or state by state.

It shares nothing with `schedsearch.proof.device_states`. Z3 is asked for numbers of starts that fit the
capacity and are above the limit. Where there are some, all states are gone through, as the device may never
come to those. A state says how often each weighed block has started on the device, less what all blocks that
it waits for there, or that wait for it, have.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placements import Placement
from schedsearch.proof.bound import Amount

_MAX_STATES = 50_000

State = frozenset[tuple[str, int]]
"""How often blocks have started, by name, where that is more than 0."""


@dataclass(frozen=True)
class HeldLimit:
    """A limit of how many micro-batches are between blocks of a device, weighed.

    The sum is at most `limit` at any time, and at most ``limit - spare[b]`` while b runs, its start included.

    Attributes:
        device: Device whose limit it is.
        between: Two blocks each of which the second waits for the first, and what a micro-batch counts from
            the first one's start to the second one's. All blocks with memory on the device are in some.
        limit: Limit of the sum.
        spare: What is left of the limit while a block of the device runs; 0 for those not named.
    """

    device: int
    between: tuple[tuple[str, str, Amount], ...]
    limit: Amount
    spare: Mapping[str, Amount]

    @property
    def weight(self) -> Mapping[str, int]:
        """What a start of each block adds to the sum."""
        found: dict[str, int] = {}
        for first, second, amount in self.between:
            found[first] = found.get(first, 0) + amount
            found[second] = found.get(second, 0) - amount
        return found

    def is_shown(self, placement: Placement, time_limit_s: float) -> bool | None:
        """Return whether the limit is kept; None if it takes too long to see.

        Only states count from which the device can come to hold nothing: what has begun ends in every
        schedule, and would without what begins later too, since a micro-batch never holds less than nothing.

        Args:
            placement: What runs where, without optimizer blocks; with capacities.
            time_limit_s: Seconds.

        Raises:
            ValueError: It is not about this placement; the message says why.
        """
        if not 0 <= self.device < placement.num_devices:
            raise ValueError(f"there is no device {self.device}")
        here, weight = {block.name: block for block in placement.on(self.device)}, self.weight
        for name in (*weight, *self.spare):
            if name not in here:
                raise ValueError(f"there is no block {name!r} on device {self.device}")
        for name, block in here.items():
            if name not in weight and block.memory_on(self.device):
                raise ValueError(f"{name} has memory on device {self.device}, but is not weighed")
        walk = _Walk(placement, self, weight)
        for group in walk.groups:
            if sum(weight[name] for name in group) or sum(walk.memory[name] for name in group):
                raise ValueError(f"weights or memory of {', '.join(sorted(group))} do not sum to 0")
        deadline = time.monotonic() + time_limit_s
        if not _above_limit_fits(walk, time_limit_s / 2):
            return True
        return walk.holds() if walk.run(deadline) else None


def verdict(solver: Any, time_limit_s: float) -> str:
    """Return what Z3 says of a solver's constraints within some seconds: ``sat``, ``unsat`` or ``unknown``.

    Raises:
        KeyboardInterrupt: Z3 was interrupted from the keyboard, of which Python is told nothing.
    """
    solver.set("timeout", max(1, int(time_limit_s * 1000)))
    found = str(solver.check())
    if found == "unknown" and "interrupted" in solver.reason_unknown():
        raise KeyboardInterrupt
    return found


def _above_limit_fits(walk: _Walk, time_limit_s: float) -> bool:
    """Return whether numbers of starts above the limit fit the capacity, as far as is seen in time."""
    import z3

    limit, solver = walk.claim.limit, z3.SolverFor("QF_LIA")
    starts = {name: z3.Int(name) for name in walk.weight}
    held = z3.Sum([units * starts[name] for name, units in walk.memory.items()])
    weighed = z3.Sum([weight * starts[name] for name, weight in walk.weight.items()])
    solver.add(held <= walk.free, *(starts[a] >= starts[b] for b, waits in walk.waits.items() for a in waits))
    above = [weighed > limit]
    for block in walk.placement.on(walk.claim.device):
        name = block.name
        runs = held + walk.memory.get(name, 0) + block.transient <= walk.free
        if name in starts:
            runs = z3.And(runs, *(starts[a] > starts[name] for a in walk.waits[name]))
        above.append(z3.And(runs, weighed + walk.weight.get(name, 0) > limit - walk.claim.spare.get(name, 0)))
    solver.add(z3.Or(above))
    return verdict(solver, time_limit_s) != "unsat"


@dataclass
class _Walk:
    """The walk over the states of one device."""

    placement: Placement
    claim: HeldLimit
    weight: Mapping[str, int]
    steps: dict[State, list[tuple[str, State]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        import networkx as nx

        placement, device = self.placement, self.claim.device
        assert placement.free_memory is not None
        self.free = placement.free_memory[device]
        self.memory = {name: placement.by_name[name].memory_on(device) for name in self.weight}
        before: dict[str, set[str]] = {}
        for block in placement.topological_order:
            before[block.name] = set(block.after).union(*(before[name] for name in block.after))
        self.waits = {name: before[name] & set(self.weight) for name in self.weight}
        waiting = nx.Graph([(a, b) for b, waits in self.waits.items() for a in {*waits, b}])
        self.groups = list(nx.connected_components(waiting))

    def run(self, deadline: float) -> bool:
        """Go through all states; return whether there was time for it."""
        todo = [State()]
        self.steps[State()] = []
        while todo:
            state = todo.pop()
            for name in self.waits:
                if self._starts_in(name, dict(state)):
                    after = self._with(name, dict(state))
                    self.steps[state].append((name, after))
                    if after not in self.steps:
                        self.steps[after] = []
                        todo.append(after)
            if len(self.steps) > _MAX_STATES or time.monotonic() > deadline:
                return False
        return True

    def holds(self) -> bool:
        """Return whether the limit is kept in all states from which nothing can be held, and between them."""
        import networkx as nx

        graph = nx.DiGraph([(state, after) for state, steps in self.steps.items() for _, after in steps])
        graph.add_node(State())
        returning = nx.ancestors(graph, State()) | {State()}
        limit, spare, by_name = self.claim.limit, self.claim.spare, self.placement.by_name
        for state in returning:
            weighed = _sum(self.weight, state)
            if weighed > limit:
                return False
            for name, after in self.steps[state]:
                if after in returning and weighed + self.weight[name] > limit - spare.get(name, 0):
                    return False
            for name in spare.keys() - self.weight.keys():
                fits = _sum(self.memory, state) + by_name[name].transient <= self.free
                if fits and weighed > limit - spare[name]:
                    return False
        return True

    def _starts_in(self, name: str, counts: dict[str, int]) -> bool:
        if any(counts.get(other, 0) <= counts.get(name, 0) for other in self.waits[name]):
            return False
        needed = self.memory[name] + self.placement.by_name[name].transient
        return _sum(self.memory, State(counts.items())) + needed <= self.free

    def _with(self, name: str, counts: dict[str, int]) -> State:
        """Return the state after a block's start."""
        counts[name] = counts.get(name, 0) + 1
        for group in self.groups:
            completed = min(counts.get(other, 0) for other in group)
            counts.update({other: counts.get(other, 0) - completed for other in group})
        return State((other, count) for other, count in counts.items() if count)


def _sum(units: Mapping[str, int], state: State) -> int:
    return sum(units[name] * count for name, count in state)
