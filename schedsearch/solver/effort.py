"""The work of a search: counted, not measured, so that its course does not depend on the machine's load.

The order and length of steps are planned in units of work of half a second to a second. The limits of time
and of work only stop it. So a search with higher limits continues where one with lower limits ends.
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
    """The time limit is over; findings until then are kept, as at a Ctrl-C."""


class OutOfWorkError(OutOfTimeError):
    """The limit of work is reached; findings until then are kept."""


@dataclass
class Effort:
    """Work done by a search, with its limits of time and work; numba's compilation time does not count.

    Attributes:
        deadline: End of the time, in seconds of `time.monotonic`.
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
        """Whether the limit of time or of work is reached."""
        return self.spent >= self.limit or self.left_s <= 0

    def require_s(self) -> float:
        """Return the seconds left, or raise an error if time or work is used up.

        Raises:
            OutOfTimeError: No seconds are left.
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
        """Leave the block at a limit or a Ctrl-C, and continue after it; the yielded `Ending` tells which."""
        with INTERRUPTS.answered() as ending:
            try:
                yield ending
            except OutOfTimeError as error:
                ending.out_of_work = isinstance(error, OutOfWorkError)
                ending.out_of_time = not ending.out_of_work

    def budget(self, work: float, seed: int) -> SolverBudget:
        """Return the budget of one call of a solver: `work` units, or less if less is left.

        Raises:
            OutOfTimeError: No time or work is left.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        left_s = self.require_s()
        return SolverBudget(self.at_most(work), left_s, seed, self.spend)

    def at_most(self, work: float) -> float:
        """Return the part of some work that the limit still allows."""
        return min(work, self.limit - self.spent)

    def spend(self, work: float) -> None:
        """Add work to the work spent."""
        self.spent += work

    def rounds(self, first: float) -> Iterator[float]:
        """Yield the total work at the end of each round; a round is as long as all rounds before it together.

        This is iterative deepening. Unspent work of a round is dropped, since an equal round would not spend
        it either. Several rounds in a row without any work end the iteration.

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
        """Return the total work at which a share of the work left until `until` is done."""
        return self.spent + max(until - self.spent, 0.0) * share
