"""Strategies that need nothing to begin with: steady states of schedules that are made by a rule."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from schedsearch.core.budget import Account
from schedsearch.core.known import Known, Start
from schedsearch.procedures.beginnings import greedy_starts, hand_made_repetends
from schedsearch.procedures.procedure import Procedure
from schedsearch.solver.effort import Effort


@dataclass
class _Supply(Procedure):
    """Goes on with an iterator of repetends, round after round, until there are no more."""

    _left: Iterator[Start] | None = field(default=None, init=False, repr=False)

    def run(self, state: Known, oracle: Account, until: float) -> Iterator[Start]:
        """Yield those that are left."""
        if self._left is None:
            self._left = self._made(state, oracle.effort)
        while oracle.effort.spent < until and (start := next(self._left, None)) is not None:
            yield start

    @abstractmethod
    def _made(self, state: Known, effort: Effort) -> Iterator[Start]: ...


@dataclass
class HandMade(_Supply):
    """Takes the steady states of schedules made by hand; on a hundred devices that takes a minute."""

    name: ClassVar[str] = "hand_made"
    is_first: ClassVar[bool] = True
    share_of_few: float = 0.8
    share_of_many: float = 0.8

    def _made(self, state: Known, effort: Effort) -> Iterator[Start]:
        return hand_made_repetends(state.placement, state.period_bound, effort)


@dataclass
class Greedy(_Supply):
    """Places block after block where memory has room; on 320 devices that takes some seconds."""

    name: ClassVar[str] = "greedy"
    is_first: ClassVar[bool] = True
    share_of_few: float = 0.2
    share_of_many: float = 0.2

    def _made(self, state: Known, effort: Effort) -> Iterator[Start]:
        return greedy_starts(state.placement, state.period_bound, effort)
