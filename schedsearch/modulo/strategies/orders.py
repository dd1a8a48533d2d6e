"""Strategies that order the blocks of devices otherwise: each begins with the best repetend so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from schedsearch.modulo.oracle import Oracle
from schedsearch.modulo.result import Objective
from schedsearch.modulo.state import SearchState
from schedsearch.modulo.strategies.strategy import Strategy, Turn
from schedsearch.repetend import Repetend
from schedsearch.solver.portfolio import MANY_INSTANCES
from schedsearch.starts.first_repetends import Start

if TYPE_CHECKING:  # as they load numba and OR-Tools, which are slow
    from schedsearch.modulo.many_blocks.device_beam import DeviceBeams
    from schedsearch.modulo.many_blocks.shifted_patterns import ShiftedPatterns


@dataclass
class DeviceByDevice(Strategy):
    """Finds the orders from device to device, by beam search, where devices are a line or a ring.

    Of few blocks a solver is as quick; of many, what follows rarely finds anything better.
    """

    name: ClassVar[str] = "device_by_device"
    share_of_few: float = 0.3
    share_of_many: float = 0.85
    min_blocks: int = 32
    _beams: DeviceBeams | None = field(default=None, init=False, repr=False)

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.many_blocks.device_beam import DeviceBeams

        sizes = range(1, state.max_size + 1) if len(state.sizes) > 1 else state.sizes
        self._beams = self._beams or DeviceBeams(state.placement, sizes, state.seed)
        for repetend in self._beams.shorter(state.period_bound, state.rate, oracle.effort, until):
            yield Start(repetend, "orders found from device to device")


@dataclass
class Annealing(Strategy):
    """Anneals the orders, of one micro-batch per repetend and of several."""

    name: ClassVar[str] = "annealing"
    share_of_few: float = 0.5
    share_of_many: float = 0.5
    share_kept: float = 0.5
    _first: dict[int, Repetend] = field(default_factory=dict, init=False, repr=False)

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.annealing import annealed

        known = state.repetends
        self._first = self._first or known
        doublings, bound = state.round - 1, state.period_bound
        for repetend in annealed(
            known, state.sizes, bound, oracle.effort, until, state.seed, self._first, doublings
        ):
            yield Start(repetend, "annealing")


@dataclass
class Patterns(Strategy):
    """Finds a pattern of a few devices that, shifted in time, serves all, for many blocks.

    Attributes:
        share_of_most: Share of the work where a solver is rarely asked about all blocks at all.
    """

    name: ClassVar[str] = "patterns"
    share_of_many: float = 0.15
    share_of_most: float = 0.6
    _patterns: ShiftedPatterns | None = field(default=None, init=False, repr=False)

    def share(self, state: SearchState) -> float:
        """Return the share of a round's work that it gets at most."""
        is_most = len(state.placement.blocks) >= MANY_INSTANCES
        return self.share_of_most if is_most else super().share(state)

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.many_blocks.shifted_patterns import ShiftedPatterns

        self._patterns = self._patterns or ShiftedPatterns(state.placement, state.seed)
        for devices, repetend in self._patterns.shorter(state.period_bound, state.rate, oracle.effort, until):
            yield Start(repetend, f"pattern of {devices} devices")


@dataclass
class Neighbourhoods(Strategy):
    """Orders parts of the best repetend anew with a solver, around what forbids a shorter period.

    It gets all work that is left in a round.
    """

    name: ClassVar[str] = "neighbourhoods"
    turn: ClassVar[Turn] = Turn.LAST
    share_of_few: float = 1.0
    share_of_many: float = 1.0
    share_kept: float = 0.2

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.many_blocks.shorten_period import shorten_period

        best = state.best
        if best is None or best.repetend is None:
            return
        bound = Fraction(best.bound[Objective.PERIOD], best.micro_batches)
        for repetend in shorten_period(best.repetend, bound, oracle.effort, until, state.seed):
            yield Start(repetend, "neighbourhood")
