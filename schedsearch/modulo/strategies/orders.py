"""Strategies that order the blocks of devices otherwise: each begins with the best repetend so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, ClassVar

from schedsearch.modulo.strategies.strategy import SearchView, Strategy
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
    is_long: ClassVar[bool] = True
    share_of_few: float = 0.3
    share_of_many: float = 0.85
    min_blocks: int = 32
    _beams: DeviceBeams | None = field(default=None, init=False, repr=False)

    def run(self, view: SearchView, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.many_blocks.device_beam import DeviceBeams

        sizes = range(1, view.max_size + 1) if len(view.sizes) > 1 else view.sizes
        self._beams = self._beams or DeviceBeams(view.placement, sizes, view.seed)
        for repetend in self._beams.shorter(view.period_bound, view.rate, view.effort, until):
            yield Start(repetend, "orders found from device to device")


@dataclass
class Annealing(Strategy):
    """Anneals the orders, of one micro-batch per repetend and of several."""

    name: ClassVar[str] = "annealing"
    is_long: ClassVar[bool] = True
    share_of_few: float = 0.5
    share_of_many: float = 0.5
    _first: dict[int, Repetend] = field(default_factory=dict, init=False, repr=False)

    def run(self, view: SearchView, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.annealing import annealed

        known = dict(view.repetends)
        self._first = self._first or known
        doublings, bound = view.round - 1, view.period_bound
        for repetend in annealed(
            known, view.sizes, bound, view.effort, until, view.seed, self._first, doublings
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

    def share(self, view: SearchView) -> float:
        """Return the share of a round's work that it gets at most."""
        is_most = len(view.placement.blocks) >= MANY_INSTANCES
        return self.share_of_most if is_most else super().share(view)

    def run(self, view: SearchView, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.many_blocks.shifted_patterns import ShiftedPatterns

        self._patterns = self._patterns or ShiftedPatterns(view.placement, view.seed)
        for devices, repetend in self._patterns.shorter(view.period_bound, view.rate, view.effort, until):
            yield Start(repetend, f"pattern of {devices} devices")


@dataclass
class Neighbourhoods(Strategy):
    """Orders parts of the best repetend anew with a solver, around what forbids a shorter period.

    It runs last in a round, with all work that is left; its share is kept for it.
    """

    name: ClassVar[str] = "neighbourhoods"
    is_long: ClassVar[bool] = True
    share_of_many: float = 0.2

    def run(self, view: SearchView, until: float) -> Iterator[Start]:
        """Yield ever shorter repetends."""
        from schedsearch.modulo.many_blocks.shorten_period import shorten_period

        best = min(view.repetends.values(), key=lambda each: Fraction(each.period, each.micro_batches))
        for repetend in shorten_period(best, view.period_bound, view.effort, until, view.seed):
            yield Start(repetend, "neighbourhood")
