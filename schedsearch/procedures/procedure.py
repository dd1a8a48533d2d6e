"""The base class of procedures: a name, the placements that it suits, and a share of the work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from schedsearch.core.budget import Budget
from schedsearch.core.known import Finding, Known


@dataclass
class Procedure(ABC):
    """Finds repetends; made anew for each search, it may remember where its last round ended.

    Its parameters are the public fields of the class, with their defaults.

    Attributes:
        name: Name in options and results.
        is_first: Whether it runs before a solver is asked anything, where there are many blocks.
        share: Share of a round's work that it gets at most.
        share_kept: Share that is kept for it from the queries, where these come before it: of few blocks, in
            all rounds but the first.
    """

    name: ClassVar[str]
    is_first: ClassVar[bool] = False
    share: float = 0.0
    share_kept: float = 0.0

    def suits(self, known: Known) -> bool:
        """Return whether the procedure suits the placement; by default, only plain ones."""
        return known.placement.is_plain

    def first_work(self, known: Known) -> float:
        """Return the units of work until its first finding, where they are known to be many."""
        return 0.0

    @abstractmethod
    def run(self, known: Known, budget: Budget) -> Iterator[Finding]:
        """Yield findings: repetends that fit all capacities, each with the name of its maker.

        Args:
            known: Knowledge of the period so far.
            budget: The work allowed; it also asks the solver and counts the work.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
