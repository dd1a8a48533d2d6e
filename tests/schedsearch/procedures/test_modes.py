"""Modes and streams in the search, against trying all there is, and on cases with known answers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import pytest
from modes_and_streams import CASES, at_random, offloading

from experiments.benchmarks.inputs.made_placements import expert_layers, recomputing
from placements import Kind, Placement
from placements.models.memory_levers import Offload, Recompute, with_levers
from placements.shapes import v_shape, wave_shape
from placements.streams import Slowdown
from schedsearch.core.answer import Answer, Status
from schedsearch.metrics import peak_host_memory, peak_memory
from schedsearch.passes.slow_streams import at_worst
from schedsearch.proof.load_and_path import period_bound
from schedsearch.repetend import Repetend
from schedsearch.searches.search import search
from schedsearch.validate import InvalidScheduleError, validate


def test_modes_of_two_micro_batches_beat_those_of_one() -> None:
    """Forward 2, backward 4, 10 units or 1 kept: periods proved by a plain CP-SAT model, by capacity."""
    expected = {32: (8, 7), 12: (12, 11)}
    periods = {}
    for capacity in expected:
        alone = proved_period(recomputing(4).with_memory(capacity), 1)
        periods[capacity] = alone, proved_period(recomputing(4).with_memory(capacity), 2)
    assert periods == expected


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_least_period_is_that_of_trying_all(name: str) -> None:
    """All modes, all starts within the period, and all rounds up to three."""
    placement = CASES[name]
    answer = search(placement, 6, micro_batches_per_repetend=1, objectives=["period"], work_limit=30)
    least = next(period for period in itertools.count(1) if any(repetends(placement, period)))
    assert (answer.status, answer.repetend and answer.repetend.period) == (Status.OPTIMAL, least)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_period_is_that_of_trying_all_at_random(seed: int) -> None:
    """Two stages with times, memory, modes and copies at random."""
    placement = at_random(seed)
    answer = search(placement, 4, micro_batches_per_repetend=1, objectives=["period"], work_limit=30)
    periods = range(1, 1 + (answer.repetend.period if answer.repetend else 12))
    least = next((period for period in periods if any(repetends(placement, period))), None)
    assert period_bound(placement) <= (least or 12)
    assert (answer.repetend and answer.repetend.period) == least
    assert answer.status is (Status.INFEASIBLE if least is None else Status.OPTIMAL)


def test_what_goes_to_the_host_is_counted_there() -> None:
    """Eight forwards in flight where four fit: the host holds the others, and the load is met."""
    placement = with_levers(
        v_shape(8, forward_time=2, backward_time=4, stage_memory=10).with_memory(40),
        offload={f"F{stage}": [Offload(10, 4)] for stage in range(8)},
        host_memory=100,
    )
    answer = search(placement, 16, objectives=["period"], work_limit=20)
    assert answer.schedule is not None and rate_of(answer) == 6
    assert proved_period(placement.as_run((0,) * 8), 1) == 12
    assert peak_memory(answer.schedule).max() <= 40 < peak_host_memory(answer.schedule).max() <= 100
    assert proved_period(replace(placement, host_memory=(0,) * 8), 1) == 12


def test_a_placement_of_streams_is_searched_with_all_strategies() -> None:
    """One layer of attention, all-to-alls and experts on each of four stages; the load is met."""
    answer = search(expert_layers(4, 1).with_memory(10), 16, objectives=["period"], work_limit=10)
    assert (answer.status, answer.repetend and answer.repetend.period) == (Status.OPTIMAL, 2954)
    assert answer.schedule is not None
    assert validate(answer.schedule).placement.has_streams


def test_streams_that_slow_each_other_down_are_run_as_they_are() -> None:
    """The schedule holds for slow blocks; as run, it is no longer, and no shorter than its bound."""
    placement = expert_layers(2, 1, slower=1.05).with_memory(8)
    answer = search(placement, 12, objectives=["period"], work_limit=10)
    slow = search(at_worst(placement), 12, objectives=["period"], work_limit=10)
    assert answer.schedule is not None and slow.schedule is not None and answer.repetend is not None
    assert validate(answer.schedule).makespan <= slow.schedule.makespan
    bound = period_bound(placement)
    assert period_bound(replace(placement, slowdown=())) < bound <= answer.repetend.period < 1.01 * bound
    assert slow.repetend is not None and answer.repetend.period <= slow.repetend.period
    validate(answer.repetend.at_initiation_interval(30))


def test_a_makespan_of_slow_streams_that_meets_its_bound_is_proved() -> None:
    answer = search(offloading(1.5), 6, objectives=["makespan"], work_limit=0.25)
    assert answer.schedule is not None and answer.status is Status.OPTIMAL
    assert answer.schedule.makespan == answer.makespan_bound


@pytest.mark.parametrize(("num_devices", "most"), [(1, Fraction(5)), (2, Fraction(11, 2))])
def test_a_forward_and_a_backward_take_less_side_by_side_than_one_after_the_other(
    num_devices: int, most: Fraction
) -> None:
    """A forward and a backward take 2 and 4 ticks alone, 5 together."""
    stages = v_shape(num_devices, forward_time=2, backward_time=4).with_memory(2 * num_devices)
    pairs = tuple(
        replace(block, stream="backward") if block.kind is Kind.B else block for block in stages.blocks
    )
    placement = replace(stages, blocks=pairs, slowdown=(Slowdown(("compute", "backward"), (1.5, 1.5)),))
    answer = search(placement, 12, objectives=["period"], work_limit=5)
    assert answer.schedule is not None and answer.repetend is not None
    assert period_bound(placement) == 5
    assert rate_of(answer) == most < proved_period(stages, 1)
    assert answer.status is (Status.OPTIMAL if most == 5 else Status.FEASIBLE)
    validate(answer.repetend.at_initiation_interval(12))
    again = search(placement, 12, objectives=["period"], begin_with=answer, work_limit=2.5)
    assert rate_of(again) <= most


def test_a_wave_of_chunks_with_modes_is_lowered_for_other_strategies() -> None:
    """The modes first, then the orders: no question about both is asked."""
    forwards = [f"F{chunk}" for chunk in range(16)]
    placement = with_levers(
        wave_shape(8, forward_time=2, backward_time=4, stage_memory=10).with_memory(60),
        {name: [Recompute(1, 2)] for name in forwards},
    )
    alone = search(placement, 16, objectives=["period"], strategies=["modes"], work_limit=6)
    assert alone.schedule is not None and validate(alone.schedule).chosen
    assert rate_of(alone) < rate_of(search(placement, 16, objectives=["period"], strategies=[], work_limit=6))


def proved_period(placement: Placement, max_size: int) -> Fraction:
    """Return the least period per micro-batch, which must be proved."""
    answer = search(
        placement, 12, max_micro_batches_per_repetend=max_size, objectives=["period"], work_limit=40
    )
    assert answer.status is Status.OPTIMAL
    return rate_of(answer)


def rate_of(answer: Answer) -> Fraction:
    assert answer.repetend is not None
    return Fraction(answer.repetend.period, answer.repetend.micro_batches)


def repetends(placement: Placement, period: int) -> Iterator[Repetend]:
    """Yield every repetend of one micro-batch, of a period and at most three rounds."""
    numbers = (range(len(decision.choices)) for decision in placement.decisions)
    for chosen in itertools.product(*numbers):
        as_run = placement.as_run(chosen)
        if any(block.time > period for block in as_run.blocks):
            continue
        for starts in _starts(as_run, period, {}):
            choices = (chosen,) if placement.decisions else ()
            repetend = Repetend.from_first_starts(
                placement, 1, period, {(name, 0): start for name, start in starts.items()}, choices
            )
            try:
                validate(repetend.at_initiation_interval(8))
            except InvalidScheduleError:
                continue
            yield repetend


def _starts(placement: Placement, period: int, known: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield all starts that keep the dependencies, the first block at 0."""
    if len(known) == len(placement.blocks):
        yield dict(known)
        return
    block = placement.topological_order[len(known)]
    first = max((known[name] + placement.by_name[name].time for name in block.after), default=0)
    for start in range(first, 3 * period) if known else (0,):
        yield from _starts(placement, period, {**known, block.name: start})
