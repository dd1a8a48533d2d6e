"""The search for the period: procedures in rounds of counted work, with one frozen record of knowledge."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from schedsearch.core.budget import Account, Budget
from schedsearch.core.known import Finding, Known, OfSize, Start
from schedsearch.core.objective import Objective
from schedsearch.procedures.procedure import Procedure
from schedsearch.procedures.queries import FIRST_REPETEND, Queries, States, first_repetend

_KEPT_OF_MANY = 0.2
"""Share of a round's work for the period that is kept for the whole schedule, if a micro-batch has many
blocks: some procedures exceed their share there. A search for the period alone leaves it unused."""

_SEEDS_OF_ROUND = 1009
"""Difference between the seeds of two consecutive rounds."""


class PeriodSearch:
    """Runs procedures in rounds; after a Ctrl-C, the knowledge gained until then is kept.

    Attributes:
        known: Knowledge of the period; the next round begins with it.
        account: Counts queries and work.
    """

    def __init__(
        self, known: Known, account: Account, procedures: Sequence[Procedure], uses: Collection[str]
    ) -> None:
        """Begin with the bounds that need no search.

        Args:
            known: The knowledge before the search.
            account: Account of the search, with its solver.
            procedures: Procedures that find repetends, in the order in which they run.
            uses: Names of all procedures in use, with the queries about all blocks and the states.
        """
        self.known = known
        self.account = account
        account.proved |= OfSize.without_search(known.placement, 1).bound
        account.proved[Objective.PERIOD] = known.period_bound
        self._procedures = procedures
        self._queries = Queries() if Queries.name in uses or known.before else None
        self._states = States() if States.name in uses else None

    def begin(self, until: float = math.inf) -> None:
        """Find a first repetend without improving it, or record why there is none."""
        if 1 not in self.known.repetends:
            self.take(FIRST_REPETEND, first_repetend(self.known, Budget(self.account, until)))

    def run(self, until: float) -> None:
        """Run one round, until so much work is done.

        A solver is asked about all blocks last in the first round, and of many blocks always; else it soon
        knows, and comes first.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        many, budget = self.known.has_many_blocks, Budget(self.account, until)
        finds = [] if self.known.before else self._procedures  # no others know objectives before the period
        asks_last, queries = many or self.known.round == 1, self._queries
        if many:
            first = [finder for finder in finds if finder.is_first]
            self._find(sorted(first, key=lambda finder: finder.first_work(self.known) > budget.left), budget)
            finds = [finder for finder in finds if not finder.is_first]
            if self.known.is_proved:
                return
        kept = _KEPT_OF_MANY if many else 0.0 if asks_last else sum(finder.share_kept for finder in finds)
        asking = budget.share(1.0 - kept)
        self.begin(asking.until)
        if self.known.best is None:
            return
        if queries is not None and not self.known.before:
            self.take(Queries.name, queries.of_bound(self.known, asking))
        if asks_last and self.known.known_of(1).is_open(Objective.PERIOD):
            self._find(finds, asking)
        if queries is not None:
            self.take(Queries.name, queries.of_one(self.known, asking))
        if self._states is not None and not self.known.is_proved:
            self.take(States.name, self._states.run(self.known, asking))
        if queries is not None:
            self.take(Queries.name, queries.of_more(self.known, asking))
        if not asks_last:
            self._find(finds, budget)
        seed = self.known.seed + _SEEDS_OF_ROUND
        self.known = replace(self.known, round=self.known.round + 1, seed=seed)

    def _find(self, procedures: Sequence[Procedure], budget: Budget) -> None:
        """Run procedures that find repetends, each with its share of the work, until the period is proved."""
        for procedure in procedures:
            if self.known.is_proved:
                return
            if procedure.suits(self.known):
                self.take(procedure.name, procedure.run(self.known, budget.share(procedure.share)))

    def take(self, name: str, findings: Iterable[Finding]) -> None:
        """Take the findings of a procedure, report better repetends and bounds, and charge its work."""
        account = self.account
        with account.counted(Objective.PERIOD, name, lambda: self.known.rate):
            for finding in findings:
                before, self.known = self.known, self.known.taking(finding)
                proved, bound = account.proved[Objective.PERIOD], self.known.bound_of_all
                account.proved[Objective.PERIOD] = bound
                is_new = isinstance(finding, Start) and self.known is not before
                if self.known.best is not None and (is_new or bound > proved):
                    move = finding.made_by if isinstance(finding, Start) else name
                    account.report(self.known.best, Objective.PERIOD, move)
