"""The variables of a small schedule whose order and modes are both free, for CP-SAT."""

from __future__ import annotations

import math

from schedsearch.energy.problem import ClockProblem, Clocks
from schedsearch.model import rules
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.model.variables import Literal, Term, Variables
from schedsearch.schedule import Instance, micro_batches_of


class ModeVariables(Variables):
    """Instances that run once each, in one of their modes.

    Attributes:
        offset_mj: Effective energy of all in their slowest modes.
        unit_mj: Energy of a unit of the objective.
    """

    model: CpSatModel
    offset_mj: float
    unit_mj: float

    @classmethod
    def of(
        cls, problem: ClockProblem, clock_mhz: Clocks, tick_ms: float, last: int, units: float
    ) -> ModeVariables:
        """Return the variables of a problem, with the least energy for objective.

        Args:
            problem: Problem whose placement and modes count.
            clock_mhz: The solver begins with these.
            tick_ms: Length of a tick.
            last: Tick by which all end.
            units: Units of the largest difference of two modes' energies.
        """
        model, table = CpSatModel(), problem.table
        schedule = problem.schedule
        placement, number = schedule.placement, schedule.num_micro_batches
        clock_of = {
            (name, n): clock
            for name, clocks in clock_mhz.items()
            for n, clock in zip(micro_batches_of(placement, name, number), clocks, strict=True)
        }
        start: dict[Instance, Term] = {}
        time: dict[Instance, Term] = {}
        terms: list[Literal] = []
        costs: list[float] = []
        offset_mj = 0.0
        for i, instance in enumerate(problem.graph.instances):
            row, modes = int(table.row[i]), range(int(table.last[i]) + 1)
            ticks = [math.floor(table.time_ms[row, mode] / tick_ms) for mode in modes]
            energy = [float(table.energy_mj[row, mode]) for mode in modes]
            literals = [model.new_bool_var(f"mode {mode} of {instance}") for mode in modes]
            model.add_exactly_one(literals)
            start[instance] = model.new_int_var(0, last, f"start {instance}")
            time[instance] = model.new_int_var(ticks[0], max(ticks), f"time {instance}")
            model.add(time[instance] == model.weighted_sum(literals, ticks))
            model.add(start[instance] + time[instance] <= last)
            offset_mj += energy[-1]
            terms += literals
            costs += [each - energy[-1] for each in energy]
            for mode, literal in zip(modes, literals, strict=True):
                model.add_hint(literal, table.clock[row, mode] == clock_of[instance])
        unit_mj = max(costs) / units or 1.0
        model.minimize(model.weighted_sum(terms, [math.floor(cost / unit_mj) for cost in costs]))
        v = cls(model, placement, start)
        v.time = time
        v.offset_mj, v.unit_mj = offset_mj, unit_mj
        return v

    def interval(self, start: Term, instance: Instance, name: str) -> object:
        """Return the time that an instance takes from a start on."""
        end = self.model.new_int_var(0, 2**40, f"end of {name}")
        self.model.add(end == start + self.time[instance])
        return self.model.new_interval_var(start, self.time[instance], end, name)

    def keep_rules(self) -> None:
        """Add the rules of a schedule, but for the inputs, whose transfers have a unit of their own."""
        rules.order_micro_batches(self)
        for device in range(self.placement.num_devices):
            rules.run_one_at_a_time(self, device)
            rules.respect_memory(self, device)
