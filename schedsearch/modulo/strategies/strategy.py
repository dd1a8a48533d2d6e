"""What a strategy is: an object with a name, the placements that it is for, and a share of the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from schedsearch.core.budget import Account
from schedsearch.core.known import Finding, Known


@dataclass
class Strategy(ABC):
    """Finds repetends; made anew for each search, it may remember where its last round ended.

    Its parameters are the public fields of the class, with their defaults.

    Attributes:
        name: What options and results call it.
        is_first: Whether it runs before a solver is asked anything, where there are many blocks.
        share_of_few: Share of a round's work that it gets at most where a solver is asked about all blocks
            first; 0 where it is of no use.
        share_of_many: Likewise where there are too many blocks for that.
        share_kept: Share that is kept for it from the queries, where these come before it: of few blocks, in
            all rounds but the first.
    """

    name: ClassVar[str]
    is_first: ClassVar[bool] = False
    share_of_few: float = 0.0
    share_of_many: float = 0.0
    share_kept: float = 0.0

    def share(self, state: Known) -> float:
        """Return the share of a round's work that it gets at most; 0 for placements that it is not for."""
        if not state.placement.is_plain:
            return 0.0
        return self.share_of_many if state.has_many_blocks else self.share_of_few

    @abstractmethod
    def run(self, state: Known, oracle: Account, until: float) -> Iterator[Finding]:
        """Yield findings: repetends that keep all capacities, each with the name of what made it.

        Args:
            state: What is known of the period before.
            oracle: Solver to ask; its effort counts the work that is done, and has the limits.
            until: Value of ``oracle.effort.spent`` at which to stop.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
