"""How much a search has done: counted, not measured, so that its course does not hang on the machine's load.

What comes next, and for how long, is planned in units of work of half a second to a second. The
limits, of time and of work, say only when to stop. So a search with more goes on where one with less ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schedsearch.graph.kernel import COMPILED_S
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import INTERRUPTS, Ending

_ROUNDS_IN_VAIN = 20
"""Rounds in a row without any work after which nothing is left to try."""


class OutOfTimeError(Exception):
    """The time limit is over; what was found until then is kept, as at a Ctrl-C."""


class OutOfWorkError(OutOfTimeError):
    """The limit of work is reached; what was found until then is kept."""


@dataclass
class Effort:
    """Work done, and when to stop; time in which numba compiles does not count.

    Attributes:
        deadline: When, in seconds of `time.monotonic`.
        spent: Units of work, of about a second each.
        limit: Units of work after which to stop.
    """

    deadline: float = math.inf
    spent: float = 0.0
    limit: float = math.inf
    _compiled_s: float = field(default_factory=lambda: COMPILED_S[0], repr=False, compare=False)

    @property
    def left_s(self) -> float:
        """Seconds that are left; less than 0 after the time limit."""
        return self.deadline + COMPILED_S[0] - self._compiled_s - time.monotonic()

    @property
    def is_over(self) -> bool:
        """Whether there is no time left, or no work."""
        return self.spent >= self.limit or self.left_s <= 0

    def require_s(self) -> float:
        """Return the seconds left, if there are any and some work too.

        Raises:
            OutOfTimeError: There are none.
            OutOfWorkError: The limit of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        INTERRUPTS.raise_if_seen()
        if self.spent >= self.limit:
            raise OutOfWorkError
        if (left_s := self.left_s) <= 0:
            raise OutOfTimeError
        return left_s

    @contextmanager
    def answered(self) -> Iterator[Ending]:
        """End what is inside at a limit or a Ctrl-C, and go on after it; what is yielded tells which."""
        with INTERRUPTS.answered() as ending:
            try:
                yield ending
            except OutOfTimeError as error:
                ending.out_of_work = isinstance(error, OutOfWorkError)
                ending.out_of_time = not ending.out_of_work

    def budget(self, work: float, seed: int) -> SolverBudget:
        """Return what one call of a solver may spend: that much work, or what is left.

        Raises:
            OutOfTimeError: There is nothing left.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        left_s = self.require_s()
        return SolverBudget(self.at_most(work), left_s, seed, self.spend)

    def at_most(self, work: float) -> float:
        """Return how much of some work may be done before the limit."""
        return min(work, self.limit - self.spent)

    def spend(self, work: float) -> None:
        """Count work."""
        self.spent += work

    def rounds(self, first: float) -> Iterator[float]:
        """Yield how much work is done when each round is to end: each is as long as all before it together.

        That is iterative deepening. What is not spent in a round would not be in another like it, and rounds
        in a row without any work end it: each may take twice as much.

        Args:
            first: Work of the first round.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        in_vain = 0
        while in_vain < _ROUNDS_IN_VAIN:
            before, end = self.spent, max(first, 2 * self.spent)
            yield end
            in_vain = in_vain + 1 if self.spent == before else 0
            self.spent = max(self.spent, end)
            self.require_s()

    def share(self, until: float, share: float) -> float:
        """Return at how much work a share of what is left until some work is done."""
        return self.spent + max(until - self.spent, 0.0) * share
