"""Patterns of a few devices: valid, never longer, as good as those made by hand, refuted where none is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searching import oracle, state_of

from experiments.benchmarks.instances.instance_file import read_instances
from placements import Placement
from placements.shapes import k_shape, loop_shape, nn_shape, v_shape, wave_shape
from schedsearch.baselines import v_min
from schedsearch.bounds.load_and_path import period_bound
from schedsearch.modulo.result import SearchProgress
from schedsearch.modulo.search import search
from schedsearch.modulo.strategies.patterns import Patterns
from schedsearch.modulo.strategies.shifted_model import ShiftedPattern, decide_shifted
from schedsearch.repetend import Repetend
from schedsearch.solver.budget import SolverBudget
from schedsearch.solver.interrupts import Interrupts
from schedsearch.starts.steady_state import steady_state
from schedsearch.validate import validate


def patterns(placement: Placement, work: float = 60.0) -> list[Repetend]:
    """Return the repetends that patterns give, until nothing shorter is left or the work is done."""
    return [start.repetend for start in Patterns().run(state_of(placement), oracle(), until=work)]


def reached(placement: Placement, period: float) -> Repetend:
    """Return the first repetend that patterns give whose period is short enough."""
    found = (start.repetend for start in Patterns().run(state_of(placement), oracle(), until=60.0))
    return next(repetend for repetend in found if repetend.period <= period)


def instance(name: str) -> Placement:
    """Return the placement of an instance of the library, for one micro-batch."""
    return next(each for each in read_instances() if each.name == name).placement.per_micro_batch


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(["v", "wave", "loop"]), st.integers(6, 10), st.integers(2, 24), st.integers(1, 4))
def test_each_is_shorter_than_the_one_before_and_valid(
    shape: str, devices: int, memory: int, forward: int
) -> None:
    chunks = () if shape == "v" else (2,)
    make: Callable[..., Placement] = {"v": v_shape, "wave": wave_shape, "loop": loop_shape}[shape]
    placement = make(devices, *chunks, forward, 3).with_memory(memory)
    found = patterns(placement, work=3.0)
    for repetend in found:
        assert repetend.micro_batches == 1
        validate(repetend.unroll(2 * repetend.in_flight))
    periods = [repetend.period for repetend in found]
    assert periods == sorted(set(periods), reverse=True)
    assert min(periods, default=period_bound(placement)) >= period_bound(placement)


def test_it_finds_what_v_min_has() -> None:
    """V-Min repeats every three devices; with measured times, 32 devices and its own memory."""
    placement = instance("wave_32x96_gpt_6b_min")
    made = steady_state(v_min(placement, 128), 1)
    assert made is not None
    validate(reached(placement, made.period * 1.003).unroll(96))


def test_it_beats_what_smaller_groups_of_interleaved_1f1b_have() -> None:
    """At 3/4 of its memory a loop's period is above the load by two transfers, where that was 3.4 %."""
    placement = instance("loop2_16x48_gpt_14b_three_quarters")
    assert reached(placement, placement.load(0) + 2 * 377).period == placement.load(0) + 2 * 377


def test_it_says_that_no_pattern_has_a_period() -> None:
    """1F1B is one; with memory for one micro-batch, no two of them overlap on the first device."""
    budget = SolverBudget(10.0, 60.0, 0)
    pattern = ShiftedPattern(v_shape(6).with_memory(6), 2)
    found, sure = decide_shifted(pattern, pattern.load, budget)
    assert found is not None and found.period == pattern.load and sure
    pattern = ShiftedPattern(v_shape(6).with_memory(1), 2)
    assert decide_shifted(pattern, 6 * pattern.load - 1, budget) == (None, True)


def test_a_question_without_work_is_not_answered() -> None:
    pattern = ShiftedPattern(instance("loop4_32x96_gpt_14b_three_quarters"), 3)
    assert decide_shifted(pattern, pattern.load, SolverBudget(1e-6, 60.0, 0)) == (None, False)


def test_devices_with_other_times_follow_the_slowest() -> None:
    """The last stage takes longer: the pattern has its times, the repetend their least period."""
    placement = v_shape(8).with_memory(8)
    slow = [
        dataclasses.replace(block, time=block.time + 1) if 7 in block.devices else block
        for block in placement.blocks
    ]
    placement = dataclasses.replace(placement, blocks=tuple(slow))
    assert ShiftedPattern(placement, 2).time == [2, 4]
    assert patterns(placement)[-1].period == 6


@pytest.mark.parametrize("placement", [nn_shape(8).with_memory(8), k_shape(8).with_memory(8)])
def test_blocks_of_several_devices_have_no_pattern(placement: Placement) -> None:
    assert not ShiftedPattern(placement, 2).applies
    assert patterns(placement) == []


def test_the_same_seed_gives_the_same_repetends() -> None:
    placement = loop_shape(9, 2, 7, 13).with_memory(20)
    assert patterns(placement) == patterns(placement) != []


def test_it_ends_in_time_and_by_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = instance("loop4_32x96_gpt_14b_three_quarters")
    assert patterns(placement, work=0.0) == []
    monkeypatch.setattr(Interrupts, "seen", True)
    with pytest.raises(KeyboardInterrupt):
        patterns(placement)


class _FoundError(Exception):
    """Ends a search once a pattern is its best."""


def test_a_search_says_that_a_pattern_was_best() -> None:
    """Of a loop, where orders are not found from device to device, which are better, nor annealed."""
    placement = instance("loop2_16x48_gpt_14b_three_quarters")

    def end(progress: SearchProgress) -> None:
        if "pattern of" in progress.found_by:
            assert progress.best is not None and progress.best <= placement.load(0) * 1.04
            raise _FoundError

    with pytest.raises(_FoundError):
        search(placement, 48, work_limit=640.0, on_progress=end, without=["device_by_device", "annealing"])
