"""The model of Z3, as far as rules need it, in the words of CP-SAT's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import z3

from schedsearch.model.variables import Constraint, Literal, Term


class Z3Model:
    """Constraints for Z3.

    They have a context to themselves: in the one that all queries of a process share, the same query has
    another answer after other queries.
    """

    def __init__(self) -> None:
        self.context = z3.Context()
        self.constraints: list[z3.BoolRef] = []

    def new_int_var(self, least: int, most: int | None, name: str) -> Term:
        """Return a new integer variable; None for one without an upper limit."""
        variable = z3.Int(name, self.context)
        self.add(variable >= least)
        if most is not None:
            self.add(variable <= most)
        return variable

    def new_bool_var(self, name: str) -> Literal:
        """Return a new Boolean variable."""
        return z3.Bool(name, self.context)

    def add(self, constraint: z3.BoolRef) -> Z3Model:
        """Add a constraint; return where it can be made conditional."""
        self.constraints.append(constraint)
        return self

    def only_enforce_if(self, literal: Literal) -> None:
        """Let the constraint that was added last hold only if a literal is true."""
        self.constraints.append(z3.Implies(literal, self.constraints.pop()))

    def at_least(self, term: Term, least: int) -> Literal:
        """Return that a term is so much."""
        return term >= least

    def choose(self, literal: Literal, one: Sequence[Constraint], other: Sequence[Constraint]) -> None:
        """Add some constraints that hold where a literal is true, and others where it is false."""
        self.add(z3.If(literal, z3.And(*one), z3.And(*other)))

    def add_no_overlap(self, runs: Iterable[object]) -> None:
        """Add nothing, as this follows from what is said of pairs, and would only slow Z3 down."""

    def add_min_equality(self, least: int, terms: Sequence[Term]) -> None:
        """Let one of some terms, none of which is less, be so much."""
        self.add(z3.Or([term == least for term in terms]))

    def weighted_sum(self, terms: Sequence[Term | Literal], factors: Sequence[int]) -> Term:
        """Return the sum of terms, each times its factor; a literal counts 1 if true."""
        pairs = zip(terms, factors, strict=True)
        return z3.Sum(
            [z3.If(term, factor, 0) if z3.is_bool(term) else factor * term for term, factor in pairs]
        )
