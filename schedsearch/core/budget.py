"""The budget of a procedure, and the account of a search: questions, work, proofs, and the listener."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction

from schedsearch.core.answer import SearchProgress, SearchReport, StrategyWork
from schedsearch.core.known import OfSize
from schedsearch.core.objective import Objective
from schedsearch.solver.effort import Effort
from schedsearch.solver.query import Decision, Query, Solver

_MIN_WORK = 0.01
"""Work that a question gets at least, in units of about a second."""


@dataclass
class Account:
    """Account of a search: its solver, its counted work by procedure, its proofs, and its listener.

    Attributes:
        solver: Function that answers queries.
        seed: Seed of the solver's random choices.
        began: Begin of the search, in seconds of `time.monotonic`.
        effort: Work done so far, and the limits of time and work.
        on_progress: Called with the progress after queries and moves.
        queries: Queries so far.
        proved: Bound on each objective for the whole question; of the period, per micro-batch. For other
            objectives, the bounds given to `tell` already are of the whole question.
        found_by: Least value reported of each objective, of the period per micro-batch, and its finder.
        work: Cost and gain of each procedure so far, by objective and name.
    """

    solver: Solver
    seed: int
    began: float
    effort: Effort
    on_progress: SearchReport
    queries: int = 0
    proved: dict[Objective, Fraction | int] = field(default_factory=dict)
    found_by: dict[Objective, tuple[Fraction, str]] = field(default_factory=dict)
    work: dict[tuple[Objective, str], StrategyWork] = field(default_factory=dict)

    def report(self, known: OfSize, objective: Objective, move: str) -> None:
        """Report the best value and the bound of an objective, after a move that may have improved it."""
        rounds = known.micro_batches if objective is Objective.PERIOD else 1
        best, bound = Fraction(known.value(objective), rounds), Fraction(known.bound[objective], rounds)
        self.tell(objective, best, bound, move)

    def tell(self, phase: Objective, best: Fraction | int, bound: Fraction | int, move: str) -> None:
        """Report the progress of the search, after a move that may have found a better value."""
        elapsed_s, bound = time.monotonic() - self.began, self.proved.get(phase, bound)
        if phase not in self.found_by or best < self.found_by[phase][0]:
            self.found_by[phase] = Fraction(best), move
        found_by = self.found_by[phase][1]
        self.on_progress(
            SearchProgress(phase.value, float(best), float(bound), self.queries, elapsed_s, found_by)
        )

    @contextmanager
    def counted(self, objective: Objective, name: str, value: Callable[[], Fraction | int]) -> Iterator[None]:
        """Charge the work done inside to a procedure, and record its relative improvement of a value."""
        spent, before = self.effort.spent, value()
        try:
            yield
        finally:
            earlier = self.work.get((objective, name), StrategyWork(name, objective))
            after = min(value(), before)
            self.work[objective, name] = replace(
                earlier,
                work=earlier.work + self.effort.spent - spent,
                improvements=earlier.improvements + (after < before),
                gain=1 - (1 - earlier.gain) * float(after / before),
            )


@dataclass(frozen=True)
class Budget:
    """The work at which a procedure has to stop; the limits of the whole search hold besides.

    Attributes:
        account: Account of the search.
        until: Value of ``account.effort.spent`` at which to stop.
    """

    account: Account
    until: float

    @property
    def effort(self) -> Effort:
        """The search's work so far, and its limits of time and work."""
        return self.account.effort

    @property
    def left(self) -> float:
        """Units of work left; 0 or less where none is left."""
        return self.until - self.effort.spent

    @property
    def is_over(self) -> bool:
        """Whether no work is left."""
        return self.left <= 0

    def share(self, share: float) -> Budget:
        """Return a budget of a share of the work left."""
        return replace(self, until=self.effort.share(self.until, share))

    def ask(self, query: Query, work: float, seed: int = 0) -> Decision:
        """Ask the solver once.

        Raises:
            OutOfTimeError: There is no time for it.
            KeyboardInterrupt: There was a Ctrl-C.
        """
        account, budget = self.account, self.effort.budget(max(work, _MIN_WORK), self.account.seed + seed)
        account.queries += 1
        return account.solver(query, budget)
