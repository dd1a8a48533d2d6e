"""What is wrong with a plan."""

from __future__ import annotations


class PlanError(ValueError):
    """A plan is wrong; the message names the field of the file, the value and the remedy in one line."""


class UnsuitableShapeError(PlanError):
    """A model has no plan of a shape.

    Attributes:
        reason: What the shape needs, and the remedy, without its name.
    """

    def __init__(self, shape: str, reason: str) -> None:
        super().__init__(shape, reason)
        self.reason = reason

    def __str__(self) -> str:
        return "shapes: " + " ".join(self.args)
