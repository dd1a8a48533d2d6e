"""Annealing in parts of counted work: one falling heat for all orders that compiled steps change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from schedsearch.solver.effort import Effort

PART = 0.1
"""Units of work between two looks for a limit or a Ctrl-C."""

Steps = Callable[[int, float, float, int], float]
"""Makes steps, keeps the best order and returns its value. Arguments: number of steps; the first heat (mean
share of the value by which a step may be worse); the heat's decrease per step; a seed."""


def annealed(
    take: Steps, effort: Effort, *, work: float, work_of_step: float, heat: float, seed: int
) -> Iterator[float]:
    """Take steps with falling heat until the work is used up; yield the best value after each part.

    The order of steps does not depend on the limits of the effort: higher limits continue the same course.

    Args:
        take: Makes steps.
        effort: Counts the work, and has the limits.
        work: Units of work of all parts.
        work_of_step: Units of work of one step.
        heat: Share of the value by which a step may be worse at first, on average; none at the end.
        seed: Seed of the first part; each later one has the next.

    Raises:
        OutOfTimeError: The limit of time or of work is reached.
        KeyboardInterrupt: There was a Ctrl-C.
    """
    total, part = max(1, round(work / work_of_step)), max(1, round(PART / work_of_step))
    for i, done in enumerate(range(0, total, part)):
        effort.require_s()
        most = max(1, round(effort.at_most(PART) / work_of_step))
        steps = min(part, total - done, most)
        effort.spend(steps * work_of_step)
        yield take(steps, heat * (1 - done / total), heat / total, seed + i)
