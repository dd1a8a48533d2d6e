"""Free segments of a repetend as one CP-SAT query: is there an order of theirs with a shorter period?"""

from __future__ import annotations

import itertools

from ortools.sat.python import cp_model

from schedsearch.modulo.many_blocks.segments import Segments
from schedsearch.repetend import Repetend
from schedsearch.schedule import Instance
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import solve, within


def order_anew(segments: Segments, period: int, budget: SolverBudget) -> Repetend | None:
    """Return a repetend of a period, or less, that differs in the order of the segments' blocks alone.

    Within a segment each pair of blocks is in one order or the other; what was before the segment stays
    before it. So everything is a job shop on the clock of round 0, in which a period that is given only
    shifts the constraints between rounds, and memory is that before the segment and a sum over the pairs.

    Returns:
        The repetend, with the least period of its order; None where the solver finds none.

    Raises:
        KeyboardInterrupt: The solver was interrupted from the keyboard.
    """
    repetend = segments.repetend
    placement, first = repetend.placement, repetend.first_starts
    model = cp_model.CpModel()
    last = max(first.values()) + 4 * period
    start = {instance: model.new_int_var(0, last, f"start {instance}") for instance in first}
    for instance, ticks in first.items():
        model.add_hint(start[instance], ticks)
    for edge in segments.edges()[0]:
        if edge.source != edge.target:
            model.add(start[edge.target] - start[edge.source] >= edge.ticks - edge.rounds * period)
    for device, segment in segments.free.items():
        here = segments.around(device)[: segment.number]
        time = {instance: placement.by_name[instance[0]].time for instance, _ in here}
        at = {instance: start[instance] + round_ * period for instance, round_ in here}
        before: dict[tuple[Instance, Instance], cp_model.LiteralT] = {}
        model.add_no_overlap(
            model.new_fixed_size_interval_var(at[instance], time[instance], f"{instance} on {device}")
            for instance in at
        )
        for a, b in itertools.combinations(at, 2):
            before[a, b] = a_first = model.new_bool_var(f"{a} before {b} on {device}")
            before[b, a] = ~a_first
            model.add(at[a] + time[a] <= at[b]).only_enforce_if(a_first)
            model.add(at[b] + time[b] <= at[a]).only_enforce_if(~a_first)
            model.add_hint(a_first, True)
        if placement.free_memory is None:
            continue
        memory = {instance: placement.by_name[instance[0]].memory_on(device) for instance in at}
        free = placement.free_memory[device] - segments.held_before(device)
        for b in at:
            transient = placement.by_name[b[0]].transient
            if memory[b] > 0 or transient > 0:
                earlier = [a for a in at if a != b and memory[a]]
                held = cp_model.LinearExpr.weighted_sum(
                    [before[a, b] for a in earlier], [memory[a] for a in earlier]
                )
                model.add(held + memory[b] + transient <= free)
    solver = within(budget)
    if solve(solver, model, budget.spend) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    found = {instance: solver.value(variable) for instance, variable in start.items()}
    return Repetend.from_first_starts(placement, repetend.micro_batches, period, found).with_least_period()
