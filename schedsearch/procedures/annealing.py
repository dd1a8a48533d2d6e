"""Simulated annealing of the orders of a repetend, with one micro-batch, two and more.

A solver decides whether a period can be reached, and gives no answer if time runs out. Annealing goes from
one feasible order to another, so it always has an answer, but proves nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from schedsearch.core.budget import Budget
from schedsearch.core.known import Known, Start
from schedsearch.graph.kernel import FOREVER
from schedsearch.procedures.procedure import Procedure
from schedsearch.repetend import Repetend, input_edges
from schedsearch.solver.interrupts import INTERRUPTS, together

if TYPE_CHECKING:  # as it loads numba, which is slow
    from schedsearch.procedures.critical_swaps import PeriodOrders

_WORK_OF_EDGE = 1.5e-8
"""Units of work of a step per edge between blocks, or along a device."""


@dataclass
class Annealing(Procedure):
    """Anneals orders in turns over all sizes: each turn begins from the best repetend and from the first one.

    The two are annealed at once where there are two cores.

    Attributes:
        coolings: Number of coolings in the first annealing of the most micro-batches, but at most the number
            of blocks. Fewer micro-batches, whose steps take less time, have more coolings. Each turn after
            one in vain, and each round of the search, has twice as many.
        steps: Steps of a cooling, between two looks at the clock.
        heat: Share of the period by which a step may well lengthen it, at first and at last.
        max_instances: Most blocks times micro-batches; more were not tried.
        max_in_vain: Turns without a shorter period per micro-batch after which annealing ends.
    """

    name: ClassVar[str] = "annealing"
    share: float = 0.5
    share_kept: float = 0.5
    coolings: int = 50
    steps: int = 400
    heat: tuple[float, float] = (0.1, 0.002)
    max_instances: int = 600
    max_in_vain: int = 3
    _first: dict[int, Repetend] = field(default_factory=dict, init=False, repr=False)

    def run(self, known: Known, budget: Budget) -> Iterator[Start]:
        """Yield ever better repetends, the first that reaches the bound as the last."""
        best, number, effort = known.repetends, len(known.placement.blocks), budget.effort
        self._first = self._first or dict(best)
        seed, in_vain = known.seed, 0
        while in_vain < self.max_in_vain:
            work, in_vain = 2 ** (known.round - 1 + in_vain), in_vain + 1
            for size in known.sizes:
                if size * number > self.max_instances:
                    continue
                effort.require_s()
                least = math.ceil(known.period_bound * size)
                coolings = min(self.coolings, number) * work * max(known.sizes) // size
                begin = _repeated(best, size), _repeated(self._first, size)
                annealings = together(
                    [
                        partial(self._annealed, repetend, least, coolings, budget, seed + i * coolings)
                        for i, repetend in enumerate(begin)
                    ]
                )
                effort.spend(max(spent for _, spent in annealings))
                annealed = min((repetend for repetend, _ in annealings), key=lambda repetend: repetend.period)
                if annealed.period < begin[0].period:
                    if Fraction(annealed.period, size) < min(
                        Fraction(repetend.period, n) for n, repetend in best.items()
                    ):
                        in_vain = 0
                    best[size] = annealed
                    yield Start(annealed, self.name)
                if annealed.period <= known.period_bound * size or budget.is_over:
                    return
                seed += 2 * coolings

    def _annealed(
        self, repetend: Repetend, least: int, coolings: int, budget: Budget, seed: int
    ) -> tuple[Repetend, float]:
        """Anneal a repetend; return the best repetend found, or the given one, and the work spent."""
        from schedsearch.procedures.critical_swaps import Scratch, take_steps

        orders, instances = _as_arrays(repetend)
        number, places = len(instances), len(orders.order)
        shapes = number, number, len(orders.cycle), (3, places), number, number
        scratch = Scratch(*(np.empty(shape, np.int64) for shape in shapes))
        best = np.zeros((3, places), np.int64)
        period, reached, (hot, cold) = FOREVER, FOREVER, self.heat
        work_of_cooling = self.steps * len(orders.source) * _WORK_OF_EDGE
        most, i = budget.effort.at_most(budget.left) / work_of_cooling, 0
        for i in range(coolings):
            INTERRUPTS.raise_if_seen()
            heat = repetend.period * hot * (cold / hot) ** (i / coolings)
            period, reached = take_steps(
                orders, scratch, best, period, reached, least, heat, self.steps, seed + i
            )
            if reached <= least or i + 1 >= most or budget.effort.is_over:
                break
        spent = (i + 1) * work_of_cooling
        if reached >= repetend.period:
            return repetend, spent
        course = [(instances[orders.instance[visit]], int(best[1, visit])) for visit in best[0]]
        cycles = [course[begin:end] for begin, end in itertools.pairwise(orders.first)]
        improved = Repetend.of_min_period(
            repetend.placement, repetend.micro_batches, cycles, least, repetend.period
        )
        assert improved is not None and improved.period == reached, "an order has one period"
        return improved, spent


def _repeated(known: Mapping[int, Repetend], size: int) -> Repetend:
    """Return the best repetend of `size` micro-batches that is a known one repeated."""
    repeated = [repetend.repeated(size // part) for part, repetend in known.items() if size % part == 0]
    return min(repeated, key=lambda repetend: repetend.period)


def _as_arrays(repetend: Repetend) -> tuple[PeriodOrders, list[tuple[str, int]]]:
    """Return a repetend's orders as arrays, and the instance of each number in them."""
    from schedsearch.procedures.critical_swaps import PeriodOrders

    placement = repetend.placement
    instances = [
        (block.name, n) for block in placement.topological_order for n in range(repetend.micro_batches)
    ]
    number = {instance: i for i, instance in enumerate(instances)}
    cycles = [repetend.cycle(device) for device in range(placement.num_devices)]
    here = [(device, *visit) for device, cycle in enumerate(cycles) for visit in cycle]
    blocks = [placement.by_name[name] for _, (name, _), _ in here]
    edges = input_edges([placement] * repetend.micro_batches)
    inputs = np.array(
        [(number[edge.source], number[edge.target], edge.ticks) for edge in edges], np.int64
    ).reshape(-1, 3)
    later = np.zeros(len(here), np.int64)
    visits: list[list[int]] = [[] for _ in instances]
    for visit, (_, instance, _) in enumerate(here):
        visits[number[instance]].append(visit)
    width = max(map(len, visits)) + 1
    free = placement.free_memory
    orders = PeriodOrders(
        ticks=np.array([placement.by_name[name].time for name, _ in instances], np.int64),
        source=np.concatenate((inputs[:, 0], later)),
        target=np.concatenate((inputs[:, 1], later)),
        wait=np.concatenate((inputs[:, 2], later)),
        back=np.zeros(len(inputs) + len(here), np.int64),
        first=np.cumsum([0, *map(len, cycles)]),
        order=np.arange(len(here)),
        round_=np.array([round_ for _, _, round_ in here], np.int64),
        instance=np.array([number[instance] for _, instance, _ in here], np.int64),
        memory=np.array(
            [block.memory_on(device) for (device, _, _), block in zip(here, blocks, strict=True)], np.int64
        ),
        transient=np.array([block.transient for block in blocks], np.int64),
        free=np.full(placement.num_devices, 1 << 60) if free is None else np.array(free, np.int64),
        visits=np.array([row + [-1] * (width - len(row)) for row in visits], np.int64),
        place=np.arange(len(here)),
        device=np.array([device for device, _, _ in here], np.int64),
        starts=np.zeros(len(instances), np.int64),
        pushed_by=np.zeros(len(instances), np.int64),
        cycle=np.full(len(inputs) + len(here) + 1, -1),
    )
    return orders, instances
