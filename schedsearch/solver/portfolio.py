"""The solvers by name, and several as one: all are asked, with more and more work, until one knows.

On two cores they are asked at once. Work is counted as solvers count it, not in seconds, and which of two
repetends counts is a matter of rule. So the answer to a query is the same on any machine, with any number of
cores, as long as no time limit is hit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from threading import Event
from typing import Any

from schedsearch.model.memory_precedence import is_shared_in_turns
from schedsearch.repetend import Repetend
from schedsearch.solver.effort import Effort
from schedsearch.solver.interrupts import INTERRUPTS, usable_cores
from schedsearch.solver.query import Answer, LimitedSolver, Query, Solver, Spend, uncounted

MANY_INSTANCES = 160
"""Blocks times micro-batches from which on Z3 rarely answers after the first round."""

_WORK = 0.5
"""What each solver may do in the first round, in units of about a second."""

_GROWTH = 4.0
"""How much more it may do in each round that follows."""

_ROUNDS = 6
"""After which work is no longer limited: by then each solver has worked for some ten minutes."""

_Ask = Callable[..., tuple[Answer, Repetend | None]]


def portfolio(*solvers: LimitedSolver, only_first: bool = False) -> Solver:
    """Return a solver that asks several until one knows, in rounds of ever more work.

    In the first round, in which most queries are answered, they are asked in turn. In those that follow they
    are asked at once where there are several cores. That there is no repetend counts as soon as one knows it;
    a repetend counts once no solver before its own can find one in the same round.

    Each makes a new model in each round: what Z3 does with one depends on what its context was asked before.

    Args:
        solvers: Solvers in the order in which they are asked.
        only_first: Whether only the first is asked after the first round.
    """

    def decide(
        query: Query,
        timeout_s: float = 60.0,
        seed: int = 0,
        work: float = math.inf,
        spend: Spend = uncounted,
    ) -> tuple[Answer, Repetend | None]:
        deadline, effort = time.monotonic() + timeout_s, Effort()
        for round_ in range(_ROUNDS + 1):
            each_work = _WORK * _GROWTH**round_ if round_ < _ROUNDS else math.inf
            asked = solvers[:1] if only_first and round_ else solvers
            if round_ == 0 or len(asked) == 1:
                asking = [partial(each, query, seed=seed, spend=effort.spend) for each in asked]
                answer, repetend = _in_turn(asking, deadline, each_work, work - effort.spent, effort)
            else:
                each_work = min(each_work, work - effort.spent)
                asking = [partial(each, query, seed=seed) for each in asked]
                answer, repetend = _at_once(asking, deadline, each_work)
                effort.spend(each_work if each_work < math.inf else 0.0)
            if answer is not Answer.UNKNOWN or time.monotonic() >= deadline or effort.spent >= work:
                break
        spend(effort.spent)
        return answer, repetend

    return decide


def _in_turn(
    asked: Sequence[_Ask], deadline: float, each_work: float, work: float, effort: Effort
) -> tuple[Answer, Repetend | None]:
    """Ask one after the other until one knows; what time and work there is, they share equally.

    Args:
        asked: Solvers to call, in order.
        deadline: When to stop, in seconds of `time.monotonic`.
        each_work: Work of each at most.
        work: Work of all.
        effort: What they do.
    """
    until = effort.spent + work
    for i, ask in enumerate(asked):
        left_s = (deadline - time.monotonic()) / (len(asked) - i)
        most = min(each_work, (until - effort.spent) / (len(asked) - i))
        answer, repetend = ask(timeout_s=left_s, work=most) if left_s > 0 else (Answer.UNKNOWN, None)
        if answer is not Answer.UNKNOWN:
            return answer, repetend
    return Answer.UNKNOWN, None


def _at_once(asked: Sequence[_Ask], deadline: float, each_work: float) -> tuple[Answer, Repetend | None]:
    """Ask all at the same time where there are several cores; the answer is that of asking in turn."""
    if usable_cores() == 1:
        return _in_turn(asked, deadline, each_work, math.inf, Effort())
    unwanted = Event()
    with INTERRUPTS.threads(len(asked)) as executor:
        left_s = max(deadline - time.monotonic(), 0.01)
        asking = [executor.submit(ask, timeout_s=left_s, work=each_work, unwanted=unwanted) for ask in asked]
        try:
            open_ = set(asking)
            while open_:
                _, open_ = wait(open_, return_when=FIRST_COMPLETED)
                if (known := _known(asking)) is not None:
                    return known
        finally:
            unwanted.set()
    return Answer.UNKNOWN, None


def _known(asking: Sequence[Future[tuple[Answer, Repetend | None]]]) -> tuple[Answer, Repetend | None] | None:
    """Return what is known by now; None while that is nothing, or hangs on who has not ended.

    Raises:
        KeyboardInterrupt: One was interrupted.
    """
    answers = [each.result() if each.done() else None for each in asking]
    for answer in answers:
        if answer is not None and answer[0] is Answer.NO:
            return answer
    for answer in answers:
        if answer is None or answer[0] is Answer.YES:
            return answer
    return None


def _cpsat(query: Query, *args: Any, **options: Any) -> tuple[Answer, Repetend | None]:
    from schedsearch.solver import cpsat  # takes a second to load, and easy questions do without

    return cpsat.decide(query, *args, **options)


def _z3(query: Query, *args: Any, **options: Any) -> tuple[Answer, Repetend | None]:
    from schedsearch.solver import smt  # likewise

    return smt.decide(query, *args, **options)


def _z3_and_cpsat() -> Solver:
    """Return Z3 and CP-SAT, the one first that is more likely to know first.

    That is CP-SAT for several micro-batches where memory is shared in turns (V, chains), by some half; where
    it is not (X, waves, loops), Z3 often answers in 2 s what CP-SAT does not in 4. Of very large questions Z3
    gets only a first round.
    """
    z3_first, cpsat_first = portfolio(_z3, _cpsat), portfolio(_cpsat, _z3)
    large = portfolio(_cpsat, _z3, only_first=True)

    def decide(
        query: Query,
        timeout_s: float = 60.0,
        seed: int = 0,
        work: float = math.inf,
        spend: Spend = uncounted,
    ) -> tuple[Answer, Repetend | None]:
        placement, micro_batches = query.placement, query.micro_batches
        asked = z3_first
        if micro_batches * len(placement.blocks) >= MANY_INSTANCES:
            asked = large
        elif micro_batches > 1 and all(
            is_shared_in_turns(placement, device) for device in range(placement.num_devices)
        ):
            asked = cpsat_first
        return asked(query, timeout_s=timeout_s, seed=seed, work=work, spend=spend)

    return decide


SOLVERS: dict[str, Callable[[], Solver]] = {
    "portfolio": _z3_and_cpsat,
    "z3": lambda: _z3,
    "cpsat": lambda: _cpsat,
}
"""What loads each solver, by the name that the command line uses."""
