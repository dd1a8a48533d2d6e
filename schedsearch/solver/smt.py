"""Queries solved by Z3, within a time and an amount of work."""

from __future__ import annotations

import math

import z3

from schedsearch.model.z3_model import Z3Model
from schedsearch.solver.budget import AMPLE, SolverBudget
from schedsearch.solver.interrupts import interruptible
from schedsearch.solver.query import Decision, Query, Verdict, has_room, repetend_of, write_query

_WORK = 9_000_000
"""Z3's `rlimit` per unit of work; measured: 5.6 to 14.5 million a second on one core, in those of 48
queries that took half a second or more."""

_CPU_SECONDS_FOR_WORK = 1.0, 6.0
"""Seconds of a core after which to give up, at least and for each unit of work, which takes 0.6 to 1.6 s:
rarely Z3 counts next to nothing for minutes (a loop of two chunks on 16 devices, three micro-batches)."""

_WORK_OF_CONSTRAINT = 2.5e-4
"""Units of work to make a constraint of a model."""

_MAX_RLIMIT = 2**32 - 1
"""More work than that is not limited."""

_MAX_TIMEOUT_S = 1e6
"""Seconds that Z3 can be given, in milliseconds of 32 bits."""


def decide(query: Query, budget: SolverBudget = AMPLE) -> Decision:
    """Decide by Z3 whether a repetend exists; see `schedsearch.solver.query.Solver`."""
    if not has_room(query):
        return Verdict.NO, None
    model = Z3Model()
    v = write_query(query, model)
    solver = z3.SolverFor("QF_LIA", model.context)
    solver.add(model.constraints)
    work = budget.work
    solver.set("timeout", max(1, int(min(budget.timeout_s, _MAX_TIMEOUT_S) * 1000)))
    solver.set("random_seed", budget.seed)
    solver.set("ctrl_c", False)
    if work * _WORK <= _MAX_RLIMIT:
        solver.set("rlimit", int(work * _WORK))
    cpu_limit_s = _CPU_SECONDS_FOR_WORK[0] + _CPU_SECONDS_FOR_WORK[1] * work
    verdict = interruptible(solver.check, solver.interrupt, budget.unwanted, cpu_limit_s)
    counted = solver.statistics().get_key_value("rlimit count") / _WORK
    spent = work if verdict == z3.unknown and work < math.inf else min(counted, work)
    budget.spend(spent + len(model.constraints) * _WORK_OF_CONSTRAINT)
    if verdict == z3.sat:
        assignment = solver.model()

        def value(term: z3.ExprRef) -> int:
            if z3.is_bool(term):
                return int(z3.is_true(assignment.eval(term, model_completion=True)))
            return int(assignment.eval(term, model_completion=True).as_long())

        return Verdict.YES, repetend_of(query, v, value)
    return (Verdict.NO if verdict == z3.unsat else Verdict.UNKNOWN), None
