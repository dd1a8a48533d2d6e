"""Programs in virtual time: by hand, against equations, and what must hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import any_schedules, with_transfer

from placements import Block, Kind, Placement
from placements.shapes import v_shape
from runtime.program.deadlock import check
from runtime.program.instructions import Programs, Receive, Run, Send
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.transport.communicators import DIRECTED, PAIR
from runtime.virtual.play import cheapest_sharing, play
from schedsearch.baselines import gpipe, one_f_one_b
from schedsearch.schedule import Schedule


def forward(name: str, device: int, time: int, *after: str) -> Block:
    return Block(name, Kind.F, (device,), time, 0, after)


def by_hand(blocks: list[Block], *instructions: list[Run | Send | Receive]) -> Programs:
    placement = Placement("by hand", len(instructions), tuple(blocks))
    return check(Programs(placement, 1, tuple(map(tuple, instructions))))


def test_a_transfer_holds_up_its_receiver_and_not_its_sender() -> None:
    """Tessel, Fig. 7: A's tensor is there at 1, its receiver is busy until 5, and the transfer takes 2."""
    blocks = [forward("A", 0, 1), forward("C", 0, 4), forward("D", 1, 5), forward("B", 1, 1, "A")]
    programs = by_hand(
        blocks,
        [Run("A", 0), Send("A", "B", 0, 1), Run("C", 0)],
        [Run("D", 0), Receive("A", "B", 0, 0), Run("B", 0)],
    )
    programs = replace(programs, placement=replace(programs.placement, transfer=(("A", "B", 2),)))
    assert play(programs, DIRECTED) == 8
    assert play(check(prefetch_receives(programs, 1)), DIRECTED) == 6


def test_the_last_transfer_counts_even_where_no_block_is_after_it() -> None:
    schedule = gpipe(replace(v_shape(2), transfer=(("F0", "F1", 3), ("B1", "B0", 2))), 1)
    assert play(lower(schedule), DIRECTED) == schedule.makespan == 1 + 3 + 1 + 3 + 2 + 3
    programs = lower(schedule)
    cut = replace(programs, instructions=(programs.instructions[0][:2], programs.instructions[1][:1]))
    assert play(cut, DIRECTED) == 4


@settings(max_examples=40)
@given(any_schedules(), st.integers(1, 3))
def test_whoever_waits_for_less_is_never_later(schedule: Schedule, ahead: int) -> None:
    programs = lower(schedule)
    assert play(programs, DIRECTED) <= play(programs, PAIR)
    assert play(prefetch_receives(programs, ahead), DIRECTED) <= play(programs, DIRECTED)


@settings(max_examples=40)
@given(any_schedules())
def test_without_transfer_times_no_iteration_ends_after_its_plan(schedule: Schedule) -> None:
    for ahead in (0, 2):
        programs = prefetch_receives(lower(schedule), ahead)
        free = replace(programs.placement, transfer=())
        assert play(replace(programs, placement=free), DIRECTED) <= schedule.makespan


def test_directions_share_a_communicator_where_an_iteration_takes_no_longer() -> None:
    free = v_shape(4)
    slow = with_transfer(free, 1)
    programs = check(prefetch_receives(lower(one_f_one_b(free, 8)), 1))
    assert cheapest_sharing(programs) == PAIR
    assert cheapest_sharing(replace(programs, placement=slow)) == DIRECTED
    assert cheapest_sharing(replace(lower(gpipe(free, 8)), placement=slow)) == PAIR


def test_a_block_of_several_devices_begins_when_all_have_come_to_it() -> None:
    wide = Block("W", Kind.F, (0, 1), 1, 0, ())
    placement = Placement("wide", 2, (forward("A", 0, 3), wide))
    programs = Programs(placement, 1, ((Run("A", 0), Run("W", 0)), (Run("W", 0),)))
    assert play(programs, DIRECTED) == 4
