"""The division of a model among a schedule's stages, and a lower bound on every division, by CP-SAT."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from schedsearch.layouts.order_graph import Ints, OrderGraph
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import is_optimal, solve, within
from schedsearch.solver.query import Verdict

Sizes = tuple[int, ...]
"""Number of pieces of each stage."""


@dataclass(frozen=True)
class LayoutProblem:
    """A model to divide among the stages of a schedule.

    Attributes:
        graph: Orders of the schedule.
        pieces: Ticks of the forward of each piece, ticks of its backward, units of memory from one to the
            other, and units all the time; what must stay together is one piece. Shape ``(4, pieces)``.
        capacity: Units of memory of a device; None for no limit.
        transfer: Ticks from a device to the next.
        has_mtp: The last piece but one is that of MTP. It stands on the last stage or on the one before, and
            so in the last chunk of its device, where it has to be.
    """

    graph: OrderGraph
    pieces: Ints
    capacity: int | None
    transfer: int
    has_mtp: bool

    @cached_property
    def sums(self) -> Ints:
        """Prefix sums of the figures of pieces; shape ``(4, pieces + 1)``."""
        return np.pad(np.cumsum(self.pieces, 1), ((0, 0), (1, 0)))

    def _figures(self, sizes: Ints) -> Ints:
        return np.diff(self.sums[:, np.cumsum(sizes, 1)], axis=2, prepend=0)

    def times(self, sizes: Ints) -> Ints:
        """Return the times of layouts of shape ``(layouts, stages)``, in the form of `OrderGraph`."""
        forward, backward, *_ = self._figures(sizes)
        return np.concatenate([forward.T, backward.T, np.full((1, len(sizes)), self.transfer)])

    def excess(self, sizes: Ints) -> Ints:
        """Return the memory that each layout lacks, summed over devices; shape ``(layouts,)``."""
        lacking, p = np.zeros(len(sizes), np.int64), self.graph.num_devices
        if self.capacity is not None:
            *_, activation, weight = self._figures(sizes)
            for d, held in enumerate(self.graph.held):
                peaks = (activation[:, d::p] @ held.T).max(1) + weight[:, d::p].sum(1)
                lacking += np.maximum(peaks - self.capacity, 0)
        return lacking


def min_bound(
    problem: LayoutProblem, paths: Sequence[Ints], below: int | None, hint: Sizes | None, budget: SolverBudget
) -> tuple[float, Sizes | None]:
    """Return a lower bound (ticks) on the longest of some paths over all layouts, and a layout that meets it.

    The unknowns are the numbers of pieces of the stages. Where layers differ, a stage of k layers may take
    anything from k times the least to k times the most, as long as all stages together take what all layers
    take: more than there is, so that the bound holds.

    Args:
        problem: The model and its schedule.
        paths: Paths of the schedule; see `OrderGraph.longest_path`.
        below: Only layouts of fewer ticks are of interest; None for all.
        hint: A layout to begin with.
        budget: Work of the solver.

    Returns:
        Ticks that no layout is faster than, infinite where none is as fast as asked or fits; and the layout,
        None where none was found.
    """
    model, graph = CpSatModel(), problem.graph
    p, number = graph.num_devices, graph.num_stages
    num_layers, stages = problem.pieces.shape[1] - 2 - problem.has_mtp, range(number)
    layers: list[Any] = [model.new_int_var(0, num_layers, f"layers {i}") for i in stages]
    sizes = [count + (i == 0) + (i == number - 1) for i, count in enumerate(layers)]
    is_apart: Any = 0
    if problem.has_mtp:
        is_apart = model.new_bool_var("MTP is on the stage before the last")
        model.add(layers[-1] <= num_layers * (1 - is_apart))
        sizes[-1], sizes[-2] = sizes[-1] + 1 - is_apart, sizes[-2] + is_apart
    model.add(sum(layers) == num_layers)
    for size in sizes[1:-1]:
        model.add(size >= 1)

    def of_stages(figure: Sequence[int]) -> list[Any]:
        """Return a figure of the pieces of each stage, summed; layers are between the least and the most."""
        first, *inner, last = figure
        mtp = inner.pop() if problem.has_mtp else 0
        least, most = min(inner, default=0), max(inner, default=0)
        sums = [least * count for count in layers]
        if most > least:
            more = [model.new_int_var(0, sum(inner), "more") for _ in layers]
            for extra, count in zip(more, layers, strict=True):
                model.add(extra <= (most - least) * count)
            model.add(sum(more) == sum(inner) - least * len(inner))
            sums = [a + b for a, b in zip(sums, more, strict=True)]
        sums[0] += first
        sums[-1] += last + mtp
        if mtp:
            sums[-1], sums[-2] = sums[-1] - mtp * is_apart, sums[-2] + mtp * is_apart
        return sums

    forward, backward, *memory = problem.pieces.tolist()
    terms = [*of_stages(forward), *of_stages(backward), problem.transfer]
    scale = math.gcd(*forward, *backward, problem.transfer)
    longest = model.new_int_var(0, 2**53 if below is None else (below - 1) // scale, "iteration")
    for counts in paths:
        time = sum(int(counts[i]) * terms[i] for i in np.flatnonzero(counts))
        model.add(scale * longest >= time)
    if problem.capacity is not None:
        kept, lasting = map(of_stages, memory)
        for d, rows in enumerate(graph.held):
            for row in rows:
                held = sum(int(count) * term for count, term in zip(row, kept[d::p], strict=True))
                model.add(held + sum(lasting[d::p]) <= problem.capacity)
    for i, size in enumerate(hint or ()):
        model.add_hint(layers[i], max(0, size - (i in (0, number - 1)) - problem.has_mtp * (i == number - 1)))
    model.minimize(longest)
    solver = within(budget)
    solver.parameters.use_strong_propagation_in_disjunctive = False
    answer = solve(solver, model, budget.spend)
    if answer is Verdict.NO:
        return math.inf, None
    is_best = answer is Verdict.YES and is_optimal(solver)
    bound = solver.objective_value if is_best else math.ceil(solver.best_objective_bound - 1e-6)
    best = tuple(solver.value(size) for size in sizes) if answer is Verdict.YES else None
    return round(bound) * scale, best
