"""A neighbourhood as a CP-SAT model: the least makespan over all orders of its blocks.

Each block runs the micro-batches in order, which loses nothing, see `schedsearch.model.rules`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from schedsearch.model import objectives, rules
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.model.variables import Variables
from schedsearch.procedures.neighbourhoods.neighbourhood import Neighbourhood
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import is_optimal, solve, within
from schedsearch.solver.query import Answer

Starts = dict[Instance, int]
"""Tick at which each (block, micro-batch) starts."""


class NeighbourhoodModel:
    """The model of a neighbourhood, solved once, as each way to solve it sets its own objective."""

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
            objectives.last_end(v, self.makespan, neighbourhood.tail)
        else:
            objectives.longest_device_span(v, self.makespan, horizon)
        rules.wait_for_inputs(v)
        rules.order_micro_batches(v)
        for device in devices:
            if device in neighbourhood.devices:
                rules.run_one_at_a_time(v, device, by_pairs=False)
            else:
                rules.keep_order(v, sorted(v.on(device), key=lambda i: neighbourhood.start[i]))
        for device in sorted(neighbourhood.devices):
            rules.respect_memory(v, device)

    def shorten(self, budget: SolverBudget) -> Starts | None:
        """Return starts of a makespan at most the given one, or None when none are found.

        Where makespans are equal, it prefers early ends on the other devices, which may help the next
        neighbourhood.
        """
        objective, neighbourhood = self.makespan, self.neighbourhood
        if neighbourhood.horizon is None:
            objective = objectives.then_early_ends(
                self.variables, objective, neighbourhood.tail, neighbourhood.makespan
            )
        self.model.minimize(objective)
        return self._solve(budget)

    def shorten_quickly(self, budget: SolverBudget) -> Starts | None:
        """Return starts as `shorten` does, without a preference and with more guesses than reasoning."""
        self.model.minimize(self.makespan)
        guess = {"use_strong_propagation_in_disjunctive": False, "linearization_level": 0}
        return self._solve(budget, guess)

    def prove(self, budget: SolverBudget) -> tuple[Starts | None, int]:
        """Return starts as `shorten` does, and a bound that no order beats, which it is rather for."""
        return self._prove(budget, {"use_objective_lb_search": True})

    def prove_by_conflicts(self, budget: SolverBudget) -> tuple[Starts | None, int]:
        """Return starts and a bound, by learning which block of two comes first, from the best starts down.

        That is by far the quickest where all blocks have times of their own, as in a job shop.
        """
        return self._prove(budget, {"linearization_level": 0})

    def _prove(self, budget: SolverBudget, parameters: Mapping[str, int]) -> tuple[Starts | None, int]:
        self.model.minimize(self.makespan)
        max_pairs = "max_size_to_create_precedence_literals_in_disjunctive"
        starts = self._solve(budget, {**parameters, max_pairs: 200})
        proved = min(self.neighbourhood.makespan, math.ceil(self.solver.best_objective_bound - 1e-6))
        return starts, max(self.neighbourhood.bound, proved)

    def _solve(
        self, budget: SolverBudget, parameters: Mapping[str, int] = MappingProxyType({})
    ) -> Starts | None:
        self.solver = solver = within(budget)
        for name, value in parameters.items():
            setattr(solver.parameters, name, value)
        answer = solve(solver, self.model, budget.spend)
        self.solved = is_optimal(solver)
        if answer is not Answer.YES:
            return None
        return {instance: solver.value(start) for instance, start in self.start.items()}
