"""How much a search has done: counted, not measured, so that its course does not hang on the machine's load.

What comes next, and for how long, is planned in units of work of half a second to a second. The clock says
only when to stop. So a search with more time goes on where one with less would end.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from schedsearch.solver.interrupts import INTERRUPTS


class OutOfTimeError(Exception):
    """The time limit is over; what was found until then is kept, as at a Ctrl-C."""


@dataclass
class Effort:
    """Work done, and when to stop.

    Attributes:
        deadline: When, in seconds of `time.monotonic`.
        spent: Units of work, of about a second each.
        keep_s: Seconds before it to end, so that there is time for the answer.
    """

    deadline: float = math.inf
    spent: float = 0.0
    keep_s: float = 0.0

    @property
    def left_s(self) -> float:
        """Seconds that are left; less than 0 after the time limit."""
        return self.deadline - self.keep_s - time.monotonic()

    def require_s(self, keep_s: float = 0.0) -> float:
        """Return the seconds left, if there are any.

        Args:
            keep_s: Seconds to leave for what follows.

        Raises:
            OutOfTimeError: There are none.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        INTERRUPTS.raise_if_seen()
        left_s = self.left_s - keep_s
        if left_s <= 0:
            raise OutOfTimeError
        return left_s

    def postpone(self, seconds: float) -> None:
        """Move the deadline by what is not the search's own time."""
        self.deadline += seconds

    def spend(self, work: float) -> None:
        """Count work."""
        self.spent += work

    def share(self, until: float, share: float) -> float:
        """Return at how much work a share of what is left until some work is done."""
        return self.spent + max(until - self.spent, 0.0) * share
