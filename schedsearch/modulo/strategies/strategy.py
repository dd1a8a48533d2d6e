"""What a strategy is: an object with a name, the placements that it is for, and a share of the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

from placements import Placement
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort
from schedsearch.starts.first_repetends import Start

MANY_BLOCKS = 48
"""Blocks of a micro-batch from which on a solver is asked about all of them last, not first."""


@dataclass(frozen=True)
class SearchView:
    """The search as a strategy sees it.

    Attributes:
        placement: What runs where, without optimizer blocks.
        period_bound: Ticks per micro-batch that no repetend beats.
        sizes: Numbers of micro-batches per repetend that are asked for.
        max_size: The largest number that a strategy may return.
        repetends: The best repetend of each number so far.
        rate: Ticks per micro-batch to beat.
        effort: Counts the work that the strategy does, and has the time limit.
        seed: Seed of this round's random choices.
        round: Number of the round, from 1.
    """

    placement: Placement
    period_bound: Fraction
    sizes: tuple[int, ...]
    max_size: int
    repetends: Mapping[int, Repetend]
    rate: Fraction | int
    effort: Effort
    seed: int
    round: int

    @property
    def has_many_blocks(self) -> bool:
        """Whether there are too many blocks for a solver to be asked about all of them first."""
        return len(self.placement.blocks) >= MANY_BLOCKS


@dataclass
class Strategy(ABC):
    """Finds repetends; made anew for each search, it may remember where its last round ended.

    Its parameters are the public fields of the class, with their defaults.

    Attributes:
        name: What options and results call it.
        is_long: Whether it may work for long after a repetend, so that each is reported at once.
        share_of_few: Share of a round's work that it gets at most where a solver is asked about all blocks
            first; 0 where it is of no use.
        share_of_many: Likewise where there are too many blocks for that.
        min_blocks: Blocks of a micro-batch from which on it is used.
    """

    name: ClassVar[str]
    is_long: ClassVar[bool] = False
    share_of_few: float = 0.0
    share_of_many: float = 0.0
    min_blocks: int = 0

    def share(self, view: SearchView) -> float:
        """Return the share of a round's work that it gets at most; 0 for placements that it is not for."""
        if len(view.placement.blocks) < self.min_blocks:
            return 0.0
        return self.share_of_many if view.has_many_blocks else self.share_of_few

    @abstractmethod
    def run(self, view: SearchView, until: float) -> Iterator[Start]:
        """Yield repetends that keep all capacities, each with the name of what made it.

        Args:
            view: The search.
            until: Value of ``view.effort.spent`` at which to stop.

        Raises:
            OutOfTimeError: The time limit is over.
            KeyboardInterrupt: There was a Ctrl-C.
        """
