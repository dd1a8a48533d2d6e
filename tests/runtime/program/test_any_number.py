"""Scripts of one number of micro-batches run another: the same calls, clocks and results as made for it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from energy.cases import noisy_profile
from small_runs import SMALL_GPT, change, launched

from placements.shapes import k_shape, loop_shape, v_shape, x_shape
from runtime.clocks.periodic_clocks import PeriodicClocks, ScriptClocks, clocks_of_rounds
from runtime.codegen.codegen import generate
from runtime.codegen.script import Script, programs_of, read_script
from runtime.program.calls import ScriptError
from runtime.program.deadlock import UnsafeProgramsError, check
from runtime.program.instructions import Programs
from runtime.program.loops import loops_of_each, parametric
from runtime.program.lower import lower
from schedsearch.baselines import chimera, dual_pipe, gpipe, interleaved_one_f_one_b, one_f_one_b
from schedsearch.energy import all_maximum_clocks, simulate_at_clocks
from schedsearch.energy.limits.folding import PeriodicSchedule
from schedsearch.energy.limits.periodic import PeriodicPlan, periodic_plan
from schedsearch.repetend import Repetend
from schedsearch.schedule import as_soon_as_possible
from schedsearch.searches.search import search

MODEL = {"name": "synthetic", "hidden_size": 4, "sequence_length": 4, "micro_batch_size": 1}


@cache
def repetend_of(micro_batches: int) -> Repetend:
    placement = v_shape(3).with_memory(3)
    answer = search(placement, 6, micro_batches_per_repetend=micro_batches, objectives=["period"])
    assert answer.repetend is not None
    return answer.repetend


def scripts_of(
    programs: Programs, directory: Path, shift: int | None = None, clocks: ScriptClocks | None = None
) -> list[Script]:
    paths = generate(programs, clocks or {}, MODEL, directory, shift=shift)
    return [read_script(path) for path in paths]


SCHEDULES: list[tuple[str, Callable[[int], Programs], int | None]] = [
    ("1f1b", lambda n: lower(one_f_one_b(v_shape(4), n)), 1),
    ("gpipe", lambda n: lower(gpipe(v_shape(4), n)), None),
    ("gpipe_k", lambda n: lower(gpipe(k_shape(2), n)), None),
    ("interleaved", lambda n: lower(interleaved_one_f_one_b(loop_shape(2), n)), None),
    ("chimera", lambda n: lower(chimera(x_shape(4), n)), None),
    ("dual_pipe", lambda n: lower(dual_pipe(x_shape(4, split_backward=True), n)), None),
    ("searched", lambda n: lower(repetend_of(1).unroll(n)), 1),
    ("searched_by_two", lambda n: lower(repetend_of(2).unroll(n)), 2),
]


@pytest.mark.parametrize(("make", "shift"), [row[1:] for row in SCHEDULES], ids=[row[0] for row in SCHEDULES])
def test_scripts_of_8_run_12_as_those_of_12_do(
    make: Callable[[int], Programs], shift: int | None, tmp_path: Path
) -> None:
    scripts = scripts_of(make(8), tmp_path / "8", shift)
    assert scripts[0].least_micro_batches is not None, "all of it repeats"
    assert programs_of([script.at(12) for script in scripts]) == make(12)
    assert programs_of([script.at(8) for script in scripts]) == make(8)
    for number in range(scripts[0].least_micro_batches, 20, scripts[0].micro_batches_per_round):
        check(programs_of([script.at(number) for script in scripts]))
    text = (tmp_path / "8/device_0.py").read_text()
    assert re.search(r"for n in range\(.*num_micro_batches", text)


def test_a_run_of_another_number_equals_scripts_made_for_it(tmp_path: Path) -> None:
    scripts_of(lower(one_f_one_b(v_shape(2), 4)), tmp_path / "4")
    scripts_of(lower(one_f_one_b(v_shape(2), 7)), tmp_path / "7")
    changed = launched(tmp_path / "4", 2, 2, launcher="fork", num_micro_batches=7)
    made = launched(tmp_path / "7", 2, 2, launcher="in_process")
    assert changed.losses == made.losses
    assert (changed.num_micro_batches, len(changed.losses[0])) == (7, 7)
    assert changed.comparison == made.comparison
    assert changed.comparison.bitwise_equal
    assert changed.comparison.is_equal


def test_a_number_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    scripts_of(lower(one_f_one_b(v_shape(4), 8)), tmp_path / "few")
    with pytest.raises(ScriptError, match="num_micro_batches: 3 cannot be run by the .*; use 4, 5, 6 and"):
        launched(tmp_path / "few", 4, launcher="fork", num_micro_batches=3)
    fixed = scripts_of(lower(gpipe(v_shape(2), 1)), tmp_path / "fixed")
    with pytest.raises(ScriptError, match="5 cannot be run, the scripts are for exactly 1; generate"):
        fixed[0].at(5)
    rounds = scripts_of(lower(repetend_of(2).unroll(8)), tmp_path / "rounds", 2)
    least = rounds[0].least_micro_batches
    assert least is not None
    with pytest.raises(ScriptError, match=f"9 cannot be run by .*; use {least}, {least + 2}, "):
        rounds[0].at(9)


def test_a_new_number_is_checked_before_anything_starts(tmp_path: Path) -> None:
    """Here only micro-batches beyond the scripts' own number are wrong."""
    scripts_of(lower(one_f_one_b(v_shape(2), 4)), tmp_path)
    right = '        device.send("B1", "B0", n, target=0)'
    change(tmp_path / "device_1.py", right, right.replace("n,", "min(n, 2),"))
    assert launched(tmp_path, 2, 1, launcher="in_process").comparison is not None
    with pytest.raises(UnsafeProgramsError):
        launched(tmp_path, 2, 1, launcher="in_process", num_micro_batches=6)


def test_what_does_not_repeat_is_not_stretched() -> None:
    """Half of the blocks in a loop are not enough; without a loop there is nothing to repeat."""
    schedule = gpipe(v_shape(2), 4)
    last = [("B0", n) for n in (1, 0, 3, 2)], [("B1", n) for n in (1, 0, 3, 2)]
    orders = [[*schedule.order(device)[:4], *last[device]] for device in (0, 1)]
    mixed = lower(as_soon_as_possible(schedule.placement, 4, orders))
    assert loops_of_each(mixed, 1)[0].loops
    for programs in (mixed, lower(one_f_one_b(v_shape(2), 1))):
        assert parametric(programs, loops_of_each(programs, 1), 1) is None


@cache
def plan_of(micro_batches: int) -> PeriodicPlan:
    """Return a periodic plan for 12 micro-batches with a tenth more time than the highest clocks take."""
    periodic = PeriodicSchedule(repetend_of(micro_batches), repetend_of(micro_batches).placement, 1)
    profile = noisy_profile(periodic.placement, 5, seed=1)
    schedule = periodic.schedule(12)
    deadline_ms = 1.1 * simulate_at_clocks(schedule, profile, all_maximum_clocks(schedule, profile)).time_ms
    return periodic_plan(periodic, profile, 12, deadline_ms)


def clocks_of(plan: PeriodicPlan) -> ScriptClocks:
    data: dict[str, Any] = plan.to_dict()
    warmup, steady, cooldown = (data[part] for part in ("warmup", "steady", "cooldown"))
    return clocks_of_rounds(warmup, steady, cooldown, data["micro_batches_per_repetend"], 12)


@pytest.mark.parametrize("micro_batches", [1, 2])
def test_periodic_clocks_follow_the_number_of_micro_batches(micro_batches: int, tmp_path: Path) -> None:
    plan = plan_of(micro_batches)
    programs = lower(plan.periodic.schedule(12))
    scripts = scripts_of(programs, tmp_path, micro_batches, clocks_of(plan))
    assert scripts[0].least_micro_batches is not None
    asked: set[tuple[int, ...]] = set()
    for number in (12, 10, 20):
        expected = plan.unrolled(number).clock_mhz
        for script in scripts:
            for run in script.at(number).calls.runs:
                assert run.clock_mhz == expected[run.block][run.micro_batch]
        asked |= {tuple(clocks) for clocks in expected.values()}
    assert len({clock for clocks in asked for clock in clocks}) > 2, "else any look-up would do"


def test_clocks_without_a_steady_part_are_for_one_number_of_micro_batches(tmp_path: Path) -> None:
    """Loops could run more of them, but nobody has said at which clocks."""
    ends = {block: [[1410, 1200]] for block in ("F0", "F1", "B1", "B0")}
    steady = {block: [[900]] for block in ends}
    programs = lower(one_f_one_b(v_shape(2), 4))
    clocks = clocks_of_rounds(ends, {}, ends, 1, 4)
    assert clocks["F0"] == [1410, 1200, 1200, 1410]
    text = generate(programs, clocks, SMALL_GPT, tmp_path / "ends")[0].read_text()
    assert "exactly 4 micro-batches (each has clocks of its own)" in text
    with pytest.raises(ScriptError, match="the scripts are for exactly 4; generate them anew"):
        launched(tmp_path / "ends", 2, num_micro_batches=8, launcher="in_process")
    clocks = clocks_of_rounds(ends, steady, ends, 1, 4)
    text = generate(programs, clocks, SMALL_GPT, tmp_path / "all")[0].read_text()
    assert "4 micro-batches (or any number from" in text


def test_clocks_of_rounds_of_two_are_one_list_for_each_end() -> None:
    """Of 7 micro-batches the last round has one only, the first of its two."""
    clocks = clocks_of_rounds({"F": [[1, 2], [3]]}, {"F": [[8], [9]]}, {"F": [[5], [6, 7]]}, 2, 7)
    assert clocks == {"F": PeriodicClocks([1, 3, 2], [8, 9], [7, 5])}
    clocks = clocks_of_rounds({"F": [[1], []]}, {"F": [[9], [9]]}, {}, 2, 8)
    assert clocks == {"F": PeriodicClocks([1], 9, [])}
