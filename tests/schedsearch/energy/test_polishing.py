"""Plans solved exactly: against all choices, never worse than before, and with what time there is."""

from __future__ import annotations

import ctypes
import math
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import pytest
from energy.cases import all_plans, noisy_profile, profile_of, profiles, simulated
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from places import ROOT
from strategies import placements

from placements import Profile
from placements.shapes import v_shape
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.energy import EnergyError, Frontier, Polished, compute_frontier, polished
from schedsearch.energy.baselines import perseus_frontier
from schedsearch.energy.quiet import quiet_stdout
from schedsearch.schedule import Schedule

STEPS = [(900, 20.0, 900.0), (1200, 14.0, 1000.0), (1400, 12.5, 1300.0)]


def check(schedule: Schedule, profile: Profile, before: Frontier, after: Frontier) -> None:
    """Everything that is true of a polished frontier, whatever was proved."""
    waiting_w = profile.blocking_power_w * schedule.placement.num_devices
    for plan in after.plans:
        time, energy = simulated(schedule, profile, plan.clock_mhz)
        assert plan.time_ms == pytest.approx(time)
        assert plan.energy_mj == pytest.approx(energy, abs=1e-9 * waiting_w * time + 1e-9)
        assert plan.lower_bound_mj <= plan.energy_mj + 1e-7 * abs(plan.energy_mj) + 1e-6
    for earlier, later in pairwise(after.plans):
        assert earlier.time_ms < later.time_ms
        assert earlier.energy_mj - waiting_w * earlier.time_ms > later.energy_mj - waiting_w * later.time_ms
    for plan in before.plans:
        best = after.at(plan.time_ms)
        assert after.energy_next_to(best, plan.time_ms) <= plan.energy_mj * (1 + 1e-12) + 1e-9
        assert best.lower_bound_mj >= plan.lower_bound_mj - waiting_w * (plan.time_ms - best.time_ms) - 1e-6
    assert after.all_maximum == before.all_maximum


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("method", ["exact", "perseus"])
def test_is_the_best_of_all_choices(method: str, seed: int) -> None:
    """2 devices, 2 micro-batches, 3 clocks: 6561 choices."""
    schedule = one_f_one_b(v_shape(2), 2)
    profile = noisy_profile(schedule.placement, 3, seed)
    everything = np.array(all_plans(schedule, profile))
    effective = everything[:, 1] - 2 * profile.blocking_power_w * everything[:, 0]
    if method == "exact":
        before = compute_frontier(schedule, profile, 6)
    else:
        before = perseus_frontier(schedule, profile, 5.0)
    deadlines = np.linspace(before.shortest.time_ms, everything[:, 0].max(), 9).tolist()
    found = polished(schedule, profile, before, deadlines)
    check(schedule, profile, before, found.frontier)
    assert found.num_proved == found.num_deadlines >= len(before.plans)
    improved = False
    for deadline in [*deadlines, *(plan.time_ms for plan in before.plans)]:
        best = effective[everything[:, 0] <= deadline * (1 + 1e-9)].min()
        plan = found.frontier.at(deadline)
        assert plan.energy_mj - 2 * profile.blocking_power_w * plan.time_ms == pytest.approx(best, rel=1e-9)
        assert plan.gap == pytest.approx(0, abs=1e-6)
        improved |= plan.energy_mj < before.at(deadline).energy_mj * (1 - 1e-6)
    assert improved or method == "exact"


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_small_placement(data: st.DataObject) -> None:
    placement = data.draw(placements())
    profile = data.draw(profiles(placement, max_clocks=3))
    schedule = gpipe(placement, data.draw(st.integers(1, 2)))
    assume(len(schedule.blocks) <= 12)
    before = compute_frontier(schedule, profile, 4)
    found = polished(schedule, profile, before)
    check(schedule, profile, before, found.frontier)
    assert found.num_proved == found.num_deadlines


def large() -> tuple[Schedule, Profile, Frontier]:
    schedule = one_f_one_b(v_shape(4), 4)
    profile = noisy_profile(schedule.placement, 10, 1)
    return schedule, profile, compute_frontier(schedule, profile, 8)


@pytest.mark.parametrize("time_limit_s", [1e-6, 0.5])
def test_too_little_time_keeps_what_there_is(time_limit_s: float) -> None:
    schedule, profile, before = large()
    found = polished(schedule, profile, before, time_limit_s=time_limit_s)
    check(schedule, profile, before, found.frontier)
    assert found.num_proved < found.num_deadlines
    assert not found.interrupted


def test_ctrl_c_keeps_what_is_found() -> None:
    schedule, profile, before = large()
    seen: list[int] = []

    def interrupt_after_the_first(what: str, done: int, of: int) -> None:
        assert what == "polishing"
        assert done <= of == len(before.plans)
        seen.append(done)
        if len(seen) == 1:
            signal.raise_signal(signal.SIGINT)

    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        found = polished(schedule, profile, before, time_limit_s=600, on_progress=interrupt_after_the_first)
    finally:
        signal.signal(signal.SIGINT, old)
    assert found.interrupted
    assert seen == [1]
    assert found.num_proved == 1
    check(schedule, profile, before, found.frontier)


def test_refuses_what_it_cannot_do() -> None:
    schedule = one_f_one_b(v_shape(1), 2)
    profile = profile_of(F0=STEPS, B0=STEPS)
    before = compute_frontier(schedule, profile, 2)
    with pytest.raises(EnergyError, match="^time_limit_s: 0 is not a time above 0"):
        polished(schedule, profile, before, time_limit_s=0)
    for deadline in (49.0, math.nan):
        with pytest.raises(EnergyError, match="^deadline_ms: .* is below the shortest iteration of 50 ms"):
            polished(schedule, profile, before, deadline)
    long = one_f_one_b(v_shape(1), 17)
    with pytest.raises(EnergyError, match="^schedule: has 34 block instances, .* at most 32; use fewer"):
        polished(long, profile, compute_frontier(long, profile, 2))


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """HiGHS prints a line of its own for this schedule, past its options."""
    schedule = one_f_one_b(v_shape(4), 4)
    profile = noisy_profile(schedule.placement, 8, 1)
    before = compute_frontier(schedule, profile, 6)
    found: Polished = polished(schedule, profile, before, time_limit_s=60)
    assert found.num_proved > 0
    assert capfd.readouterr() == ("", "")


def test_quiet_stdout_drops_what_c_prints_and_nothing_else(capfd: pytest.CaptureFixture[str]) -> None:
    libc = ctypes.CDLL(None)
    sys.stdout.write("before\n")
    libc.printf(b"c before\n")
    with quiet_stdout():
        libc.printf(b"dropped\n")
        os.write(1, b"dropped too\n")
    libc.printf(b"c after\n")
    libc.fflush(None)
    sys.stdout.write("after\n")
    out = capfd.readouterr().out
    assert sorted(out.split("\n")) == ["", "after", "before", "c after", "c before"]
    with pytest.raises(KeyError), quiet_stdout():
        raise KeyError
    sys.stdout.write("still there\n")
    assert capfd.readouterr().out == "still there\n"


def test_quiet_stdout_in_two_threads_leads_back_to_standard_output(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The second to come was the last to leave, and led all output to where the first had it led."""
    first, second = ExitStack(), ExitStack()
    first.enter_context(quiet_stdout())
    second.enter_context(quiet_stdout())
    first.close()
    os.write(1, b"dropped")
    second.close()
    os.write(1, b"kept")
    assert capfd.readouterr().out == "kept"


def test_quiet_stdout_works_without_one() -> None:
    code = "from schedsearch.energy.quiet import quiet_stdout\nwith quiet_stdout(): import json"
    line = f'"{sys.executable}" -c "{code}" >&-'
    done = subprocess.run(["sh", "-c", line], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
