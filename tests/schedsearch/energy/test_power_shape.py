from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from energy.accounting import Clocks, accounted, blocking_w, points_of, starts
from energy.cases import CURVE, cases, noisy_profile, some_clocks
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from told import told

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import (
    EnergyError,
    Frontier,
    LimitedPlan,
    compute_frontier,
)
from schedsearch.energy.limits.power_shape import (
    PowerLimits,
    PowerShape,
    PowerTrace,
    ShapedPower,
    power_trace,
    shape_of,
    shaped_plan,
)
from schedsearch.schedule import Schedule

Floats = NDArray[np.float64]


def trace_of(at_ms: list[float], power_w: list[float]) -> PowerTrace:
    return PowerTrace(np.array(at_ms, dtype=np.float64), np.array(power_w, dtype=np.float64))


def power_at(trace: PowerTrace) -> Callable[[Floats], Floats]:
    return lambda at_ms: trace.power_w[np.searchsorted(trace.at_ms, at_ms % trace.length_ms, "right") - 1]


def power_of_devices(
    schedule: Schedule, profile: Profile, clock_mhz: Clocks, length_ms: float
) -> Callable[[Floats], Floats]:
    """Power by time, device by device and block by block, which shares no code with the package."""
    point, start = points_of(schedule, profile, clock_mhz), starts(schedule, profile, clock_mhz)
    number = schedule.placement.num_gpus or (1,) * schedule.placement.num_devices

    def power_w(at_ms: Floats) -> Floats:
        at_ms = at_ms % length_ms
        total = np.zeros_like(at_ms)
        for device in range(schedule.placement.num_devices):
            order = schedule.order(device)
            every = {p.clock_mhz for points in profile.points.values() for p in points}
            watts = np.full_like(at_ms, min(blocking_w(profile, clock) for clock in every))
            if order:
                watts[:] = blocking_w(profile, point[order[0]].clock_mhz)
            for instance in order:
                p, begin = point[instance], start[instance]
                watts[at_ms >= begin] = p.energy_mj / p.time_ms
                watts[at_ms >= begin + p.time_ms] = blocking_w(profile, p.clock_mhz)
            total += number[device] * watts
        return total

    return power_w


def dense(
    power_w: Callable[[Floats], Floats],
    length_ms: float,
    copies: int,
    stagger_ms: float,
    limits: PowerLimits,
    samples: int = 40_000,
) -> PowerShape:
    """Return the shape by sampling: sums of samples for the averages, the FFT for the band."""
    step_ms = length_ms / samples
    at_ms = (np.arange(samples) + 0.5) * step_ms
    total = sum((power_w(at_ms - k * stagger_ms) for k in range(copies)), np.zeros(samples))
    turns = math.ceil(limits.window_ms / length_ms) + 1
    until = np.concatenate([[0.0], np.cumsum(np.tile(total, turns))]) * step_ms
    at = np.arange(samples) * step_ms
    within = np.interp(at + limits.window_ms, np.arange(len(until)) * step_ms, until) - until[:samples]
    ahead = total[np.floor((at_ms + limits.window_ms) / step_ms).astype(int) % samples]
    amplitude = 2 * np.abs(np.fft.rfft(total)) / samples
    hertz = np.arange(len(amplitude)) * 1e3 / length_ms
    in_band = (hertz >= limits.low_hz) & (hertz <= limits.high_hz)
    return PowerShape(
        float(within.max() / limits.window_ms),
        float(np.abs(ahead - total).max() / limits.window_ms * 1e3),
        math.sqrt(float((amplitude[in_band] ** 2).sum()) / 2),
        float(total.mean()),
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_integral_is_the_energy(data: st.DataObject) -> None:
    schedule, profile = data.draw(cases())
    clocks = some_clocks(data, schedule, profile)
    time, energy = accounted(schedule, profile, clocks)
    trace = power_trace(schedule, profile, clocks)
    assert trace.length_ms == pytest.approx(time, rel=1e-12)
    assert trace.energy_mj == pytest.approx(energy, rel=1e-9, abs=1e-9)
    length = time + data.draw(st.integers(1, 20))
    longer = power_trace(schedule, profile, clocks, length)
    assert longer.length_ms == length
    _, until = accounted(schedule, profile, clocks, length)
    assert longer.energy_mj == pytest.approx(until, rel=1e-9, abs=1e-9)
    middle = (longer.at_ms[1:] + longer.at_ms[:-1]) / 2
    expected = power_of_devices(schedule, profile, clocks, length)(middle)
    assert longer.power_w == pytest.approx(expected, rel=1e-9, abs=1e-9)


@st.composite
def traces(draw: st.DrawFn) -> PowerTrace:
    """Return steps of whole milliseconds."""
    steps = draw(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 500)), min_size=1, max_size=6))
    return trace_of([0, *itertools.accumulate(ms for ms, _ in steps)], [watts for _, watts in steps])


@settings(max_examples=80, deadline=None)
@given(traces(), st.integers(1, 5), st.integers(0, 90), st.integers(1, 150))
def test_is_that_of_dense_samples(trace: PowerTrace, copies: int, stagger_ms: int, window_ms: int) -> None:
    limits = PowerLimits(window_ms=window_ms, low_hz=20.0, high_hz=400.0)
    expected = dense(power_at(trace), trace.length_ms, copies, stagger_ms, limits, 100 * int(trace.length_ms))
    found = shape_of(trace, limits, copies, stagger_ms)
    assert found.peak_w == pytest.approx(expected.peak_w, rel=1e-9, abs=1e-9)
    assert found.ramp_w_per_s == pytest.approx(expected.ramp_w_per_s, rel=1e-6, abs=1e-3)
    assert found.band_w == pytest.approx(expected.band_w, rel=1e-4, abs=1e-6)
    assert found.mean_w == pytest.approx(expected.mean_w, rel=1e-9)


def test_a_stagger_of_rounding_errors_makes_no_ramp() -> None:
    """Thirds of this iteration are not quite thirds; without a tolerance the ramp is of 10 kW/s."""
    pulse = trace_of([0, 987.6 / 3, 987.6], [300, 0])
    assert shape_of(pulse, PowerLimits(window_ms=98.76), 3, 987.6 / 3).ramp_w_per_s == pytest.approx(
        0, abs=1e-3
    )


def case(num_devices: int = 3, **options: object) -> tuple[Schedule, Profile, Frontier]:
    schedule = one_f_one_b(v_shape(num_devices), 5)
    profile = replace(noisy_profile(schedule.placement, 8, seed=2), **options)  # type: ignore[arg-type]
    clocks = (700, 850, 1000, 1150, 1300, 1410)  # the same for all blocks
    points = {
        name: tuple(
            replace(each[0], clock_mhz=clock, time_ms=ms, energy_mj=ms * (90 + 210 * (clock / 1410) ** 2.6))
            for clock in clocks
            for ms in [each[-1].time_ms * (0.35 + 0.65 * 1410 / clock)]
        )
        for name, each in profile.points.items()
    }
    profile = replace(profile, points=points)
    return schedule, profile, compute_frontier(schedule, profile, 12)


def prices(found: LimitedPlan[PowerLimits, ShapedPower]) -> tuple[float, float]:
    """Shares of energy and time above those of the free plan."""
    assert found.free_outcome is not None
    return found.outcome.price_over(found.free_outcome)


def check(
    schedule: Schedule, profile: Profile, found: LimitedPlan[PowerLimits, ShapedPower], deadline_ms: float
) -> None:
    """Check its figures against the slow accounting, and its limits."""
    own, clocks = found.outcome, found.plan.clock_mhz
    time, energy = accounted(schedule, profile, clocks, deadline_ms)
    assert found.plan.time_ms == pytest.approx(time)
    assert own.energy_mj == pytest.approx(energy, rel=1e-9)
    _, free = accounted(schedule, profile, found.free.clock_mhz, deadline_ms)
    assert prices(found) == (
        pytest.approx(energy / free - 1, abs=1e-9),
        pytest.approx(own.trace.length_ms / found.free.time_ms - 1),
    )
    assert any(own.trace.length_ms == pytest.approx(each) for each in (time, deadline_ms))
    last_ms = (own.copies - 1) * own.stagger_ms  # all copies end before the first begins anew
    assert last_ms + time <= own.trace.length_ms * (1 + 1e-9)
    assert own.trace.energy_mj == pytest.approx(accounted(schedule, profile, clocks, own.trace.length_ms)[1])
    for name in ("peak_w", "ramp_w_per_s", "band_w"):
        limit = getattr(found.limits, name)
        assert limit is None or getattr(own.shape, name) <= limit * (1 + 1e-9)


@pytest.mark.parametrize(("copies", "blocking"), [(1, CURVE), (3, 60.0)])
def test_without_limits_it_is_the_free_plan(copies: int, blocking: float) -> None:
    schedule, profile, frontier = case(blocking_power_w=blocking)
    for factor in (1.0, 1.1, 1.5):
        deadline = factor * frontier.shortest.time_ms
        found = shaped_plan(schedule, profile, frontier, PowerLimits(), deadline, copies)
        assert found.plan is found.free is frontier.at(deadline)
        assert (found.outcome.stagger_ms, *prices(found)) == (0.0, 0.0, 0.0)
        assert found.outcome.shape == found.free_outcome.shape
        check(schedule, profile, found, deadline)


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("name", ["peak_w", "ramp_w_per_s", "band_w"])
def test_tighter_limits_never_need_less(name: str, copies: int) -> None:
    """The last, which nothing keeps, are one line that says what is nearest."""
    schedule, profile, frontier = case(blocking_power_w=CURVE)
    deadline = 1.6 * frontier.shortest.time_ms
    free = shaped_plan(schedule, profile, frontier, PowerLimits(), deadline, copies)
    start, energies = getattr(free.outcome.shape, name), [free.outcome.energy_mj]
    for share in (1.2, 0.99, 0.97):
        limits = PowerLimits(**{name: share * start})
        try:
            found = shaped_plan(schedule, profile, frontier, limits, deadline, copies)
        except EnergyError:
            break
        check(schedule, profile, found, deadline)
        energies.append(found.outcome.energy_mj)
    assert energies[0] == energies[1] and (np.diff(energies) >= -1e-6).all()
    with told(EnergyError, match=rf"^{name}: 0.01 W(/s)? is missed by \S+%, with \S+ W(/s)? at best; "):
        shaped_plan(schedule, profile, frontier, PowerLimits(**{name: 0.01}), deadline, copies)


def test_waits_until_the_deadline_where_that_keeps_the_limits() -> None:
    """Over a long window the peak is about the average, which a wait lowers."""
    schedule, profile, frontier = case(num_devices=2)
    deadline = 1.2 * frontier.plans[-1].time_ms
    limits = PowerLimits(window_ms=100 * deadline)
    free = shaped_plan(schedule, profile, frontier, limits, deadline)
    found = shaped_plan(
        schedule, profile, frontier, replace(limits, peak_w=0.97 * free.outcome.shape.peak_w), deadline
    )
    assert (free.outcome.trace.length_ms, prices(free)[1]) == (free.plan.time_ms, 0.0)
    assert (found.plan, found.outcome.trace.length_ms) == (free.plan, deadline)
    assert prices(found) == (0.0, pytest.approx(0.2))
    assert found.outcome.shape.peak_w < 0.97 * free.outcome.shape.peak_w
    trace = power_trace(schedule, profile, found.plan.clock_mhz, deadline)
    assert found.outcome.shape.mean_w == pytest.approx(trace.energy_mj / deadline)


def test_wrong_limits() -> None:
    for name in ("peak_w", "ramp_w_per_s", "band_w", "window_ms", "low_hz", "high_hz"):
        for value in (0.0, -5.0, math.inf, math.nan):
            with pytest.raises(EnergyError, match=rf"^{name}: \S+ is not above 0 and finite; give another$"):
                PowerLimits(**{name: value})
    with pytest.raises(EnergyError, match="^low_hz: 30 is above high_hz 20; swap them$"):
        PowerLimits(low_hz=30.0)
