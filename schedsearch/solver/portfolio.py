"""The solvers by name, and a portfolio of several: all are asked, with more and more work, until one knows.

On two cores they are asked at once. Work is counted as solvers count it, not in seconds, and which of two
repetends counts is a matter of rule. So the answer to a query is the same on any machine, with any number of
cores, as long as no time limit is hit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event

from schedsearch.model.memory_precedence import is_shared_in_turns
from schedsearch.solver.budget import AMPLE, SolverBudget
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import usable_cores
from schedsearch.solver.query import Decision, Query, Solver, Verdict

MANY_INSTANCES = 160
"""Blocks times micro-batches from which on Z3 rarely answers after the first round."""

_WORK = 0.5
"""Work of each solver in the first round, in units of about a second."""

_GROWTH = 4.0
"""Factor on this work from round to round."""

_ROUNDS = 6
"""Rounds after which work is no longer limited: each solver has then worked for some ten minutes."""

_UNKNOWN: Decision = Verdict.UNKNOWN, None


def portfolio(*solvers: Solver, only_first: bool = False) -> Solver:
    """Return a solver that asks several until one knows, in rounds of ever more work.

    In the first round, in which most queries are answered, they are asked in turn; if `only_first`, then the
    first alone. In those that follow they are asked at once where there are several cores. That there is no
    repetend counts as soon as one knows it; a repetend counts once no solver before its own can find one in
    the same round.

    Each makes a new model in each round: what Z3 does with one depends on what its context was asked before.
    """

    def decide(query: Query, budget: SolverBudget = AMPLE) -> Decision:
        deadline, effort = time.monotonic() + budget.timeout_s, Effort(limit=budget.work)
        for round_ in range(_ROUNDS + 1):
            work = _WORK * _GROWTH**round_ if round_ < _ROUNDS else math.inf
            asked = solvers[:1] if only_first and round_ else solvers
            if round_ == 0 or len(asked) == 1:
                answer = _in_turn(asked, query, replace(budget, work=work), deadline, effort)
            else:
                most = effort.at_most(work)
                share = SolverBudget(most, seed=budget.seed)
                answer = (
                    _in_turn(asked, query, share, deadline, Effort())
                    if usable_cores() == 1
                    else _at_once(asked, query, share, deadline)
                )
                effort.spend(most if most < math.inf else 0.0)
            if answer != _UNKNOWN or time.monotonic() >= deadline or effort.is_over:
                break
        budget.spend(effort.spent)
        return answer

    return decide


def _in_turn(
    asked: tuple[Solver, ...], query: Query, budget: SolverBudget, deadline: float, effort: Effort
) -> Decision:
    """Ask solvers one after the other until one knows; they share time and work equally."""
    for i, ask in enumerate(asked):
        left_s = (deadline - time.monotonic()) / (len(asked) - i)
        most = min(budget.work, (effort.limit - effort.spent) / (len(asked) - i))
        part = replace(budget, timeout_s=left_s, work=most, spend=effort.spend)
        if left_s > 0 and (answer := ask(query, part)) != _UNKNOWN:
            return answer
    return _UNKNOWN


def _at_once(asked: tuple[Solver, ...], query: Query, budget: SolverBudget, deadline: float) -> Decision:
    """Ask all solvers at the same time; the answer is the same as in turn.

    Raises:
        KeyboardInterrupt: A solver was interrupted.
    """
    unwanted = Event()
    part = replace(budget, timeout_s=max(deadline - time.monotonic(), 0.01), unwanted=unwanted)
    with ThreadPoolExecutor(len(asked)) as executor:
        asking = [executor.submit(ask, query, part) for ask in asked]
        try:
            open_ = set(asking)
            while open_:
                _, open_ = wait(open_, return_when=FIRST_COMPLETED)
                answers = [call.result() if call.done() else None for call in asking]
                no = [reply for reply in answers if reply is not None and reply[0] is Verdict.NO]
                first = next((reply for reply in answers if reply is None or reply[0] is Verdict.YES), None)
                if no or first is not None:
                    return next(iter(no), first) or _UNKNOWN
        finally:
            unwanted.set()
    return _UNKNOWN


def _cpsat(query: Query, budget: SolverBudget = AMPLE) -> Decision:
    from schedsearch.solver import cpsat  # takes a second to load, and easy questions do without

    return cpsat.decide(query, budget)


def _z3(query: Query, budget: SolverBudget = AMPLE) -> Decision:
    from schedsearch.solver import smt  # likewise

    return smt.decide(query, budget)


def _z3_and_cpsat() -> Solver:
    """Return a portfolio of Z3 and CP-SAT, with the solver first that is likely to be faster.

    CP-SAT is about half faster for several micro-batches if memory is shared in turns (V, chains); otherwise
    (X, waves, loops), Z3 often answers in 2 s where CP-SAT does not in 4. Very large queries give Z3 only
    a first round.
    """
    z3_first, cpsat_first = portfolio(_z3, _cpsat), portfolio(_cpsat, _z3)
    large = portfolio(_cpsat, _z3, only_first=True)

    def decide(query: Query, budget: SolverBudget = AMPLE) -> Decision:
        placement, micro_batches = query.placement, query.micro_batches
        if micro_batches * len(placement.blocks) >= MANY_INSTANCES:
            return large(query, budget)
        in_turns = (is_shared_in_turns(placement, device) for device in range(placement.num_devices))
        return (cpsat_first if micro_batches > 1 and all(in_turns) else z3_first)(query, budget)

    return decide


SOLVERS: dict[str, Callable[[], Solver]] = {
    "portfolio": _z3_and_cpsat,
    "z3": lambda: _z3,
    "cpsat": lambda: _cpsat,
}
"""Loader of each solver, by its name on the command line."""
