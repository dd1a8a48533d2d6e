"""A repetend in which groups of neighbouring devices do the same, shifted in time, as one CP-SAT query.

The query has the orders of one group only, so that its size hardly grows with the number of devices.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from ortools.sat.python import cp_model

from placements import Block, Placement
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import solve, within


class Place(NamedTuple):
    """Where a block is in the pattern.

    Attributes:
        group: Groups before that of its device.
        row: Devices of the group before its device.
        role: Which of the device's blocks it is.
    """

    group: int
    row: int
    role: int


class ShiftedPattern:
    """Which blocks take each other's place from device to device.

    A block takes the place of the one of its kind on the device before that it waits for, or that waits for
    it, as a stage's forward that of the stage's before; a weight half goes with its input half. Where
    devices' times differ, the pattern has the longest.

    Attributes:
        placement: What runs where; one micro-batch per repetend.
        group: Devices per group.
        on: For each device its blocks, by role.
        time: Ticks of each role; shape ``(roles,)``.
    """

    def __init__(self, placement: Placement, group: int) -> None:
        """Give each block its role; see `applies`."""
        self.placement = placement
        self.group = group
        self.on: list[list[Block]] = []
        for device in range(placement.num_devices):
            self.on.append(self._by_role(device))
        self.time = [max(block.time for block in role) for role in zip(*self.on, strict=False)]

    def _by_role(self, device: int) -> list[Block]:
        """Return a device's blocks, each at the position of the one on the device before that it follows."""
        blocks = list(self.placement.on(device))
        if not self.on or len(self.on[-1]) != len(blocks):
            return blocks
        role: dict[str, int] = {}
        for is_next in (_waits, self._goes_along):
            for i, other in enumerate(self.on[-1]):
                follows = [
                    block
                    for block in blocks
                    if block.name not in role and block.kind is other.kind and is_next(block, other, role)
                ]
                if follows and i not in role.values():
                    role[follows[0].name] = i
        left = [i for i in range(len(blocks)) if i not in role.values()]
        for block in blocks:
            if block.name not in role:
                role[block.name] = left.pop(0)
        return sorted(blocks, key=lambda block: role[block.name])

    def _goes_along(self, block: Block, other: Block, role: Mapping[str, int]) -> bool:
        """Whether a block waits for one in the role of the one that another block waits for."""
        before = [each.name for each in self.on[-1]]
        waits_for = {role[name] for name in block.after if name in role}
        return any(name in before and before.index(name) in waits_for for name in other.after)

    @property
    def applies(self) -> bool:
        """Whether each block has one device, and all devices have as many."""
        return all(len(block.devices) == 1 for block in self.placement.blocks) and all(
            len(blocks) == len(self.time) for blocks in self.on
        )

    @property
    def load(self) -> int:
        """Ticks that a device is busy for one micro-batch, at the pattern's times."""
        return sum(self.time)

    @cached_property
    def place(self) -> dict[str, Place]:
        """Where each block is."""
        return {
            block.name: Place(*divmod(device, self.group), role)
            for device, blocks in enumerate(self.on)
            for role, block in enumerate(blocks)
        }


def decide_shifted(
    pattern: ShiftedPattern, period: int, budget: SolverBudget
) -> tuple[Repetend | None, bool]:
    """Return a repetend of a pattern that has a period or less, and whether the question is answered.

    Args:
        pattern: One that applies.
        period: Ticks; at least the pattern's load.
        budget: What the solver may spend.

    Returns:
        The repetend, with the least period of its order; None where there is none, or none was found. The
        question is answered if there is one, or none can be.

    Raises:
        KeyboardInterrupt: The solver was interrupted from the keyboard.
    """
    model = _Model(pattern, period)
    solver = within(budget)
    solver.parameters.use_strong_propagation_in_disjunctive = False  # it takes more than it gives here
    status = solve(solver, model.model, budget.spend)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return model.repetend(solver).with_least_period(), True
    return None, status == cp_model.INFEASIBLE


def _waits(block: Block, other: Block, role: Mapping[str, int]) -> bool:
    """Whether one of two blocks waits for the other."""
    return other.name in block.after or block.name in other.after


class _Model:
    """The variables; each method adds one family of constraints."""

    def __init__(self, pattern: ShiftedPattern, period: int) -> None:
        self.pattern = pattern
        self.placement = pattern.placement
        self.period = period
        self.model = cp_model.CpModel()
        roles = range(len(pattern.time))
        self.start = {
            (row, role): self.model.new_int_var(0, period - 1, f"start {role} in row {row}")
            for row in range(pattern.group)
            for role in roles
        }
        self.shift = self.model.new_int_var(0, period - 1, "shift")
        self.shifted: dict[tuple[int, int], tuple[cp_model.IntVar, cp_model.IntVar]] = {}
        last = 3 * len(self.placement.blocks)
        self.round = {b.name: self.model.new_int_var(0, last, b.name) for b in self.placement.blocks}
        self.before: dict[tuple[int, int, int], cp_model.LiteralT] = {}
        self.model.add(self.start[0, 0] == 0)
        self.run_one_at_a_time()
        self.wait_for_inputs()
        self.respect_memory()

    def run_one_at_a_time(self) -> None:
        """Of two blocks on a device one comes first in the round, and ends before the other's next start."""
        time, period = self.pattern.time, self.period
        for row in range(self.pattern.group):
            start = [self.start[row, role] for role in range(len(time))]
            self.model.add_no_overlap(
                self.model.new_fixed_size_interval_var(start[role] + again, time[role], f"{role} {again}")
                for role in range(len(time))
                for again in (0, period)
            )
            for a, b in itertools.combinations(range(len(time)), 2):
                a_first = self.model.new_bool_var(f"{a} before {b} in row {row}")
                for one, two, literal in ((a, b, a_first), (b, a, ~a_first)):
                    self.before[row, one, two] = literal
                    self.model.add(start[one] + time[one] <= start[two]).only_enforce_if(literal)
                    self.model.add(start[two] + time[two] <= start[one] + period).only_enforce_if(literal)

    def wait_for_inputs(self) -> None:
        """A block starts after its inputs: the same rounds later in all groups where the same is between."""
        rounds: dict[tuple[int, ...], cp_model.LinearExpr] = {}
        for block in self.placement.blocks:
            for name in block.after:
                a, b = self.pattern.place[name], self.pattern.place[block.name]
                ticks = self.pattern.time[a.role] + self.placement.transfer_time(name, block.name)
                key = a.row, a.role, b.row, b.role, b.group - a.group, ticks
                if key not in rounds:
                    rounds[key] = self._rounds_between(a, b, ticks)
                self.model.add(self.round[block.name] - self.round[name] >= rounds[key])

    def _rounds_between(self, a: Place, b: Place, ticks: int) -> cp_model.LinearExpr:
        """Return how many rounds later a block must be that starts at least some ticks after another."""
        groups = b.group - a.group
        one, other = self.start[a.row, a.role], self.start[b.row, b.role]
        if groups == 0:
            return self._whole_rounds(one, other, ticks)
        if groups == 1:
            later, again = self._shifted(b)
            return self._whole_rounds(one, later, ticks) - again
        if groups == -1:
            later, again = self._shifted(a)
            return self._whole_rounds(later, other, ticks) + again
        most = 2 * self.placement.num_devices + ticks // self.period
        rounds = self.model.new_int_var(-most, most, f"rounds from {a} to {b}")
        self.model.add(other + groups * self.shift + self.period * rounds >= one + ticks)
        return rounds

    def _shifted(self, place: Place) -> tuple[cp_model.IntVar, cp_model.IntVar]:
        """Return where in the period a role of the next group starts, and whether that is a period on."""
        key = place.row, place.role
        if key not in self.shifted:
            start = self.model.new_int_var(0, self.period - 1, f"shifted start {key}")
            again = self.model.new_bool_var(f"shifted by a period {key}")
            self.model.add(start == self.start[key] + self.shift - self.period * again)
            self.shifted[key] = start, again
        return self.shifted[key]

    def _whole_rounds(self, one: cp_model.IntVar, other: cp_model.IntVar, ticks: int) -> cp_model.LinearExpr:
        """Return the rounds between two starts within the period, in three cases by how they lie."""
        whole, rest = divmod(ticks, self.period)
        some, two = self.model.new_bool_var("one round or more"), self.model.new_bool_var("two rounds")
        self.model.add_implication(two, some)
        self.model.add(other >= one + rest).only_enforce_if(~some)
        self.model.add(other + self.period >= one + rest).only_enforce_if(~two)
        return some + two + whole

    def respect_memory(self) -> None:
        """A device never holds more than its capacity."""
        free = self.placement.free_memory or ()
        for device, (capacity, blocks) in enumerate(zip(free, self.pattern.on, strict=False)):
            row = device % self.pattern.group
            memory = [block.memory_on(device) for block in blocks]
            rounds = self._sum([self.round[block.name] for block in blocks], [-units for units in memory])
            for role, block in enumerate(blocks):
                if memory[role] <= 0 and block.transient <= 0:
                    continue
                others = [other for other in range(len(blocks)) if other != role and memory[other]]
                earlier = self._sum(
                    [self.before[row, other, role] for other in others], [memory[other] for other in others]
                )
                self.model.add(rounds + earlier + memory[role] + block.transient <= capacity)

    @staticmethod
    def _sum(terms: Sequence[cp_model.LiteralT], factors: Sequence[int]) -> cp_model.LinearExpr:
        return cp_model.LinearExpr.weighted_sum(terms, factors)

    def repetend(self, solver: cp_model.CpSolver) -> Repetend:
        """Return the repetend of the solver's answer."""
        shift = solver.value(self.shift)
        first: dict[Instance, int] = {}
        for name, place in self.pattern.place.items():
            start = solver.value(self.start[place.row, place.role])
            first[name, 0] = start + place.group * shift + self.period * solver.value(self.round[name])
        return Repetend.from_first_starts(self.placement, 1, self.period, first)
