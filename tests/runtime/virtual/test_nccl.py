"""Programs under the rules of NCCL: where only GPUs lose time or stand still."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from crossing import CROSSING
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import any_schedules

from placements import Block, Kind, Placement
from placements.shapes import SHAPES, m_shape, v_shape, x_shape
from runtime.codegen.codegen import generate
from runtime.codegen.script import programs_of, read_scripts
from runtime.program.calls import Message, Transfer
from runtime.program.deadlock import UnsafeProgramsError
from runtime.program.instructions import Programs, Receive, Run, Send
from runtime.program.lower import lower
from runtime.program.prefetch import prefetch_receives
from runtime.virtual.play import play
from runtime.virtual.rules import NCCL_RULES, Communication, Rules
from schedsearch.baselines import HAND_MADE, gpipe, one_f_one_b
from schedsearch.schedule import Schedule

DEVICE, PAIR, DIRECTED = list(Communication)[1:]


def forward(name: str, device: int, time: int, *after: str) -> Block:
    return Block(name, Kind.F, (device,), time, 0, after)


@settings(max_examples=60, deadline=None)
@given(any_schedules(), st.sampled_from([0.0, 0.5, 3.0]), st.integers(0, 2))
def test_our_order_ends_under_all_rules_and_more_of_everything_is_never_later(
    schedule: Schedule, transfer: float, ahead: int
) -> None:
    programs = prefetch_receives(lower(schedule), ahead)

    def time(rules: Rules) -> float:
        return play(programs, rules, transfer_time=lambda *_: transfer).time

    widest = time(Rules(num_queues=None, stream_pool=None, ahead=None))
    for communicators in (DEVICE, PAIR, DIRECTED):
        for rules in (
            Rules(communicators),
            Rules(communicators, num_queues=1),
            Rules(communicators, stream_pool=1, own_receive_stream=False),
            Rules(communicators, waits_at_once=True, ahead=0),
            Rules(communicators, eager=True),
        ):
            assert time(rules) >= widest
    assert time(Rules(DEVICE, in_groups=True)) >= widest


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_s_scripts_end_on_it(shape: str, tmp_path: Path) -> None:
    """What is run is what was generated: the scripts, read again, on one queue and as our launcher sets."""
    placement = SHAPES[shape](num_devices=4)
    generate(lower(gpipe(placement, 5)), {}, {"name": "synthetic"}, tmp_path)
    programs = programs_of(read_scripts(tmp_path))
    least = play(programs, DIRECTED, transfer_time=lambda *_: 0.0).time
    for rules in (Rules(), Rules(PAIR), Rules(num_queues=1)):
        found = play(programs, rules, transfer_time=lambda *_: 0.0)
        assert len(found.start_of) == 5 * len(placement.blocks)
        assert found.time >= least
    assert play(programs, Rules(), transfer_time=lambda *_: 0.0).time == least, "as delivered nothing is lost"


def test_a_receive_posted_behind_a_kernel_waits_for_it_though_the_host_is_ahead() -> None:
    """Device 1 posts the receive of A before its block C of 9; A is sent at 1."""
    blocks = (forward("A", 0, 1), forward("D", 1, 2), forward("C", 1, 9), forward("B", 1, 1, "A"))
    device_1 = (Run("D", 0), Receive("A", "B", 0, 0), Run("C", 0), Run("B", 0))
    programs = Programs(Placement("by hand", 2, blocks), 1, ((Run("A", 0), Send("A", "B", 0, 1)), device_1))
    message = Message(Transfer("A", "B", 0), 0, 1)
    behind, ahead = (
        play(programs, Rules(own_receive_stream=own), transfer_time=lambda *_: 4.0).moved[message]
        for own in (False, True)
    )
    assert (behind, ahead) == ((2, 6), (1, 5))


@pytest.mark.parametrize(
    ("rules", "end"),
    [
        (Rules(DIRECTED), 2),
        (Rules(PAIR), None),
        (Rules(DEVICE), None),
        (Rules(DEVICE, in_groups=True), 2),
        (Rules(PAIR, eager=True), 2),
        (Rules(DIRECTED, stream_pool=1), None),
        (Rules(DIRECTED, num_queues=1), None),
    ],
)
def test_sends_that_cross_stand_still_where_they_share_anything(rules: Rules, end: float | None) -> None:
    """Megatron-LM needs two groups for this reason; what passes with small messages may hang with large."""
    if end is not None:
        assert play(CROSSING, rules, transfer_time=lambda *_: 0.0).time == end
        return
    with pytest.raises(
        UnsafeProgramsError, match="the send of A -> D of micro-batch 0 has begun and does not"
    ):
        play(CROSSING, rules)


def test_messages_in_another_order_are_found_as_nccl_would_not() -> None:
    programs = lower(gpipe(v_shape(2), 2))
    first, second = programs.instructions
    receives = [i for i, each in enumerate(second) if isinstance(each, Receive)]
    swapped = list(second)
    swapped[receives[0]], swapped[receives[1]] = second[receives[1]], second[receives[0]]
    broken = replace(programs, instructions=(first, tuple(swapped)))
    with pytest.raises(
        UnsafeProgramsError, match="device 1 expects F0 -> F1 of micro-batch 1 where device 0"
    ):
        play(broken, Rules())


def test_a_block_of_several_devices_is_a_collective() -> None:
    wide = Block("W", Kind.F, (0, 1), 1, 0, ())
    placement = Placement("wide", 2, (forward("A", 0, 3), wide))
    programs = Programs(placement, 1, ((Run("A", 0), Run("W", 0)), (Run("W", 0),)))
    assert play(programs, Rules()).start_of == {("A", 0): 0, ("W", 0): 3}
    alone = replace(programs, instructions=(programs.instructions[0], ()))
    with pytest.raises(UnsafeProgramsError, match="the collective of W of micro-batch 0 has begun"):
        play(alone, Rules())


def test_the_host_does_not_run_away() -> None:
    """With no block ahead, a send is issued only when its block is over; the receive is posted likewise."""
    programs = lower(one_f_one_b(v_shape(4), 8))
    near, far = (play(programs, Rules(ahead=ahead), transfer_time=lambda *_: 1.0) for ahead in (0, None))
    assert far.time <= near.time
    assert all(far.moved[message][0] <= start for message, (start, _) in near.moved.items())


def test_many_communicators_share_streams_and_that_costs_time() -> None:
    """An M-shape of 64 devices has more than 32 communicators on some of them."""
    programs = lower(gpipe(m_shape(64), 3))
    shared, own = (
        play(programs, Rules(stream_pool=pool, num_queues=None), transfer_time=lambda *_: 1.0).time
        for pool in (32, None)
    )
    assert shared >= own


def test_eight_queues_lose_no_overlap_and_one_does() -> None:
    """With ``CUDA_DEVICE_MAX_CONNECTIONS=1`` receives that are posted early wait."""
    programs = prefetch_receives(lower(one_f_one_b(v_shape(4), 8)), 2)
    times = {
        number: play(programs, Rules(num_queues=number), transfer_time=lambda *_: 0.5).time
        for number in (None, 8, 2, 1)
    }
    assert times == {None: 52.0, 8: 52.0, 2: 133.0, 1: 148.0}


def test_one_communicator_for_a_pair_loses_what_two_keep() -> None:
    """In Chimera both directions of a pair are used at once."""
    programs = prefetch_receives(lower(HAND_MADE["chimera"](x_shape(4), 8)), 1)
    directed, pair, one = (
        play(programs, Rules(how), transfer_time=lambda *_: 2.0).time for how in (DIRECTED, PAIR, DEVICE)
    )
    assert (directed, pair, one) == (120.0, 164.0, 273.0)


def test_rules_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="waits_at_once"):
        Rules(Communication.BLOCKING)
    with pytest.raises(ValueError, match="communicators=device"):
        Rules(in_groups=True)


def test_what_a_rule_costs() -> None:
    """The table of docs/concepts/runtime.md."""
    programs = prefetch_receives(lower(HAND_MADE["chimera"](x_shape(4), 8)), 1)
    short, long = (
        [play(programs, each, transfer_time=lambda *_, time=time: time).time for each in NCCL_RULES.values()]
        for time in (0.5, 2.0)
    )
    assert short == [91.5, 91.5, 96, 149, 214.5, 212.5] and long == [120, 126, 164, 273, 357, 352]
