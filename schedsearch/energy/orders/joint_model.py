"""The variables of a small schedule whose order, modes and clocks are all free, for CP-SAT."""

from __future__ import annotations

import itertools
import math

from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.model import rules
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.model.variables import Literal, Term, Variables
from schedsearch.schedule import Instance, micro_batches_of


class ClockVariables(Variables):
    """Instances that run once each, or are left out, each in a mode of its placement at a clock.

    Attributes:
        offset_mj: Effective energy that is no part of the objective.
        unit_mj: Energy of a unit of the objective.
    """

    model: CpSatModel
    offset_mj: float
    unit_mj: float

    @classmethod
    def of(
        cls, problem: ClockProblem, clock_mhz: Clocks, tick_ms: float, last: int, units: float
    ) -> ClockVariables:
        """Return the variables of a problem, with the least energy for objective.

        Args:
            problem: Problem whose placement and costs count.
            clock_mhz: The solver begins with these, and with the modes of the problem's schedule.
            tick_ms: Length of a tick.
            last: Tick by which all end.
            units: Units of the largest difference of two costs of an instance.
        """
        model, schedule = CpSatModel(), problem.schedule
        placement, number = schedule.placement, schedule.num_micro_batches
        start: dict[Instance, Term] = {
            (block.name, n): model.new_int_var(0, last, f"start {block.name} {n}")
            for block in placement.topological_order
            for n in micro_batches_of(placement, block.name, number)
        }
        v = cls(model, placement, start)
        clock_of = {
            (name, n): clock
            for name, clocks in clock_mhz.items()
            for n, clock in zip(schedule.runs_of[name], clocks, strict=True)
        }
        terms: list[Literal] = []
        costs: list[float] = []
        v.offset_mj = 0.0
        for instance in start:
            run_name = schedule.run_name(*instance) if instance in clock_of else ""
            options = [
                (literal, name, curve)
                for (literal, _), name in zip(v.modes(instance), v.names(instance), strict=True)
                for curve in [problem.curves[name] if name else None]
            ]
            energies = [float(each.energy_mj.min()) if each else 0.0 for _, _, each in options]
            min_mj = min(energies)
            v.offset_mj += min_mj
            times: list[tuple[Literal, int]] = []
            for literal, name, curve in options:
                if curve is None:
                    terms.append(literal)
                    costs.append(-min_mj)
                    continue
                clocks = [model.new_bool_var(f"clock {k} of {instance}") for k in range(len(curve.time_ms))]
                model.add(model.weighted_sum(clocks, [1] * len(clocks)) == literal)
                times += [
                    (each, math.floor(ms / tick_ms))
                    for each, ms in zip(clocks, curve.time_ms.tolist(), strict=True)
                ]
                terms += clocks
                costs += [mj - min_mj for mj in curve.energy_mj.tolist()]
                for each, clock in zip(clocks, curve.clocks, strict=True):
                    model.add_hint(each, name == run_name and clock == clock_of[instance])
            most = max(ticks for _, ticks in times)
            v.time[instance] = model.new_int_var(0, most, f"time {instance}")
            literals, ticks = zip(*times, strict=True)
            model.add(v.time[instance] == model.weighted_sum(literals, ticks))
            model.add(start[instance] + v.time[instance] <= last)
        v.unit_mj = max(costs) / units or 1.0
        model.minimize(model.weighted_sum(terms, [math.floor(cost / v.unit_mj) for cost in costs]))
        return v

    def names(self, instance: Instance) -> list[str]:
        """Return the names of an instance's block in each of its modes; empty where it is left out."""
        name = instance[0]
        decision = self.placement.decision_of.get(name)
        if decision is None:
            return [name]
        return [
            self.placement.name_in(choice, name)
            if choice.by_name.get(name, self.placement.by_name[name]).time
            else ""
            for choice in self.placement.decisions[decision].choices
        ]

    def wait_for_end(self, a: Instance, b: Instance, ticks: int = 0, rounds: int = 0) -> None:
        """Instance b starts at least so many ticks after a ends."""
        self.wait(a, b, self.time[a] + ticks, rounds)

    def _order_equal_micro_batches(self) -> None:
        """Let each block run those micro-batches in order that have the same modes.

        Others are renamings, as where all have the same: give the k-th start of a block among them to the
        k-th of them. The names by the order of the first block stay.
        """
        model, decisions = self.model, range(len(self.placement.decisions))
        numbers = sorted({n for _, n in self.start})
        for first, second in itertools.combinations(numbers, 2):
            differ = []
            for i in decisions:
                equal = model.new_bool_var(f"modes {i} of {first} and {second}")
                for one, other in zip(self.choices[i, first], self.choices[i, second], strict=True):
                    model.add_bool_or(equal, ~one, ~other)
                differ.append(~equal)
            for block in self.placement.per_micro_batch.blocks:
                in_order = self.before((block.name, first), (block.name, second))
                model.add_bool_or(in_order, *differ)

    def keep_rules(self) -> None:
        """Add the rules of a schedule, but for the inputs, whose transfers have a unit of their own."""
        rules.order_micro_batches(self)
        if not self.keeps_order:
            self._order_equal_micro_batches()
        for lane in range(len(self.placement.lanes)):
            rules.run_one_at_a_time(self, lane)
        for device in range(self.placement.num_devices):
            rules.respect_memory(self, device)
