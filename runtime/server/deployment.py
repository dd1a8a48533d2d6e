"""Which plan one job runs: a look-up in the times of its frontier, for the worst straggler in force.

Per accelerator there is a degree in force and at most one that is announced (Perseus, Table 2:
``set_straggler``). A new message withdraws the announced one, because the latest word counts; what is in
force stays until the new message is due. Times are seconds of the server's clock. It knows nothing of
storage: every change is a new `Deployment`.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from runtime.server.errors import RequestError
from runtime.server.requests import NORMAL, StragglerMessage
from schedsearch.energy.frontier import TIME_TOLERANCE


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


@dataclass(frozen=True)
class Deployment:
    """What a job runs now.

    Attributes:
        stragglers: By name what is known of the accelerators that are not normal.
        times_ms: Of the frontier's plans, increasing; empty until the job is ready.
        plan: Position of the deployed plan; None before the first.
        version: Number of the latest deployment; 0 before the first.

    >>> first = Deployment({}, (100.0, 110.0, 120.0)).deployed()
    >>> told = first.told(StragglerMessage(id="rack 4", degree=1.15), now_s=0)
    >>> (first.version, first.plan), (told.version, told.plan)
    ((1, 0), (2, 1))
    """

    stragglers: Mapping[str, Straggler]
    times_ms: tuple[float, ...] = ()
    plan: int | None = None
    version: int = 0

    @property
    def deadline_ms(self) -> float:
        """T': when the worst straggler in force ends its iteration, for which all others wait."""
        degrees = (known.degree for known in self.stragglers.values())
        return max(degrees, default=NORMAL) * self.times_ms[0]

    @cached_property
    def next_due_s(self) -> float:
        """When what is announced comes into force next; infinite if nothing is announced."""
        announced = (known.announced for known in self.stragglers.values())
        return min((each.due_s for each in announced if each is not None), default=math.inf)

    def told(self, message: StragglerMessage, now_s: float) -> Deployment:
        """Return it after a message that arrives now."""
        stragglers = self._settled_stragglers(now_s)
        known = stragglers.pop(message.id, Straggler())
        told = known.told(message.degree, now_s + message.delay_s, now_s)
        if not told.is_normal:
            stragglers[message.id] = told
        return replace(self, stragglers=stragglers).deployed()

    def settled(self, now_s: float) -> Deployment:
        """Return it with what is due in force."""
        if now_s < self.next_due_s:
            return self
        return replace(self, stragglers=self._settled_stragglers(now_s)).deployed()

    def deployed(self) -> Deployment:
        """Deploy the plan for min(T*, T') (Perseus, Sec. 3.1) as a new version, if it is another one."""
        if not self.times_ms:
            return self
        plan = self.position_at(self.deadline_ms)
        return self if plan == self.plan else replace(self, plan=plan, version=self.version + 1)

    def position_at(self, deadline_ms: float) -> int:
        """Return the last plan that is not later than the deadline, or the shortest."""
        return max(bisect_right(self.times_ms, deadline_ms * (1 + TIME_TOLERANCE)) - 1, 0)

    def position_for(self, deadline_ms: float) -> int:
        """Return the best plan that keeps a deadline.

        Raises:
            RequestError: The deadline is before the end of the shortest plan.
        """
        shortest_ms = self.times_ms[0]
        if not deadline_ms >= shortest_ms * (1 - TIME_TOLERANCE):
            raise RequestError(
                f"deadline_ms: {deadline_ms:g} is below the shortest iteration of {shortest_ms:.6g} ms; "
                "give at least that"
            )
        return self.position_at(deadline_ms)

    def _settled_stragglers(self, now_s: float) -> dict[str, Straggler]:
        if now_s < self.next_due_s:
            return dict(self.stragglers)
        settled = {name: known.settled(now_s) for name, known in self.stragglers.items()}
        return {name: known for name, known in settled.items() if not known.is_normal}
