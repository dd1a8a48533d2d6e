"""The search for the period: strategies in rounds of counted work, on one frozen state."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from schedsearch.core.budget import Account
from schedsearch.core.known import Finding, Known, OfSize, Start
from schedsearch.core.objective import Objective
from schedsearch.procedures.procedure import Procedure
from schedsearch.procedures.queries import FIRST_REPETEND, Queries, StatesStrategy, first_repetend

_KEPT_OF_MANY = 0.2
"""Share of a round's work for the period that is left to the whole schedule where there are many blocks, as
some strategies take longer than their share there; a search for the period alone leaves it unused."""

_SEEDS_OF_ROUND = 1009
"""Difference between the seeds of two consecutive rounds."""


class StrategyRounds:
    """Runs strategies in rounds; a Ctrl-C leaves what is known until then.

    Attributes:
        state: What is known of the period; the next round begins with it.
        oracle: Solver to ask.
    """

    def __init__(
        self, state: Known, oracle: Account, strategies: Sequence[Procedure], uses: Collection[str]
    ) -> None:
        """Begin with a state.

        Args:
            state: What is known of the period without a search.
            oracle: Solver to ask.
            strategies: What finds repetends, in the order in which they run.
            uses: Names of all strategies, these and those that ask about all blocks.
        """
        self.state = state
        self.oracle = oracle
        oracle.proved |= OfSize.without_search(state.placement, 1).bound
        oracle.proved[Objective.PERIOD] = state.period_bound
        self._strategies = strategies
        self._queries = Queries() if Queries.name in uses or state.before else None
        self._states = StatesStrategy() if StatesStrategy.name in uses else None

    def begin(self, work: float = math.inf) -> None:
        """Find some repetend, and make nothing of it less; say why where there is none."""
        if 1 not in self.state.repetends:
            self.take(FIRST_REPETEND, first_repetend(self.state, self.oracle, work))

    def run(self, until: float) -> None:
        """Run one round, until so much work is done.

        A solver is asked about all blocks last in the first round, and of many blocks always; else it soon
        knows, and comes first.

        Raises:
            OutOfTimeError: The limit of time or of work is reached.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        many, share = self.state.has_many_blocks, self.oracle.effort.share
        finds = [] if self.state.before else self._strategies  # no others know objectives before the period
        asks_last = many or self.state.round == 1
        if many:
            self._find([each for each in finds if each.is_first], until)
            finds = [each for each in finds if not each.is_first]
            if self.state.is_proved:
                return
        kept = _KEPT_OF_MANY if many else 0.0 if asks_last else sum(each.share_kept for each in finds)
        queries_end = share(until, 1.0 - kept)
        self.begin(queries_end - self.oracle.effort.spent)
        if self.state.best is None:
            return
        if not self.state.before and not self._meets_bound(queries_end) and asks_last:
            self._find(finds, queries_end)
        self._ask(queries_end)
        if not asks_last:
            self._find(finds, until)
        seed = self.state.seed + _SEEDS_OF_ROUND
        self.state = replace(self.state, round=self.state.round + 1, seed=seed)

    def _find(self, strategies: Sequence[Procedure], until: float) -> None:
        """Run strategies that find repetends, each with its share of the work, until the period is proved."""
        for strategy in strategies:
            if self.state.is_proved:
                return
            if share := strategy.share(self.state):
                end = self.oracle.effort.share(until, share)
                self.take(strategy.name, strategy.run(self.state, self.oracle, end))

    def _meets_bound(self, until: float) -> bool:
        """Ask shortly whether the period of one micro-batch can meet its bound; return whether it does."""
        if self._queries is not None:
            self.take(Queries.name, self._queries.of_bound(self.state, self.oracle, until))
        return not self.state.known_of(1).is_open(Objective.PERIOD)

    def _ask(self, until: float) -> None:
        """Ask about all blocks at once, of one micro-batch and of more, and raise the bound."""
        if self._queries is not None:
            self.take(Queries.name, self._queries.of_one(self.state, self.oracle, until))
        if self._states is not None and not self.state.is_proved:
            self.take(StatesStrategy.name, self._states.run(self.state, self.oracle, until))
        if self._queries is not None:
            self.take(Queries.name, self._queries.of_more(self.state, self.oracle, until))

    def take(self, name: str, findings: Iterable[Finding]) -> None:
        """Take findings, tell of repetends that are better, and count the work as that of a strategy."""
        with self.oracle.counted(Objective.PERIOD, name, lambda: self.state.rate):
            for finding in findings:
                before, self.state = self.state, self.state.taking(finding)
                known, bound = self.oracle.proved[Objective.PERIOD], self.state.bound_of_all
                self.oracle.proved[Objective.PERIOD] = bound
                is_new = isinstance(finding, Start) and self.state is not before
                if self.state.best is not None and (is_new or bound > known):
                    move = finding.made_by if isinstance(finding, Start) else name
                    self.oracle.report(self.state.best, Objective.PERIOD, move)
