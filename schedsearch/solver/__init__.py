"""Queries about repetends, and the solvers that answer them.

Knows no search: neither which question comes next, nor what follows from an answer. In the order in which to
read:

- `query`: question and answer, and the question as the rules of `schedsearch.model`.
- `smt`: the question for Z3.
- `cpsat`: the same for CP-SAT.
- `portfolio`: several solvers as one, and all by name.
- `interrupts`: Ctrl-C during a solver's call, and work on several cores at once.
- `side_by_side`: independent calls in several processes, or on a Ray cluster.
- `budget`: work and seconds of one call.
- `effort`: work done by a search, and its limits.
"""
