"""The shortest period at which a few neighbouring devices' pattern, shifted in time, serves all devices.

With many devices of the same blocks, as in V-shapes, waves and loops, this is a small question where that of
the whole is too large: V-Min's repetend for 32 devices is found so in a tenth of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from placements import Placement
from schedsearch.modulo.many_blocks.shifted_model import ShiftedPattern, decide_shifted
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort

_GROUPS = (3, 2)
"""Devices per group, in the order in which they are asked; what repeats on each device also does on two."""

_LEAST_GROUPS = 3
"""Groups that there must be for the question to be a small one."""

_FINENESS = 0.002
"""Share of the bound below which a shorter period is no longer sought."""

_STEP = (1 / 32, 1 / 8, 1 / 2)
"""Share of what is not refuted by which an answer must be shorter: smallest, first and largest."""

_WORK = 0.5
"""Work of the first questions, in CP-SAT's deterministic time of about a second."""

_MORE_WORK = 1.25
"""How many times that a pattern's next question gets, after one without an answer."""


class ShiftedPatterns:
    """The patterns of a placement, and what was asked of each; it can be gone on with."""

    def __init__(self, placement: Placement, seed: int = 0) -> None:
        """Begin with nothing known.

        Args:
            placement: What runs where, without optimizer blocks.
            seed: Of the solver.
        """
        groups = [n for n in _GROUPS if _LEAST_GROUPS * n <= placement.num_devices]
        patterns = [ShiftedPattern(placement, n) for n in groups]
        self._turns = [_Turn(pattern, seed) for pattern in patterns if pattern.applies]

    def shorter(
        self, bound: Fraction, known: Fraction | float, effort: Effort, until: float = math.inf
    ) -> Iterator[tuple[int, Repetend]]:
        """Yield repetends of one micro-batch of ever shorter periods, with how many devices repeat.

        Args:
            bound: Ticks per micro-batch that no repetend beats.
            known: Ticks per micro-batch to beat.
            effort: Told what is done.
            until: Work after which to stop.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        shortest = math.ceil(known)
        for turn in self._turns:
            turn.begin_above(math.ceil(bound))
        while turns := [turn for turn in self._turns if turn.may_beat(shortest)]:
            for turn in turns:
                if effort.spent >= until:
                    return
                found = turn.ask(shortest, effort)
                if found is not None:
                    shortest = found.period
                    yield turn.pattern.group, found


class _Turn:
    """What was asked of one pattern.

    Easy questions come first: where there is no repetend there is none of a shorter period, and what is found
    is often much shorter than was asked for. Each question has a seed of its own, as one seed may take a
    hundred times as long as another.
    """

    def __init__(self, pattern: ShiftedPattern, seed: int) -> None:
        self.pattern = pattern
        self.seed = seed
        self.least = pattern.load
        self.refuted = self.least - 1
        self.step = _STEP[1]
        self.work = _WORK
        self.asked = 0

    def begin_above(self, bound: int) -> None:
        """Take note of ticks that no period is below."""
        self.least = max(self.least, bound)
        self.refuted = max(self.refuted, self.least - 1)

    def may_beat(self, shortest: int) -> bool:
        """Whether a period shorter by more than a trifle is not refuted."""
        return shortest - self.refuted > max(1, self.least * _FINENESS)

    def ask(self, shortest: int, effort: Effort) -> Repetend | None:
        """Ask for a period that is shorter by a step."""
        if not self.may_beat(shortest):
            return None
        period = shortest - max(1, round((shortest - self.refuted) * self.step))
        self.asked += 1
        budget = effort.budget(self.work, self.seed + self.asked)
        found, sure = decide_shifted(self.pattern, period, budget)
        if found is not None:
            self.step = min(_STEP[2], self.step * 2)
        elif sure:
            self.refuted = period
        else:
            self.step, self.work = max(_STEP[0], self.step / 1.5), self.work * _MORE_WORK
        return found
