"""The CP-SAT model in which rules are written, with a few methods for things that Z3 has built in."""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from schedsearch.model.variables import Constraint, Literal, Term


class CpSatModel(cp_model.CpModel):
    """A model of CP-SAT that rules can be written into."""

    weighted_sum = staticmethod(cp_model.LinearExpr.weighted_sum)

    def __init__(self) -> None:
        super().__init__()
        self._both: dict[tuple[int, int], Literal] = {}

    def at_least(self, term: Term, least: int) -> Literal:
        """Return a literal that is true just if a term is at least `least`: CP-SAT learns from these."""
        literal = self.new_bool_var(f"at least {least}")
        self.add(term >= least).only_enforce_if(literal)
        self.add(term < least).only_enforce_if(~literal)
        return literal

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
        for condition, constraints in ((literal, one), (~literal, other)):
            for constraint in constraints:
                self.add(constraint).only_enforce_if(condition, *given)

    def one_of(self, number: int, name: str) -> list[Literal]:
        """Return `number` literals, of which exactly one is true."""
        if number == 1:
            return [self.new_constant(1)]
        if number == 2:
            first = self.new_bool_var(name)
            return [first, ~first]
        literals = [self.new_bool_var(f"{name}: {i}") for i in range(number)]
        self.add_exactly_one(literals)
        return literals

    def forbid(self, literal: Literal) -> None:
        """Add the constraint that a literal is false."""
        self.add_bool_and([~literal])

    def both(self, a: Literal, b: Literal) -> Literal:
        """Return the conjunction of two literals, either of which may be a known 0 or 1."""
        if isinstance(a, int) or isinstance(b, int):
            known, other = (a, b) if isinstance(a, int) else (b, a)
            return other if known else 0
        key = min(a.index, b.index), max(a.index, b.index)
        if key not in self._both:
            conjunction = self.new_bool_var("both")
            self.add_implication(conjunction, a)
            self.add_implication(conjunction, b)
            self.add_bool_or(conjunction, ~a, ~b)
            self._both[key] = conjunction
        return self._both[key]

    def either(self, a: Literal, b: Literal) -> Literal:
        """Return the disjunction of two literals."""
        return ~self.both(~a, ~b)

    def times(self, literal: Literal, term: Term, most: int | None) -> Term:
        """Return the product of a literal and a term: the term if the literal is true, else 0."""
        if isinstance(literal, int):
            return term * literal
        assert most is not None
        product = self.new_int_var(0, most, "product")
        self.add(product == term).only_enforce_if(literal)
        self.add(product == 0).only_enforce_if(~literal)
        return product

    def interval(self, start: Term, time: Term, present: Sequence[Literal], name: str) -> object:
        """Return the interval of a run, for `add_no_overlap`; it counts if all literals are true."""
        if isinstance(time, int) and not present:
            return self.new_fixed_size_interval_var(start, time, name)
        if not present:
            end = self.new_int_var(0, cp_model.INT32_MAX, f"end of {name}")
            return self.new_interval_var(start, time, end, name)
        runs = self.new_bool_var(f"{name} runs")
        for literal in present:
            self.add_implication(runs, literal)
        self.add_bool_or(runs, *(~literal for literal in present))
        if isinstance(time, int):
            return self.new_optional_fixed_size_interval_var(start, time, runs, name)
        end = self.new_int_var(0, cp_model.INT32_MAX, f"end of {name}")
        return self.new_optional_interval_var(start, time, end, runs, name)
