from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
from energy.cases import noisy_profile
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from told import told

from placements.shapes import v_shape
from schedsearch.baselines import one_f_one_b
from schedsearch.energy import (
    EnergyError,
    EnergyPolicy,
    FrequencyPlan,
    Frontier,
    Interval,
    SignalJob,
    compute_frontier,
    min_cost_policy,
    read_signal,
    until,
)


def frontier_of(*points: tuple[float, float]) -> Frontier:
    """A frontier of (ms, mJ) on one device that waits at 1 W."""
    plans = tuple(FrequencyPlan({}, time, energy, 0.0) for time, energy in points)
    return Frontier(plans, plans[0], 1.0, 1)


THREE = frontier_of((10.0, 4000.0), (14.0, 3000.0), (20.0, 2600.0))


def check(frontier: Frontier, job: SignalJob, found: EnergyPolicy) -> None:
    assert sum(stay.num_iterations for stay in found.stays) == job.num_iterations
    assert frontier.num_devices is not None
    pause = (frontier.blocking_power_w if job.pause_w is None else job.pause_w) * frontier.num_devices
    cost = energy = 0.0
    for stay, interval in zip(found.stays, job.signal, strict=True):
        assert stay.interval == interval
        assert len(stay.runs) <= 2
        assert all(plan in frontier.plans and count > 0 for plan, count in stay.runs)
        run_ms = sum(count * plan.time_ms for plan, count in stay.runs)
        used = sum(count * plan.energy_mj for plan, count in stay.runs)
        assert run_ms <= interval.duration_s * 1e3 * (1 + 1e-6) + 1e-6
        used += pause * (interval.duration_s * 1e3 - run_ms)
        energy += used
        cost += interval.price_per_kwh * used / 3.6e9
    assert found.energy_mj == pytest.approx(energy)
    assert found.cost == pytest.approx(cost, abs=1e-15)
    assert found.min_cost <= found.cost


def min_cost(frontier: Frontier, job: SignalJob) -> float:
    """The same with divided iterations, as one linear program."""
    assert frontier.num_devices is not None
    pause = (frontier.blocking_power_w if job.pause_w is None else job.pause_w) * frontier.num_devices
    plans, signal = frontier.plans, job.signal
    cost = [i.price_per_kwh * (p.energy_mj - pause * p.time_ms) / 3.6e9 for i in signal for p in plans]
    rows = [
        [p.time_ms * (i == j) / 1e3 for i in range(len(signal)) for p in plans] for j in range(len(signal))
    ]
    scale = max(map(abs, cost)) or 1.0
    answer = linprog(
        [each / scale for each in cost],
        A_ub=rows,
        b_ub=[i.duration_s for i in signal],
        A_eq=[[1] * len(cost)],
        b_eq=[job.num_iterations],
    )
    assert answer.status == 0, answer.message
    return (
        float(answer.fun) * scale + sum(i.price_per_kwh * pause * i.duration_s * 1e3 for i in signal) / 3.6e9
    )


intervals = st.builds(
    Interval, st.floats(0.5, 20.0), st.one_of(st.floats(0.01, 2.0), st.sampled_from([-0.5, 0.0, 0.3]))
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(intervals, min_size=1, max_size=6),
    st.floats(0.01, 0.98),
    st.sampled_from([None, 0.0, 0.5]),
    st.integers(0, 3),
)
def test_is_exact_up_to_whole_iterations(
    signal: list[Interval], share: float, pause_w: float | None, kind: int
) -> None:
    frontier = [
        THREE,
        frontier_of((10.0, 4000.0)),
        frontier_of((10.0, 4000.0), (12.0, 3900.0), (14.0, 3000.0), (30.0, 2900.0)),
        frontier_of((3.0, 900.0), (3.5, 700.0)),
    ][kind]
    most = sum(math.floor(i.duration_s * 1e3 / frontier.plans[0].time_ms) for i in signal)
    job = SignalJob(max(int(share * most), 1), tuple(signal), pause_w)
    found = min_cost_policy(frontier, job)
    check(frontier, job, found)
    bound = min_cost(frontier, job)
    scale = sum(abs(i.price_per_kwh) * i.duration_s for i in signal) * 400 / 3.6e6
    assert found.min_cost == pytest.approx(bound, abs=1e-6 * scale + 1e-12)
    per_iteration = max(abs(i.price_per_kwh) for i in signal) * 4000 / 3.6e9
    assert found.cost <= bound + per_iteration * (4 * len(signal) + 4)


def test_against_every_way_to_run() -> None:
    """Three intervals, every plan and every number of iterations in each."""
    signal = (Interval(0.1, 0.3), Interval(0.1, 0.1), Interval(0.1, 0.6))
    for iterations in (1, 7, 12, 18, 24, 30):
        found = min_cost_policy(THREE, SignalJob(iterations, signal))
        each = []
        for interval in signal:
            ways: dict[int, float] = {}
            for counts in itertools.product(range(11), range(8), range(6)):
                runs = list(zip(THREE.plans, counts, strict=True))
                if sum(n * plan.time_ms for plan, n in runs) <= 100:
                    energy = 100 + sum(n * (plan.energy_mj - plan.time_ms) for plan, n in runs)
                    cost = interval.price_per_kwh * energy / 3.6e9
                    ways[sum(counts)] = min(cost, ways.get(sum(counts), math.inf))
            each.append(ways)
        best = min(
            sum(ways[n] for ways, n in zip(each, counts, strict=True))
            for counts in itertools.product(*each)
            if sum(counts) == iterations
        )
        assert found.min_cost * (1 - 1e-9) <= best <= found.cost * (1 + 1e-9)
        assert found.cost <= 1.05 * best


def test_slow_where_energy_is_dear() -> None:
    schedule = one_f_one_b(v_shape(3), 6)
    frontier = compute_frontier(schedule, noisy_profile(schedule.placement, 20, seed=1), 40)
    signal = tuple(Interval(900.0, price) for price in (0.1, 0.2, 0.3, 0.4))
    job = SignalJob(int(3.3e6 / frontier.shortest.time_ms), signal)
    found = min_cost_policy(frontier, job)
    check(frontier, job, found)
    counts = [stay.num_iterations for stay in found.stays]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]
    assert found.gap < 0.002


def test_one_price_and_all_time_is_one_plan() -> None:
    found = min_cost_policy(THREE, SignalJob(500, (Interval(10.0, 0.2),)))
    assert [stay.runs for stay in found.stays] == [((THREE.plans[2], 500),)]
    assert found.gap == pytest.approx(0, abs=1e-9)


def test_too_many_iterations_and_wrong_numbers() -> None:
    signal = (Interval(1.0, 0.2),)
    with pytest.raises(
        EnergyError, match="iterations: 101 cannot be done in the time of the signal, at most 100"
    ):
        min_cost_policy(THREE, SignalJob(101, signal))
    with pytest.raises(EnergyError, match="iterations: 0 is not at least 1"):
        min_cost_policy(THREE, SignalJob(0, signal))
    with pytest.raises(EnergyError, match="pause_w: -1 is not a power"):
        min_cost_policy(THREE, SignalJob(1, signal, -1.0))
    with pytest.raises(EnergyError, match="num_devices: is not in the frontier's file"):
        min_cost_policy(Frontier(THREE.plans, THREE.plans[0], 1.0), SignalJob(1, signal))


def test_cuts_a_signal_at_the_deadline() -> None:
    signal = (Interval(10.0, 0.1), Interval(10.0, 0.2))
    assert until(signal, 20.0) == signal
    assert until(signal, 10.0) == signal[:1]
    assert until(signal, 12.5) == (signal[0], Interval(2.5, 0.2))
    for wrong in (0.0, -1.0, 20.1, math.nan):
        with pytest.raises(EnergyError, match=r"job_deadline_s: \S+ is not within the 20 s of the signal"):
            until(signal, wrong)


def test_reads_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "signal.csv"
    path.write_text("duration_s, price_per_kwh\n3600,0.25\n\n900,-0.01\n")
    assert read_signal(path) == (Interval(3600.0, 0.25), Interval(900.0, -0.01))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the columns are ''; use duration_s,price_per_kwh"),
        ("time,price\n1,2\n", "line 1: the columns are 'time,price'"),
        ("duration_s,price_per_kwh\n", "has no rows below the header"),
        ("duration_s,price_per_kwh\n1\n", "line 2: has 1 cells for 2 columns; give one each"),
        (
            "duration_s,price_per_kwh\n1,2\n1,x\n",
            "line 3, column price_per_kwh: 'x' is not a number; give one",
        ),
        (
            "duration_s,price_per_kwh\n0,2\n",
            "line 2, column duration_s: '0' is not a number above 0; give it in s",
        ),
        ("duration_s,price_per_kwh\n1,nan\n", "line 2, column price_per_kwh: 'nan' is not a number"),
    ],
)
def test_wrong_signals(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "signal.csv"
    path.write_text(text)
    with told(EnergyError, f"{path}: {message}"):
        read_signal(path)
    with pytest.raises(EnergyError, match="cannot be read"):
        read_signal(tmp_path / "none.csv")
