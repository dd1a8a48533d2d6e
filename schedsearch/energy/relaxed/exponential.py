"""The exponential that Perseus fits to the options of a block (Perseus, Sec. 4.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from schedsearch.energy.cost import CostCurve
from schedsearch.energy.graph import EnergyError, Floats

CURVES = ("hull", "exponential")
"""What may stand for the options of a block while plans are made."""

_RATES = np.logspace(-3, 2, 101)
"""Curvatures to start from: how often the energy falls by e over the times of the options."""


@dataclass(frozen=True)
class ExponentialCurve:
    """Effective energy as ``amplitude * exp(-rate * (time - fastest)) + offset``; convex and falling.

    Perseus writes it a * exp(b * t) + c. Ours starts at the fastest option, so that no figure is huge.

    Attributes:
        fastest_ms: Time of the fastest option.
        amplitude_mj: Amplitude; at least 0.
        rate_per_ms: Rate; at least 0.
        offset_mj: Energy that remains.
        error_mj: Largest distance of an option from the curve.
        error: That as a share of the energy between the fastest and the slowest option; 0 for one option.
    """

    fastest_ms: float
    amplitude_mj: float
    rate_per_ms: float
    offset_mj: float
    error_mj: float
    error: float

    def energy_mj(self, time_ms: Floats) -> Floats:
        """Return the effective energy at some times."""
        energy: Floats = (
            self.amplitude_mj * np.exp(-self.rate_per_ms * (time_ms - self.fastest_ms)) + self.offset_mj
        )
        return energy


def exponential_curve(curve: CostCurve) -> ExponentialCurve:
    """Return the exponential of least squares; there is one for any number of options, in any unit.

    For a given rate amplitude and offset are a linear regression, so that the rate alone is searched for:
    on a grid, then between the best one's neighbors. One option gives a constant, two the straight line
    between them, which the smallest rate all but is.
    """
    from scipy.optimize import minimize_scalar

    span_ms = float(curve.time_ms[-1] - curve.time_ms[0])
    range_mj = float(curve.energy_mj[0] - curve.energy_mj[-1])
    if len(curve.time_ms) == 1 or span_ms <= 0 or range_mj <= 0:
        return ExponentialCurve(float(curve.time_ms[0]), 0.0, 0.0, float(curve.energy_mj[-1]), 0.0, 0.0)
    time = (curve.time_ms - curve.time_ms[0]) / span_ms
    energy = (curve.energy_mj - curve.energy_mj[-1]) / range_mj
    squares = [_regression(rate, time, energy)[2] for rate in _RATES]
    best = int(np.argmax(np.array(squares) <= min(squares) + 1e-12))
    around = np.log(_RATES[max(best - 1, 0)]), np.log(_RATES[min(best + 1, len(_RATES) - 1)])
    found = minimize_scalar(
        lambda log_rate: _regression(float(np.exp(log_rate)), time, energy)[2],
        bounds=around,
        method="bounded",
        options={"xatol": 1e-9},
    )
    rate = float(np.exp(found.x)) if found.fun < squares[best] - 1e-12 else float(_RATES[best])
    amplitude, offset, _ = _regression(rate, time, energy)
    error = float(np.abs(amplitude * np.exp(-rate * time) + offset - energy).max())
    return ExponentialCurve(
        float(curve.time_ms[0]),
        amplitude * range_mj,
        rate / span_ms,
        offset * range_mj + float(curve.energy_mj[-1]),
        error * range_mj,
        error,
    )


def planning_curves(curves: Mapping[str, CostCurve], curve: str) -> dict[str, CostCurve]:
    """Return the cost curves that plans are made with, in place of those of the options.

    Args:
        curves: Curve of each block.
        curve: ``hull`` keeps them, ``exponential`` takes the fit at the times of the options.

    Raises:
        EnergyError: The curve is not known.
    """
    if curve not in CURVES:
        raise EnergyError(f"curve: {curve!r} is not known; use {' or '.join(CURVES)}")
    if curve == "hull":
        return dict(curves)
    return {name: fitted_curve(each) for name, each in curves.items()}


def fitted_curve(curve: CostCurve) -> CostCurve:
    """Return a cost curve with the energies of the fitted exponential at the times of its options.

    Where the fit does not fall from each option to the next, as with one option only, or a curve that is flat
    within rounding errors, there is nothing to plan with, and the curve stays as it is.
    """
    energy = exponential_curve(curve).energy_mj(curve.time_ms)
    if len(energy) == 1 or not (np.isfinite(energy).all() and (np.diff(energy) < 0).all()):
        return curve
    return replace(curve, energy_mj=energy)


def _regression(rate: float, time: Floats, energy: Floats) -> tuple[float, float, float]:
    """Return amplitude and offset of least squares at a rate, and the sum of the squares.

    As time rises, energy and exponential both fall, so that the amplitude is never negative.
    """
    falling = np.exp(-rate * time)
    centered = falling - falling.mean()
    amplitude = float(centered @ energy / (centered @ centered))
    offset = float(energy.mean() - amplitude * falling.mean())
    return amplitude, offset, float(((amplitude * falling + offset - energy) ** 2).sum())
