"""Plans by fix-and-optimise: one device's clocks are fixed, and the rest is relaxed again.

Where one device is busy all the time, a neighbor has just as long for each micro-batch: it cannot save up
what rounding leaves unused. Its clocks must then fit a row of windows in time as well as they can, and the
devices further off can use what is left over, if they know of it before they are rounded. So we take the
device that the relaxed plan slows down least, choose the best clocks for it within the windows that the
others leave, solve the relaxed problem of the rest again, and round it.

What time is worth to the others is its shadow price, the flow of the relaxed problem. A device that paid
nothing for time would take all it can, one that paid the full price would leave its windows empty, since at
that price the modes on either side of its planned time cost the same. It pays a part of the price.
"""

from __future__ import annotations

import contextlib

import numpy as np

from schedsearch.energy.generators.rounding import TOLERANCE, Generated, rounded
from schedsearch.energy.generators.windows import best_within, windows_of
from schedsearch.energy.graph import Floats, Ints
from schedsearch.energy.problem import ClockProblem
from schedsearch.energy.relaxed.highs import SolverError
from schedsearch.energy.relaxed.timing_program import free_timing, min_energy

YIELDING = 0.5
"""Share of their planned slowdown that the other devices give up for the one whose clocks are chosen.

They get it back, elsewhere, when the rest is planned anew. With none, cuts between the blocks of a
micro-batch would stay where the relaxed plan happened to put them.
"""

PAID = 0.7
"""Share of the shadow price of time that a device pays while it is chosen."""


def fixed(problem: ClockProblem, planned_ms: Floats, price_w: Floats, deadline_ms: float) -> Generated:
    """Yield plans for a deadline with the clocks of one device fixed: the others rounded from new times.

    Devices before it, whose planned times are already modes' times, are fixed beside it.

    Args:
        problem: Problem whose modes are chosen.
        planned_ms: Time of each instance in the relaxed plan; shape ``(instances,)``.
        price_w: The shadow price of each instance's time in that plan: mJ per ms.
        deadline_ms: Deadline to be kept.
    """
    table, tolerance_ms = problem.table, TOLERANCE * deadline_ms
    fastest = table.time_ms[table.row, 0]
    mode = np.full(problem.graph.size, -1)
    slowdown = [float((planned_ms - fastest)[order].sum()) for order in problem.orders]
    for device in np.argsort(slowdown, kind="stable"):
        members = problem.orders[device][mode[problem.orders[device]] < 0]
        yielding = np.where(mode >= 0, planned_ms, planned_ms - YIELDING * (planned_ms - fastest))
        yielding[members] = planned_ms[members]
        best = _best(problem, members, yielding, PAID * price_w[members], deadline_ms)
        if best is None:
            return
        mode[members] = best
        chosen_ms = table.time_ms[table.row[members], best]
        if not np.allclose(chosen_ms, planned_ms[members], rtol=0, atol=tolerance_ms):
            break
    else:
        return
    with contextlib.suppress(SolverError):  # the other plans are all there are then
        timing = free_timing(problem.graph, problem.curves).fixed(mode)
        rest = min_energy(timing, deadline_ms * (1 + TOLERANCE))
        if rest is not None:
            for _, choice in rounded(problem, rest.planned_ms[:, None], np.array([deadline_ms])):
                yield "fixed", choice


def _best(
    problem: ClockProblem, members: Ints, time_ms: Floats, price_w: Floats, deadline_ms: float
) -> Ints | None:
    """Return the best modes of a device in the windows that the others leave if all run early, or None."""
    graph, rows = problem.graph, problem.table.row[members]
    start = graph.earliest_start(time_ms[:, None])[:, 0]
    mode_ms = problem.table.time_ms[rows]
    with np.errstate(invalid="ignore"):
        cost_mj = problem.table.energy_mj[rows] + price_w[:, None] * mode_ms
    cost_mj = np.where(np.isfinite(mode_ms), cost_mj, np.inf)
    windows = windows_of(members, start, start + time_ms, deadline_ms, graph.edge_arrays)
    return best_within(windows, mode_ms, cost_mj)
