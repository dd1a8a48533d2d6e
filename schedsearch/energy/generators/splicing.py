"""Two good plans joined in time, to plan for the deadlines between theirs.

Where neighboring options of a block are far apart, the relaxed plan has times in between for every
micro-batch, and rounding them loses much. Real plans on either side of the deadline do not: run the first
part of one and the rest of the other. Let the faster plan run as early as it can, and the slower one as late
as the deadline allows. With every event at the later of its two times, the waits of both plans are kept;
likewise at the earlier of its two times, with the faster plan late and the slower one early. Either way
nearly all instances keep a time of one of the plans, and only those that run at the seam are rounded.
"""

from __future__ import annotations

import numpy as np

from schedsearch.energy.generators.candidates import Envelope
from schedsearch.energy.generators.rounding import Generated, rounded_at_seams
from schedsearch.energy.graph import Floats
from schedsearch.energy.problem import ClockProblem


def spliced(problem: ClockProblem, envelope: Envelope, deadline_ms: Floats) -> Generated:
    """Yield plans for the deadlines that are each joined from the two best ones around it.

    Args:
        problem: Problem whose modes are chosen.
        envelope: What to join.
        deadline_ms: None below the shortest of these plans; shape ``(deadlines,)``.
    """
    graph, table = problem.graph, problem.table
    time_ms, choice = envelope.time_ms, envelope.choice
    slower = np.minimum(np.searchsorted(time_ms, deadline_ms, side="right"), len(time_ms) - 1)
    faster = np.maximum(slower - 1, 0)
    fast_ms, slow_ms = table.times(choice[:, faster]), table.times(choice[:, slower])
    fast_start, slow_start = graph.earliest_start(fast_ms), graph.earliest_start(slow_ms)
    fast_end, slow_end = graph.latest_end(fast_ms, deadline_ms), graph.latest_end(slow_ms, deadline_ms)
    for planned_ms in (
        np.maximum(fast_start + fast_ms, slow_end) - np.maximum(fast_start, slow_end - slow_ms),
        np.minimum(slow_start + slow_ms, fast_end) - np.minimum(slow_start, fast_end - fast_ms),
    ):
        for spliced_choice in rounded_at_seams(problem, planned_ms, deadline_ms):
            yield "spliced", spliced_choice
