"""The model of CP-SAT. Rules are written in its words, and it has a few more, which Z3 has for itself."""

from __future__ import annotations

from collections.abc import Sequence

from ortools.sat.python import cp_model

from schedsearch.model.variables import Constraint, Literal, Term


class CpSatModel(cp_model.CpModel):
    """A model of CP-SAT that rules can be written into."""

    weighted_sum = staticmethod(cp_model.LinearExpr.weighted_sum)

    def at_least(self, term: Term, least: int) -> Literal:
        """Return a variable that stands for a term being so much: CP-SAT learns from those."""
        literal = self.new_bool_var(f"at least {least}")
        self.add(term >= least).only_enforce_if(literal)
        self.add(term < least).only_enforce_if(~literal)
        return literal

    def choose(self, literal: Literal, one: Sequence[Constraint], other: Sequence[Constraint]) -> None:
        """Add some constraints that hold where a literal is true, and others where it is false."""
        for condition, constraints in ((literal, one), (~literal, other)):
            for constraint in constraints:
                self.add(constraint).only_enforce_if(condition)
