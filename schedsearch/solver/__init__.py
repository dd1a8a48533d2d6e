"""Questions about repetends, and the solvers that answer them.

Knows no search: which question comes next, and what follows from an answer, is not known here. Read `query`
(question and answer), `smt` (Z3) and `cpsat` (the same for CP-SAT), `portfolio` (several in turn, and all by
name), `interrupts` (Ctrl-C during a call), `budget` (what one call may spend).
"""
