"""What an instance of a block costs at each time it can take: its options, and their lower convex hull.

A device that does not compute waits at the blocking power, so only the energy above it counts: the
*effective* energy of an option is its energy less blocking power times time (Perseus, Sec. 4.1, Eq. 4).
Where the blocking power depends on the clock, that is the least of any clock; see `simulation` for the rest.
Perseus fits an exponential to the options; we take their lower convex hull, because it passes through real
options, exists for any number of them, one included, and makes the relaxed problem a linear program. The
exponential is here too, for its own method.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from placements import Placement, Profile
from placements.profiles.operating_point import Clock, config_of
from schedsearch.energy.graph import EnergyError, Floats, Ints


@dataclass(frozen=True, eq=False)
class CostCurve:
    """The options of a block that no other option beats in both time and effective energy.

    Attributes:
        clock_mhz: Clock of each option; shape ``(options,)``.
        time_ms: Ascending.
        energy_mj: Effective energy on the GPUs of all of the block's devices together; strictly descending.
        config: Configuration of each option; empty where the block has none.
    """

    clock_mhz: Ints
    time_ms: Floats
    energy_mj: Floats
    config: tuple[str, ...] = ()

    @cached_property
    def clocks(self) -> list[int]:
        """The clock of each option, with its configuration if it has one."""
        plain = self.clock_mhz.tolist()
        named = zip(plain, self.config, strict=True) if self.config else ()
        return [Clock(mhz, config) if config else mhz for mhz, config in named] or plain

    def only(self, option: int) -> CostCurve:
        """Return the curve with a single option left."""
        kept = slice(option, option + 1)
        return CostCurve(self.clock_mhz[kept], self.time_ms[kept], self.energy_mj[kept], self.config[kept])

    @cached_property
    def hull(self) -> Ints:
        """Return the indices of the options on the lower convex hull; ascending, ends included."""
        return lower_hull(self.time_ms, self.energy_mj)


def lower_hull(time: Floats, energy: Floats) -> Ints:
    """Return the indices of the points on the lower convex hull; ascending, ends included.

    Args:
        time: Or whatever else the points are over; ascending.
        energy: Energy of each point.
    """
    kept: list[int] = []
    points = list(zip(time.tolist(), energy.tolist(), strict=True))
    for i, (right, high) in enumerate(points):
        while len(kept) > 1:
            (left, low), (middle, between) = points[kept[-2]], points[kept[-1]]
            if (between - low) * (right - middle) < (high - between) * (middle - left):
                break
            kept.pop()
        kept.append(i)
    return np.array(kept)


def cost_curve(run: str, num_gpus: int, profile: Profile) -> CostCurve:
    """Return the cost curve of a block, in its mode, that runs on so many GPUs, all at one clock."""
    power = profile.min_blocking_power_w
    points = profile.points[run]
    options = [(p.time_ms, num_gpus * (p.energy_mj - power * p.time_ms), p.clock) for p in points]
    best = list(pareto(options))
    time, energy, clock = zip(*best, strict=True)
    config = tuple(map(config_of, clock))
    return CostCurve(
        np.array(clock, dtype=np.int64), np.array(time), np.array(energy), config if any(config) else ()
    )


def pareto(options: Iterable[tuple[float, float, int]]) -> Iterable[tuple[float, float, int]]:
    """Yield the (time, energy, clock) options by increasing time that cost less than every faster one."""
    least = float("inf")
    for option in sorted(options):
        if option[1] < least:
            least = option[1]
            yield option


def cost_curves(placement: Placement, profile: Profile) -> dict[str, CostCurve]:
    """Return the cost curve of every block of a placement, in each of its modes; see `Placement.runs`."""
    return {
        name: cost_curve(name, placement.gpus_of(block), profile) for name, block in placement.runs.items()
    }


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
    """

    fastest_ms: float
    amplitude_mj: float
    rate_per_ms: float
    offset_mj: float

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
        return ExponentialCurve(float(curve.time_ms[0]), 0.0, 0.0, float(curve.energy_mj[-1]))
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
    offset_mj = offset * range_mj + float(curve.energy_mj[-1])
    return ExponentialCurve(float(curve.time_ms[0]), amplitude * range_mj, rate / span_ms, offset_mj)


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
