"""The shortest period at which a few neighbouring devices' pattern, shifted in time, serves all devices.

With many devices of the same blocks, as in V-shapes, waves and loops, this is a small question where that of
the whole is too large: V-Min's repetend for 32 devices is found so in a tenth of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from schedsearch.modulo.oracle import Oracle
from schedsearch.modulo.state import SearchState
from schedsearch.modulo.strategies.strategy import Strategy
from schedsearch.solver.portfolio import MANY_INSTANCES
from schedsearch.starts.first_repetends import Start

if TYPE_CHECKING:  # as it loads OR-Tools, which is slow
    from schedsearch.modulo.strategies.shifted_model import ShiftedPattern


@dataclass
class _PatternState:
    """What is open of one pattern.

    Attributes:
        pattern: Pattern of some devices.
        refuted: Greatest period, in ticks, that it is known not to have.
        step: Share of what is not refuted by which the next answer must be shorter.
        work: Work of the next question.
        seed: Seed of the last question.
    """

    pattern: ShiftedPattern
    refuted: int
    step: float
    work: float
    seed: int


@dataclass
class Patterns(Strategy):
    """Finds a pattern of a few devices that, shifted in time, serves all, for many blocks.

    Easy questions come first: where there is no repetend there is none of a shorter period, and what is found
    is often much shorter than was asked for. Each question has a seed of its own, as one seed may take a
    hundred times as long as another.

    Attributes:
        share_of_most: Share of the work where a solver is rarely asked about all blocks at all.
        devices: Devices of a pattern, in the order in which they are asked; what repeats on each device also
            does on two.
        min_groups: Groups of devices that there must be for the question to be a small one.
        fineness: Share of the load below which a shorter period is no longer sought.
        step: Share of what is not refuted by which an answer must be shorter: smallest, first and largest.
        work: Work of the first questions, in units of about a second.
        growth: How many times that a pattern's next question gets, after one without an answer.
    """

    name: ClassVar[str] = "patterns"
    share_of_many: float = 0.15
    share_of_most: float = 0.6
    devices: tuple[int, ...] = (3, 2)
    min_groups: int = 3
    fineness: float = 0.002
    step: tuple[float, float, float] = (1 / 32, 1 / 8, 1 / 2)
    work: float = 0.5
    growth: float = 1.25
    _open: list[_PatternState] | None = field(default=None, init=False, repr=False)

    def share(self, state: SearchState) -> float:
        """Return the share of a round's work that it gets at most."""
        share = super().share(state)
        is_most = len(state.placement.blocks) >= MANY_INSTANCES
        return self.share_of_most if is_most and share else share

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield repetends of one micro-batch, of ever shorter periods."""
        from schedsearch.modulo.strategies.shifted_model import decide_shifted

        if self._open is None:
            self._open = self._all_open(state)
        bound, shortest, effort = math.ceil(state.period_bound), math.ceil(state.rate), oracle.effort
        for each in self._open:
            each.refuted = max(each.refuted, bound - 1)
        (smallest, _, largest), may_beat = self.step, True
        while may_beat:
            may_beat = False
            for each in self._open:
                load = max(each.pattern.load, bound)
                if shortest - each.refuted <= max(1, load * self.fineness):
                    continue  # by no more than a trifle
                if effort.spent >= until:
                    return
                may_beat = True
                period = shortest - max(1, round((shortest - each.refuted) * each.step))
                each.seed += 1
                budget = effort.budget(each.work, each.seed)
                found, is_sure = decide_shifted(each.pattern, period, budget)
                if found is not None:
                    shortest, each.step = found.period, min(largest, each.step * 2)
                    yield Start(found, f"pattern of {each.pattern.group} devices")
                elif is_sure:
                    each.refuted = period
                else:
                    each.step, each.work = max(smallest, each.step / 1.5), each.work * self.growth

    def _all_open(self, state: SearchState) -> list[_PatternState]:
        """Return the patterns of a placement."""
        from schedsearch.modulo.strategies.shifted_model import ShiftedPattern

        devices = state.placement.num_devices
        groups = [number for number in self.devices if self.min_groups * number <= devices]
        patterns = [ShiftedPattern(state.placement, number) for number in groups]
        return [
            _PatternState(each, each.load - 1, self.step[1], self.work, state.seed)
            for each in patterns
            if each.applies
        ]
