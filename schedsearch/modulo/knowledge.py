"""What is known of the repetends of one number of micro-batches, and the query that would tell more.

Every value that is called a bound was refuted by a solver below it, or follows from `schedsearch.proof`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from placements import Placement
from schedsearch.core.objective import VALUE, Objective
from schedsearch.proof.load_and_path import critical_path, min_period
from schedsearch.proof.memory_need import minimum_memory
from schedsearch.repetend import Repetend
from schedsearch.solver.query import Query
from schedsearch.starts.serial import serial_period


@dataclass(frozen=True)
class Knowledge:
    """The best repetend of a number of micro-batches so far, and what is proved of all of them.

    Attributes:
        placement: What runs where, without optimizer blocks.
        micro_batches: Micro-batches per repetend.
        bound: Value of each objective that no repetend within the limits beats.
        cutoff: Periods from here on are of no use, in ticks.
        repetend: The best; None before there is one.
        limit: What earlier objectives reached, which later ones must keep.
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
        cls,
        placement: Placement,
        micro_batches: int,
        cutoff: int | None = None,
        least: Fraction = Fraction(0),
    ) -> Knowledge:
        """Return what is known before any query.

        Args:
            placement: What runs where, without optimizer blocks.
            micro_batches: Micro-batches per repetend.
            cutoff: Periods from here on are of no use; None for those in which nothing runs at once.
            least: Ticks per micro-batch that no repetend beats.
        """
        path = critical_path(placement)
        best = placement.at_best
        needed = [minimum_memory(best, device) + static for device, static in enumerate(placement.static)]
        bound = {
            Objective.PERIOD: min_period(placement, micro_batches),
            Objective.SPAN: path,
            Objective.LATENCY: path,
            Objective.MEMORY: max(needed),
        }
        serial = serial_period(placement) * micro_batches + 1
        known = cls(placement, micro_batches, bound, serial if cutoff is None else cutoff)
        return known.with_period_bound(least)

    @property
    def period_per_micro_batch(self) -> Fraction:
        """Ticks per micro-batch of the best repetend; of the cutoff before there is one."""
        return Fraction(self.value(Objective.PERIOD), self.micro_batches)

    def value(self, objective: Objective) -> int:
        """Return the least value known to be reached; the cutoff of the period before there is a repetend."""
        return self.cutoff if self.repetend is None else VALUE[objective](self.repetend)

    def is_open(self, objective: Objective) -> bool:
        """Return whether an objective may still become less."""
        return self.bound[objective] < self.value(objective)

    def is_monotone(self, objective: Objective) -> bool:
        """Return whether a value that cannot be reached shows that no lesser one can.

        A repetend can be stretched to a longer period by an idle tick at the end of each round, but then its
        latency and its span may grow.
        """
        limited = Objective.SPAN in self.limit or Objective.LATENCY in self.limit
        return objective is not Objective.PERIOD or not limited

    def keeps_limits(self, repetend: Repetend) -> bool:
        """Return whether a repetend reaches what earlier objectives reached."""
        return all(VALUE[objective](repetend) <= limit for objective, limit in self.limit.items())

    def query(self, objective: Objective, candidate: int) -> Query:
        """Return the question whether a value can be reached within the limits."""
        wanted = {**self.limit, objective: candidate}
        return Query(
            self.limited_placement(wanted.get(Objective.MEMORY)),
            self.micro_batches,
            wanted.get(Objective.PERIOD) or self.value(Objective.PERIOD),
            wanted.get(Objective.SPAN),
            wanted.get(Objective.LATENCY),
        )

    def limited_placement(self, most: int | None = None) -> Placement:
        """Return the placement with no more memory than a limit, by default the one that was reached."""
        most = self.limit.get(Objective.MEMORY) if most is None else most
        if most is None:
            return self.placement
        capacity = self.placement.memory or (most,) * self.placement.num_devices
        return self.placement.with_memory(min(most, each) for each in capacity)

    def beginning_with(self, repetend: Repetend | None) -> Knowledge:
        """Take a repetend that is known without a search where it is better and keeps the limits."""
        if repetend is None or not self.keeps_limits(repetend):
            return self
        is_better = repetend.period < self.value(Objective.PERIOD)
        return replace(self, repetend=repetend) if is_better else self

    def with_repetend(self, objective: Objective, candidate: int, repetend: Repetend) -> Knowledge:
        """Take a solver's repetend, with the least period of its order where that still reaches the value."""
        least = repetend.with_min_period(min_period(self.placement, self.micro_batches))
        is_as_good = self.keeps_limits(least) and VALUE[objective](least) <= candidate
        return replace(self, repetend=least if is_as_good else repetend).with_tightened_limits()

    def with_tightened_limits(self) -> Knowledge:
        """Hold what comes next to what the repetend has, where that is less than what was to be kept."""
        if self.repetend is None:
            return self
        reached = {
            objective: min(limit, VALUE[objective](self.repetend)) for objective, limit in self.limit.items()
        }
        return replace(self, limit=reached)

    def with_refuted(self, objective: Objective, candidate: int) -> Knowledge:
        """Take note that a value cannot be reached."""
        bound, refuted = self.bound[objective], self.refuted
        if self.is_monotone(objective):
            bound = max(bound, candidate + 1)
        if objective is Objective.PERIOD:
            refuted |= {candidate}
            while bound in refuted:
                bound += 1
        return replace(self, bound={**self.bound, objective: bound}, refuted=refuted)

    def with_period_bound(self, period_per_micro_batch: Fraction) -> Knowledge:
        """Take note of ticks per micro-batch that no repetend beats."""
        least = math.ceil(period_per_micro_batch * self.micro_batches)
        bound = max(self.bound[Objective.PERIOD], least)
        return replace(self, bound={**self.bound, Objective.PERIOD: bound})

    def with_limit(self, objective: Objective) -> Knowledge:
        """Hold what comes next to the value that an objective reached."""
        return replace(self, limit={**self.limit, objective: self.value(objective)})

    def without_limits(self, objectives: Collection[Objective]) -> Knowledge:
        """Hold what comes next to the other limits alone."""
        return replace(self, limit={key: value for key, value in self.limit.items() if key not in objectives})

    def with_proofs_of(self, other: Knowledge) -> Knowledge:
        """Take note of what was proved of as many micro-batches within limits that were no stricter."""
        bound = {objective: max(least, other.bound[objective]) for objective, least in self.bound.items()}
        refuted, seconds = self.refuted | other.refuted, max(self.seconds, other.seconds)
        return replace(self, bound=bound, refuted=refuted, seconds=seconds)
