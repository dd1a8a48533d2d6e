"""A neighbourhood as a CP-SAT model: the least makespan over all orders of its blocks.

Each block runs the micro-batches in order. That loses nothing (Tessel, Property IV.1): give the k-th start
of every block to micro-batch k. The starts on each device are the same as before and so is its memory, and
if every start of b comes after the end of a of its micro-batch, the k-th start of b comes after k ends of a.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from types import MappingProxyType

from ortools.sat.python import cp_model

from schedsearch.improve import memory_precedence
from schedsearch.improve.neighbourhood import Neighbourhood
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import solve, within

Starts = dict[Instance, int]
"""Tick at which each (block, micro-batch) starts."""


class NeighbourhoodModel:
    """Variables and constraints of a neighbourhood; each method adds one family of constraints.

    It is solved once, as each way to solve it sets its own objective.
    """

    def __init__(self, neighbourhood: Neighbourhood) -> None:
        self.solved = False  # to the optimum, by the last call
        self.neighbourhood = neighbourhood
        self.placement = neighbourhood.placement
        self.model = cp_model.CpModel()
        self.instances = list(neighbourhood.start)
        self.start = {
            i: self.model.new_int_var(
                neighbourhood.release[i],
                (neighbourhood.horizon or neighbourhood.makespan) - neighbourhood.tail[i] - self._time(i),
                f"start {i}",
            )
            for i in self.instances
        }
        self.makespan = self.model.new_int_var(neighbourhood.bound, neighbourhood.makespan, "makespan")
        for instance in self.instances:
            self.model.add_hint(self.start[instance], neighbourhood.start[instance])
        self.measure()
        self.wait_for_inputs()
        self.order_micro_batches()
        self.run_one_at_a_time()
        self.respect_memory()

    def measure(self) -> None:
        """The makespan is that by the devices' clocks, which are given or begin with their first starts."""
        horizon = self.neighbourhood.horizon
        if horizon is None:
            for instance in self.instances:
                self.model.add(self.makespan >= self._end(instance) + self.neighbourhood.tail[instance])
            return
        for device in range(self.placement.num_devices):
            first = self.model.new_int_var(0, horizon, f"first {device}")
            for instance in self._on(device):
                self.model.add(first <= self.start[instance])
                self.model.add(self.makespan >= self._end(instance) - first)

    def shorten(self, budget: SolverBudget) -> Starts | None:
        """Return starts of a makespan at most the given one, or None when none are found.

        Of equal makespans it prefers early ends on the other devices, which may help the next neighbourhood.
        """
        self.minimise_ends()
        return self.starts(*self._solve(budget))

    def shorten_quickly(self, budget: SolverBudget) -> Starts | None:
        """Return starts as `shorten` does, without a preference and with more guesses than reasoning."""
        self.model.minimize(self.makespan)
        guess = {"use_strong_propagation_in_disjunctive": False, "linearization_level": 0}
        return self.starts(*self._solve(budget, guess))

    def prove(self, budget: SolverBudget) -> tuple[Starts | None, int]:
        """Return starts as `shorten` does, and a bound that no order beats, which it is rather for."""
        self.model.minimize(self.makespan)
        most_pairs = "max_size_to_create_precedence_literals_in_disjunctive"
        solver, status = self._solve(budget, {"use_objective_lb_search": True, most_pairs: 200})
        proved = min(self.neighbourhood.makespan, math.ceil(solver.best_objective_bound - 1e-6))
        return self.starts(solver, status), max(self.neighbourhood.bound, proved)

    def _solve(
        self, budget: SolverBudget, parameters: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[cp_model.CpSolver, cp_model.CpSolverStatus]:
        solver = within(budget)
        for name, value in parameters.items():
            setattr(solver.parameters, name, value)
        status = solve(solver, self.model, budget.spend)
        self.solved = status == cp_model.OPTIMAL
        return solver, status

    def wait_for_inputs(self) -> None:
        """A block starts after the blocks of its micro-batch that it waits for."""
        for name, micro_batch in self.instances:
            for before in self.placement.by_name[name].after:
                if (before, micro_batch) in self.start:
                    ticks = self.placement.transfer_time(before, name)
                    self.model.add(self.start[name, micro_batch] >= self._end((before, micro_batch)) + ticks)

    def order_micro_batches(self) -> None:
        """Each block runs the micro-batches in order."""
        for name, micro_batch in self.instances:
            if (name, micro_batch + 1) in self.start:
                self.model.add(self.start[name, micro_batch + 1] >= self._end((name, micro_batch)))

    def run_one_at_a_time(self) -> None:
        """A device runs one block at a time; one that is not ordered anew in the order that it has."""
        runs = {
            i: self.model.new_fixed_size_interval_var(self.start[i], self._time(i), f"{i}")
            for i in self.instances
            if self.neighbourhood.devices & set(self.placement.by_name[i[0]].devices)
        }
        for device in range(self.placement.num_devices):
            here = self._on(device)
            if device in self.neighbourhood.devices:
                self.model.add_no_overlap(runs[i] for i in here)
            else:
                in_order = sorted(here, key=lambda i: self.neighbourhood.start[i])
                for a, b in itertools.pairwise(in_order):
                    self.model.add(self.start[b] >= self._end(a))

    def respect_memory(self) -> None:
        """A block starts only once enough memory was released."""
        for check, precedences in memory_precedence.checks(self.placement):
            if check.device not in self.neighbourhood.devices:
                continue
            starting = [i for i in self.instances if i[0] == check.block]
            for rule in precedences:
                for name, micro_batch in starting:
                    releasing = (rule.releasing, rule.needed(micro_batch) - 1)
                    if releasing in self.start:
                        self.model.add(self.start[name, micro_batch] >= self._end(releasing))
            if not memory_precedence.precedence_is_enough(self.placement, check):
                for instance in starting:
                    self._count_memory(check, instance)

    def _count_memory(self, check: memory_precedence.Check, instance: Instance) -> None:
        """Memory in use on a device once an instance has started: each block's times how often it has."""
        in_use = check.memory * (instance[1] + 1)
        started: list[cp_model.IntVar] = []
        memory: list[int] = []
        for block in memory_precedence.blocks_with_memory(self.placement, check.device):
            if block.name != check.block:
                in_use += block.memory_on(check.device) * self.neighbourhood.ran[block.name]
                here = [other for other in self.instances if other[0] == block.name]
                started += [self._starts_before(other, instance) for other in here]
                memory += [block.memory_on(check.device)] * len(here)
        self.model.add(cp_model.LinearExpr.weighted_sum(started, memory) <= check.room - in_use)

    def _starts_before(self, a: Instance, b: Instance) -> cp_model.IntVar:
        before = self.model.new_bool_var(f"before {a} {b}")
        self.model.add(self._end(a) <= self.start[b]).only_enforce_if(before)
        self.model.add(self._end(b) <= self.start[a]).only_enforce_if(~before)
        self.model.add_hint(before, self.neighbourhood.start[a] < self.neighbourhood.start[b])
        return before

    def minimise_ends(self) -> None:
        """The makespan comes first, then how late each device lets the schedule end."""
        if self.neighbourhood.horizon is not None:
            self.model.minimize(self.makespan)
            return
        ends = []
        for device in range(self.placement.num_devices):
            end = self.model.new_int_var(0, self.neighbourhood.makespan, f"end {device}")
            for instance in self._on(device):
                self.model.add(end >= self._end(instance) + self.neighbourhood.tail[instance])
            ends.append(end)
        most = self.placement.num_devices * self.neighbourhood.makespan + 1
        self.model.minimize(most * self.makespan + sum(ends))

    def starts(self, solver: cp_model.CpSolver, status: cp_model.CpSolverStatus) -> Starts | None:
        """Return the solver's answer, if it has one."""
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        return {instance: solver.value(start) for instance, start in self.start.items()}

    def _time(self, instance: Instance) -> int:
        return self.placement.by_name[instance[0]].time

    def _end(self, instance: Instance) -> cp_model.LinearExpr:
        return self.start[instance] + self._time(instance)

    def _on(self, device: int) -> list[Instance]:
        return [i for i in self.instances if device in self.placement.by_name[i[0]].devices]
