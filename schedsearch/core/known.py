"""The knowledge of a search about repetends: a frozen record; every finding makes a new one of it.

Every value that is called a bound was refuted by a solver below it, or follows from `schedsearch.proof`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from placements import Placement
from schedsearch.core.answer import Attempt, Status
from schedsearch.core.objective import VALUE, Objective
from schedsearch.proof.load_and_path import critical_path, min_period
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.repetend import Repetend
from schedsearch.schedule import Schedule
from schedsearch.solver.query import Query
from schedsearch.starts.serial import serial_period
from schedsearch.state_space import MinPeriod

MANY_BLOCKS = 48
"""From this many blocks per micro-batch on, the solver is asked about all of them last, not first."""


class Start(NamedTuple):
    """A repetend that fits all capacities, and the name of its maker."""

    repetend: Repetend
    made_by: str


class Made(NamedTuple):
    """A whole schedule, with or without optimizer blocks, and the name of its maker."""

    schedule: Schedule
    made_by: str


class NoRepetend(NamedTuple):
    """The status of a search without a repetend, and the reason in words."""

    status: Status
    reason: str


NOT_FOUND = NoRepetend(Status.UNKNOWN, "no schedule was found in the time given; raise search.time_limit_s")


@dataclass(frozen=True)
class OfSize:
    """The best repetend so far of one number of micro-batches, and bounds on all repetends of this number.

    Attributes:
        placement: What runs where, without optimizer blocks.
        micro_batches: Micro-batches per repetend.
        bound: Lower bound of each objective, over the repetends within the limits.
        cutoff: Only periods below it are of use, in ticks.
        repetend: The best; None before there is one.
        limit: Values that earlier objectives reached, which later ones must keep.
        refuted: Periods proved to be too short.
        seconds: Time that questions took.
    """

    placement: Placement
    micro_batches: int
    bound: Mapping[Objective, int]
    cutoff: int
    repetend: Repetend | None = None
    limit: Mapping[Objective, int] = field(default_factory=dict)
    refuted: frozenset[int] = frozenset()
    seconds: float = 0.0

    @classmethod
    def without_search(
        cls, placement: Placement, micro_batches: int, least: Fraction = Fraction(0)
    ) -> OfSize:
        """Return the record before any query: bounds alone, of which `least` is in ticks per micro-batch."""
        path, best = critical_path(placement), placement.at_best
        needed = [minimum_memory(best, device) + static for device, static in enumerate(placement.static)]
        bound = {
            Objective.PERIOD: min_period(placement, micro_batches),
            Objective.SPAN: path,
            Objective.LATENCY: path,
            Objective.MEMORY: max(needed),
        }
        serial = serial_period(placement) * micro_batches + 1
        return cls(placement, micro_batches, bound, serial).with_period_bound(least)

    @property
    def period_per_micro_batch(self) -> Fraction:
        """Period of the best repetend in ticks per micro-batch; the cutoff's before any repetend is found."""
        return Fraction(self.value(Objective.PERIOD), self.micro_batches)

    def value(self, objective: Objective) -> int:
        """Return an objective's value of the best repetend; before one is found, the period's cutoff."""
        return self.cutoff if self.repetend is None else VALUE[objective](self.repetend)

    def is_open(self, objective: Objective) -> bool:
        """Return whether an objective's best value is still above its bound."""
        return self.bound[objective] < self.value(objective)

    def is_monotone(self, objective: Objective) -> bool:
        """Return whether an infeasible value of an objective proves all smaller values infeasible.

        A repetend can be stretched to a longer period by an idle tick at the end of each round, but then its
        latency and its span may grow.
        """
        return (
            objective is not Objective.PERIOD or not {Objective.SPAN, Objective.LATENCY} & self.limit.keys()
        )

    def keeps_limits(self, repetend: Repetend) -> bool:
        """Return whether a repetend is no worse than the limits in any earlier objective."""
        return all(VALUE[objective](repetend) <= limit for objective, limit in self.limit.items())

    def query(self, objective: Objective, candidate: int) -> Query:
        """Return the question whether a value can be reached within the limits."""
        wanted = {**self.limit, objective: candidate}
        return Query(
            self.limited(self.placement, wanted.get(Objective.MEMORY)),
            self.micro_batches,
            wanted.get(Objective.PERIOD) or self.value(Objective.PERIOD),
            wanted.get(Objective.SPAN),
            wanted.get(Objective.LATENCY),
        )

    def limited(self, placement: Placement, most: int | None = None) -> Placement:
        """Return a placement whose devices have at most `most` units of memory, by default the limit."""
        most = self.limit.get(Objective.MEMORY) if most is None else most
        if most is None:
            return placement
        capacity = self.placement.memory or (most,) * self.placement.num_devices
        return placement.with_memory(min(most, units) for units in capacity)

    def beginning_with(self, repetend: Repetend) -> OfSize:
        """Take a repetend of another source if its period is less and it keeps the limits."""
        is_better = self.keeps_limits(repetend) and repetend.period < self.value(Objective.PERIOD)
        return replace(self, repetend=repetend) if is_better else self

    def with_repetend(self, objective: Objective, candidate: int, repetend: Repetend) -> OfSize:
        """Take a solver's repetend, shortened to its order's least period if it still reaches the value."""
        least = repetend.with_min_period(min_period(self.placement, self.micro_batches))
        is_as_good = self.keeps_limits(least) and VALUE[objective](least) <= candidate
        return replace(self, repetend=least if is_as_good else repetend).with_tightened_limits()

    def with_tightened_limits(self) -> OfSize:
        """Lower each limit to the repetend's own value where this is smaller."""
        reached = {objective: min(limit, self.value(objective)) for objective, limit in self.limit.items()}
        return self if self.repetend is None else replace(self, limit=reached)

    def with_refuted(self, objective: Objective, candidate: int) -> OfSize:
        """Record that a value is infeasible, and raise the bound accordingly."""
        bound, refuted = self.bound[objective], self.refuted
        if self.is_monotone(objective):
            bound = max(bound, candidate + 1)
        if objective is Objective.PERIOD:
            refuted |= {candidate}
            while bound in refuted:
                bound += 1
        return replace(self, bound={**self.bound, objective: bound}, refuted=refuted)

    def with_period_bound(self, period_per_micro_batch: Fraction) -> OfSize:
        """Raise the bound on the period to a bound in ticks per micro-batch."""
        bound = max(self.bound[Objective.PERIOD], math.ceil(period_per_micro_batch * self.micro_batches))
        return replace(self, bound={**self.bound, Objective.PERIOD: bound})

    def with_limit(self, objective: Objective) -> OfSize:
        """Make the value that an objective has reached a limit for later objectives."""
        return replace(self, limit={**self.limit, objective: self.value(objective)})

    def without_limits(self, objectives: Collection[Objective]) -> OfSize:
        """Drop the limits of some objectives, and keep the others."""
        return replace(self, limit={key: value for key, value in self.limit.items() if key not in objectives})

    def with_proofs_of(self, other: OfSize) -> OfSize:
        """Add the bounds and refuted periods of a record of the same size whose limits were no stricter."""
        bound = {objective: max(least, other.bound[objective]) for objective, least in self.bound.items()}
        refuted, seconds = self.refuted | other.refuted, max(self.seconds, other.seconds)
        return replace(self, bound=bound, refuted=refuted, seconds=seconds)


Finding = Start | OfSize | MinPeriod | NoRepetend
"""A finding on the period: a repetend, a solver's answer, a bound, or that no repetend exists."""


@dataclass(frozen=True)
class Known:
    """Everything known of the period: repetends and bounds, by the number of micro-batches per repetend.

    Attributes:
        placement: What runs where, without optimizer blocks.
        sizes: Numbers of micro-batches per repetend that are asked for. One number alone is what the answer
            must have; of several, a repetend of more counts where it is better.
        period_bound: Ticks per micro-batch that no repetend beats.
        before: Objectives before the period.
        of_size: Best repetend and bounds of each number of micro-batches that was looked at.
        min_period: Result of the state-space search; None if it was not needed, or gave up.
        failure: The status and the reason while there is no repetend.
        seed: Seed of this round's random choices.
        round: Number of the round, from 1.
    """

    placement: Placement
    sizes: tuple[int, ...]
    period_bound: Fraction
    before: tuple[Objective, ...] = ()
    of_size: Mapping[int, OfSize] = field(default_factory=dict)
    min_period: MinPeriod | None = None
    failure: NoRepetend = NOT_FOUND
    seed: int = 0
    round: int = 1

    @property
    def has_many_blocks(self) -> bool:
        """Whether a micro-batch has too many blocks to ask a solver about all of them first."""
        return len(self.placement.blocks) >= MANY_BLOCKS

    @property
    def repetends(self) -> dict[int, Repetend]:
        """The best repetend of each number of micro-batches so far."""
        by_size = sorted(self.of_size.items())
        return {size: known.repetend for size, known in by_size if known.repetend is not None}

    @cached_property
    def best(self) -> OfSize | None:
        """The record of the best repetend of a size asked for; None before a repetend is found."""
        if len(self.sizes) > 1:
            return min((self.of_size[size] for size in self.repetends), key=self.quality, default=None)
        (size,) = self.sizes
        known = self.known_of(size)
        for part, repetend in self.repetends.items():
            if size % part == 0:
                known = known.beginning_with(repetend.repeated(size // part))
        return None if known.repetend is None else known.with_tightened_limits()

    def quality(self, known: OfSize) -> tuple[Fraction | int, ...]:
        """Return a record's sort key: earlier objectives, then period per micro-batch; less is better."""
        return *(known.value(objective) for objective in self.before), known.period_per_micro_batch

    @property
    def rate(self) -> Fraction:
        """Period of the best repetend in ticks per micro-batch; before one is found, the serial period."""
        if self.best is None:
            return Fraction(serial_period(self.placement))
        return self.best.period_per_micro_batch

    @property
    def is_proved(self) -> bool:
        """Whether the best period is proved least over all numbers of micro-batches per repetend."""
        return self.best is not None and self.rate <= self.period_bound

    @property
    def is_done(self) -> bool:
        """Whether the period, and all objectives before it, are proved least for the sizes asked for."""
        first = self.of_size.get(self.sizes[0])
        if first is not None and any(first.is_open(objective) for objective in self.before):
            return False
        return self.best is not None and self.rate <= self.bound

    @property
    def counted_sizes(self) -> tuple[int, ...]:
        """Numbers of micro-batches per repetend that count: all asked for, and the best repetend's own."""
        best = () if self.best is None else (self.best.micro_batches,)
        return tuple(sorted({*self.sizes, *best}))

    @property
    def tried(self) -> tuple[Attempt, ...]:
        """Period and bound of each number of micro-batches per repetend that counts and was tried."""
        counted = {size: known for size, known in self.of_size.items() if size in self.counted_sizes}
        if self.best is not None:
            counted[self.best.micro_batches] = self.best
        return tuple(
            Attempt(
                size,
                None if known.repetend is None else known.repetend.period,
                known.bound[Objective.PERIOD],
                max(known.refuted, default=None),
                known.seconds,
            )
            for size, known in sorted(counted.items())
        )

    @property
    def bound(self) -> Fraction:
        """Lower bound on the period in ticks per micro-batch, over repetends of the sizes asked for."""
        bounds = {tried.micro_batches: Fraction(tried.bound, tried.micro_batches) for tried in self.tried}
        if not set(self.sizes) <= bounds.keys():
            return self.period_bound
        return max(self.period_bound, min(bounds.values()))

    @property
    def bound_of_all(self) -> Fraction:
        """Lower bound on the answer's period in ticks per micro-batch; its size may be one not asked for."""
        return self.bound if len(self.sizes) == 1 or self.is_done else self.period_bound

    @property
    def limits(self) -> dict[Objective, int]:
        """Values of the objectives before the period, reached with the first size asked for."""
        first = self.of_size.get(self.sizes[0])
        limit = {} if first is None else first.limit
        return {objective: limit[objective] for objective in self.before if objective in limit}

    def known_of(self, size: int) -> OfSize:
        """Return the record of one number of micro-batches per repetend, within the limits."""
        known = self.of_size.get(size)
        if known is None:
            known = OfSize.without_search(self.placement, size, self.period_bound)
        return known if size == self.sizes[0] else replace(known, limit={**known.limit, **self.limits})

    def to_beat(self, size: int) -> OfSize:
        """Return the record of one number of micro-batches, with a cutoff at the best repetend so far."""
        known, best = self.known_of(size), self.best
        if best is None or (size == 1 and len(self.sizes) == 1):
            return known
        if best.micro_batches == size:
            return best
        return replace(known, repetend=None, cutoff=math.ceil(best.period_per_micro_batch * size))

    def taking(self, finding: Finding) -> Known:
        """Return the record with a finding."""
        match finding:
            case Start(repetend):
                before = self.known_of(repetend.micro_batches)
                known = before.beginning_with(repetend)
                return self if known is before else self._with(known.with_tightened_limits())
            case OfSize(repetend=None):  # it was to beat another number of micro-batches
                before = self.known_of(finding.micro_batches)
                return self._with(replace(before, limit=finding.limit).with_proofs_of(finding))
            case OfSize():
                return self._with(finding)
            case MinPeriod():
                bound = max(self.period_bound, finding.ticks)
                of_size = {size: known.with_period_bound(bound) for size, known in self.of_size.items()}
                return replace(self, period_bound=bound, of_size=of_size, min_period=finding)
        return replace(self, failure=finding)

    def _with(self, known: OfSize) -> Known:
        return replace(self, of_size={**self.of_size, known.micro_batches: known})
