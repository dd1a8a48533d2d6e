"""Warmup and cooldown around a repetend, and the three put together (Tessel, Sec. IV-C)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from placements import Placement
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible
from schedsearch.solver.query import Verdict
from schedsearch.tessel.candidates import Indices, memory_at_entry
from schedsearch.tessel.queries import Budget, TesselQuery, minimise, phase_query

Starts = Mapping[Instance, int]
"""Start of each block of a phase, in ticks from the phase's own begin on."""


@dataclass(frozen=True)
class Phase:
    """A warmup or a cooldown.

    Attributes:
        query: Its rules.
        starts: Start of each block in ticks; empty when none were found.
        answer: Whether there are any.
    """

    query: TesselQuery
    starts: Starts
    answer: Verdict

    @property
    def blocks(self) -> tuple[Instance, ...]:
        """The (block, micro-batch) pairs in it, of as many micro-batches as the repetend has."""
        return tuple(self.query.start)


def warmup(placement: Placement, indices: Indices, budget: Budget) -> Phase:
    """Return some warmup of a repetend: the blocks before the first (Tessel, Eq. 5); see `_some_phase`."""
    blocks = [(name, n) for name, index in indices.items() for n in range(index)]
    return _some_phase(placement, blocks, [0] * placement.num_devices, budget)


def cooldown(placement: Placement, indices: Indices, in_flight: int, budget: Budget) -> Phase:
    """Return some cooldown: the blocks after the only repetend (Tessel, Eq. 6); see `_some_phase`."""
    blocks = [(name, n) for name, index in indices.items() for n in range(index + 1, in_flight)]
    return _some_phase(placement, blocks, memory_at_entry(placement, indices), budget)


def _some_phase(placement: Placement, blocks: list[Instance], held: list[int], budget: Budget) -> Phase:
    """Return a phase that fits memory, if there is one.

    Which blocks belong to it, and what they find in memory, follows from the repetend's micro-batches and
    not from the order of its blocks. So it exists for all orders or for none.

    Raises:
        OutOfTimeError: The deadline came first.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    query = phase_query(placement, blocks, held, budget)
    answer, starts = query.ask(query.horizon, budget.left_s / 2) if blocks else (Verdict.YES, {})
    return Phase(query, starts, answer)


def shortened(phase: Phase) -> Phase:
    """Return the phase made as short as can be, or as the budget allows.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if not phase.starts:
        return phase
    query = phase.query
    least = minimise(query, query.busiest_device, query.value(phase.starts) - 1)
    return replace(phase, starts=least.starts or phase.starts)


def concatenate(
    placement: Placement,
    num_micro_batches: int,
    in_flight: int,
    before: Starts,
    repetend: Starts,
    after: Starts,
) -> Schedule:
    """Return warmup, as many repetends as there is room for, and cooldown, in this order on every device.

    The paper says only that they are put together; each block starts as early as this order allows, as the
    order is all that a device knows when it runs (Tessel, Sec. IV-D). The cooldown is given as it is when the
    repetend, of `in_flight` micro-batches, runs only once.
    """
    rounds = num_micro_batches - in_flight + 1
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for starts, shift in [(before, 0), *((repetend, i) for i in range(rounds)), (after, rounds - 1)]:
        for name, micro_batch in sorted(starts, key=lambda instance: starts[instance]):
            for device in placement.by_name[name].devices:
                orders[device].append((name, micro_batch + shift))
    return as_soon_as_possible(placement, num_micro_batches, orders)
