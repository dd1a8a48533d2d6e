"""A neighbourhood as a CP-SAT model: the least makespan over all orders of its blocks.

Each block runs the micro-batches in order, which loses nothing, see `schedsearch.model.rules`.
"""

from __future__ import annotations

import math

from schedsearch.model import rules
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.model.variables import Term, Variables
from schedsearch.procedures.neighbourhoods.neighbourhood import Aim, Neighbourhood
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import is_optimal, solve, within
from schedsearch.solver.query import Verdict

Starts = dict[Instance, int]
"""Tick at which each (block, micro-batch) starts."""


_BY_PAIRS = {"max_size_to_create_precedence_literals_in_disjunctive": 200}

_PARAMETERS: dict[Aim, dict[str, int]] = {
    Aim.SHORTEN: {},
    Aim.SHORTEN_QUICKLY: {"use_strong_propagation_in_disjunctive": False, "linearization_level": 0},
    Aim.PROVE: {"use_objective_lb_search": True, **_BY_PAIRS},
    Aim.PROVE_BY_CONFLICTS: {"linearization_level": 0, **_BY_PAIRS},
}
"""Parameters of CP-SAT."""


class NeighbourhoodModel:
    """The model of a neighbourhood, solved once, with the objective and the parameters of an aim."""

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        self.solved = False  # to the optimum, by the last call
        self.neighbourhood = neighbourhood
        self.model = CpSatModel()
        placement, horizon = neighbourhood.placement, neighbourhood.horizon
        last = horizon or neighbourhood.makespan
        self.start = {
            i: self.model.new_int_var(
                neighbourhood.release[i],
                last - neighbourhood.tail[i] - placement.by_name[i[0]].time,
                f"start {i}",
            )
            for i in neighbourhood.start
        }
        self.makespan = self.model.new_int_var(neighbourhood.bound, neighbourhood.makespan, "makespan")
        for instance, ticks in neighbourhood.start.items():
            self.model.add_hint(self.start[instance], ticks)
        devices = range(placement.num_devices)
        held = {
            device: sum(
                block.memory_on(device) * neighbourhood.ran[block.name] for block in placement.on(device)
            )
            for device in devices
        }
        self.variables = v = Variables(self.model, placement, self.start, neighbourhood.start, held)
        if horizon is None:
            for i in v.start:
                self.model.add(self.makespan >= v.end(i) + neighbourhood.tail[i])
        else:  # by the clock of each device, which begins with its first start
            for device in devices:
                first = self.model.new_int_var(0, horizon, f"first {device}")
                for i in v.on(device):
                    self.model.add(first <= v.start[i])
                    self.model.add(self.makespan >= v.end(i) - first)
        for rule in rules.RULES:
            rule(v)
        rules.order_micro_batches(v)
        for device in devices:
            if device in neighbourhood.devices:
                rules.run_one_at_a_time(v, device, by_pairs=False)
            else:
                rules.keep_order(v, sorted(v.on(device), key=lambda i: neighbourhood.start[i]))
        for device in sorted(neighbourhood.devices):
            rules.respect_memory(v, device)

    def solve(self, aim: Aim, budget: SolverBudget) -> tuple[Starts | None, int]:
        """Return starts with a makespan at most the given one, or None, and a lower bound over all orders."""
        self.model.minimize(self._with_early_ends() if aim is Aim.SHORTEN else self.makespan)
        solver = within(budget)
        for name, value in _PARAMETERS[aim].items():
            setattr(solver.parameters, name, value)
        answer = solve(solver, self.model, budget.spend)
        self.solved, bound = is_optimal(solver), 0
        if aim in (Aim.PROVE, Aim.PROVE_BY_CONFLICTS):
            proved = min(self.neighbourhood.makespan, math.ceil(solver.best_objective_bound - 1e-6))
            bound = max(self.neighbourhood.bound, proved)
        if answer is not Verdict.YES:
            return None, bound
        return {instance: solver.value(start) for instance, start in self.start.items()}, bound

    def _with_early_ends(self) -> Term:
        """Return the makespan, with all devices' ends as a tie-break that may help the next neighbourhood."""
        if self.neighbourhood.horizon is not None:
            return self.makespan
        most, ends = self.neighbourhood.makespan, []
        for device in range(self.neighbourhood.placement.num_devices):
            end = self.model.new_int_var(0, most, f"end {device}")
            for i in self.variables.on(device):
                self.model.add(end >= self.variables.end(i) + self.neighbourhood.tail[i])
            ends.append(end)
        return (len(ends) * most + 1) * self.makespan + sum(ends)
