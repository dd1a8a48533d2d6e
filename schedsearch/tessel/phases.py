"""Warmup and cooldown around a repetend, and the schedule made of all three (Tessel, Sec. IV-C)."""

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
        query: The rules of the phase.
        starts: Start of each block in ticks; empty if none were found.
        answer: Whether such starts exist.
    """

    query: TesselQuery
    starts: Starts
    answer: Verdict


def warmup(placement: Placement, indices: Indices, budget: Budget) -> Phase:
    """Return some warmup of a repetend: the blocks before the first (Tessel, Eq. 5); see `_some_phase`."""
    blocks = [(name, n) for name, index in indices.items() for n in range(index)]
    return _some_phase(placement, blocks, [0] * placement.num_devices, budget)


def cooldown(placement: Placement, indices: Indices, in_flight: int, budget: Budget) -> Phase:
    """Return some cooldown: the blocks after the only repetend (Tessel, Eq. 6); see `_some_phase`."""
    blocks = [(name, n) for name, index in indices.items() for n in range(index + 1, in_flight)]
    return _some_phase(placement, blocks, memory_at_entry(placement, indices), budget)


def _some_phase(placement: Placement, blocks: list[Instance], held: list[int], budget: Budget) -> Phase:
    """Return a phase with starts that fit the memory; its `answer` tells whether any were found.

    Its blocks, and the memory held before them, follow from the micro-batches of the repetend's blocks and
    not from their order. So a phase exists for all orders or for none.

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
    """Return the schedule of warmup, ``num_micro_batches - in_flight + 1`` repetends, and cooldown.

    Every device keeps this order. The paper says only that the three are put together; each block starts
    as early as the order allows, because a device knows only its order when it runs (Tessel, Sec. IV-D). The
    cooldown's micro-batches are numbered as if the repetend, of `in_flight` micro-batches, ran once.
    """
    rounds = num_micro_batches - in_flight + 1
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for starts, shift in [(before, 0), *((repetend, i) for i in range(rounds)), (after, rounds - 1)]:
        for name, micro_batch in sorted(starts, key=lambda instance: starts[instance]):
            for device in placement.by_name[name].devices:
                orders[device].append((name, micro_batch + shift))
    return as_soon_as_possible(placement, num_micro_batches, orders)
