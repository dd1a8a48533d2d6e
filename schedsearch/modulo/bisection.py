"""The search for a repetend of a given number of micro-batches: one objective after another, by bisection.

Knows no solver's language: a solver is a function like `schedsearch.solver.smt.decide`. Every value that is
called proved was refuted by the solver, or follows from `schedsearch.bounds.load_and_path`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction

from placements import Block, Placement
from schedsearch import bounds
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.solver.query import Answer, Query, Solver


class Objective(StrEnum):
    """What a search makes least.

    PERIOD: Ticks of the repetend. SPAN: ticks from first start to last end of one round. LATENCY: the same of
    one micro-batch. MEMORY: the most that any device holds. MAKESPAN: ticks of the asked number of
    micro-batches.
    """

    PERIOD = "period"
    SPAN = "span"
    LATENCY = "latency"
    MEMORY = "memory"
    MAKESPAN = "makespan"


VALUE: Mapping[Objective, Callable[[Repetend], int]] = {
    Objective.PERIOD: lambda repetend: repetend.period,
    Objective.SPAN: lambda repetend: repetend.span,
    Objective.LATENCY: lambda repetend: repetend.latency,
    Objective.MEMORY: lambda repetend: max(repetend.peak_memory),
}
"""Each objective's value in ticks or units of memory; the makespan is not a repetend's."""

FIRST_SLICE_S = 2.0
"""Seconds that a query gets at first; those that stay open get four times as long the next time."""


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        phase: What is being made smaller; see `Objective`.
        best: Least value found, in ticks or units of memory; None before the first.
        bound: Greatest lower bound proved.
        queries: Questions put to the solver so far.
        elapsed_s: Seconds since the search began.
        micro_batches: Micro-batches per repetend.
    """

    phase: str
    best: int | None
    bound: int
    queries: int
    elapsed_s: float
    micro_batches: int = 1


@dataclass
class Asking:
    """Puts questions to a solver, counts them, and tells how far it is.

    Attributes:
        solver: What decides.
        seed: Of the solver's random choices.
        began: When the search did, in seconds of `time.monotonic`.
        on_progress: Told after each query.
        queries: How many so far.
    """

    solver: Solver
    seed: int
    began: float
    on_progress: Callable[[Progress], None]
    queries: int = 0

    def __call__(self, query: Query, timeout_s: float, seed: int = 0) -> tuple[Answer, Repetend | None]:
        """Ask once."""
        INTERRUPTS.raise_if_seen()
        self.queries += 1
        return self.solver(query, timeout_s=max(timeout_s, 0.01), seed=self.seed + seed)

    def report(self, phase: Objective, best: int, bound: int, micro_batches: int) -> None:
        """Tell the caller how far the search is."""
        elapsed_s = time.monotonic() - self.began
        self.on_progress(Progress(phase.value, best, bound, self.queries, elapsed_s, micro_batches))


@dataclass
class ModuloSearch:
    """The search for one number of micro-batches per repetend: the best so far and what is proved.

    Attributes:
        placement: What runs where, without optimizer blocks.
        micro_batches: Micro-batches per repetend.
        asking: Whom to ask.
        deadline: When to stop, in seconds of `time.monotonic`.
        best: The best repetend; None before there is one.
        infeasible: Whether it is proved that there is none.
        limit: What earlier objectives reached, which later ones must keep.
        refuted: Periods proved to be too short.
        beat: Periods from here on are of no use; None where any will do.
    """

    placement: Placement
    micro_batches: int
    asking: Asking
    deadline: float
    best: Repetend | None = None
    infeasible: bool = False
    limit: dict[Objective, int] = field(default_factory=dict)
    refuted: set[int] = field(default_factory=set)
    beat: int | None = None

    def __post_init__(self) -> None:
        """Begin with the bounds that need no search."""
        path = bounds.critical_path(self.placement)
        needed = [
            bounds.minimum_memory(self.placement, device) + static
            for device, static in enumerate(self.placement.static)
        ]
        self.bound = {
            Objective.PERIOD: bounds.least_period(self.placement, self.micro_batches),
            Objective.SPAN: path,
            Objective.LATENCY: path,
            Objective.MEMORY: max(needed),
        }

    def raise_bound(self, period_per_micro_batch: Fraction) -> None:
        """Take note of ticks per micro-batch that no repetend beats."""
        least = math.ceil(period_per_micro_batch * self.micro_batches)
        self.bound[Objective.PERIOD] = max(self.bound[Objective.PERIOD], least)

    @property
    def time_left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()

    def begin(self) -> None:
        """Find a first repetend: one block after another, or what the solver finds."""
        order, ample = one_after_another(self.placement), serial_period(self.placement)
        if order is not None:
            starts = _one_by_one(self.placement, order)
            self.best = Repetend.from_first_starts(self.placement, 1, ample, starts)
        else:
            answer, self.best = self.asking(Query(self.placement, 1, ample), self.time_left_s)
            self.infeasible = answer is Answer.NO
        if self.best is not None:
            self.best = self.best.with_least_period(bounds.least_period(self.placement, 1)).repeated(
                self.micro_batches
            )

    def minimise(self, objective: Objective) -> None:
        """Bisect an objective between its bound and the best value, and keep what it reaches as a limit.

        A query that gets no answer in its time splits what is open: above it there may be repetends to
        find, below it refutations. What stays open is asked again with more time.
        """
        slice_s = FIRST_SLICE_S
        while self._is_open(objective) and self.time_left_s > 0:
            unknown = self._descend(objective, slice_s)
            self._ascend(objective, self._top(objective) if unknown is None else unknown, slice_s)
            slice_s *= 4
        if self.best is not None:
            self.limit[objective] = VALUE[objective](self.best)

    def _top(self, objective: Objective) -> int:
        """Return the least value known to be reached, or not worth to be."""
        if self.best is not None:
            return VALUE[objective](self.best)
        assert self.beat is not None and objective is Objective.PERIOD, "begin first"
        return self.beat

    def _is_open(self, objective: Objective) -> bool:
        return self.bound[objective] < self._top(objective)

    def _descend(self, objective: Objective, slice_s: float) -> int | None:
        """Bisect for a lesser value as if what gets no answer were refuted; return the least such value."""
        low, unknown = self.bound[objective], None
        candidate = (
            low if objective in (Objective.PERIOD, Objective.LATENCY) else (low + self._top(objective)) // 2
        )
        while low < self._top(objective) and self.time_left_s > 0:
            if self._try(objective, candidate, slice_s) is Answer.UNKNOWN:
                unknown = candidate if unknown is None else min(unknown, candidate)
            if candidate < self._top(objective):
                low = candidate + 1
            candidate = (low + self._top(objective)) // 2
        return unknown

    def _ascend(self, objective: Objective, unknown: int, slice_s: float) -> None:
        """Bisect for a greater bound below a value that got no answer."""
        high = unknown
        while self.bound[objective] < min(high, self._top(objective)) and self.time_left_s > 0:
            candidate = (self.bound[objective] + high) // 2
            if not self._is_monotone(objective):
                candidate = self.bound[objective]
            if self._try(objective, candidate, slice_s) is not Answer.NO:
                high = candidate

    def _try(self, objective: Objective, candidate: int, slice_s: float) -> Answer:
        """Ask for a value, and keep the repetend or the proof."""
        if objective is Objective.PERIOD and candidate in self.refuted:
            return Answer.NO
        answer, repetend = self.asking(self._query(objective, candidate), min(slice_s, self.time_left_s))
        if repetend is not None:
            with_least_period = repetend.with_least_period(
                bounds.least_period(self.placement, self.micro_batches)
            )
            good = self.keeps_limits(with_least_period) and VALUE[objective](with_least_period) <= candidate
            self.best = with_least_period if good else repetend
        elif answer is Answer.NO:
            self._note_refuted(objective, candidate)
        self.asking.report(objective, self._top(objective), self.bound[objective], self.micro_batches)
        return answer

    def _is_monotone(self, objective: Objective) -> bool:
        """Whether a value that cannot be reached shows that no lesser one can.

        A repetend can be stretched to a longer period by an idle tick at the end of each round, but then its
        latency and its span may grow.
        """
        limited = Objective.SPAN in self.limit or Objective.LATENCY in self.limit
        return objective is not Objective.PERIOD or not limited

    def _note_refuted(self, objective: Objective, candidate: int) -> None:
        if objective is Objective.PERIOD:
            self.refuted.add(candidate)
        if self._is_monotone(objective):
            self.bound[objective] = max(self.bound[objective], candidate + 1)
        while objective is Objective.PERIOD and self.bound[objective] in self.refuted:
            self.bound[objective] += 1

    def limited_placement(self, most: int | None = None) -> Placement:
        """Return the placement with no more memory than a limit, by default the one that was reached."""
        most = self.limit.get(Objective.MEMORY) if most is None else most
        if most is None:
            return self.placement
        capacity = self.placement.memory or (most,) * self.placement.num_devices
        return self.placement.with_memory(min(most, each) for each in capacity)

    def _query(self, objective: Objective, candidate: int) -> Query:
        wanted = self.limit | {objective: candidate}
        placement = self.limited_placement(wanted.get(Objective.MEMORY))
        period = wanted.get(Objective.PERIOD) or self._top(Objective.PERIOD)
        span, latency = wanted.get(Objective.SPAN), wanted.get(Objective.LATENCY)
        return Query(placement, self.micro_batches, period, span, latency)

    def sample(self, span: int | None, seed: int) -> list[Repetend]:
        """Return some repetend that keeps the limits reached, and the same one compacted.

        Args:
            span: Its longest span in ticks; None for any that the limits allow.
            seed: Other seeds make other samples.
        """
        query = self._query(Objective.PERIOD, self._top(Objective.PERIOD))
        if span is not None:
            query = replace(query, span=span if query.span is None else min(span, query.span))
        _, repetend = self.asking(query, self.time_left_s / 4, seed)
        if repetend is None:
            return []
        return [
            each for each in (repetend, repetend.with_least_period(query.period)) if self.keeps_limits(each)
        ]

    def keeps_limits(self, repetend: Repetend) -> bool:
        """Return whether a repetend reaches what earlier objectives reached."""
        return all(VALUE[objective](repetend) <= limit for objective, limit in self.limit.items())


def serial_period(placement: Placement) -> int:
    """Return a period in which one micro-batch can run on its own, one block after another."""
    return sum(block.time for block in placement.blocks) + sum(ticks for _, _, ticks in placement.transfer)


def _one_by_one(placement: Placement, order: list[str]) -> dict[Instance, int]:
    """Return the starts of one micro-batch's blocks when no two run at once."""
    starts: dict[Instance, int] = {}
    end: dict[str, int] = {}
    now = 0
    for name in order:
        block = placement.by_name[name]
        now = max([now, *(end[a] + placement.transfer_time(a, name) for a in block.after)])
        starts[name, 0] = now
        end[name] = now = now + block.time
    return starts


def one_after_another(placement: Placement) -> list[str] | None:
    """Return an order of one micro-batch's blocks that respects memory, or None where being greedy fails.

    Of the blocks whose inputs are there and that fit, the one that takes least comes first, the latest of
    equals: depth first, so that what is held is given back soon.
    """
    free = list(placement.free_memory) if placement.free_memory is not None else None
    position = {block.name: i for i, block in enumerate(placement.topological_order)}
    missing = {block.name: len(block.after) for block in placement.blocks}
    ready = [name for name, count in missing.items() if count == 0]
    order: list[str] = []
    while ready:
        fitting = [name for name in ready if _fits(placement, name, free)]
        if not fitting:
            return None
        name = min(fitting, key=lambda name: (_takes(placement.by_name[name]), -position[name]))
        ready.remove(name)
        order.append(name)
        if free is not None:
            for device in placement.by_name[name].devices:
                free[device] -= placement.by_name[name].memory_on(device)
        for follower in placement.successors[name]:
            missing[follower] -= 1
            if missing[follower] == 0:
                ready.append(follower)
    return order


def _fits(placement: Placement, name: str, free: list[int] | None) -> bool:
    block = placement.by_name[name]
    return free is None or all(
        block.memory_on(device) + block.transient <= free[device] for device in block.devices
    )


def _takes(block: Block) -> bool:
    """Return whether it takes memory on some device, whatever it gives back on others."""
    return any(block.memory_on(device) > 0 for device in block.devices)
