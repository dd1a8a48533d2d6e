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
        """Return a new integer variable; a bound of None means no upper limit."""
        variable = z3.Int(name, self.context)
        self.add(variable >= least)
        if most is not None:
            self.add(variable <= most)
        return variable

    def new_bool_var(self, name: str) -> Literal:
        """Return a new Boolean variable."""
        return z3.Bool(name, self.context)

    def add(self, constraint: z3.BoolRef) -> Z3Model:
        """Add a constraint; return the model, whose `only_enforce_if` makes this constraint conditional."""
        self.constraints.append(constraint)
        return self

    def only_enforce_if(self, *literals: Literal) -> None:
        """Make the last added constraint conditional on all of some literals."""
        condition = literals[0] if len(literals) == 1 else z3.And(*literals)
        self.constraints.append(z3.Implies(condition, self.constraints.pop()))

    def at_least(self, term: Term, least: int) -> Literal:
        """Return the literal that a term is at least `least`."""
        return term >= least

    def choose(
        self,
        literal: Literal,
        one: Sequence[Constraint],
        other: Sequence[Constraint],
        given: Sequence[Literal] = (),
    ) -> None:
        """Add constraints for a true literal, and others for a false one.

        None of them has to hold if a literal of `given` is false.
        """
        self.add(z3.If(literal, z3.And(*one), z3.And(*other)))
        if given:
            self.only_enforce_if(*given)

    def one_of(self, number: int, name: str) -> list[Literal]:
        """Return `number` literals, of which exactly one is true."""
        if number == 1:
            return [z3.BoolVal(True, self.context)]
        if number == 2:
            first = self.new_bool_var(name)
            return [first, ~first]
        literals = [self.new_bool_var(f"{name}: {i}") for i in range(number)]
        self.add(z3.PbEq([(literal, 1) for literal in literals], 1))
        return literals

    def forbid(self, literal: Literal) -> None:
        """Add the constraint that a literal is false."""
        self.add(z3.Not(literal))

    def both(self, a: Literal, b: Literal) -> Literal:
        """Return the conjunction of two literals, either of which may be a known 0 or 1."""
        if isinstance(a, int) or isinstance(b, int):
            known, other = (a, b) if isinstance(a, int) else (b, a)
            return other if known else 0
        return z3.And(a, b)

    def either(self, a: Literal, b: Literal) -> Literal:
        """Return the disjunction of two literals."""
        return z3.Or(a, b)

    def times(self, literal: Literal, term: Term, most: int | None) -> Term:
        """Return the product of a literal and a term: the term if the literal is true, else 0."""
        return term * literal if isinstance(literal, int) else z3.If(literal, term, 0)

    def interval(self, start: Term, time: Term, present: Sequence[Literal], name: str) -> object:
        """Return None: the constraints on pairs already imply those on intervals."""

    def add_no_overlap(self, runs: Iterable[object]) -> None:
        """Add nothing: the rules for pairs of instances imply it, and it would only slow Z3 down."""

    def add_min_equality(self, least: int, terms: Sequence[Term]) -> None:
        """Add the constraint that some term equals `least`; other rules keep all terms from being less."""
        self.add(z3.Or([term == least for term in terms]))

    def weighted_sum(self, terms: Sequence[Term | Literal], factors: Sequence[int]) -> Term:
        """Return the sum of terms, each times its factor; a literal counts 1 if true."""
        pairs = zip(terms, factors, strict=True)
        return z3.Sum(
            [z3.If(term, factor, 0) if z3.is_bool(term) else factor * term for term, factor in pairs]
        )
