"""Start times of blocks as solver variables, for runs that happen once or repeat every period."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from placements import Block, Placement
from schedsearch.schedule import Instance

Model = Any
"""`schedsearch.model.cpsat_model.CpSatModel` or `schedsearch.model.z3_model.Z3Model`."""

Term = Any
"""An integer, or a sum of a solver's integer variables."""

Literal = Any
"""A solver's Boolean variable or its negation; 0 or 1 for a known value."""

Constraint = Any
"""A solver's comparison of two terms."""

Units = Callable[[Block], int]
"""Returns the units of memory that a block adds to the memory in use."""


class Variables:
    """Instances that run once each; each block runs its micro-batches as in a known schedule.

    Attributes:
        model: The solver's, into which rules are written.
        placement: What runs where.
        start: Tick at which each instance starts; of one that its mode leaves out it says nothing.
        time: Ticks that each instance takes; a variable where its modes differ in it.
        choices: For each (decision, micro-batch) the literals of its choices, one of which is true.
        keeps_order: Whether each block runs the micro-batches in order. Where these differ in their modes,
            they cannot be renamed until it does.
        known: Start of each instance in a known schedule, with whose orders the solver begins.
        held: Memory in use on each device before any instance starts; 0 for a device that is not in it.
    """

    def __init__(
        self,
        model: Model,
        placement: Placement,
        start: Mapping[Instance, Term],
        known: Mapping[Instance, int] = MappingProxyType({}),
        held: Mapping[int, int] = MappingProxyType({}),
    ) -> None:
        self.model = model
        self.placement = placement
        self.start = start
        micro_batches = {micro_batch for _, micro_batch in start}
        self.choices = {
            (i, n): model.one_of(len(decision.choices), f"modes {i} of {n}")
            for i, decision in enumerate(placement.decisions)
            for n in sorted(micro_batches)
        }
        self.keeps_order = not placement.decisions or len(micro_batches) < 2
        self.time = {instance: self._time_of(instance) for instance in start}
        self.known = known
        self.held = held
        self._before: dict[tuple[Instance, Instance], Literal] = {}

    def modes(self, instance: Instance) -> list[tuple[Literal, Block]]:
        """Return the modes of an instance, each with the literal that chooses it: 1 without a decision."""
        decision = self.placement.decision_of.get(instance[0])
        literals = (1,) if decision is None else self.choices[decision, instance[1]]
        return list(zip(literals, self.placement.alternatives(instance[0]), strict=True))

    def _time_of(self, instance: Instance) -> Term:
        times = [(literal, block.time) for literal, block in self.modes(instance)]
        distinct = {time for _, time in times}
        if len(distinct) == 1:
            return distinct.pop()
        variable = self.model.new_int_var(min(distinct), max(distinct), f"time {instance}")
        for literal, time in times:
            self.model.add(variable == time).only_enforce_if(literal)
        return variable

    def present(self, instance: Instance) -> list[Literal]:
        """Return the literals that are all true if an instance runs; empty if it always runs."""
        return [~literal for literal, block in self.modes(instance) if not block.time]

    def on(self, device: int) -> list[Instance]:
        """Return the instances of a device."""
        return [i for i in self.start if device in self.placement.by_name[i[0]].devices]

    def end(self, instance: Instance) -> Term:
        """Return the tick at which an instance ends."""
        return self.start[instance] + self.time[instance]

    def instance(self, name: str, micro_batch: int) -> tuple[Instance, int] | None:
        """Return a block's instance of a micro-batch, and how many rounds later; None if not in the model."""
        return ((name, micro_batch), 0) if (name, micro_batch) in self.start else None

    def add(self, constraint: Constraint, *where: Literal) -> None:
        """Add a constraint that holds where all of some literals are true."""
        added = self.model.add(constraint)
        if where:
            added.only_enforce_if(*where)

    def wait(
        self, a: Instance, b: Instance, ticks: int, rounds: int = 0, where: Sequence[Literal] = ()
    ) -> None:
        """Instance b, `rounds` rounds later, starts at least `ticks` ticks (of any sign) after a's start.

        This holds if all literals of `where` are true.
        """
        assert rounds == 0
        self.add(self.start[b] >= self.start[a] + ticks, *where)

    def wait_for_end(self, a: Instance, b: Instance, ticks: int = 0, rounds: int = 0) -> None:
        """Instance b, `rounds` rounds later, starts at least `ticks` ticks (of any sign) after a's end."""
        if isinstance(self.time[a], int):
            self.wait(a, b, self.time[a] + ticks, rounds)
            return
        for literal, block in self.modes(a):
            self.wait(a, b, block.time + ticks, rounds, (literal,))

    def before(self, a: Instance, b: Instance) -> Literal:
        """Return the literal that one instance of a device runs before another, with its variable if new."""
        if self.known and a[0] == b[0]:
            return int(self.known[a] < self.known[b])
        if (a, b) not in self._before:
            first = self.model.new_bool_var(f"before {a} {b}")
            self._before[a, b], self._before[b, a] = first, ~first
            given = [*self.present(a), *self.present(b)]
            self.model.choose(first, self.in_order(a, b), self.in_order(b, a), given)
            if self.known:
                self.model.add_hint(first, self.known[a] < self.known[b])
        return self._before[a, b]

    def in_order(self, a: Instance, b: Instance) -> list[Constraint]:
        """Return the constraint that an instance ends before another starts."""
        return [self.end(a) <= self.start[b]]

    def runs(self, instance: Instance) -> list[Term]:
        """Return the starts of an instance that matter for the order of others: here only one."""
        return [self.start[instance]]

    def interval(self, start: Term, instance: Instance, name: str) -> object:
        """Return the solver's interval of an instance's run from a start on."""
        return self.model.interval(start, self.time[instance], self.present(instance), name)

    def started(self, a: Instance, b: Instance) -> Literal:
        """Return a literal that is true if a starts before b or, on another lane, at the same tick."""
        if self.shares_lane(a, b):
            return self.before(a, b)
        return self.model.at_least(self.start[b] - self.start[a], 0)

    def running(self, a: Instance, b: Instance) -> Literal:
        """Return whether an instance of another lane runs at the tick at which one starts."""
        has_ended = self.model.at_least(self.start[b] - self.end(a), 0)
        return self.model.both(self.started(a, b), ~has_ended)

    def shares_lane(self, a: Instance, b: Instance) -> bool:
        """Return whether two instances of a device run on the same stream."""
        by_name = self.placement.by_name
        return by_name[a[0]].stream == by_name[b[0]].stream

    def held_before(self, device: int, units: Units) -> Term:
        """Return the memory in use on a device before any instance starts."""
        return self.held.get(device, 0)


class PeriodicVariables(Variables):
    """Instances that run again every period T.

    Instance b starts at ``q * T + r``, ``0 <= r < T``, in its first round.

    Attributes:
        start: Tick r within the period.
        round: Round q of each instance's first run.
        period: Ticks.
        micro_batches: Micro-batches per period.
        last_round: Round that no instance need exceed; None where that is not said.
    """

    def __init__(
        self,
        model: Model,
        placement: Placement,
        start: Mapping[Instance, Term],
        round_: Mapping[Instance, Term],
        period: int,
        micro_batches: int,
        last_round: int | None = None,
    ) -> None:
        super().__init__(model, placement, start)
        self.round = round_
        self.period = period
        self.micro_batches = micro_batches
        self.last_round = last_round

    def instance(self, name: str, micro_batch: int) -> tuple[Instance, int] | None:
        """Return a block's instance of a micro-batch, any whole number, and how many rounds later that is."""
        rounds, number = divmod(micro_batch, self.micro_batches)
        return (name, number), rounds

    def wait(
        self, a: Instance, b: Instance, ticks: int, rounds: int = 0, where: Sequence[Literal] = ()
    ) -> None:
        """Instance b, `rounds` rounds later, starts at least `ticks` ticks (of any sign) after a's start.

        ``q_b * T + r_b >= q_a * T + r_a + ticks`` has T as a coefficient, which is hard on Z3, and of which
        CP-SAT learns little. As ``|r_b - r_a| < T``, it is one of three cases by the difference of the
        rounds, without coefficients.
        """
        whole, rest = divmod(ticks, self.period)
        later = self.round[b] - self.round[a] + rounds - whole
        self.add(later >= 0, *where)
        for least, shift in ((1, 0), (2, self.period)):
            is_later = self.model.at_least(later, least)
            self.model.add(self.start[b] + shift >= self.start[a] + rest).only_enforce_if(~is_later, *where)

    def in_order(self, a: Instance, b: Instance) -> list[Constraint]:
        """Return the constraints that a comes first in the period, and b ends before a's next start."""
        return [self.end(a) <= self.start[b], self.end(b) <= self.start[a] + self.period]

    def runs(self, instance: Instance) -> list[Term]:
        """Return an instance's starts in a period and in the next one, into which other runs may reach."""
        return [self.start[instance], self.start[instance] + self.period]

    def running(self, a: Instance, b: Instance) -> Literal:
        """Return whether an instance of another lane runs at the tick at which one starts.

        It began in this period, or before it and goes on into it.
        """
        goes_on = self.model.at_least(self.end(a) - self.start[b], self.period + 1)
        return self.model.either(goes_on, super().running(a, b))

    def held_before(self, device: int, units: Units) -> Term:
        """Return the memory in use on a device, without the instances that start earlier in the same period.

        Just after a block of a round starts, block c has run as often as its round lies behind, once more if
        it comes earlier in the round. A device's memory sums to 0 over its blocks, so the round cancels.
        """
        terms = [
            (self.model.times(literal, self.round[i], self.last_round), -units(block))
            for i in self.on(device)
            for literal, block in self.modes(i)
            if units(block)
        ]
        return self.model.weighted_sum([term for term, _ in terms], [factor for _, factor in terms])
