"""What was said about an accelerator, and what of it holds now (Perseus, Table 2: ``set_straggler``).

Per accelerator there is a degree in force and at most one that is announced. A new message withdraws the
announced one, because the latest word counts; what is in force stays until the new message is due. Times
are seconds of the server's clock.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from runtime.server.errors import RequestError

NORMAL = 1.0
"""Degree of an accelerator that is no straggler."""


@dataclass(frozen=True)
class Announced:
    """A degree that is to come.

    Attributes:
        degree: At least 1.
        due_s: From when on it holds.
    """

    degree: float
    due_s: float


@dataclass(frozen=True)
class Straggler:
    """What is known of one accelerator.

    Attributes:
        degree: In force: by how much it slows the job's shortest iteration; at least 1.
        announced: What comes next, if anything.

    >>> known = Straggler().told(degree=1.2, due_s=5.0, now_s=0.0)
    >>> known.degree, known.settled(5.0).degree
    (1.0, 1.2)
    """

    degree: float = NORMAL
    announced: Announced | None = None

    @property
    def is_normal(self) -> bool:
        """Whether nothing is left to remember."""
        return self.degree == NORMAL and self.announced is None

    def settled(self, now_s: float) -> Straggler:
        """Return it with what is due in force."""
        if self.announced is None or self.announced.due_s > now_s:
            return self
        return Straggler(self.announced.degree)

    def told(self, degree: float, due_s: float, now_s: float) -> Straggler:
        """Return it after a message that arrives now."""
        return Straggler(self.settled(now_s).degree, Announced(degree, due_s)).settled(now_s)


def worst(degrees: Iterable[float]) -> float:
    """Return the degree of the worst straggler, 1 without any: all wait for the slowest."""
    return max(degrees, default=NORMAL)


def check_message(name: str, delay_s: float, degree: float) -> None:
    """Check what is said about an accelerator.

    Raises:
        RequestError: The name is empty or too long, the delay negative, or the degree below 1.
    """
    if not 1 <= len(name) <= 200:
        raise RequestError(f"id: has {len(name)} characters; name the accelerator with 1 to 200")
    if not 0 <= delay_s < math.inf:
        raise RequestError(f"delay_s: {delay_s:g} is not a time to come; give 0 or more seconds")
    if not NORMAL <= degree < math.inf:
        raise RequestError(f"degree: {degree:g} is below 1 or not finite; give 1 if it is back to normal")
