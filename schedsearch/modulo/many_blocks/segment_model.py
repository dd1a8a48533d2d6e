"""Free segments of a repetend as one CP-SAT query: is there an order of theirs with a shorter period?"""

from __future__ import annotations

from schedsearch.model import rules
from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.model.memory_precedence import checks
from schedsearch.model.variables import Variables
from schedsearch.modulo.many_blocks.segments import Segments
from schedsearch.repetend import Repetend
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.cpsat import solve, within
from schedsearch.solver.query import Answer


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
    model = CpSatModel()
    last = max(first.values()) + 4 * period
    start = {instance: model.new_int_var(0, last, f"start {instance}") for instance in first}
    for instance, ticks in first.items():
        model.add_hint(start[instance], ticks)
    everything = Variables(model, placement, start, first)
    for edge in segments.edges()[0]:
        if edge.source != edge.target:
            everything.wait(edge.source, edge.target, edge.ticks - edge.rounds * period)
    for device, segment in segments.free.items():
        here = segments.around(device)[: segment.number]
        free = Variables(
            model,
            placement,
            {instance: start[instance] + round_ * period for instance, round_ in here},
            {instance: first[instance] + round_ * repetend.period for instance, round_ in here},
            {device: segments.held_before(device)},
        )
        rules.run_one_at_a_time(free, device)
        for check in checks(placement, device):
            rules.count_memory(free, check)
    solver = within(budget)
    if solve(solver, model, budget.spend) is not Answer.YES:
        return None
    found = {instance: solver.value(variable) for instance, variable in start.items()}
    return Repetend.from_first_starts(placement, repetend.micro_batches, period, found).with_least_period()
