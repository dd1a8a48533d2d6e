"""Strategies that need nothing to begin with: steady states of schedules that are made by a rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from schedsearch.modulo.strategies.strategy import SearchView, Strategy
from schedsearch.starts.first_repetends import (
    Start,
    greedy_starts,
    hand_made_repetends,
    simulated_repetends,
)


@dataclass
class _Drawn(Strategy):
    """Goes on with an iterator of repetends, round after round, until there are no more."""

    _left: Iterator[Start] | None = field(default=None, init=False, repr=False)

    def run(self, view: SearchView, until: float) -> Iterator[Start]:
        """Yield those that are left."""
        if self._left is None:
            self._left = self._made(view)
        while view.effort.spent < until and (start := next(self._left, None)) is not None:
            yield start

    @abstractmethod
    def _made(self, view: SearchView) -> Iterator[Start]: ...


@dataclass
class HandMade(_Drawn):
    """Takes the steady states of schedules made by hand; on a hundred devices that takes a minute."""

    name: ClassVar[str] = "hand_made"
    share_of_few: float = 0.8
    share_of_many: float = 0.8

    def _made(self, view: SearchView) -> Iterator[Start]:
        return hand_made_repetends(view.placement, view.period_bound, view.effort)


@dataclass
class Greedy(_Drawn):
    """Places block after block where memory has room; on 320 devices that takes some seconds."""

    name: ClassVar[str] = "greedy"
    share_of_few: float = 0.2
    share_of_many: float = 0.2

    def _made(self, view: SearchView) -> Iterator[Start]:
        return greedy_starts(view.placement, view.period_bound, view.effort)


@dataclass
class Simulated(_Drawn):
    """Folds schedules of an event simulation into repetends, for many blocks.

    Attributes:
        sizes: Micro-batches per repetend into which they are folded, up to the number of devices.
    """

    name: ClassVar[str] = "simulated"
    share_of_many: float = 0.2
    sizes: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

    def _made(self, view: SearchView) -> Iterator[Start]:
        sizes = sorted({n for n in (*view.sizes, *self.sizes) if n <= view.max_size})
        return simulated_repetends(view.placement, sizes, view.period_bound, view.effort)
