"""Errors of predictions, as shares of the measured figures."""

from __future__ import annotations


def error_of(predicted: float | None, measured: float | None) -> float | None:
    """Return how much of a measured figure a prediction is above it; None where either is not known."""
    return None if predicted is None or measured is None else predicted / measured - 1


def joined(*notes: str) -> str:
    """Return notes in a line, without the empty ones."""
    return "; ".join(filter(None, notes))
