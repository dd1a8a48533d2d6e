"""What no layout beats: all bounds at once over all divisions of the layers, by CP-SAT.

The unknowns are the numbers of layers of the stages. Where all layers are alike, a stage's times and memory
are these numbers times a layer's. Where they differ, a stage of k layers may take anything from k times the
least to k times the most, as long as all stages together take what all layers take: more than there is, so
that the bound holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from schedsearch.layouts.order_graph import Ints, LongestPath, OrderGraph
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import is_optimal, solve, within
from schedsearch.solver.query import Answer

Sizes = tuple[int, ...]
"""How many pieces each stage has."""


@dataclass(frozen=True)
class LayoutProblem:
    """A model to be divided among the stages of a schedule.

    Attributes:
        graph: Orders of the schedule.
        forward: Ticks of the forward of each piece: what must stay together is one.
        backward: Ticks of its backward.
        activation: Units of memory from one to the other.
        weight: Units of memory all the time.
        capacity: Units of memory of a device; None for no limit.
        transfer: Ticks from a device to the next.
        mtp: The piece of MTP, the last but one, which has to stand in the last stage of its device; None for
            none.
    """

    graph: OrderGraph
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    activation: tuple[int, ...]
    weight: tuple[int, ...]
    capacity: int | None
    transfer: int
    mtp: int | None

    @property
    def num_pieces(self) -> int:
        """Pieces of the model."""
        return len(self.forward)

    @cached_property
    def _sums(self) -> Ints:
        rows = (self.forward, self.backward, self.activation, self.weight)
        return np.array([[*accumulate(row, initial=0)] for row in rows])

    def of_stages(self, sizes: Ints) -> tuple[Ints, Ints, Ints]:
        """Return times, activations and weights of the stages of layouts.

        Args:
            sizes: Pieces of each stage; shape ``(layouts, stages)``.

        Returns:
            Times of `OrderGraph.ends`, and memory of shape ``(layouts, stages)`` each.
        """
        ends = np.cumsum(sizes, 1)
        sums = self._sums[:, ends]
        parts = np.diff(sums, axis=2, prepend=0)
        return np.concatenate([parts[0], parts[1]], 1).T, parts[2], parts[3]

    def peaks(self, sizes: Ints) -> Ints:
        """Return the most that each device holds; shape ``(layouts, devices)``."""
        _, activation, weight = self.of_stages(sizes)
        p = self.graph.num_devices
        return np.stack(
            [
                (activation[:, d::p] @ held.T).max(1) + weight[:, d::p].sum(1)
                for d, held in enumerate(self.graph.held)
            ],
            1,
        )

    def is_allowed(self, sizes: Ints) -> Any:
        """Return which layouts fit and have every piece where it may stand."""
        allowed = (sizes >= 1).all(1)
        if self.capacity is not None:
            allowed &= (self.peaks(sizes) <= self.capacity).all(1)
        if self.mtp is not None:
            first = self.graph.num_stages - self.graph.num_devices
            allowed &= sizes[:, :first].sum(1) <= self.mtp
        return allowed

    @property
    def fits_nowhere(self) -> bool:
        """Whether all devices together have less memory than every layout needs."""
        if self.capacity is None:
            return False
        least = min(int(held.min(1).max()) for held in self.graph.held)
        return sum(self.weight) + least * sum(self.activation) > self.graph.num_devices * self.capacity

    def makespans(self, sizes: Ints) -> Ints:
        """Return the ticks of an iteration of layouts."""
        return self.graph.makespans(self.of_stages(sizes)[0], self.transfer)

    def path_of(self, sizes: Sizes) -> LongestPath:
        """Return a longest path of a layout."""
        return self.graph.longest_path(self.of_stages(np.array([sizes]))[0], self.transfer)


class LayoutBound(NamedTuple):
    """What bounds say.

    Attributes:
        ticks: No layout is faster; infinite where none is as fast as asked or fits.
        sizes: A layout that keeps to the bounds; None where none was found.
    """

    ticks: float
    sizes: Sizes | None


def min_bound(
    problem: LayoutProblem,
    paths: Sequence[LongestPath],
    below: int | None,
    hint: Sizes | None,
    budget: SolverBudget,
) -> LayoutBound:
    """Return the least that the longest of some paths takes, over all layouts.

    Args:
        problem: The model and its schedule.
        paths: Paths of the schedule.
        below: Only layouts of fewer ticks are of interest; None for all.
        hint: A layout to begin with.
        budget: Work of the solver.
    """
    model, graph = CpSatModel(), problem.graph
    division = _Division(model, problem)
    terms = [*division.of(problem.forward), *division.of(problem.backward)]
    scale = math.gcd(*problem.forward, *problem.backward, problem.transfer)
    most = 2**53 if below is None else (below - 1) // scale
    longest = model.new_int_var(0, most, "iteration")
    for counts, num_transfers in paths:
        used = [i for i, count in enumerate(counts) if count]
        time = model.weighted_sum([terms[i] for i in used], [int(counts[i]) for i in used])
        model.add(scale * longest >= time + num_transfers * problem.transfer)
    if problem.capacity is not None:
        activation, weight = division.of(problem.activation), division.of(problem.weight)
        for d, held in enumerate(graph.held):
            own = slice(d, None, graph.num_devices)
            for row in held:
                kept = model.weighted_sum(activation[own], [int(count) for count in row])
                model.add(kept + sum(weight[own]) <= problem.capacity)
    if hint is not None:
        division.hint(hint)
    model.minimize(longest)
    solver = within(budget)
    solver.parameters.use_strong_propagation_in_disjunctive = False
    answer = solve(solver, model, budget.spend)
    if answer is Answer.NO:
        return LayoutBound(math.inf, None)
    is_best = answer is Answer.YES and is_optimal(solver)
    bound = solver.objective_value if is_best else math.ceil(solver.best_objective_bound - 1e-6)
    sizes = division.sizes(solver.value) if answer is Answer.YES else None
    return LayoutBound(round(bound) * scale, sizes)


class _Division:
    """The pieces of a model on stages, as unknowns: the first piece on the first stage, the last on the last.

    Attributes:
        counts: Layers of each stage.
        has_mtp: Whether the piece of MTP stands on each of the last stages.
    """

    def __init__(self, model: CpSatModel, problem: LayoutProblem) -> None:
        self._model, graph, self._problem = model, problem.graph, problem
        num_stages, num_mtp = graph.num_stages, int(problem.mtp is not None)
        self._num_layers = problem.num_pieces - 2 - num_mtp
        self.counts = [model.new_int_var(0, self._num_layers, f"layers {i}") for i in range(num_stages)]
        first = num_stages - graph.num_devices if num_mtp else num_stages
        self.has_mtp = [model.new_bool_var(f"mtp {i}") if i >= first else 0 for i in range(num_stages)]
        model.add(sum(self.counts) == self._num_layers)
        if num_mtp:
            model.add(sum(self.has_mtp) == 1)
        for i, (count, mtp) in enumerate(zip(self.counts, self.has_mtp, strict=True)):
            if 0 < i < num_stages - 1:
                model.add(count + mtp >= 1)
            for later in self.counts[i + 1 :] if i >= first else ():
                model.add(later <= self._num_layers * (1 - mtp))

    def of(self, figure: Sequence[int]) -> list[Any]:
        """Return a figure of the pieces of each stage, summed."""
        layers = figure[1 : 1 + self._num_layers]
        least, most = min(layers), max(layers)
        found: list[Any] = [least * count for count in self.counts]
        if most > least:
            more = [self._model.new_int_var(0, sum(layers), "more") for _ in found]
            for each, count in zip(more, self.counts, strict=True):
                self._model.add(each <= (most - least) * count)
            self._model.add(sum(more) == sum(layers) - least * len(layers))
            found = [a + b for a, b in zip(found, more, strict=True)]
        found[0] += figure[0]
        found[-1] += figure[-1]
        if self._problem.mtp is not None:
            found = [a + figure[self._problem.mtp] * b for a, b in zip(found, self.has_mtp, strict=True)]
        return found

    def hint(self, sizes: Sizes) -> None:
        """Let the solver begin with a layout."""
        ends = [*accumulate(sizes, initial=0)]
        for i, count in enumerate(self.counts):
            within = range(max(ends[i], 1), min(ends[i + 1], 1 + self._num_layers))
            self._model.add_hint(count, len(within))

    def sizes(self, value: Any) -> Sizes:
        """Return the pieces of each stage, as the solver found them."""
        found = [int(value(a)) + int(value(b)) for a, b in zip(self.counts, self.has_mtp, strict=True)]
        found[0] += 1
        found[-1] += 1
        return tuple(found)
