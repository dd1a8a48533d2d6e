"""A repetend in which groups of neighbouring devices do the same, shifted in time, as one CP-SAT query.

The query has the orders of one group only, so that its size hardly grows with the number of devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from placements import Block, Placement
from schedsearch.model import rules
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.model.variables import Literal, PeriodicVariables, Term
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import solve, within
from schedsearch.solver.query import Answer


class PatternPlace(NamedTuple):
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
    def place(self) -> dict[str, PatternPlace]:
        """Where each block is."""
        return {
            block.name: PatternPlace(*divmod(device, self.group), role)
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
    model = CpSatModel()
    v = _Variables(pattern, model, period)
    for device in range(pattern.group):
        rules.run_one_at_a_time(v, device)
    rules.wait_for_inputs(v)
    for device in range(pattern.placement.num_devices):
        rules.respect_memory(v, device)
    solver = within(budget)
    solver.parameters.use_strong_propagation_in_disjunctive = False  # it takes more than it gives here
    answer = solve(solver, model, budget.spend)
    if answer is not Answer.YES:
        return None, answer is Answer.NO
    first: dict[Instance, int] = {}
    for (name, _), start in v.start.items():
        ticks = solver.value(start) + pattern.place[name].group * solver.value(v.shift)
        first[name, 0] = ticks + period * solver.value(v.round[name, 0])
    return Repetend.from_first_starts(pattern.placement, 1, period, first).with_min_period(), True


def _waits(block: Block, other: Block, role: Mapping[str, int]) -> bool:
    """Whether one of two blocks waits for the other."""
    return other.name in block.after or block.name in other.after


class _Variables(PeriodicVariables):
    """The blocks of all groups, which share the starts of the first."""

    def __init__(self, pattern: ShiftedPattern, model: CpSatModel, period: int) -> None:
        place, blocks = pattern.place, pattern.placement.blocks
        starts = {
            (row, role): model.new_int_var(0, period - 1, f"start {role} in row {row}")
            for row in range(pattern.group)
            for role in range(len(pattern.time))
        }
        self.shift = model.new_int_var(0, period - 1, "shift")
        last = 3 * len(blocks)
        super().__init__(
            model,
            pattern.placement,
            {(block.name, 0): starts[place[block.name][1:]] for block in blocks},
            {(block.name, 0): model.new_int_var(0, last, block.name) for block in blocks},
            period,
            micro_batches=1,
        )
        self.time = {(block.name, 0): pattern.time[place[block.name].role] for block in blocks}
        self.place = place
        self.first = {place[b.name][1:]: (b.name, 0) for b in blocks if place[b.name].group == 0}
        self._rounds: dict[tuple[int, ...], Term] = {}
        self._shifted: dict[tuple[int, int], tuple[Term, Term]] = {}
        model.add(starts[0, 0] == 0)

    def before(self, a: Instance, b: Instance) -> Literal:
        """Return whether one block comes before another in the period: as in the first group."""
        return super().before(self.first[self.place[a[0]][1:]], self.first[self.place[b[0]][1:]])

    def wait(
        self, a: Instance, b: Instance, ticks: int, rounds: int = 0, where: Sequence[Literal] = ()
    ) -> None:
        """Block b waits for a: the same rounds later in all groups where the same is between."""
        assert not where, "of placements in which nothing is decided"
        one, other = self.place[a[0]], self.place[b[0]]
        key = one.row, one.role, other.row, other.role, other.group - one.group, ticks
        if key not in self._rounds:
            self._rounds[key] = self._rounds_between(a, b, ticks)
        self.model.add(self.round[b] + rounds - self.round[a] >= self._rounds[key])

    def _rounds_between(self, a: Instance, b: Instance, ticks: int) -> Term:
        """Return how many rounds later a block must be that starts at least some ticks after another."""
        groups = self.place[b[0]].group - self.place[a[0]].group
        if groups == 0:
            return self._whole_rounds(self.start[a], self.start[b], ticks)
        if groups == 1:
            later, again = self._in_next_group(b)
            return self._whole_rounds(self.start[a], later, ticks) - again
        if groups == -1:
            later, again = self._in_next_group(a)
            return self._whole_rounds(later, self.start[b], ticks) + again
        most = 2 * self.placement.num_devices + ticks // self.period
        rounds = self.model.new_int_var(-most, most, f"rounds from {a} to {b}")
        self.model.add(self.start[b] + groups * self.shift + self.period * rounds >= self.start[a] + ticks)
        return rounds

    def _in_next_group(self, instance: Instance) -> tuple[Term, Term]:
        """Return where in the period the next group's block starts, and whether that is a period on."""
        key = self.place[instance[0]][1:]
        if key not in self._shifted:
            start = self.model.new_int_var(0, self.period - 1, f"shifted start {key}")
            again = self.model.new_bool_var(f"shifted by a period {key}")
            self.model.add(start == self.start[instance] + self.shift - self.period * again)
            self._shifted[key] = start, again
        return self._shifted[key]

    def _whole_rounds(self, one: Term, other: Term, ticks: int) -> Term:
        """Return the rounds between two starts within the period, in three cases by how they lie."""
        whole, rest = divmod(ticks, self.period)
        some, two = self.model.new_bool_var("one round or more"), self.model.new_bool_var("two rounds")
        self.model.add_implication(two, some)
        self.model.add(other >= one + rest).only_enforce_if(~some)
        self.model.add(other + self.period >= one + rest).only_enforce_if(~two)
        return some + two + whole
