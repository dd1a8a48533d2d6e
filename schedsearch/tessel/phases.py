"""Warmup and cooldown around a repetend, and the three put together (Tessel, Sec. IV-C)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placements import Placement
from schedsearch.schedule import Instance, Schedule, as_soon_as_possible
from schedsearch.solver.query import Answer
from schedsearch.tessel.candidates import Indices, cooldown_blocks, memory_at_entry, warmup_blocks
from schedsearch.tessel.queries import Budget, PhaseQuery, QueryTimeError, minimise

Starts = Mapping[Instance, int]
"""Start of each block of a phase, in ticks from the phase's own begin on."""


@dataclass(frozen=True)
class Phase:
    """A warmup or a cooldown.

    Attributes:
        blocks: The (block, micro-batch) pairs in it, of as many micro-batches as the repetend has.
        held: What each device holds at its begin.
        starts: Start of each block in ticks; empty when none were found.
        answer: Whether there are any.
        optimal: Whether it is proved to be as short as can be.
    """

    blocks: tuple[Instance, ...]
    held: tuple[int, ...]
    starts: Starts
    answer: Answer
    optimal: bool


def warmup(placement: Placement, indices: Indices, budget: Budget) -> Phase:
    """Return some warmup of a repetend; see `some_phase`."""
    return some_phase(placement, warmup_blocks(indices), [0] * placement.num_devices, budget)


def cooldown(placement: Placement, indices: Indices, in_flight: int, budget: Budget) -> Phase:
    """Return some cooldown of a repetend; see `some_phase`."""
    blocks, held = cooldown_blocks(indices, in_flight), memory_at_entry(placement, indices)
    return some_phase(placement, blocks, held, budget)


def some_phase(placement: Placement, blocks: list[Instance], held: list[int], budget: Budget) -> Phase:
    """Return a phase that fits memory, if there is one.

    Which blocks belong to it, and what they find in memory, follows from the repetend's micro-batches and
    not from the order of its blocks. So it exists for all orders or for none.

    Raises:
        QueryTimeError: The deadline came first.
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if not blocks:
        return Phase((), tuple(held), {}, Answer.YES, optimal=True)
    query = PhaseQuery(placement, blocks, held, budget)
    answer, starts = query.ask(query.horizon, budget.left_s / 2)
    return Phase(tuple(blocks), tuple(held), starts, answer, optimal=False)


def shortened(placement: Placement, phase: Phase, budget: Budget) -> Phase:
    """Return the phase made as short as can be, or as the budget allows.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    if phase.optimal or phase.answer is not Answer.YES:
        return phase
    try:
        query = PhaseQuery(placement, phase.blocks, list(phase.held), budget)
    except QueryTimeError:
        return phase
    least = minimise(query, query.busiest_device, query.value(phase.starts) - 1)
    return Phase(phase.blocks, phase.held, least.starts or phase.starts, Answer.YES, least.decided)


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
    order is all that a device knows when it runs (Tessel, Sec. IV-D).

    Args:
        placement: What runs where.
        num_micro_batches: Number of micro-batches, at least `in_flight`.
        in_flight: Micro-batches of the repetend.
        before: The warmup.
        repetend: The repetend.
        after: The cooldown, as it is when the repetend runs only once.
    """
    rounds = num_micro_batches - in_flight + 1
    orders: list[list[Instance]] = [[] for _ in range(placement.num_devices)]
    for starts, shift in [(before, 0), *((repetend, i) for i in range(rounds)), (after, rounds - 1)]:
        for name, micro_batch in sorted(starts, key=lambda instance: starts[instance]):
            for device in placement.by_name[name].devices:
                orders[device].append((name, micro_batch + shift))
    return as_soon_as_possible(placement, num_micro_batches, orders)
