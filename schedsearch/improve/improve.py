"""The improvement of a whole schedule for its number of micro-batches: warmup, cooldown and all between.

Tessel solves warmup and cooldown on their own around a fixed repetend (Tessel, Sec. IV-C); we order anew
any part of the schedule, or all of it, around whatever remains. Where memory leaves few states, the search
over these settles it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

from schedsearch.bounds.makespan import makespan_bound
from schedsearch.improve import window
from schedsearch.improve.window import Part
from schedsearch.schedule import Instance, Schedule, with_optimizer
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import INTERRUPTS
from schedsearch.state_space import least_makespan
from schedsearch.validate import validate

_WHOLE = 420
"""Most blocks of a schedule that is also solved as a whole."""

_WINDOW = 40
"""Blocks of a window in the first round; twice as many in each later one, up to half of `_WHOLE`."""

_STATES = 5_000_000
"""States to look at in the first round; twice as many in each later one."""

_SHARE_OF_STATES = 0.4
"""Share of the time left that this may take."""

_MOST_EFFORT = 12
"""Rounds after which the effort grows no more: by then a step may take an hour."""

Solve = Callable[[Part, SolverBudget], dict[Instance, int] | None]


@dataclass(frozen=True)
class Improved:
    """A schedule and what is proved of it.

    Attributes:
        schedule: Valid, and never longer than the one that was to be improved.
        bound: Ticks that no schedule of as many micro-batches of the placement beats, periodic or not.
        interrupted: Whether it was interrupted from the keyboard.
    """

    schedule: Schedule
    bound: int
    interrupted: bool = False

    @property
    def proved(self) -> bool:
        """Whether no schedule is shorter."""
        return self.schedule.makespan <= self.bound


def improve(
    schedule: Schedule,
    *,
    time_limit_s: float,
    bound: int = 0,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Improved:
    """Shorten a schedule by ordering its blocks anew, and bound how short one can be.

    Args:
        schedule: A valid schedule.
        time_limit_s: Seconds after which the best schedule found is returned.
        bound: A lower bound on the makespan that is known already, in ticks.
        seed: Of the solver's random choices; the steps are the same for the same seed, and the time limit
            only says how many there are.
        on_progress: Called with the best makespan and the bound, at first and whenever one changes.
    """
    running = _Improvement(schedule, time.monotonic() + time_limit_s, bound, seed, on_progress)
    interrupted = False
    INTERRUPTS.watch()
    try:
        running.run()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        INTERRUPTS.unwatch()
    return Improved(validate(running.best), running.bound, interrupted)


class _OutOfTimeError(Exception):
    """Ends an improvement at its deadline."""


class _Improvement:
    """The state of one improvement: the best schedule and bound so far."""

    def __init__(
        self,
        schedule: Schedule,
        deadline: float,
        bound: int,
        seed: int,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.deadline = deadline
        self.on_progress = on_progress or (lambda best, bound: None)
        self.seeds = itertools.count(1000 * seed)
        self.bound = max(bound, makespan_bound(schedule.placement, schedule.num_micro_batches))
        self.current = window.in_order(schedule)
        self.best = self.current if self.current.makespan < schedule.makespan else schedule
        self.on_progress(self.best.makespan, self.bound)

    def run(self) -> None:
        """Go through all kinds of steps, with more effort in each round, until proved or out of time."""
        gathered = window.gathered(self.current)
        if gathered.makespan < self.current.makespan:
            self.keep(gathered)
        with contextlib.suppress(_OutOfTimeError):
            for effort in itertools.chain(range(_MOST_EFFORT), itertools.repeat(_MOST_EFFORT)):
                if self.best.makespan <= self.bound:
                    break
                self.round(2.0**effort)

    def explore(self, work: float) -> None:
        """Go through so many states: this may find the least makespan, or raise the bound."""
        found = least_makespan(
            self.best.placement,
            self.best.num_micro_batches,
            at_most=self.best.makespan - 1,
            bound=self.bound,
            time_limit_s=self.effort(work).timeout_s * _SHARE_OF_STATES,
            most_states=int(_STATES * work),
            on_progress=self.raise_bound,
        )
        if found is not None:
            self.raise_bound(min(found.bound, self.best.makespan))
            if found.schedule is not None:
                self.keep(with_optimizer(self.best.placement, found.schedule))

    def raise_bound(self, bound: int) -> None:
        """Take note of a lower bound."""
        if bound > self.bound:
            self.bound = bound
            self.on_progress(self.best.makespan, self.bound)

    def round(self, work: float) -> None:
        """Go through the states, then solve the whole where it is small, and windows where it is large."""
        self.explore(work)
        if self.best.makespan <= self.bound:
            return
        blocks = len(self.current.blocks)
        if blocks <= _WHOLE:
            self.solve_whole(work)
        if blocks > 2 * _WINDOW:
            self.solve_windows(min(_WINDOW * work, _WHOLE / 2), work)

    def solve_whole(self, work: float) -> None:
        """Order everything anew; first to be shorter, then to prove that it cannot be."""
        from schedsearch.improve import window_cpsat

        for solve in (window_cpsat.shorten, window_cpsat.shorten_quickly):
            self.step(0, self.current.makespan, solve, work)
        if self.best.makespan > self.bound:
            part = window.between(self.current, 0, self.current.makespan, self.bound)
            starts, bound = window_cpsat.settle(part, self.effort(2 * work))
            self.accept(starts)
            self.raise_bound(bound)

    def solve_windows(self, size: float, work: float) -> None:
        """Order windows anew: warmup, cooldown, then one after the other over all the time."""
        from schedsearch.improve import window_cpsat

        length = max(1, int(self.current.makespan * size / len(self.current.blocks)))
        self.step(0, 2 * length, window_cpsat.shorten, 2 * work)
        end = self.current.makespan
        self.step(end - 2 * length, end, window_cpsat.shorten, 2 * work)
        begin = 0
        while begin < self.current.makespan and self.best.makespan > self.bound:
            self.step(begin, begin + length, window_cpsat.shorten, work)
            begin += max(1, length // 2)

    def step(self, begin: int, end: int, solve: Solve, work: float) -> None:
        """Solve the part between two ticks, and keep what is found."""
        if self.best.makespan > self.bound:
            part = window.between(self.current, begin, end, self.bound)
            if part.start:
                self.accept(solve(part, self.effort(work)))

    def accept(self, starts: dict[Instance, int] | None) -> None:
        """Go on from an order of a part unless it is longer; equal ones lead off a plateau."""
        if starts is not None:
            self.keep(window.with_starts(self.current, starts))

    def keep(self, schedule: Schedule) -> None:
        """Go on from a schedule unless it is longer."""
        if schedule.makespan <= self.current.makespan:
            self.current = schedule
        if schedule.makespan < self.best.makespan:
            self.best = validate(schedule)
            self.on_progress(self.best.makespan, self.bound)

    def effort(self, work: float) -> SolverBudget:
        """Return the effort of the next step; raise when there is no time for one."""
        INTERRUPTS.raise_if_seen()
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise _OutOfTimeError
        return SolverBudget(work, left, next(self.seeds))
