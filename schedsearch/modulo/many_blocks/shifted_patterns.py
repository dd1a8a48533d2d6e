"""The shortest period at which a few neighbouring devices' pattern, shifted in time, serves all devices.

With many devices of the same blocks, as in V-shapes, waves and loops, this is a small question where that of
the whole is too large: V-Min's repetend for 32 devices is found so in a tenth of a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from fractions import Fraction

from placements import Placement
from schedsearch.modulo.many_blocks.shifted_model import ShiftedPattern, decide_shifted
from schedsearch.repetend import Repetend
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import INTERRUPTS

_GROUPS = (2, 3)
"""Devices per group; what repeats on each device also repeats on every two."""

_LEAST_GROUPS = 3
"""Groups that there must be for the question to be a small one."""

_FINENESS = 0.002
"""Share of the bound below which a shorter period is no longer sought."""

_LEAST_STEP = 0.01
"""Likewise, between periods that get no answer."""

_WORK = 0.5
"""Of the first questions, in CP-SAT's deterministic time of about a second."""

_MORE_WORK = 1.5
"""How many times that a pattern's next question gets, after one without an answer."""


def shifted_patterns(
    placement: Placement, bound: Fraction, known: Fraction | float, deadline: float, seed: int = 0
) -> Iterator[tuple[int, Repetend]]:
    """Yield repetends of one micro-batch of ever shorter periods, with how many devices repeat.

    Args:
        placement: What runs where, without optimizer blocks.
        bound: Ticks per micro-batch that no repetend beats.
        known: Ticks per micro-batch to beat.
        deadline: When to stop, in seconds of `time.monotonic`.
        seed: Of the solver.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    shortest = math.ceil(known)
    patterns = [ShiftedPattern(placement, n) for n in _GROUPS if _LEAST_GROUPS * n <= placement.num_devices]
    turns = [_Turn(pattern, bound) for pattern in patterns if pattern.applies]
    while turns := [turn for turn in turns if turn.may_beat(shortest)]:
        for turn in turns:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return
            INTERRUPTS.raise_if_seen()
            found = turn.ask(shortest, left_s, seed)
            if found is not None:
                shortest = found.period
                yield turn.pattern.group, found


class _Turn:
    """What was asked of one pattern."""

    def __init__(self, pattern: ShiftedPattern, bound: Fraction) -> None:
        self.pattern = pattern
        self.least = max(math.ceil(bound), pattern.load)
        self.refuted = self.in_vain = self.least - 1
        self.work = _WORK

    def may_beat(self, shortest: int) -> bool:
        """Whether a period shorter by more than a trifle is not refuted."""
        return shortest - self.refuted > max(1, self.least * _FINENESS)

    def ask(self, shortest: int, timeout_s: float, seed: int) -> Repetend | None:
        """Ask for a period half-way from what was asked in vain; where little is left, begin again."""
        if not self.may_beat(shortest):
            return None
        if shortest - self.in_vain <= max(1, self.least * _LEAST_STEP):
            self.in_vain = self.refuted
        period = min((self.in_vain + shortest + 1) // 2, shortest - 1)
        found, sure = decide_shifted(self.pattern, period, SolverBudget(self.work, timeout_s, seed))
        if found is None:
            self.in_vain = period
            self.refuted = max(self.refuted, period) if sure else self.refuted
        if not sure:
            self.work *= _MORE_WORK
        return found
