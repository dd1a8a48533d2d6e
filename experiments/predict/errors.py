"""Errors of predictions, as shares of the measured figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


def error_of(predicted: float | None, measured: float | None) -> float | None:
    """Return how much of a measured figure a prediction is above it; None where either is not known."""
    return None if predicted is None or measured is None else predicted / measured - 1


def joined(*notes: str) -> str:
    """Return notes in a line, without the empty ones."""
    return "; ".join(filter(None, notes))


@dataclass(frozen=True)
class Errors:
    """The errors of some predictions.

    Attributes:
        errors: Above 0 where too high; shape ``(num_plans,)``.
        what: Noun for a prediction's subject, such as "plan".
    """

    errors: tuple[float, ...]
    what: str = "plan"

    @classmethod
    def of(cls, errors: Iterable[float | None], what: str = "plan") -> Errors:
        """Return the known ones of some errors."""
        return cls(tuple(error for error in errors if error is not None), what)

    @property
    def mean_absolute(self) -> float:
        """Mean of their sizes."""
        return sum(map(abs, self.errors)) / len(self.errors)

    @property
    def worst(self) -> float:
        """Largest of their sizes."""
        return max(map(abs, self.errors))

    def __str__(self) -> str:
        """Return mean absolute error, mean and worst in a line."""
        if not self.errors:
            return "nothing to compare"
        mean = sum(self.errors) / len(self.errors)
        count = f"{len(self.errors)} {self.what}{'s' if len(self.errors) > 1 else ''}"
        shown = f"mean absolute error {self.mean_absolute:.1%}, mean error {mean:+.1%}"
        return f"{shown}, worst {self.worst:.1%}, of {count}"
