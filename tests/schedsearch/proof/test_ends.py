from collections.abc import Callable

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ortools.sat.python import cp_model
from strategies import placements as random_placements
from strategies import with_transfer

from placements import Block, Kind, Placement
from placements.shapes import v_shape, wave_shape, x_shape
from schedsearch.baselines import one_f_one_b, zb_h1
from schedsearch.proof.ends import device_span_bound, ends_bound
from schedsearch.proof.makespan import makespan_bound
from schedsearch.proof.memory_need import CapacityError, require_capacity
from schedsearch.proof.timeline import Timeline


def shortest(placement: Placement, number: int, spans: bool) -> int | None:
    """Return the shortest makespan or device span that a model finds; it shares nothing with the bounds."""
    model = cp_model.CpModel()
    horizon = number * sum(b.time for b in placement.blocks) + number * sum(t for *_, t in placement.transfer)
    ids = [(block.name, n) for block in placement.blocks for n in range(number)]
    start = {i: model.new_int_var(0, horizon, str(i)) for i in ids}
    end = {(name, n): start[name, n] + placement.by_name[name].time for name, n in ids}
    for block in placement.blocks:
        for before in block.after:
            for n in range(number):
                model.add(
                    start[block.name, n] >= end[before, n] + placement.transfer_time(before, block.name)
                )
    value = model.new_int_var(0, horizon, "value")
    for device in range(placement.num_devices):
        here = [i for i in ids if device in placement.by_name[i[0]].devices]
        runs = [
            model.new_fixed_size_interval_var(start[i], placement.by_name[i[0]].time, str(i)) for i in here
        ]
        model.add_no_overlap(runs)
        if placement.free_memory is not None:
            demands = [placement.by_name[name].memory_on(device) for name, _ in here]
            capacity = placement.free_memory[device]
            model.add_reservoir_constraint([start[i] for i in here], demands, -1000, capacity)
        first = model.new_int_var(0, horizon, "first") if spans else 0
        for i in here:
            model.add(first <= start[i])
            model.add(end[i] <= first + value)
    model.minimize(value)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = 0.5
    is_solved = solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return round(solver.objective_value) if is_solved else None


@settings(max_examples=15, deadline=None)
@given(random_placements(max_devices=3, max_forward=4, training=True), st.integers(1, 4), st.integers(1, 6))
def test_no_schedule_beats_the_ends(placement: Placement, number: int, memory: int) -> None:
    placement = placement.with_memory(memory)
    try:
        require_capacity(placement)
    except CapacityError:
        assume(False)
    bounds = makespan_bound(placement, number), device_span_bound(placement, number)
    for bound, spans in zip(bounds, (False, True), strict=True):
        makespan = shortest(placement, number, spans)
        assert makespan is None or makespan >= bound


@pytest.mark.parametrize("shape", [v_shape, x_shape, wave_shape])
@pytest.mark.parametrize(("memory", "number"), [(2, 3), (3, 1)])
def test_no_split_backward_beats_the_ends(shape: Callable[..., Placement], memory: int, number: int) -> None:
    placement = shape(2, 2, split_backward=True, input_time=3, weight_time=1).with_memory(2 * memory)
    for bound, spans in (
        (makespan_bound(placement, number), False),
        (device_span_bound(placement, number), True),
    ):
        makespan = shortest(placement, number, spans)
        assert makespan is None or makespan >= bound


def test_the_ends_of_a_zero_bubble_pipeline() -> None:
    """The first device fits p forwards before its first input half, and too little after its last forward.

    So m(F+B+W) + (p-1)(F+B-W+4c) ticks are needed, and ZB-H1 takes no more.
    """
    p, m, f, b, w, c = 8, 24, 18522, 18086, 9337, 601
    bare = v_shape(p, f, split_backward=True, input_time=b, weight_time=w, stage_memory=11, input_release=7)
    placement = with_transfer(bare, c).with_memory(11 * p)
    min_ticks = m * (f + b + w) + (p - 1) * (f + b - w + 4 * c)
    assert makespan_bound(placement, m) == device_span_bound(placement, m) == min_ticks
    assert zb_h1(placement, m).makespan == min_ticks


def test_ample_memory_leaves_nothing_idle_on_a_device_itself() -> None:
    placement = v_shape(4, 1, split_backward=True).with_memory(16)
    assert device_span_bound(placement, 12) == 12 * 3
    assert ends_bound(Timeline(placement, frozenset()), 12) == 12 * 3 + 3


def test_one_f_one_b_has_the_least_device_span_of_its_memory() -> None:
    placement = v_shape(4, 1, 2).with_memory(4)
    schedule = one_f_one_b(placement, 8)
    assert device_span_bound(placement, 8) == schedule.makespan


def test_a_device_with_very_many_states_has_its_head_and_its_tail() -> None:
    """Twelve blocks in any order, between one on another device before and one after."""
    middle = [Block(f"F{i}", Kind.F, (1,), 2, after=("first",)) for i in range(12)]
    names = tuple(block.name for block in middle)
    first, last = Block("first", Kind.F, (0,), 5), Block("last", Kind.F, (0,), 7, after=names)
    placement = Placement("many states", 2, (first, *middle, last))
    assert makespan_bound(placement, 3) == 5 + 3 * 12 * 2 + 7
    assert device_span_bound(placement, 3) >= 3 * 12 * 2
