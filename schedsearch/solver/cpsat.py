"""Queries and other models solved by CP-SAT, within a time and an amount of work.

With many devices or several micro-batches per repetend, CP-SAT often finds a repetend, or proves that none
exists, where Z3 takes long; Z3 is faster if memory is not shared in turns, as in X-shapes.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from threading import Event

from ortools.sat.python import cp_model

from schedsearch.model.cpsat_model import CpSatModel
from schedsearch.solver.budget import AMPLE, SolverBudget, Spend, uncounted
from schedsearch.solver.interrupts import interruptible
from schedsearch.solver.query import Decision, Query, Verdict, has_room, repetend_of, write_query

log = logging.getLogger(__name__)

_WORK = 0.18
"""CP-SAT's deterministic time per unit of work; measured as in `smt._WORK`: 0.11 to 0.26 a second."""

_WORK_OF_CONSTRAINT = 5e-5
"""Units of work to make a constraint of a model."""


def decide(query: Query, budget: SolverBudget = AMPLE) -> Decision:
    """Decide by CP-SAT whether a repetend exists; see `schedsearch.solver.query.Solver`."""
    if not has_room(query):
        return Verdict.NO, None
    model = CpSatModel()
    v = write_query(query, model, _last_round(query))
    solver = within(replace(budget, work=budget.work * _WORK), for_orders=False)
    answer = solve(solver, model, budget.spend, budget.unwanted, 1 / _WORK)
    return answer, repetend_of(query, v, solver.value) if answer is Verdict.YES else None


def within(budget: SolverBudget, for_orders: bool = True) -> cp_model.CpSolver:
    """Return a solver that spends no more than a budget, for orders of blocks on devices or for repetends."""
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1  # more would make answers depend on the machine
    solver.parameters.max_deterministic_time = budget.work
    solver.parameters.max_time_in_seconds = budget.timeout_s
    solver.parameters.random_seed = budget.seed
    if for_orders:
        solver.parameters.use_strong_propagation_in_disjunctive = True
    return solver


def solve(
    solver: cp_model.CpSolver,
    model: CpSatModel,
    spend: Spend = uncounted,
    unwanted: Event | None = None,
    work_of_time: float = 1.0,
) -> Verdict:
    """Solve, unless Ctrl-C comes first, or another thread wants no answer any more.

    A unit of the solver's deterministic time is `work_of_time` units of work.

    Raises:
        KeyboardInterrupt: There was a Ctrl-C.
    """
    solver.parameters.catch_sigint_signal = False
    try:
        status = interruptible(lambda: solver.solve(model), solver.stop_search, unwanted)
    except IndexError:  # its presolve may fail to keep a hint (OR-Tools 9.15, issue 5288)
        log.warning("CP-SAT failed with hints; it runs again without them")
        model.clear_hints()  # type: ignore[no-untyped-call]
        status = interruptible(lambda: solver.solve(model), solver.stop_search, unwanted)
    spend(
        solver.response_proto.deterministic_time * work_of_time
        + len(model.proto.constraints) * _WORK_OF_CONSTRAINT
    )
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Verdict.YES
    return Verdict.NO if status == cp_model.INFEASIBLE else Verdict.UNKNOWN


def is_optimal(solver: cp_model.CpSolver) -> bool:
    """Return whether the last answer is proved to be the best."""
    return bool(solver.response_proto.status == cp_model.OPTIMAL)


def _last_round(query: Query) -> int:
    """Return an upper bound on rounds: if a query has repetends, one of them has no later round.

    Proof: of all repetends take one with the least sum of rounds, the first round being 0. Let v be any round
    from 1 to the last, and move the blocks of round v and later one round earlier. For memory this is never
    worse: the blocks of earlier rounds include all that they wait for, so they hold nothing negative of any
    micro-batch (`proof.memory_need.require_capacity`), and a device's memory sums to 0 over its blocks, so
    the moved blocks add nothing positive to the memory held. Nor is it worse for the span. So some difference
    of two rounds forbids it: a block b of round v or later is some rounds after a block a of an earlier one.
    For a dependency with t ticks of transfer these are at most ``2 + ceil(t / period)`` rounds, as starts
    within a round differ by less than a period and no block takes longer than one; for all other rules (order
    of micro-batches, turns of memory, latency) at most 2. Going up from v = 1, take a rule that forbids it,
    and go on with the round after its b. Each b is another block, and none is of round 0, so that these
    differences, which together cover all rounds, are no more than 2 for each block but one, and what
    transfers add.
    """
    num_instances = query.micro_batches * len(query.placement.blocks)
    transfers = sum(math.ceil(ticks / query.period) for _, _, ticks in query.placement.transfer)
    return 2 * (num_instances - 1) + query.micro_batches * transfers
