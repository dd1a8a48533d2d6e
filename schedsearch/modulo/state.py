"""The state of a search for the period: one frozen record, which every finding makes another of."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

from placements import Placement
from schedsearch.core.answer import Attempt, Status
from schedsearch.core.known import OfSize, Start
from schedsearch.core.objective import Objective
from schedsearch.repetend import Repetend
from schedsearch.starts.serial import serial_period
from schedsearch.state_space import MinPeriod

MANY_BLOCKS = 48
"""Blocks of a micro-batch from which on a solver is asked about all of them last, not first."""


class NoRepetend(NamedTuple):
    """The status of a search without a repetend, and the reason in words."""

    status: Status
    reason: str


NOT_FOUND = NoRepetend(Status.UNKNOWN, "no schedule was found in the time given; raise search.time_limit_s")

Finding = Start | OfSize | MinPeriod | NoRepetend
"""What a strategy may find: a repetend, an answer of a solver, a bound, or that there is no schedule."""


@dataclass(frozen=True)
class SearchState:
    """What is known of the period.

    Attributes:
        placement: What runs where, without optimizer blocks.
        sizes: Numbers of micro-batches per repetend that are asked for. One number alone is what the answer
            must have; of several, a repetend of more counts where it is better.
        period_bound: Ticks per micro-batch that no repetend beats.
        before: Objectives before the period.
        of_size: What is known of each number of micro-batches for which there is something.
        min_period: What the state-space search proved; None where it was not needed, or gave up.
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
        """Whether there are too many blocks for a solver to be asked about all of them first."""
        return len(self.placement.blocks) >= MANY_BLOCKS

    @property
    def repetends(self) -> dict[int, Repetend]:
        """The best repetend of each number of micro-batches so far."""
        found = {size: known.repetend for size, known in sorted(self.of_size.items())}
        return {size: repetend for size, repetend in found.items() if repetend is not None}

    @cached_property
    def best(self) -> OfSize | None:
        """What is known of the best repetend, of as many micro-batches as are asked for; None before one."""
        if len(self.sizes) > 1:
            return min((self.of_size[size] for size in self.repetends), key=self.quality, default=None)
        (size,) = self.sizes
        known = self.known_of(size)
        for part, repetend in self.repetends.items():
            if size % part == 0:
                known = known.beginning_with(repetend.repeated(size // part))
        return None if known.repetend is None else known.with_tightened_limits()

    @property
    def rate(self) -> Fraction:
        """Ticks per micro-batch of the best repetend; before there is one, of one block after another."""
        found = None if self.best is None else self.best.period_per_micro_batch
        return Fraction(serial_period(self.placement)) if found is None else found

    @property
    def is_proved(self) -> bool:
        """Whether no number of micro-batches per repetend has a lesser period than the best."""
        return self.best is not None and self.rate <= self.period_bound

    @property
    def is_done(self) -> bool:
        """Whether none of the numbers of micro-batches asked for has a lesser period than the best.

        Nor may an objective before the period be open.
        """
        first = self.of_size.get(self.sizes[0])
        if first is not None and any(first.is_open(objective) for objective in self.before):
            return False
        return self.best is not None and self.rate <= self.bound

    @property
    def counted_sizes(self) -> tuple[int, ...]:
        """Numbers of micro-batches per repetend that count: those asked for, and that of a better start."""
        best = () if self.best is None else (self.best.micro_batches,)
        return tuple(sorted({*self.sizes, *best}))

    @property
    def tried(self) -> tuple[Attempt, ...]:
        """What is known of each number that counts and was tried."""
        found = {size: known for size, known in self.of_size.items() if size in self.counted_sizes}
        if self.best is not None:
            found[self.best.micro_batches] = self.best
        return tuple(
            Attempt(
                size,
                known.repetend.period if known.repetend is not None else None,
                known.bound[Objective.PERIOD],
                max(known.refuted, default=None),
                known.seconds,
            )
            for size, known in sorted(found.items())
        )

    @property
    def bound(self) -> Fraction:
        """Ticks per micro-batch that no repetend beats, of any number of micro-batches asked for."""
        tried = {each.micro_batches: Fraction(each.bound, each.micro_batches) for each in self.tried}
        if not set(self.sizes) <= set(tried):
            return self.period_bound
        return max(self.period_bound, min(tried.values()))

    @property
    def bound_of_all(self) -> Fraction:
        """Ticks per micro-batch that the answer does not beat, which may be of a number not asked for."""
        return self.bound if len(self.sizes) == 1 or self.is_done else self.period_bound

    def quality(self, known: OfSize) -> tuple[Fraction | int, ...]:
        """Return what makes one repetend better than another: less, from the first figure on."""
        values = (known.value(objective) for objective in self.before)
        return *values, known.period_per_micro_batch

    @property
    def limits(self) -> dict[Objective, int]:
        """What the objectives before the period reached with the first number of micro-batches asked for."""
        reached = self.of_size[self.sizes[0]].limit if self.sizes[0] in self.of_size else {}
        return {objective: value for objective, value in reached.items() if objective in self.before}

    def known_of(self, size: int) -> OfSize:
        """Return what is known of repetends of a number of micro-batches, within the limits."""
        known = self.of_size.get(size)
        if known is None:
            known = OfSize.without_search(self.placement, size, least=self.period_bound)
        return known if size == self.sizes[0] else replace(known, limit={**known.limit, **self.limits})

    def to_beat(self, size: int) -> OfSize:
        """Return what is known of repetends of a number of micro-batches that are better than the best."""
        known, best = self.known_of(size), self.best
        if best is None or (size == 1 and len(self.sizes) == 1):
            return known
        if best.micro_batches == size:
            return best
        return replace(known, repetend=None, cutoff=math.ceil(best.period_per_micro_batch * size))

    def taking(self, finding: Finding) -> SearchState:
        """Return the state with a finding."""
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

    def _with(self, known: OfSize) -> SearchState:
        return replace(self, of_size={**self.of_size, known.micro_batches: known})
