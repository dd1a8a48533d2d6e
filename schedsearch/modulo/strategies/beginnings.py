"""Strategies that need nothing to begin with: steady states of schedules that are made by a rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from schedsearch.modulo.oracle import Oracle
from schedsearch.modulo.state import SearchState
from schedsearch.modulo.strategies.strategy import Strategy, Turn
from schedsearch.solver.effort import Effort
from schedsearch.starts.first_repetends import (
    Start,
    greedy_starts,
    hand_made_repetends,
    simulated_repetends,
)


@dataclass
class _Supply(Strategy):
    """Goes on with an iterator of repetends, round after round, until there are no more."""

    _left: Iterator[Start] | None = field(default=None, init=False, repr=False)

    def run(self, state: SearchState, oracle: Oracle, until: float) -> Iterator[Start]:
        """Yield those that are left."""
        if self._left is None:
            self._left = self._made(state, oracle.effort)
        while oracle.effort.spent < until and (start := next(self._left, None)) is not None:
            yield start

    @abstractmethod
    def _made(self, state: SearchState, effort: Effort) -> Iterator[Start]: ...


@dataclass
class HandMade(_Supply):
    """Takes the steady states of schedules made by hand; on a hundred devices that takes a minute."""

    name: ClassVar[str] = "hand_made"
    turn: ClassVar[Turn] = Turn.FIRST
    share_of_few: float = 0.8
    share_of_many: float = 0.8

    def _made(self, state: SearchState, effort: Effort) -> Iterator[Start]:
        return hand_made_repetends(state.placement, state.period_bound, effort)


@dataclass
class Greedy(_Supply):
    """Places block after block where memory has room; on 320 devices that takes some seconds."""

    name: ClassVar[str] = "greedy"
    turn: ClassVar[Turn] = Turn.FIRST
    share_of_few: float = 0.2
    share_of_many: float = 0.2

    def _made(self, state: SearchState, effort: Effort) -> Iterator[Start]:
        return greedy_starts(state.placement, state.period_bound, effort)


@dataclass
class Simulated(_Supply):
    """Folds schedules of an event simulation into repetends, for many blocks.

    Attributes:
        sizes: Micro-batches per repetend into which they are folded, up to the number of devices.
    """

    name: ClassVar[str] = "simulated"
    share_of_many: float = 0.2
    sizes: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)

    def _made(self, state: SearchState, effort: Effort) -> Iterator[Start]:
        sizes = sorted({n for n in (*state.sizes, *self.sizes) if n <= state.max_size})
        return simulated_repetends(state.placement, sizes, state.period_bound, effort)
