"""When each block starts, as variables of a solver: once, or again every period."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from placements import Placement
from schedsearch.schedule import Instance

Model = Any
"""`schedsearch.model.cpsat_model.CpSatModel` or `schedsearch.model.z3_model.Z3Model`."""

Term = Any
"""An integer, or a sum of a solver's integer variables."""

Literal = Any
"""A solver's Boolean variable or its contrary; 0 or 1 where it is known."""

Constraint = Any
"""What a solver makes of two terms that are compared."""


class Variables:
    """Instances that run once each; each block runs its micro-batches as in a known schedule.

    Attributes:
        model: The solver's, into which rules are written.
        placement: What runs where.
        start: Tick at which each instance starts.
        time: Ticks that each instance takes.
        known: Start of each instance in a known schedule, with whose orders the solver begins.
        held: What is in use on each device before any instance starts; 0 where nothing is said.
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
        self.time = {instance: placement.by_name[instance[0]].time for instance in start}
        self.known = known
        self.held = held
        self._before: dict[tuple[Instance, Instance], Literal] = {}

    def on(self, device: int) -> list[Instance]:
        """Return the instances of a device."""
        return [i for i in self.start if device in self.placement.by_name[i[0]].devices]

    def end(self, instance: Instance) -> Term:
        """Return the tick at which an instance ends."""
        return self.start[instance] + self.time[instance]

    def instance(self, name: str, micro_batch: int) -> tuple[Instance, int] | None:
        """Return a block's instance of a micro-batch, and how many rounds later; None if it is not here."""
        return ((name, micro_batch), 0) if (name, micro_batch) in self.start else None

    def wait(self, a: Instance, b: Instance, ticks: int, rounds: int = 0) -> None:
        """Instance b of so many rounds later starts at least so many ticks, of any sign, after a."""
        assert rounds == 0
        self.model.add(self.start[b] >= self.start[a] + ticks)

    def before(self, a: Instance, b: Instance) -> Literal:
        """Return whether one instance of a device comes before another; a variable is made when needed."""
        if self.known and a[0] == b[0]:
            return int(self.known[a] < self.known[b])
        if (a, b) not in self._before:
            first = self.model.new_bool_var(f"before {a} {b}")
            self._before[a, b], self._before[b, a] = first, ~first
            self.model.choose(first, self.in_order(a, b), self.in_order(b, a))
            if self.known:
                self.model.add_hint(first, self.known[a] < self.known[b])
        return self._before[a, b]

    def in_order(self, a: Instance, b: Instance) -> list[Constraint]:
        """Return that an instance ends before another starts."""
        return [self.end(a) <= self.start[b]]

    def runs(self, instance: Instance) -> list[Term]:
        """Return when an instance starts, as often as counts for the order of others."""
        return [self.start[instance]]

    def interval(self, start: Term, instance: Instance, name: str) -> object:
        """Return the time that an instance takes from a start on."""
        return self.model.new_fixed_size_interval_var(start, self.time[instance], name)

    def held_before(self, device: int) -> Term:
        """Return what is in use on a device, but for what instances before some other add."""
        return self.held.get(device, 0)


class PeriodicVariables(Variables):
    """Instances that run again every period T.

    Instance b starts at ``q * T + r``, ``0 <= r < T``, in its first round.

    Attributes:
        start: Tick r within the period.
        round: Round q.
        period: Ticks.
        micro_batches: Micro-batches per period.
    """

    def __init__(
        self,
        model: Model,
        placement: Placement,
        start: Mapping[Instance, Term],
        round_: Mapping[Instance, Term],
        period: int,
        micro_batches: int,
    ) -> None:
        super().__init__(model, placement, start)
        self.round = round_
        self.period = period
        self.micro_batches = micro_batches

    def instance(self, name: str, micro_batch: int) -> tuple[Instance, int] | None:
        """Return a block's instance of a micro-batch, any whole number, and how many rounds later that is."""
        rounds, number = divmod(micro_batch, self.micro_batches)
        return (name, number), rounds

    def wait(self, a: Instance, b: Instance, ticks: int, rounds: int = 0) -> None:
        """Instance b of so many rounds later starts at least so many ticks, of any sign, after a.

        ``q_b * T + r_b >= q_a * T + r_a + ticks`` has T as a coefficient, which is hard on Z3, and of which
        CP-SAT learns little. As ``|r_b - r_a| < T``, it is one of three cases by the difference of the
        rounds, without coefficients.
        """
        whole, rest = divmod(ticks, self.period)
        later = self.round[b] - self.round[a] + rounds - whole
        self.model.add(later >= 0)
        for least, shift in ((1, 0), (2, self.period)):
            is_later = self.model.at_least(later, least)
            self.model.add(self.start[b] + shift >= self.start[a] + rest).only_enforce_if(~is_later)

    def in_order(self, a: Instance, b: Instance) -> list[Constraint]:
        """Return that an instance comes first in the period, and the other ends before its next start."""
        return [self.end(a) <= self.start[b], self.end(b) <= self.start[a] + self.period]

    def runs(self, instance: Instance) -> list[Term]:
        """Return when an instance starts in a period and in the next, which what it runs with may reach."""
        return [self.start[instance], self.start[instance] + self.period]

    def held_before(self, device: int) -> Term:
        """Return what is in use on a device, but for what comes before some instance in the period.

        Just after a block of a round starts, block c has run as often as its round lies behind, once more if
        it comes earlier in the round. A device's memory sums to 0 over its blocks, so the round cancels.
        """
        memory = {i: self.placement.by_name[i[0]].memory_on(device) for i in self.on(device)}
        here = [instance for instance, units in memory.items() if units]
        return self.model.weighted_sum([self.round[i] for i in here], [-memory[i] for i in here])
